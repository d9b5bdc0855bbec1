"""Sealed: the bytes of an append that waits ↔ its file, with a format and a checksum of all that follows."""

from __future__ import annotations

import zlib
from typing import Final

FORMAT: Final = 1
"""Of the file; another one is refused."""


def sealed(rest: bytes) -> bytes:
    """The file."""
    return _seal(rest) + b"\n" + rest


def opened(content: bytes) -> bytes:
    """What the file holds.

    Raises:
        ValueError: it is no such file, is damaged, or only a newer release can read it.
    """
    seal, _, rest = content.partition(b"\n")
    if seal != _seal(rest):
        raise ValueError("another format, or a wrong checksum")
    return rest


def _seal(rest: bytes) -> bytes:
    return b"%d %08x" % (FORMAT, zlib.crc32(rest))
