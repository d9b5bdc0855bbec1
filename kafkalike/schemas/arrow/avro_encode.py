"""Encode Arrow arrays as Avro: one operation writes the same field of all values.

A record's bytes are the bytes of its fields in order, so Arrow joins the columns element by element.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import SerializationError
from kafkalike.schemas.arrow.avro_arrow_types import DURATION, arrow_type, branches_of, default_array, wider
from kafkalike.schemas.arrow.column_reader import UnmatchedError, check_struct
from kafkalike.schemas.arrow.exact_cast import can_be, doubled_key, exactly
from kafkalike.schemas.arrow.value_arrays import unchanged
from kafkalike.schemas.avro_schema import AvroField, AvroType

Write = Callable[[pa.Array], pa.BinaryArray]
"""Encodes each value of an array. The array has no nulls unless the type accepts null."""

_NOTHING: Final = pa.scalar(b"", pa.binary())
_UUID: Final = re.compile("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def writer_of(of: AvroType, kind: pa.DataType, depth: int, path: str = "") -> Write:
    """Return an encoder of arrays as an Avro type.

    Args:
        of: the Avro type.
        kind: the type of the arrays. A column that the Avro type lacks is rejected; a field without a column needs a
            default.
        depth: how many times a record type may be nested in itself.
        path: names of the enclosing fields, for errors.

    Raises:
        UnmatchedError: such arrays cannot be encoded as this type.
    """
    return _Writers(depth).of(of, kind, path, ())


class _Writers:
    def __init__(self, depth: int) -> None:
        self._depth = depth

    def of(self, of: AvroType, kind: pa.DataType, path: str, around: tuple[str, ...]) -> Write:
        if of.kind == "union":
            return self._union(of, kind, path, around)
        if of.kind == "record":
            return _without_nulls(self._record(of, kind, path, around), path)
        if of.items is not None:
            return _without_nulls(self._items(of, of.items, kind, path, around), path)
        if of.kind == "null":
            return _only_nulls(path)
        return _without_nulls(_leaf(of, kind, path), path)

    def _record(self, of: AvroType, kind: pa.DataType, path: str, around: tuple[str, ...]) -> Write:
        check_struct(kind, [field.name for field in of.fields], path, of.label)
        inside = (*around, of.name)
        names = {field.name for field in kind}
        parts: list[tuple[str | None, Write]] = []
        for field in of.fields:
            where = f"{path}.{field.name}" if path else field.name
            if field.name in names:
                inner = kind.field(field.name).type
                parts.append((field.name, self.of(field.type, inner, where, inside)))
            else:
                parts.append((None, self._missing(field, where, inside)))

        def write(values: pa.Array) -> pa.BinaryArray:
            made = [part(values if name is None else pc.struct_field(values, name)) for name, part in parts]
            return joined(*made) if made else _nothing(values)

        return write

    def _missing(self, field: AvroField, path: str, around: tuple[str, ...]) -> Write:
        """Return an encoder of the default, or null, for a field without a column."""
        default = field.default
        if not field.has_default:
            if field.type.kind != "union" or all(branch.kind != "null" for branch in field.type.branches):
                raise UnmatchedError(f"{path} is missing, and has no default")
            default = None
        kind = arrow_type(field.type, self._depth, around)
        if kind is None:
            raise UnmatchedError(f"{path} is missing, and its default stands too deeply in itself")
        value = default_array(replace(field, default=default), kind, self._depth, around)
        constant = self.of(field.type, kind, path, around)(value)
        return lambda values: constant.take(pa.array(np.zeros(len(values), np.int64)))

    def _items(self, of: AvroType, item: AvroType, kind: pa.DataType, path: str, around: tuple[str, ...]) -> Write:
        if of.kind == "array" and (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            part = self.of(item, kind.value_type, f"{path}[]", around)
            return lambda values: _blocks(values, part(_within(values, values.values)))
        if of.kind == "map" and pa.types.is_map(kind):
            part = self.of(item, kind.item_type, f"{path}{{}}", around)
            key = _leaf(AvroType("string"), kind.key_type, path)
            return lambda values: _blocks(_without_doubles(values, path), _entries(values, key, part))
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {of.label}")

    def _union(self, of: AvroType, kind: pa.DataType, path: str, around: tuple[str, ...]) -> Write:
        """Write each value into the branch of its column, or of its struct member."""
        branches = branches_of(of) or of.branches[:1]
        one = wider(branches) or (branches[0] if len(branches) == 1 else None)
        numbers = {id(branch): _zigzag(np.array([nth])) for nth, branch in enumerate(of.branches)}
        null = next((_zigzag(np.array([nth])) for nth, b in enumerate(of.branches) if b.kind == "null"), None)
        takes: list[tuple[Callable[[pa.Array], pa.Array], AvroType, Write]] = []
        if one is not None:
            takes.append((lambda values: values, one, self.of(one, kind, path, around)))
        else:
            takes = self._members(branches, kind, path, around)

        def write(values: pa.Array) -> pa.BinaryArray:
            pieces = [] if null is None else [null]
            chosen = np.full(len(values), -1 if null is None else 0, np.int64)
            taken = np.zeros(len(values), np.bool_)
            first = len(pieces)
            for take, branch, part in takes:
                column = take(values)
                rows = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
                if len(takes) > 1:
                    if taken[rows].any():
                        raise SerializationError(f"{path or 'a value'} has more than one member of its union")
                    taken[rows] = True
                head = numbers[id(branch)].take(pa.array(np.zeros(len(rows), np.int64)))
                pieces.append(joined(head, part(column.take(pa.array(rows)))))
                chosen[rows] = first + np.arange(len(rows))
                first += len(rows)
            if (chosen < 0).any():
                raise _null_error(path)
            return pa.concat_arrays(pieces).take(pa.array(chosen)) if pieces else _nothing(values)

        return write

    def _members(
        self, branches: list[AvroType], kind: pa.DataType, path: str, around: tuple[str, ...]
    ) -> list[tuple[Callable[[pa.Array], pa.Array], AvroType, Write]]:
        names = [f"member{nth}" for nth in range(len(branches))]
        if not pa.types.is_struct(kind) or not {field.name for field in kind} <= set(names):
            raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has a union: a struct of {names}")
        return [
            (_member(name), branch, self.of(branch, kind.field(name).type, f"{path}.{name}", around))
            for name, branch in zip(names, branches, strict=True)
            if kind.get_field_index(name) >= 0
        ]


def joined(*parts: pa.BinaryArray) -> pa.BinaryArray:
    """Concatenate the bytes of the arrays, element by element."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, _NOTHING)


