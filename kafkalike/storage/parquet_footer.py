"""Parquet footer: metadata that pyarrow cannot edit or read: Thrift structs, encoding counts and Bloom filters.

A footer is a struct in Thrift's compact protocol. Reading and writing a footer keeps every field, even fields that are
newer than this module. Sources: the specifications of Thrift's compact protocol and of XXH64, and parquet.thrift and
BloomFilter.md of Apache Parquet's format.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

import pyarrow as pa

from kafkalike.model.row_value import UNREADABLE

TRUE: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
STRUCT: Final = 12

_WHOLE: Final = frozenset({I16, I32, I64})
_LONGEST_NUMBER: Final = 70
"""Maximum bits of a number: ten bytes, as 64 bits need. Without a limit, a damaged number could take forever."""

_LONG_LIST: Final = 15
"""In a list's first byte: its length follows."""


@dataclass(slots=True)
class Items:
    """A list or a set."""

    kind: int
    """Type of the items."""
    values: list[Value]


Value = bool | int | float | bytes | Items | dict[int, "Field"]


@dataclass(slots=True)
class Field:
    """A field of a struct."""

    kind: int
    """Its type; that of a bool is its value as well."""
    value: Value


Struct = dict[int, Field]
"""Fields by their numbers, in the order in which they were read."""


def read_struct(data: bytes) -> Struct:
    """Read a struct.

    Args:
        data: its bytes; more may follow.

    Raises:
        ValueError: it is not one, or ends too early.
    """
    try:
        return _Reader(data).struct()
    except (IndexError, struct.error) as cause:
        raise ValueError("the Thrift struct ends too early") from cause
    except RecursionError as cause:
        raise ValueError("the Thrift struct is too deep") from cause


