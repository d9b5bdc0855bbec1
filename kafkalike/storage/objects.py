"""ObjectStorage: a storage in an object store. Writes need a successful probe first, see `probe`.

Only the conditional put keeps writers apart, without locks. The threads of one process queue, so that they do not race
each other.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaError
from kafkalike.model.config.storage_options import SentOptions, StorageOptions, resolve_options
from kafkalike.storage import port
from kafkalike.storage.impatient_client import ImpatientClient
from kafkalike.storage.object_client import ObjectClient, check_process
from kafkalike.storage.object_root import hadoop_settings, named_root, object_root
from kafkalike.storage.object_scheduler import ObjectCoordination, ObjectScheduler
from kafkalike.storage.scheduler import NOW, Pace
from kafkalike.storage.shared_root import SharedRoot, shared_root

T = TypeVar("T")
R = TypeVar("R")


def open_objects(
    uri: str,
    given: StorageOptions | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    impatient: bool = False,
) -> ObjectStorage | None:
    """Open the storage of a place in an object store; None for other URIs. Makes no request.

    Args:
        uri: any spelling of the place.
        given: the user's options; environment variables supply the missing ones.
        environ: the environment variables; None takes the process's own.
        impatient: other roots can be asked instead, so requests time out after some seconds.

    Raises:
        KafkaConfigurationError: see `object_root` and `resolve_options`.
        UnsafeStorageError: this kind of storage was never tested.
        IllegalStateError: a forked child whose parent has used an object store.
    """
    root = object_root(uri)
    if root is None:
        return None
    check_process()
    options = resolve_options(root.provider, given and given.of_root(named_root(root, given.roots)), environ)
    root = root.in_account(options)
    return ObjectStorage(shared_root(root, options, impatient=impatient), root.uri)


def _reopened(
    uri: str, folder: str, options: StorageOptions | None = None, *, impatient: bool = False
) -> ObjectStorage:
    """Open a pickled storage, with this machine's environment or with the options that were sent along."""
    # Sent options are complete: a session token of this machine must not be combined with a key of the other one.
    store = open_objects(uri, options, None if options is None else {}, impatient=impatient)
    assert store is not None
    if options is not None:
        store.is_sent = True
    return store.at(folder) if folder else store


class ObjectAccess(port.TaskAccess):
    """Gives other processes access to a place in an object store.

    Args:
        root: the shared state of the root.
    """

    def __init__(self, root: SharedRoot) -> None:
        self._root = root

    def sendable(self, storage: port.Storage) -> port.Storage:
        """Return the storage, pickled with its options."""
        assert isinstance(storage, ObjectStorage)
        return storage.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the options of its client."""
        return self._root.options.for_tasks()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings for S3; for other storages, Hadoop uses its own."""
        return hadoop_settings(self._root.place, self._root.options)


