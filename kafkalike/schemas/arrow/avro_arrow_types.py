"""Avro types as Arrow types: the columns of a schema, converters of decoded values, and defaults."""

from __future__ import annotations

import decimal
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.arrow.avro_nodes import Convert, Gather
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.arrow.cursor import Cursor, Numbers, Rows, invalid
from kafkalike.schemas.arrow.exact_cast import DAY_MICROS, same_numbers
from kafkalike.schemas.avro_schema import AvroField, AvroType, default_fits

VALUE: Final = "value"
"""Name of the only column of a schema whose top-level type is not a record."""

DURATION: Final = pa.struct([("months", pa.int64()), ("days", pa.int64()), ("milliseconds", pa.int64())])
MOST_DIGITS: Final = 38
"""Maximum precision of a decimal in Arrow and Spark. Decimals with more digits stay bytes."""
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
    """Return the columns of a schema's values: the fields of a record, or one column `value`.

    Args:
        top: the schema's type.
        depth: how many times a record type may be nested in itself; deeper fields are left out.

    Raises:
        InvalidSchemaError: no column is left.
    """
    kind = arrow_type(top, depth)
    if kind is None:
        raise InvalidSchemaError("a schema that only consists of itself has no columns")
    return pa.schema(list(kind)) if top.kind == "record" else pa.schema([pa.field(VALUE, kind)])


def arrow_type(of: AvroType, depth: int, around: tuple[str, ...] = ()) -> pa.DataType | None:
    """Return the Arrow type of an Avro type; None for a record nested in itself more than `depth` times.

    Args:
        of: the type.
        depth: how many times a record type may be nested in itself.
        around: names of the enclosing records.
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
    """Return the fields of a record that become columns, with their Arrow types."""
    inside = (*around, of.name)
    found = [(field, arrow_type(field.type, depth, inside)) for field in of.fields]
    return [(field, kind) for field, kind in found if kind is not None]


def branches_of(union: AvroType) -> list[AvroType]:
    """Return the types of a union, without null."""
    return [branch for branch in union.branches if branch.kind != "null"]


def wider(branches: Sequence[AvroType]) -> AvroType | None:
    """Return the wider of two numeric types, which replaces their union as in Spark's `from_avro`; else None."""
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
    """Return the Arrow type of a leaf.

    As Avro's specification demands, a logical type that is unknown or does not fit its type is ignored.
    """
    if of.logical == "decimal" and of.kind in {"bytes", "fixed"}:
        digits, scale = of.attributes.get("precision", 0), of.attributes.get("scale", 0)
        whole = type(digits) is int and type(scale) is int
        if whole and 0 < digits <= MOST_DIGITS and 0 <= scale <= digits:
            return pa.decimal128(digits, scale)
    if of.kind == "fixed" and of.size != _SIZES.get(of.logical or ""):
        return _PLAIN["fixed"]
    return _LOGICAL.get((of.kind, of.logical or ""), _PLAIN[of.kind])


def default_array(field: AvroField, kind: pa.DataType, depth: int, around: tuple[str, ...]) -> pa.Array:
    """Return a field's default as an array with one element.

    Args:
        field: the field.
        kind: its Arrow type.
        depth: see `columns_of`.
        around: names of the enclosing records.

    Raises:
        UnmatchedError: the default has the right JSON form but is not a value of the type.
    """
    try:
        return pa.array([default_of(field.type, field.default, depth, around)], kind)
    except (ArithmeticError, ValueError) as cause:
        raise UnmatchedError(f"the default of {field.name} is not a valid {kind}: {cause}") from cause


