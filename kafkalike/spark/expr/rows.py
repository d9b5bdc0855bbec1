"""Rows: any DataFrame in, the columns of records out: which columns become key, value, timestamp and partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

_JSON: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark's own formats with microseconds, which its times have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """Which columns of a DataFrame become what of a record; names may lead into structs (`order.id`)."""

    key: str | None = None
    """STRING and BINARY as they are, numbers and times as text; None for null keys."""
    values: Sequence[str] = ()
    """One column: STRING and BINARY as they are, structs, arrays and maps as JSON, others as text. Several: a JSON
    object of them. None: a JSON object of all columns. Fields that are null are left out, as Spark's `to_json` does.
    A DataFrame with no other column than `value` gives that one, as files of text do."""
    timestamp: str | None = None
    """TIMESTAMP or DATE, whole numbers as ms since the epoch, or text that Spark casts; null: time of the append."""
    partition: str | None = None
    """A whole number, or text that is one; null or None: chosen by the key."""
    plain_value: bool = True
    """Whether values become text or bytes here; else they stay columns, for a schema to write: one column as it is,
    several as a struct."""
    plain_key: bool = True


def record_columns(frame: DataFrame, columns: RecordColumns) -> DataFrame:
    """Make each row a record.

    Args:
        frame: any columns.
        columns: which of them become what.

    Returns:
        Columns `value`, and `key`, `timestamp` TIMESTAMP, `partition` INT where they were asked for: what
        `kafkalike.spark.write` takes. A text that is no timestamp or number makes the job fail.

    Raises:
        AnalysisException: a column is missing, or its type cannot become that.
    """
    value = _value(frame, columns.values) if columns.plain_value else _as_it_is(frame, columns.values)
    made = [value.alias("value")]
    if columns.key is not None:
        key = _key(frame, columns.key) if columns.plain_key else _column(frame, columns.key)
        made.append(key.alias("key"))
    if columns.timestamp is not None:
        made.append(_timestamp(frame, columns.timestamp).alias("timestamp"))
    if columns.partition is not None:
        made.append(_partition(frame, columns.partition).alias("partition"))
    return frame.select(*made)


def _column(frame: DataFrame, name: str) -> Column:
    """A column by its name, dots included, else a field of a struct."""
    return F.col(f"`{name.replace('`', '``')}`") if name in frame.columns else F.col(name)


def _type(frame: DataFrame, column: Column) -> DataType:
    return frame.select(column.alias("it")).schema["it"].dataType


def _value(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) > 1 or (not names and chosen != ["value"]):
        return _json(F.struct(*[_column(frame, name).alias(name) for name in chosen]))
    column = _column(frame, chosen[0])
    kind = _type(frame, column)
    if isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
        return _json(column)
    return _text(column, kind)


def _json(column: Column) -> Column:
    """A column as JSON; by default Spark cuts times to the millisecond."""
    return F.to_json(column, _JSON)


def _as_it_is(frame: DataFrame, names: Sequence[str]) -> Column:
    chosen = list(names) or list(frame.columns)
    if len(chosen) == 1 and names:
        return _column(frame, chosen[0])
    return F.struct(*[_column(frame, name).alias(name) for name in chosen])


def _key(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (StructType, ArrayType, MapType, VariantType)):
        raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a key")
    return _text(column, kind)


def _text(column: Column, kind: DataType) -> Column:
    return column if isinstance(kind, (StringType, BinaryType)) else column.cast(StringType())


def _timestamp(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (TimestampType, TimestampNTZType, DateType)):
        return column.cast(TimestampType())
    if isinstance(kind, IntegralType):
        return F.timestamp_millis(column.cast(LongType()))
    if isinstance(kind, StringType):
        return _cast(column, TimestampType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a timestamp")


def _partition(frame: DataFrame, name: str) -> Column:
    column = _column(frame, name)
    kind = _type(frame, column)
    if isinstance(kind, (IntegralType, StringType)):
        return _cast(column, IntegerType(), name)
    raise AnalysisException(f"column {name} is {kind.simpleString()}, which cannot be a partition")


def _cast(column: Column, kind: DataType, name: str) -> Column:
    """Cast, and fail for what does not become one: a null would quietly mean "choose for me"."""
    made = column.try_cast(kind)
    problem = F.raise_error(
        F.concat(F.lit(f"column {name} holds no {kind.simpleString()}: "), column.cast(StringType()))
    )
    return F.when(column.isNotNull() & made.isNull(), problem.cast(kind)).otherwise(made)