def _member(name: str) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pc.struct_field(values, name)


def _nothing(values: pa.Array) -> pa.BinaryArray:
    return _NOTHING_ARRAY.take(pa.array(np.zeros(len(values), np.int64)))


_NOTHING_ARRAY: Final = pa.array([b""], pa.binary())
_END: Final = pa.array([b"\0"], pa.binary())


def _null_error(path: str) -> SerializationError:
    return SerializationError(f"{path or 'a value'} is null, and its schema takes no null")


def _without_nulls(write: Write, path: str) -> Write:
    def checked(values: pa.Array) -> pa.BinaryArray:
        if values.null_count:
            raise _null_error(path)
        return write(values)

    return checked


def _only_nulls(path: str) -> Write:
    def checked(values: pa.Array) -> pa.BinaryArray:
        if values.null_count < len(values):
            raise SerializationError(f"{path or 'a value'} is not null, and its schema takes nothing but null")
        return _nothing(values)

    return checked


def _blocks(values: pa.Array, items: pa.BinaryArray) -> pa.BinaryArray:
    """Encode each list or map as one block of items and the end marker."""
    counts = np.diff(np.asarray(values.offsets)).astype(np.int64)
    edges = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=edges[1:])
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(edges), items), _NOTHING)
    end = _END.take(pa.array(np.zeros(len(counts), np.int64)))
    # An empty list is only the end marker.
    heads = pa.concat_arrays([_zigzag(counts), _NOTHING_ARRAY]).take(
        pa.array(np.where(counts > 0, np.arange(len(counts)), len(counts)))
    )
    return joined(heads, together, end)


