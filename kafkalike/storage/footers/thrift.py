"""Thrift: the compact protocol, in which a Parquet footer is written, as plain values, and back.

Source: the Thrift compact protocol specification. A footer that is read and written keeps every field, also those that
are newer than this module.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

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
"""Bits that a number may have: ten bytes, as many as one of 64 bits needs. A longer one would take ever longer."""

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
    """The bytes of a struct."""
    out = bytearray()
    _write_struct(out, fields)
    return bytes(out)


def items(fields: Struct, number: int) -> list[object]:
    """The items of a list that a footer must have.

    Raises:
        ValueError: it lacks it.
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
