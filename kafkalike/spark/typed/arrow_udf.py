"""Arrow functions as functions of Spark, and the types that both Spark and Delta tables have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import DataType


def over_arrays(work: Callable[[pa.Array], pa.Array], kind: DataType, name: str) -> Callable[[Column], Column]:
    """A function of a column, which Spark runs on batches in its Python workers.

    Args:
        work: gets an array and gives one of the same length. It is pickled.
        kind: the type of what it gives.
        name: what plans show.
    """

    def function(batch: pa.Array) -> pa.Array:
        return work(batch)

    function.__name__ = name
    # Its stub wants the kind of function, and it itself the annotations instead.
    untyped: Any = arrow_udf
    made: Callable[[Column], Column] = untyped(function, kind)
    return made


def spark_type(kind: pa.DataType) -> DataType:
    """The Spark type of an Arrow type. Times of day and durations are microseconds as BIGINT: Delta has no type."""
    return from_arrow_type(storable_type(kind))


def storable_type(kind: pa.DataType) -> pa.DataType:
    """An Arrow type without those that Delta cannot store."""
    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(storable_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(storable_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, storable_type(kind.item_type))
    return kind


def to_storable(values: pa.Array) -> pa.Array:
    """An array of a type of which Delta can store all; the same one where it is that already."""
    kind = storable_type(values.type)
    return values if kind == values.type else _cast(values, kind)


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_struct(kind):
        made = [_cast(values.field(nth), field.type) for nth, field in enumerate(kind)]
        return pa.StructArray.from_arrays(made, fields=list(kind), mask=values.is_null())
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            values.offsets, values.keys, _cast(values.items, kind.item_type), type=kind, mask=values.is_null()
        )
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            values.offsets, _cast(values.values, kind.value_type), type=kind, mask=values.is_null()
        )
    return values.cast(kind)