class ObjectStorage(port.Storage):
    """Objects below a root, made by `open_objects`; `Storage` documents the guarantees of each method.

    Args:
        root: the shared state of the root.
        root_uri: the root.
        folder: this storage's folder below the root.
    """

    uri: str = ""

    def __init__(self, root: SharedRoot, root_uri: str, folder: str = "") -> None:
        self._root = root
        self.is_sent = False
        """True if it is pickled with its options."""
        self._root_uri = root_uri
        self._folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self.uri = f"{root_uri}/{folder}" if folder else root_uri
        self.scheduler: ObjectScheduler = ObjectScheduler(root, root_uri, self._prefix)
        self.tasks = ObjectAccess(root)
        self.coordination = ObjectCoordination(root, root_uri)

    def __repr__(self) -> str:
        """Class and URI, without options, for error messages."""
        return f"ObjectStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[..., ObjectStorage], tuple[str, str, StorageOptions | None]]:
        """Pickle the options only on request, because they hold secrets."""
        opened = partial(_reopened, impatient=True) if self._root.impatient else _reopened
        return opened, (self._root_uri, self._folder, self._root.options.for_tasks() if self.is_sent else None)

    def at(self, folder: str) -> ObjectStorage:
        """Return the storage of a folder below."""
        below = ObjectStorage(self._root, self._root_uri, self._prefix + folder)
        below.is_sent = self.is_sent
        return below

    def sendable(self) -> ObjectStorage:
        """Return the same storage, pickled with its options."""
        sent = ObjectStorage(self._root, self._root_uri, self._folder)
        sent.is_sent = True
        return sent

    @property
    def impatient_client(self) -> ImpatientClient:
        """The client of a root with timeouts."""
        client = self._root.client
        assert isinstance(client, ImpatientClient)
        return client

    def above(self) -> Iterator[ObjectStorage]:
        """Yield the places above the root, from the parent up to the bucket, with the root's options.

        Requests there count as this root's when the next place is taken.
        """
        path = self._root.place.path
        while path:
            path = path.rpartition("/")[0]
            place = replace(self._root.place, path=path)
            store = ObjectStorage(shared_root(place, self._root.options, impatient=self._root.impatient), place.uri)
            before = store.scheduler.requests.get("list", 0)
            yield store
            self._root.client.count("list", store.scheduler.requests.get("list", 0) - before)

    def holds(self, folder: str) -> bool:
        """Return True if a folder contains an object, with one request.

        Raises:
            OSError: the storage does not answer.
        """
        return self._root.client.holds(self._prefix + folder)

    def read(self, name: str) -> bytes:
        """Return the content of an object."""
        return self.scheduler.read(name)

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of an object that may not exist yet."""
        return self.scheduler.look(name, pace)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create an object unless it exists; it survives every failure that the storage survives."""
        del durable
        try:
            self._root.prove()
        except PermissionError as cause:
            raise port.NotStoredError(cause.errno, cause.strerror, cause.filename) from None
        except KafkaError as cause:
            raise port.NotStoredError(None, str(cause)) from cause
        tag = self._root.client.create(self._prefix + name, content)
        if tag is None:
            return False
        self._root.tags.put(self._prefix + name, tag)
        self._root.looks.made(self._prefix + name, content)
        return True

    def replace(self, name: str, content: bytes) -> None:
        """Create or overwrite an object."""
        try:
            self._root.client.put(self._prefix + name, content)
        finally:
            self._root.looks.forget(self._prefix + name)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open an object for random access."""
        return pa.PythonFile(RangeFile(self._root.client, self._prefix + name, in_steps=buffer_size > 0), "r")

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of an object, with one request."""
        return pa.py_buffer(self._root.client.get_range(self._prefix + name, start, stop))

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that creates a new object when it is closed."""
        return pa.PythonFile(UploadFile(self._root.client, self._prefix + name), "w")

    def size(self, name: str) -> int:
        """Return the size of an object in bytes."""
        return self._root.client.head(self._prefix + name)[0]

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[port.Entry]:
        """List the objects of a folder."""
        found = self._root.client.list((self._prefix + folder).rstrip("/"), deep=deep, after=after)
        # A table's log is not its data.
        return [entry for entry in found if port.TABLE_LOG not in entry.name.split("/")[:-1]]

    def folders(self) -> Sequence[str]:
        """List the names of the folders below, as far as objects imply them."""
        return self._root.client.folders(self._folder)

    def copy(self, source: str, target: port.Storage, name: str) -> bool:
        """Copy an object within the store."""
        if not isinstance(target, ObjectStorage) or target._root is not self._root:  # noqa: SLF001
            target.replace(name, self.read(source))
            return False
        self._root.client.copy(self._prefix + source, target._prefix + name)  # noqa: SLF001 - another of the same class
        return False

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove an object, if it exists."""
        try:
            self._root.client.delete(self._prefix + name)
        except OSError:
            if not quietly:
                raise
        finally:
            self._root.looks.forget(self._prefix + name)


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