def write_struct(fields: Struct) -> bytes:
    """Return the bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def items(fields: Struct, number: int) -> list[object]:
    """Return the items of a list field that a footer must have.

    Raises:
        ValueError: the field is missing.
    """
    found = fields[number].value if number in fields else None
    if not isinstance(found, Items):
        message = f"the Parquet footer lacks field {number}"
        raise ValueError(message)  # noqa: TRY004 - the file is wrong, not the caller
    return list(found.values)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def struct(self) -> Struct:
        fields: Struct = {}
        number = 0
        while head := self._byte():
            step, kind = head >> 4, head & 15
            number = number + step if step else self._zigzag()
            fields[number] = Field(kind, self._value(kind, in_list=False))
        return fields

    def _value(self, kind: int, *, in_list: bool) -> Value:
        found: Value
        if kind in {TRUE, FALSE}:
            found = (self._byte() if in_list else kind) == TRUE
        elif kind == BYTE:
            found = self._byte()
        elif kind in _WHOLE:
            found = self._zigzag()
        elif kind == DOUBLE:
            found = float(struct.unpack("<d", self._bytes(8))[0])
        elif kind == BINARY:
            found = self._bytes(self._varint())
        elif kind in {LIST, SET}:
            found = self._items()
        elif kind == STRUCT:
            found = self.struct()
        else:
            raise ValueError(f"no Thrift type has the number {kind}")
        return found

    def _items(self) -> Items:
        head = self._byte()
        size, kind = head >> 4, head & 15
        if size == _LONG_LIST:
            size = self._varint()
        if size > len(self._data):
            raise ValueError("a Thrift list is longer than the struct")
        return Items(kind, [self._value(kind, in_list=True) for _ in range(size)])

    def _byte(self) -> int:
        found = self._data[self._at]
        self._at += 1
        return found

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise IndexError
        self._at += size
        return found

    def _varint(self) -> int:
        found = 0
        for shift in range(0, _LONGEST_NUMBER, 7):
            byte = self._byte()
            found |= (byte & 0x7F) << shift
            if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                return found
        raise ValueError("a Thrift number has more than ten bytes")

    def _zigzag(self) -> int:
        found = self._varint()
        return (found >> 1) ^ -(found & 1)


def _write_struct(out: bytearray, fields: Struct) -> None:
    last = 0
    for number, field in sorted(fields.items()):
        step = number - last
        if 0 < step < 16:  # noqa: PLR2004 - four bits
            out.append(step << 4 | field.kind)
        else:
            out.append(field.kind)
            _write_varint(out, _zigzagged(number))
        _write_value(out, field.kind, field.value, in_list=False)
        last = number
    out.append(0)


def _write_value(out: bytearray, kind: int, value: Value, *, in_list: bool) -> None:
    if isinstance(value, bool):
        if in_list:
            out.append(TRUE if value else FALSE)
    elif isinstance(value, dict):
        _write_struct(out, value)
    elif isinstance(value, Items):
        size = len(value.values)
        out.append(min(size, _LONG_LIST) << 4 | value.kind)
        if size >= _LONG_LIST:
            _write_varint(out, size)
        for item in value.values:
            _write_value(out, value.kind, item, in_list=True)
    elif isinstance(value, bytes):
        _write_varint(out, len(value))
        out += value
    elif isinstance(value, float):
        out += struct.pack("<d", value)
    elif kind == BYTE:
        out.append(value)
    else:
        _write_varint(out, _zigzagged(value))


def _zigzagged(value: int) -> int:
    return value << 1 if value >= 0 else (-value << 1) - 1


def _write_varint(out: bytearray, value: int) -> None:
    while value >= 0x80:  # noqa: PLR2004 - the bit that says that more follow
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


_ROW_GROUPS: Final = 4
_COLUMNS: Final = 1
_ABOUT: Final = 3
_PATH, _COUNTS, _FILTER = 3, 13, 14


def without_counts(footer: bytes, column: str) -> bytes:
    """Remove the count of pages by encoding of a column from a footer, wherever the column has a Bloom filter.

    Java's readers, including Spark's, read a column's whole dictionary before its Bloom filter if this count says that
    all pages use the dictionary, and make an object and a hash of each value: 5 ms per file of 250,000 records in a
    trial. Without the count they assume that some page may have other values and continue with the filter, which is a
    tenth as large. The count is optional, and the encodings of the column are listed next to it.

    A file with the count is valid, too. So the footer stays unchanged if it is not understood to its last byte, as may
    happen with a later version of Parquet.

    Args:
        footer: the footer's bytes, without the tail.
        column: name of a top-level column.

    Returns:
        The new footer; the same bytes if the footer is not understood.
    """
    try:
        return _without_counts(footer, column)
    except UNREADABLE:
        return footer


def _without_counts(footer: bytes, column: str) -> bytes:
    fields = read_struct(footer)
    if write_struct(fields) != footer:
        # Bytes after the struct, or fields in another encoding, would be lost.
        return footer
    for group in _structs(fields, _ROW_GROUPS):
        for chunk in _structs(group, _COLUMNS):
            about = cast("Struct", chunk[_ABOUT].value)
            if items(about, _PATH) == [column.encode()] and _FILTER in about:
                about.pop(_COUNTS, None)
    return write_struct(fields)


def _structs(fields: Struct, number: int) -> list[Struct]:
    return cast("list[Struct]", items(fields, number))


_BLOCK: Final = 32
"""Bytes of a block: eight words."""

_SALT: Final = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)

_MASK: Final = 0xFFFFFFFFFFFFFFFF
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5

_HEADER: Final = 64
"""Bytes that hold the header of any filter of Parquet's only kind."""

_NUM_BYTES, _ALGORITHM, _HASH, _COMPRESSION = 1, 2, 3, 4


