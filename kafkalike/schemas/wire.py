"""The wire format of a record with a schema: a zero byte, the schema's id in four bytes, the payload.

A payload of Protobuf begins with the place of its message in the schema's file.
"""

from __future__ import annotations

import struct
from typing import Final

from kafkalike.errors import SerializationError

MAGIC: Final = 0
"""First byte of a record with an id in front."""
MAGIC_GUID: Final = 1
"""First byte of a header with a GUID."""
HEADER: Final = 5
"""Bytes in front of the payload."""
MAX_ID: Final = (1 << 31) - 1
"""The largest id of a schema."""
MAX_INDEXES: Final = 64
"""Messages in each other that a place can name; Protobuf's descriptors hold fewer."""
_FRAME: Final = struct.Struct(">BI")
_VARINT_BYTES: Final = 10


def split(data: bytes) -> tuple[int, bytes]:
    """The schema's id and the payload of a record.

    Raises:
        SerializationError: the record is too short, or does not begin with a zero byte.
    """
    if len(data) < HEADER:
        raise SerializationError(f"{len(data)} bytes are no record with a schema, which begins with {HEADER} bytes")
    magic, number = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(f"the record begins with the byte {magic} and not with 0: it has no schema's id")
    return number, data[HEADER:]


def join(id: int, payload: bytes) -> bytes:  # noqa: A002 - Confluent's word
    """A record of a schema's id and a payload."""
    return frame(id) + payload


def frame(id: int) -> bytes:  # noqa: A002 - Confluent's word
    """The bytes in front of a payload.

    Raises:
        SerializationError: the id is not between 0 and `MAX_ID`.
    """
    if not 0 <= id <= MAX_ID:
        raise SerializationError(f"{id} cannot be the id of a schema")
    return _FRAME.pack(MAGIC, id)


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The place of the message in its file, and where the message's own bytes begin.

    Returns:
        The number of the message in its file, then of the message inside it, and so on; and the length of what says
        so.

    Raises:
        SerializationError: the payload is too short, or names more than `MAX_INDEXES` messages.
    """
    if payload[:1] == b"\x00":
        return _FIRST, 1
    count, place = _varint(payload, 0)
    if not 0 <= count <= MAX_INDEXES:
        raise SerializationError(f"the place of a message cannot have {count} numbers")
    indexes = []
    for _ in range(count):
        index, place = _varint(payload, place)
        indexes.append(index)
    return tuple(indexes) or _FIRST, place


_FIRST: Final = (0,)


def join_indexes(indexes: tuple[int, ...]) -> bytes:
    """The bytes that say the place of a message in its file; one zero for the first of all."""
    if indexes == _FIRST:
        return b"\x00"
    return b"".join(map(_to_varint, (len(indexes), *indexes)))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """A zig-zag number and where it ends."""
    value = 0
    for count, byte in enumerate(data[place : place + _VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
            return (value >> 1) ^ -(value & 1), place + count + 1
    raise SerializationError("the place of the message is cut off")


def _to_varint(value: int) -> bytes:
    rest = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while rest > 0x7F:  # noqa: PLR2004
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
