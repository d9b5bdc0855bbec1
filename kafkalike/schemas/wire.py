"""The wire format of a record with a schema: a zero byte, the schema id in four bytes, the payload.

A Protobuf payload starts with the indexes of its message in the schema's file.
"""

from __future__ import annotations

import struct
from typing import Final

from kafkalike.errors import SerializationError

MAGIC: Final = 0
"""First byte of a record with a schema id."""
MAGIC_GUID: Final = 1
"""First byte of a header with a GUID."""
HEADER: Final = 5
"""Bytes before the payload."""
MAX_ID: Final = (1 << 31) - 1
"""Largest possible schema id."""
MAX_INDEXES: Final = 64
"""Maximum nesting of messages in the indexes; Protobuf's descriptors allow less."""
_FRAME: Final = struct.Struct(">BI")
_VARINT_BYTES: Final = 10


def split(data: bytes) -> tuple[int, bytes]:
    """Return the schema id and the payload of a record.

    Raises:
        SerializationError: the record is too short, or does not start with a zero byte.
    """
    if len(data) < HEADER:
        raise SerializationError(f"the record has {len(data)} bytes; a schema id takes {HEADER}")
    magic, number = _FRAME.unpack_from(data)
    if magic != MAGIC:
        raise SerializationError(f"the record has no schema id: it starts with the byte {magic}, not 0")
    return number, data[HEADER:]


def join(id: int, payload: bytes) -> bytes:  # noqa: A002 - Confluent's word
    """Return a record from a schema id and a payload."""
    return frame(id) + payload


def frame(id: int) -> bytes:  # noqa: A002 - Confluent's word
    """Return the bytes before a payload.

    Raises:
        SerializationError: the id is not between 0 and `MAX_ID`.
    """
    if not 0 <= id <= MAX_ID:
        raise SerializationError(f"{id} cannot be the id of a schema")
    return _FRAME.pack(MAGIC, id)


def split_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of the message in its file, and the start of the message.

    Returns:
        The index of the top-level message, then of the message nested in it, and so on; and the size of the indexes in
        bytes.

    Raises:
        SerializationError: the payload is too short, or has more than `MAX_INDEXES` indexes.
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
    """Encode the indexes of a message in its file; a single zero stands for the first message."""
    if indexes == _FIRST:
        return b"\x00"
    return b"".join(map(_to_varint, (len(indexes), *indexes)))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a zig-zag number and the position after it."""
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
