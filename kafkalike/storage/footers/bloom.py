"""Bloom: the Bloom filter of a Parquet column chunk in, whether a byte string may be in the chunk out.

pyarrow writes such filters and does not read them; Spark does. Sources: Parquet's BloomFilter.md, and the specification
of XXH64.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from kafkalike.storage.footers.thrift import Struct, read_struct

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
    """XXH64 with seed 0, unsigned."""
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
    """Whether a chunk may have a value. False is certain.

    Args:
        read: gives bytes of the filter, from one place to before another.
        length: bytes of the filter with its header.
        hashed: `xxh64` of the value.

    Returns:
        True also where the filter is of a kind that this does not know.
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
    """Whether a union has its first case: blocks of words, XXH64, no compression; Parquet has no others."""
    value = header[field].value
    return isinstance(value, dict) and list(value) == [1]
