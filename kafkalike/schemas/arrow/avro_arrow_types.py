"""Avro's types: a schema's types in, the Arrow types of their values, and defaults as Arrow values, out."""

from __future__ import annotations

import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.exact_cast import DAY_MICROS
from kafkalike.schemas.avro_schema import AvroField, AvroType, default_fits

VALUE: Final = "value"
"""The one column of a schema that is no record."""

DURATION: Final = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())])
MOST_DIGITS: Final = 38
"""Of a decimal in Arrow and in Spark; longer ones stay bytes."""
_SIZES: Final = {"duration": 12, "uuid": 16}
_NUMBERS: Final = ({"int", "long"}, {"float", "double"})

_PLAIN: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Final[Mapping[tuple[str, str], pa.DataType]] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.time64("us"),
    ("long", "time-micros"): pa.time64("us"),
    ("long", "timestamp-millis"): pa.timestamp("us", "UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", "UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("fixed", "uuid"): pa.string(),
    ("fixed", "duration"): DURATION,
}


def columns_of(top: AvroType, depth: int) -> pa.Schema:
    """The columns of a schema's values: a record's fields, or one column `value`.

    Args:
        top: the schema's type.
        depth: how often a record may stand in itself; fields that would go deeper are left out.

    Raises:
        InvalidSchemaError: nothing is left.
    """
    kind = arrow_type(top, depth)
    if kind is None:
        raise InvalidSchemaError("a schema that only consists of itself has no columns")
    return pa.schema(list(kind)) if top.kind == "record" else pa.schema([pa.field(VALUE, kind)])


def arrow_type(of: AvroType, depth: int, around: tuple[str, ...] = ()) -> pa.DataType | None:
    """The Arrow type of a type; None where a record would stand too deeply in itself.

    Args:
        of: the type.
        depth: see `columns_of`.
        around: names of the records that it stands in.
    """
    if of.kind == "record":
        if around.count(of.name) >= depth:
            return None
        return pa.struct([pa.field(field.name, kind) for field, kind in record_fields(of, depth, around)])
    if of.kind == "union":
        return _union(of, depth, around)
    if of.items is not None:
        item = arrow_type(of.items, depth, around)
        if item is None:
            return None
        return pa.list_(item) if of.kind == "array" else pa.map_(pa.string(), item)
    return _leaf(of)


def record_fields(of: AvroType, depth: int, around: tuple[str, ...]) -> list[tuple[AvroField, pa.DataType]]:
    """The fields of a record that become columns, and their Arrow types."""
    inside = (*around, of.name)
    found = [(field, arrow_type(field.type, depth, inside)) for field in of.fields]
    return [(field, kind) for field, kind in found if kind is not None]


def branches_of(union: AvroType) -> list[AvroType]:
    """The types of a union besides null."""
    return [branch for branch in union.branches if branch.kind != "null"]


def wider(branches: Sequence[AvroType]) -> AvroType | None:
    """The wider of two numbers, which takes the place of their union, as in Spark's `from_avro`."""
    plain = [branch for branch in branches if branch.logical is None]
    if len(plain) != len(branches) or {branch.kind for branch in branches} not in _NUMBERS:
        return None
    return next(branch for branch in branches if branch.kind in {"long", "double"})


def _union(of: AvroType, depth: int, around: tuple[str, ...]) -> pa.DataType | None:
    branches = branches_of(of)
    if not branches:
        return pa.null()
    one = wider(branches) or (branches[0] if len(branches) == 1 else None)
    if one is not None:
        return arrow_type(one, depth, around)
    kinds = [(nth, arrow_type(branch, depth, around)) for nth, branch in enumerate(branches)]
    return pa.struct([pa.field(f"member{nth}", kind) for nth, kind in kinds if kind is not None])


