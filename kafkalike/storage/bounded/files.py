"""Files: those of a storage that may hang, read and written part by part, so that a large one is not given up."""

from __future__ import annotations

import io
import os
from typing import IO, Final

from kafkalike.storage.bounded.calls import BoundedCalls, go_on

PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read or written at a time; each part has the time of a call."""


class BoundedFile(io.RawIOBase):
    """A file of a storage that may hang, for reading.

    Args:
        calls: the storage's.
        path: the file.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, calls: BoundedCalls, path: str) -> None:
        super().__init__()
        self._calls = calls
        self._path = path
        self._handle = calls.call(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        self._size = calls.call(lambda: os.fstat(self._handle).st_size)
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Say where the next read begins."""
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Bytes from there on."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        content = self._calls.call(lambda: pread(self._handle, self._at, stop))
        self._at += len(content)
        return content

    def close(self) -> None:
        """Let it go."""
        if not self.closed:
            super().close()
            # Not waited for: to close a file may hang, too.
            handle = self._handle
            try:
                self._calls.call(lambda: os.close(handle))
            except OSError:
                return


def write_parts(stream: IO[bytes], content: bytes) -> None:
    """Write a file's content, part by part."""
    if len(content) <= PART_BYTES:
        stream.write(content)
        return
    whole = memoryview(content)
    for start in range(0, len(content), PART_BYTES):
        stream.write(whole[start : start + PART_BYTES])
        go_on()


def pread(handle: int, start: int, stop: int) -> bytes:
    """Bytes of an open file, part by part; fewer where it ends before."""
    if stop - start <= PART_BYTES:
        return os.pread(handle, max(0, stop - start), start)
    parts = []
    while start < stop:
        part = os.pread(handle, min(PART_BYTES, stop - start), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
        go_on()
    return b"".join(parts)