def xxh64(data: bytes) -> int:
    """Return XXH64 with seed 0, unsigned."""
    length = len(data)
    at = 0
    if length >= _BLOCK:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + _BLOCK <= length:
            words = struct.unpack_from("<4Q", data, at)
            lanes = [
                _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK for lane, word in zip(lanes, words, strict=True)
            ]
            at += _BLOCK
        found = sum(_rotated(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _round(lane)) * _P1 + _P4) & _MASK
    else:
        found = _P5
    found = (found + length) & _MASK
    while at + 8 <= length:
        found = (_rotated(found ^ _round(struct.unpack_from("<Q", data, at)[0]), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= length:
        found = (_rotated(found ^ (struct.unpack_from("<I", data, at)[0] * _P1 & _MASK), 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in data[at:]:
        found = _rotated(found ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> (64 - by)) & _MASK


def _round(word: int) -> int:
    return _rotated(word * _P2 & _MASK, 31) * _P1 & _MASK


def may_hold(read: Callable[[int, int], bytes], length: int, hashed: int) -> bool:
    """Return False only if a column chunk certainly does not have a value.

    Args:
        read: returns bytes of the filter, from a start to before a stop position.
        length: bytes of the filter with its header.
        hashed: `xxh64` of the value.

    Returns:
        True if the chunk may have the value, or if the kind of filter is unknown.
    """
    try:
        header = read_struct(bytes(read(0, min(_HEADER, length))))
        size = header[_NUM_BYTES].value
        known = all(_is_first(header, field) for field in (_ALGORITHM, _HASH, _COMPRESSION))
    except (KeyError, IndexError, ValueError, struct.error):
        return True
    if not known or not isinstance(size, int) or size <= 0 or size % _BLOCK or not 0 < length - size <= _HEADER:
        return True
    at = length - size + (hashed >> 32) * (size // _BLOCK) // (1 << 32) * _BLOCK
    words = struct.unpack("<8I", bytes(read(at, at + _BLOCK)))
    low = hashed & 0xFFFFFFFF
    return all(word >> ((low * salt & 0xFFFFFFFF) >> 27) & 1 for word, salt in zip(words, _SALT, strict=True))


def _is_first(header: Struct, field: int) -> bool:
    """Return True if a union has its first case: block-split, XXH64, uncompressed; Parquet has no others."""
    value = header[field].value
    return isinstance(value, dict) and list(value) == [1]


MAGIC: Final = b"PAR1"

TAIL: Final = 8
"""Bytes after the footer: its length and the magic."""

_LAST_WRITES: Final = 3
"""Number of writes in which pyarrow writes the footer, its length and the magic."""

Change = Callable[[bytes], bytes]
"""Turns a footer into another one."""


class HeldEnd:
    """Passes bytes on to another stream, but holds back the last writes, which may be the footer, until it is changed.

    Args:
        to: the stream.
    """

    def __init__(self, to: pa.NativeFile) -> None:
        self._to = to
        self._held: deque[bytes] = deque()
        self.closed = False

    def readable(self) -> bool:
        """Return False: the stream is write-only."""
        return False

    def seekable(self) -> bool:
        """Return False: the stream is sequential."""
        return False

    def writable(self) -> bool:
        """Return True: the stream is for writing."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - anything with a buffer
        """Append bytes; return how many."""
        self._held.append(bytes(data))
        if len(self._held) > _LAST_WRITES:
            self._to.write(self._held.popleft())
        return len(self._held[-1])

    def flush(self) -> None:
        """Do nothing: the file becomes visible when it is closed."""

    def close(self) -> None:
        """Do nothing: the owner closes the stream."""

    def change_footer(self, change: Change) -> None:
        """Write a changed footer in place of the bytes held back, or these unchanged if they are not a whole footer."""
        held = b"".join(self._held)
        footer = self._held[0] if self._held else b""
        self._held.clear()
        self._to.write(ended(change(footer)) if held == ended(footer) else held)


def footer_of(handle: int) -> tuple[int, bytes]:
    """Return the position of the footer of an open Parquet file, and its bytes without the tail.

    Raises:
        ValueError: this is not a Parquet file.
    """
    size = os.fstat(handle).st_size
    tail = os.pread(handle, TAIL, size - TAIL)
    at = size - TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or at < len(MAGIC):
        raise ValueError("this is not a Parquet file")
    return at, os.pread(handle, size - TAIL - at, at)


def ended(footer: bytes) -> bytes:
    """Return a footer followed by its tail."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC
