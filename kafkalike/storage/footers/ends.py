"""Ends: streams that a Parquet file is written to, which let its footer be changed while nobody reads it yet."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

MAGIC: Final = b"PAR1"

TAIL: Final = 8
"""Bytes behind the footer: its length and the magic."""

_LAST_WRITES: Final = 3
"""In which pyarrow writes the footer, its length and the magic."""

Change = Callable[[bytes], bytes]
"""A footer in, another one out."""


class LocalFile(pa.OSFile):  # type: ignore[misc] # pyarrow has no types
    """A new file of a local disk. Its bytes go there without Python, whose lock a busy thread may hold.

    Args:
        path: the file.
        mode: `wb`.
    """

    def __init__(self, path: str, mode: str) -> None:
        del mode  # pyarrow has opened it
        self._path = path
        self._size: int | None = None

    def change_footer(self, change: Change) -> None:
        """Write another footer over the one that is there; nothing is written afterwards."""
        with open(self._path, "r+b") as file:  # noqa: PTH123 - bytes at places
            at, footer = footer_of(file.fileno())
            file.seek(at)
            file.write(ended(change(footer)))
            self._size = file.truncate()

    def tell(self) -> int:
        """Bytes of the file."""
        return int(super().tell()) if self._size is None else self._size


class HeldEnd:
    """Any other stream: what may be the footer is held back until it is changed.

    Args:
        to: the stream.
    """

    def __init__(self, to: pa.NativeFile) -> None:
        self._to = to
        self._held: deque[bytes] = deque()
        self.closed = False

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - anything with a buffer
        """Add bytes."""
        self._held.append(bytes(data))
        if len(self._held) > _LAST_WRITES:
            self._to.write(self._held.popleft())
        return len(self._held[-1])

    def flush(self) -> None:
        """Nothing is to be seen before it is closed."""

    def close(self) -> None:
        """Nothing: the stream is its owner's."""

    def change_footer(self, change: Change) -> None:
        """Write another footer in place of what is held; what is held, where the footer was not written at once."""
        held = b"".join(self._held)
        footer = self._held[0] if self._held else b""
        self._held.clear()
        self._to.write(ended(change(footer)) if held == ended(footer) else held)


def footer_of(handle: int) -> tuple[int, bytes]:
    """Where the footer of an open Parquet file begins, and its bytes, without what follows them.

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
    """A footer and what follows it."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC
