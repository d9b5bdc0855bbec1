"""Avro's types as Arrow types: those of a schema's columns, the arrays that were read, and defaults."""

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


_INT: Final = np.iinfo(np.int32)
_LARGEST: Final = (1 << 63) - 1


def whole_number_converter(kind: pa.DataType, factor: int = 1, *, narrow: bool = False) -> Convert:
    """Whole numbers as numbers, dates or times.

    Args:
        kind: the type of the array.
        factor: how many of the array's units one of the writer's has; below 0: how many of the writer's one of the
            array's has, and the number must be a multiple of it.
        narrow: whether the writer's type is `int`, whose numbers have 32 bits.
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
    """The numbers, with 0 for those that are wrong, which are noted."""
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
    """Numbers as `float` or `double`."""
    dtype = kind.to_pandas_dtype()

    def convert(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:  # noqa: ARG001 - nothing can be wrong
        return pa.array(numbers.astype(dtype, copy=False))

    return convert


def boolean_array(cursor: Cursor, rows: Rows, numbers: Numbers) -> pa.Array:
    """Bytes that are 0 or 1 as truth values."""
    wrong = numbers > 1
    if wrong.any():
        cursor.fail(rows[wrong], "a boolean is neither 0 nor 1")
    return pa.array(numbers == 1)


def enum_converter(names: Sequence[str | None]) -> Convert:
    """Numbers of an enum's symbols as texts; None for those that the reader has no symbol for."""
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
    """Bytes as texts; an empty one where they are no UTF-8."""
    found = cursor.gathered(starts, lengths, pa.string())
    bad = invalid(found)
    if not bad:
        return found
    cursor.fail(rows[bad], "a text is not UTF-8")
    lengths = lengths.copy()
    lengths[bad] = 0
    return cursor.gathered(starts, lengths, pa.string())


def binary_array(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """Bytes as bytes."""
    return cursor.gathered(starts, lengths, pa.binary())


def uuid_array(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
    """16 bytes as a UUID's text."""
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
    """12 bytes as months, days and milliseconds."""

    def gather(cursor: Cursor, rows: Rows, starts: Numbers, lengths: Numbers) -> pa.Array:  # noqa: ARG001
        plain = cursor.data[np.where(lengths == 12, starts, 0)[:, None] + np.arange(12)]  # noqa: PLR2004 - three of 4
        parts = plain.view("<u4").astype(np.int64)
        return pa.StructArray.from_arrays([pa.array(parts[:, nth].copy()) for nth in range(3)], fields=list(kind))

    return gather


def decimal_gatherer(kind: pa.DataType) -> Gather:
    """Big-endian bytes, the highest with the sign, as decimals."""

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
