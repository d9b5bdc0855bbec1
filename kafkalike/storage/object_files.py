"""Files of an object store: ranges of an object as a file to read, and writes as one object."""

from __future__ import annotations

import errno
import io
from typing import Any, Final

from kafkalike.storage.object_client import ObjectClient

FIRST_BYTES: Final = 256 * 1024
"""What the first request for a file fetches: a small file whole, and its size."""

AHEAD_BYTES: Final = 1024 * 1024
"""What is fetched at least where a caller reads little by little: a request takes as long as a megabyte."""

PART_BYTES: Final = 8 * 1024 * 1024
"""A file that is larger is sent in parts of so many bytes; a smaller one in one request."""


class RangeFile:
    """An object as a file to read at any place. One reader at a time, as every file.

    Args:
        client: makes the requests.
        name: the object.
        in_steps: the caller reads small parts one after the other.

    Raises:
        FileNotFoundError: there is none.
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
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def writable(self) -> bool:
        """It is not."""
        return False

    def size(self) -> int:
        """Bytes of the object."""
        return self._size

    def tell(self) -> int:
        """Where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; see `io.IOBase.seek`."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "before the begin of the file", self._name)
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """The next bytes; fewer at the object's end."""
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
        """Let go of what was fetched."""
        self.closed = True
        self._block = b""


class UploadFile:
    """A file that is written, and is an object when it is closed.

    Args:
        client: makes the requests.
        name: the object.
    """

    def __init__(self, client: ObjectClient, name: str) -> None:
        self._client = client
        self._name = name
        self._held = bytearray()
        self._parts: Any = None
        """What sends a large file in parts."""
        self._size = 0
        self.closed = False
        self.mode = "wb"

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Bytes written."""
        return self._size

    def flush(self) -> None:
        """Nothing is to be seen before it is closed."""

    def write(self, data: Any) -> int:  # noqa: ANN401 - anything with a buffer
        """Add bytes.

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
        """Make the object.

        Raises:
            OSError: the storage refused, or it is unknown whether there is an object.
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