def _entries(values: pa.Array, key: Write, item: Write) -> pa.BinaryArray:
    return joined(key(_within(values, values.keys)), item(_within(values, values.items)))


def _without_doubles(values: pa.Array, path: str) -> pa.Array:
    """Return the maps; reject a duplicate key, because readers would keep only one value."""
    doubled = doubled_key(values)
    if doubled is not None:
        raise SerializationError(f"{path or 'a value'} has the key {doubled!r} twice")
    return values


def _within(values: pa.Array, items: pa.Array) -> pa.Array:
    """Return the items of lists, which may be a slice of a longer array."""
    first = values.offsets[0].as_py()
    return items[first : values.offsets[-1].as_py()]


def _leaf(of: AvroType, kind: pa.DataType, path: str) -> Write:
    wanted = arrow_type(of, 1)
    assert wanted is not None, "only records can stand in themselves"
    make = _make(of, wanted)
    if not can_be(kind, wanted):
        raise UnmatchedError(f"{path or 'the value'} is {kind}, and the schema has {of.logical or of.label}")

    def write(values: pa.Array) -> pa.BinaryArray:
        try:
            return make(exactly(values, wanted))
        except (pa.ArrowException, ValueError) as cause:
            raise SerializationError(f"{path or 'a value'} is not of the schema: {cause}") from cause

    return write


def _make(of: AvroType, wanted: pa.DataType) -> Write:  # noqa: PLR0911 - one for each kind
    if of.kind in {"int", "long"}:
        factor = 1000 if (of.logical or "").endswith("-millis") and not pa.types.is_integer(wanted) else 1
        return lambda values: _zigzag(_in_units(_numbers(values), factor))
    if of.kind in {"float", "double"}:
        return lambda values: _fixed(
            np.asarray(values.to_numpy(zero_copy_only=False)).astype(f"<f{wanted.bit_width // 8}")
        )
    if of.kind == "boolean":
        return lambda values: _fixed(np.asarray(values.to_numpy(zero_copy_only=False)).astype(np.uint8))
    if of.kind == "enum":
        return _enum(of)
    if pa.types.is_decimal(wanted):
        return _decimal(of)
    if of.kind == "fixed":
        return _of_size(of, wanted)
    check = _check_uuids if of.logical == "uuid" and of.kind == "string" else unchanged
    return lambda values: joined(_zigzag(_lengths(values)), check(values).cast(pa.binary()))


def _numbers(values: pa.Array) -> npt.NDArray[np.int64]:
    width = pa.int32() if values.type.bit_width == 32 else pa.int64()  # noqa: PLR2004 - bits of an int
    return np.asarray(values.view(width).to_numpy(zero_copy_only=False)).astype(np.int64)


def _in_units(micros: npt.NDArray[np.int64], factor: int) -> npt.NDArray[np.int64]:
    """Convert microseconds to a unit of `factor` microseconds."""
    if factor > 1 and (micros % factor).any():
        wrong = int(micros[(micros % factor != 0).argmax()])
        raise ValueError(
            f"{wrong} microseconds are not a multiple of a millisecond: truncate the column to milliseconds"
        )
    return micros // factor


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.binary_length(values).to_numpy(zero_copy_only=False)).astype(np.int64)


def _enum(of: AvroType) -> Write:
    symbols = pa.array(of.symbols, pa.string())

    def write(values: pa.Array) -> pa.BinaryArray:
        found = pc.index_in(values, symbols)
        if found.null_count:
            unknown = pc.filter(values, found.is_null())[0].as_py()
            raise ValueError(f"{of.label} has no symbol {unknown!r}")
        return _zigzag(_numbers(found))

    return write