def default_of(of: AvroType, value: Any, depth: int, around: tuple[str, ...]) -> Any:  # noqa: ANN401, PLR0911
    """Return a default, given as JSON, as a Python value for `pa.array`.

    Args:
        of: the field's type.
        value: the default.
        depth: see `columns_of`.
        around: names of the enclosing records.
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
        raise ValueError(f"{value} is not a time of day")
    return found


def _floating(kind: pa.DataType, value: Any) -> float:  # noqa: ANN401 - a number, or a word for one
    """Return the nearest number of a floating type.

    Raises:
        ValueError: the value is a whole number without an equal float, or a number beyond the type's range.
    """
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


_INT: Final = np.iinfo(np.int32)
_LARGEST: Final = (1 << 63) - 1


def whole_number_converter(kind: pa.DataType, factor: int = 1, *, narrow: bool = False) -> Convert:
    """Return a converter of whole numbers to numbers, dates or times.

    Args:
        kind: the type of the array.
        factor: multiplier from the writer's unit to the array's. A negative factor divides, and the number must be a
            multiple of it.
        narrow: True if the writer's type is `int`, whose numbers have 32 bits.
    """
    if pa.types.is_floating(kind):
        return _as_floats(kind, narrow=narrow)
    below = DAY_MICROS if pa.types.is_time(kind) else None

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        if narrow:
            numbers = _of_32_bits(cursor, rows, numbers)
        if factor < 0:
            wrong = numbers % -factor != 0
            numbers = _failed(cursor, rows, numbers, wrong, "a time with parts of a microsecond") // -factor
        elif factor != 1:
            most = _LARGEST // factor
            wrong = (numbers > most) | (numbers < -most)
            numbers = _failed(cursor, rows, numbers, wrong, "a time that is beyond what microseconds can say") * factor
        if below is not None:
            wrong = (numbers < 0) | (numbers >= below)
            numbers = _failed(cursor, rows, numbers, wrong, "a time of day that is below 0 or beyond a day")
        if kind.bit_width == _INT.bits:
            return pa.array(numbers.astype(np.int32)).view(kind)
        return pa.array(numbers).view(kind)

    return convert


def _failed(cursor: Cursor, rows: Rows, numbers: Numbers, wrong: npt.NDArray[np.bool_], problem: str) -> Numbers:
    """Record a problem for the wrong numbers, and return all numbers with 0 in their place."""
    if not wrong.any():
        return numbers
    cursor.refuse(rows[wrong], problem)
    found: Numbers = np.where(wrong, 0, numbers)
    return found


def _of_32_bits(cursor: Cursor, rows: Rows, numbers: Numbers) -> Numbers:
    wrong = (numbers < _INT.min) | (numbers > _INT.max)
    return _failed(cursor, rows, numbers, wrong, "an int has more than 32 bits")


def _as_floats(kind: pa.DataType, *, narrow: bool) -> Convert:
    dtype = np.dtype(kind.to_pandas_dtype())

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        if narrow:
            numbers = _of_32_bits(cursor, rows, numbers)
        found = numbers.astype(dtype)
        wrong = ~same_numbers(numbers, found)
        _failed(cursor, rows, numbers, wrong, f"a whole number that no {kind} is equal to")
        return pa.array(found)

    return convert


def float_converter(kind: pa.DataType) -> Convert:
    """Return a converter of numbers to `float` or `double`."""
    dtype = kind.to_pandas_dtype()

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:  # noqa: ARG001 - nothing can be wrong
        return pa.array(numbers.astype(dtype, copy=False))

    return convert


def boolean_array(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
    """Convert bytes that are 0 or 1 to booleans."""
    wrong = numbers > 1
    if wrong.any():
        cursor.fail(rows[wrong], "a boolean is neither 0 nor 1")
    return pa.array(numbers == 1)


def enum_converter(names: Sequence[str | None]) -> Convert:
    """Return a converter of symbol numbers to strings; a name that is None is a symbol unknown to the reader."""
    texts = pa.array(["" if name is None else name for name in names], pa.string())
    unknown = np.array([name is None for name in names], np.bool_)

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
        wrong = (numbers < 0) | (numbers >= len(names))
        if wrong.any():
            cursor.fail(rows[wrong], "an enum has no symbol of this number")
            numbers = np.where(wrong, 0, numbers)
        if unknown.any():
            cursor.fail(rows[unknown[numbers]], "the reader's enum does not have this symbol, and no default")
        return texts.take(pa.array(numbers))

    return convert


def string_array(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:
    """Convert runs of bytes to strings; a run that is not UTF-8 becomes empty and fails its value."""
    found = cursor.gathered(starts, lengths, pa.string())
    bad = invalid(found)
    if not bad:
        return found
    cursor.fail(rows[bad], "a text is not UTF-8")
    lengths = lengths.copy()
    lengths[bad] = 0
    return cursor.gathered(starts, lengths, pa.string())


def binary_array(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """Convert runs of bytes to binary values."""
    return cursor.gathered(starts, lengths, pa.binary())


def uuid_array(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """Convert runs of 16 bytes to UUID strings."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    plain = cursor.data[np.where(lengths == 16, starts, 0)[:, None] + np.arange(16)]  # noqa: PLR2004 - bytes of a UUID
    hexed = np.empty((len(starts), 32), np.uint8)
    hexed[:, ::2], hexed[:, 1::2] = digits[plain >> 4], digits[plain & 15]
    shown = np.full((len(starts), 36), ord("-"), np.uint8)
    at = 0
    for begin, end in ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36)):
        shown[:, begin:end] = hexed[:, at : at + end - begin]
        at += end - begin
    edges = np.arange(len(starts) + 1, dtype=np.int32) * 36
    return pa.Array.from_buffers(pa.string(), len(starts), [None, pa.py_buffer(edges), pa.py_buffer(shown)])


def duration_gatherer(kind: pa.StructType) -> Gather:
    """Return a converter of 12 bytes to months, days and milliseconds."""

    def gather(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
        plain = cursor.data[np.where(lengths == 12, starts, 0)[:, None] + np.arange(12)]  # noqa: PLR2004 - three of 4
        parts = plain.view("<u4").astype(np.int64)
        return pa.StructArray.from_arrays([pa.array(parts[:, nth].copy()) for nth in range(3)], fields=list(kind))

    return gather


def decimal_gatherer(kind: pa.DataType) -> Gather:
    """Return a converter of big-endian two's complement bytes to decimals."""

    def gather(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:
        widest = int(lengths.max(initial=0))
        if widest > 64:  # noqa: PLR2004 - far more than any precision needs
            long = lengths > 64  # noqa: PLR2004
            cursor.refuse(rows[long], "a decimal has more digits than its type")
            lengths, widest = np.where(long, 0, lengths), 64
        negative = (lengths > 0) & (cursor.data[starts] & 0x80 != 0)
        sign = np.where(negative, 0xFF, 0).astype(np.uint8)
        # The last byte is the lowest one, which Arrow has first.
        low = np.repeat(sign[:, None], 16, axis=1)
        over = np.zeros(len(starts), np.bool_)
        for nth in range(widest):
            there = lengths > nth
            byte = cursor.data[np.where(there, starts + lengths - 1 - nth, 0)]
            if nth < 16:  # noqa: PLR2004 - bytes of Arrow's decimal
                low[:, nth] = np.where(there, byte, low[:, nth])
            else:
                over |= there & (byte != sign)
        over |= (low[:, 15] & 0x80 != 0) != negative
        found = pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(np.ascontiguousarray(low))])
        over[invalid(found)] = True
        if not over.any():
            return found
        cursor.refuse(rows[over], "a decimal has more digits than its type")
        low[over] = 0
        return pa.Array.from_buffers(kind, len(starts), [None, pa.py_buffer(low)])

    return gather
