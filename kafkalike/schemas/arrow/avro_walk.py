"""Avro walk: one value's bytes in, where its parts begin and end, in plain Python.

A cursor reads a part of many values at once. Where one value has very many parts it is the other way round: it is
walked along first, and its parts are then read side by side.
"""

from __future__ import annotations

from typing import Final

_MOST_VARINT_BITS: Final = 63


class UnclearError(Exception):
    """Where a value ends cannot be said without reading it, or it is damaged."""


def number_at(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, and where it ends.

    Raises:
        UnclearError: it has too many bytes.
        IndexError: the bytes end before.
    """
    byte = data[at]
    at += 1
    if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
        return (byte >> 1) ^ -(byte & 1), at
    found, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:  # noqa: PLR2004
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift > _MOST_VARINT_BITS:
            raise UnclearError


def past_bytes(data: bytes, at: int) -> int:
    """Where a run of bytes ends that follows its length."""
    size, at = number_at(data, at)
    if size < 0:
        raise UnclearError
    return at + size