def _of_size(of: AvroType, wanted: pa.DataType) -> Write:
    def write(values: pa.Array) -> pa.BinaryArray:
        if pa.types.is_struct(wanted):
            parts = [np.asarray(pc.struct_field(values, name)) for name in DURATION.names]
            if any(((part < 0) | (part >= 1 << 32)).any() for part in parts):
                raise ValueError("the parts of a duration must be unsigned 32-bit numbers")
            return _fixed(np.stack(parts, axis=1).astype("<u4"))
        if pa.types.is_string(wanted):
            return pa.array([_uuid(text) for text in values.to_pylist()], pa.binary())
        wrong = _lengths(values) != of.size
        if wrong.any():
            raise ValueError(f"{of.label} has {of.size} bytes")
        return values

    return write


def _check_uuids(values: pa.Array) -> pa.Array:
    """Return the strings; reject any that is not a UUID, because readers parse each of them."""
    wrong = pc.invert(pc.match_substring_regex(values, rf"\A{_UUID.pattern}\z"))
    if pc.any(wrong).as_py():
        raise ValueError(f"{values.filter(wrong)[0].as_py()!r} is not a UUID")
    return values


def _uuid(text: str) -> bytes:
    if _UUID.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a UUID")
    return bytes.fromhex(text.replace("-", ""))


def _decimal(of: AvroType) -> Write:
    """Encode decimals as big-endian bytes, as few as possible; a `fixed` uses its full size."""

    def write(values: pa.Array) -> pa.BinaryArray:
        plain = np.frombuffer(values.buffers()[1], np.uint8)[values.offset * 16 :][: len(values) * 16].reshape(-1, 16)
        high = plain[:, ::-1]
        sign = np.where(high[:, :1] & 0x80, 0xFF, 0).astype(np.uint8)
        # Drop a leading byte that only repeats the sign bit of the next byte.
        idle = (high[:, :-1] == sign) & ((high[:, 1:] & 0x80) == (sign & 0x80))
        short = 16 - np.cumprod(idle, axis=1).sum(axis=1)
        if of.kind == "fixed":
            if (short > of.size).any():
                raise ValueError(f"a decimal does not fit into the {of.size} bytes of {of.label}")
            more = np.repeat(sign, max(0, of.size - 16), axis=1)
            return _fixed(np.ascontiguousarray(np.hstack([more, high])[:, -of.size :]) if of.size else high[:, :0])
        runs = _ragged(high, np.arange(16) >= (16 - short)[:, None], short)
        return joined(_zigzag(short.astype(np.int64)), runs)

    return write


def _zigzag(numbers: npt.NDArray[Any]) -> pa.BinaryArray:
    """Encode numbers with variable length."""
    signed = numbers.astype(np.int64)
    plain = ((signed << 1) ^ (signed >> 63)).view(np.uint64)
    width = 1
    lengths = np.ones(len(plain), np.int64)
    while width < 10 and (more := plain >= np.uint64(1) << np.uint64(7 * width)).any():  # noqa: PLR2004 - 64 bits
        lengths += more
        width += 1
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    parts = ((plain[:, None] >> shifts) & np.uint64(0x7F)).astype(np.uint8)
    places = np.arange(width)
    parts |= np.where(places < (lengths - 1)[:, None], 0x80, 0).astype(np.uint8)
    return _ragged(parts, places < lengths[:, None], lengths)


def _fixed(rows: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return each row of a matrix as bytes."""
    count = len(rows)
    size = rows.nbytes // count if count else 0
    edges = np.arange(count + 1, dtype=np.int32) * size
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(rows))]
    )


def _ragged(rows: npt.NDArray[np.uint8], kept: npt.NDArray[np.bool_], lengths: npt.NDArray[Any]) -> pa.BinaryArray:
    """Return the kept bytes of each row of a matrix."""
    edges = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=edges[1:])
    return pa.Array.from_buffers(
        pa.binary(), len(rows), [None, pa.py_buffer(edges), pa.py_buffer(np.ascontiguousarray(rows[kept]))]
    )
