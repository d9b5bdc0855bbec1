"""Object files: read ranges of an object as a file, and write a file as one object."""

from __future__ import annotations

import errno
import io
from typing import Any, Final

from kafkalike.storage.object_client import ObjectClient

FIRST_BYTES: Final = 256 * 1024
"""Size of the first request for a file: it returns a small file whole, and the file's size."""

AHEAD_BYTES: Final = 1024 * 1024
"""Minimum size of later requests if a caller reads small parts: a request takes as long as a megabyte."""

PART_BYTES: Final = 8 * 1024 * 1024
"""Part size of the uploads of larger files; smaller files are sent in one request."""


class RangeFile:
    """An object as a file for random access. One reader at a time.

    Args:
        client: makes the requests.
        name: the object.
        in_steps: True if the caller reads small parts one after the other.

    Raises:
        FileNotFoundError: the object does not exist.
        OSError: the storage does not answer.
    """

    def __init__(self, client: ObjectClient, name: str, *, in_steps: bool) -> None:
        self._client = client
        self._name = name
        self._least = AHEAD_BYTES if in_steps else 0
        self._block, self._size = client.get_begin(name, FIRST_BYTES)
        self._block_at = 0
        self._position = 0
        self.closed = False
        self.mode = "rb"

    def readable(self) -> bool:
        """Return True: the object can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the object can be read anywhere."""
        return True

    def writable(self) -> bool:
        """Return False: objects are immutable."""
        return False

    def size(self) -> int:
        """Return the size of the object in bytes."""
        return self._size

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move the position of the next read; see `io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "before the begin of the file", self._name)
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes; fewer at the object's end."""
        start = min(self._position, self._size)
        stop = self._size if size < 0 else min(start + size, self._size)
        if start == stop:
            return b""
        block, at = self._block, self._block_at
        if not at <= start <= stop <= at + len(block):
            at, end = start, min(self._size, max(stop, start + self._least))
            block = self._client.get_range(self._name, at, end)
            self._block, self._block_at = block, at
        self._position = stop
        return block[start - at : stop - at]

    def close(self) -> None:
        """Release the fetched bytes."""
        self.closed = True
        self._block = b""


class UploadFile:
    """A file that becomes an object when it is closed.

    Args:
        client: makes the requests.
        name: the object.
    """

    def __init__(self, client: ObjectClient, name: str) -> None:
        self._client = client
        self._name = name
        self._held = bytearray()
        self._parts: Any = None
        """Upload of a large file in parts."""
        self._size = 0
        self.closed = False
        self.mode = "wb"

    def readable(self) -> bool:
        """Return False: the file is write-only."""
        return False

    def seekable(self) -> bool:
        """Return False: the file is sequential."""
        return False

    def writable(self) -> bool:
        """Return True: the file can be written."""
        return True

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: the object becomes visible when the file is closed."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - anything with a buffer
        """Append bytes; return how many.

        Raises:
            OSError: the storage refused.
        """
        count = memoryview(data).nbytes
        self._held += data
        self._size += count
        if len(self._held) > PART_BYTES:
            if self._parts is None:
                self._parts = self._client.writer(self._name, PART_BYTES)
                self._client.count("put", 2)  # the begin and the end of it
            self._send()
        return count

    def _send(self) -> None:
        held, self._held = self._held, bytearray()
        self._client.count("put")
        with self._client.asking(self._name):
            self._parts.write(bytes(held))

    def close(self) -> None:
        """Create the object.

        Raises:
            OSError: the storage refused, or it is unknown whether the object exists.
        """
        if self.closed:
            return
        self.closed = True
        if self._parts is None:
            self._client.put(self._name, bytes(self._held))
            return
        self._send()
        with self._client.asking(self._name):
            self._parts.close()