def _leaf(of: AvroType) -> pa.DataType:
    """A logical type that is not known, or does not fit its type, does not count, as Avro wants it."""
    if of.logical == "decimal" and of.kind in {"bytes", "fixed"}:
        digits, scale = of.attributes.get("precision", 0), of.attributes.get("scale", 0)
        whole = type(digits) is int and type(scale) is int
        if whole and 0 < digits <= MOST_DIGITS and 0 <= scale <= digits:
            return pa.decimal128(digits, scale)
    if of.kind == "fixed" and of.size != _SIZES.get(of.logical or ""):
        return _PLAIN["fixed"]
    return _LOGICAL.get((of.kind, of.logical or ""), _PLAIN[of.kind])


def default_array(field: AvroField, kind: pa.DataType, depth: int, around: tuple[str, ...]) -> pa.Array:
    """A field's default as an array of its one value.

    Args:
        field: the field.
        kind: its Arrow type.
        depth: see `columns_of`.
        around: names of the records that the field stands in.

    Raises:
        UnmatchedError: the default is no value of the type, though JSON of its form.
    """
    try:
        return pa.array([default_of(field.type, field.default, depth, around)], kind)
    except (ArithmeticError, ValueError) as cause:
        raise UnmatchedError(f"the default of {field.name} is no {kind}: {cause}") from cause


def default_of(of: AvroType, value: Any, depth: int, around: tuple[str, ...]) -> Any:  # noqa: ANN401, PLR0911
    """A field's default, of JSON, as a Python value for `pa.array`.

    Args:
        of: the field's type.
        value: the default.
        depth: see `columns_of`.
        around: names of the records that the field stands in.
    """
    if of.kind == "union":
        return _of_union(of, value, depth, around)
    if of.kind == "record":
        inside = (*around, of.name)
        return {
            field.name: default_of(field.type, value.get(field.name, field.default), depth, inside)
            for field, _ in record_fields(of, depth, around)
        }
    if of.items is not None:
        if of.kind == "array":
            return [default_of(of.items, item, depth, around) for item in value]
        return [(key, default_of(of.items, item, depth, around)) for key, item in value.items()]
    kind = _leaf(of)
    if of.kind in {"bytes", "fixed"}:
        return _of_bytes(kind, value.encode("latin-1"))
    if of.kind in {"float", "double"}:
        return _floating(kind, value)
    found = value * 1000 if (of.logical or "").endswith("-millis") and not pa.types.is_integer(kind) else value
    if pa.types.is_time(kind) and not 0 <= found < DAY_MICROS:
        raise ValueError(f"{value} is no time of day")
    return found


def _floating(kind: pa.DataType, value: Any) -> float:  # noqa: ANN401 - a number, or a word for one
    """The nearest number of a type; a whole number has to be equal to it."""
    found = float(pa.scalar(float(value), kind).as_py())
    if (isinstance(value, int) and found != value) or (math.isinf(found) and not isinstance(value, str)):
        raise ValueError(f"{value} becomes {found}")
    return found


def _of_union(of: AvroType, value: Any, depth: int, around: tuple[str, ...]) -> Any:  # noqa: ANN401
    branches = branches_of(of)
    if value is None or not branches:
        return None
    one = wider(branches)
    if one is not None:
        return default_of(one, value, depth, around)
    number = next((nth for nth, branch in enumerate(branches) if default_fits(branch, value)), 0)
    found = default_of(branches[number], value, depth, around)
    return found if len(branches) == 1 else {f"member{number}": found}


def _of_bytes(kind: pa.DataType, plain: bytes) -> Any:  # noqa: ANN401
    if pa.types.is_decimal(kind):
        number = int.from_bytes(plain, "big", signed=True)
        return decimal.Decimal(number).scaleb(-kind.scale, decimal.Context(prec=kind.precision + 1))
    if pa.types.is_string(kind):
        return str(uuid.UUID(bytes=plain))
    if pa.types.is_struct(kind):
        parts = [int.from_bytes(plain[at : at + 4], "little") for at in (0, 4, 8)]
        return dict(zip(kind.names, parts, strict=True))
    return plain
