"""ObjectStorage: a storage in an object store. Writes need a successful probe first, see `probe`.

Only the conditional put keeps writers apart, without locks. The threads of one process queue, so that they do not race
each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaError, TopicAuthorizationFailedError
from kafkalike.model.config.storage_options import SentOptions, StorageOptions, resolve_options
from kafkalike.model.groups.roster import Leases
from kafkalike.storage.impatient_client import ImpatientClient
from kafkalike.storage.object_client import check_process
from kafkalike.storage.object_files import RangeFile, UploadFile
from kafkalike.storage.object_root import hadoop_settings, named_root, object_root
from kafkalike.storage.port import (
    NOW,
    TABLE_LOG,
    Coordination,
    Entry,
    NotStoredError,
    Pace,
    Reach,
    Scheduler,
    Storage,
    TaskAccess,
)
from kafkalike.storage.shared_root import SharedRoot, shared_root

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

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


class ObjectScheduler(Scheduler):
    """Makes the requests of one folder of an object store.

    Args:
        root: the shared state of the root.
        root_uri: the root.
        prefix: prefix of the folder's names.
    """

    def __init__(self, root: SharedRoot, root_uri: str, prefix: str) -> None:
        self._root = root
        self._root_uri = root_uri
        self._prefix = prefix

    @property
    def is_remote(self) -> bool:
        """True, because requests take long."""
        return True

    @property
    def combines(self) -> bool:
        """True unless a version is made at several roots."""
        return not self._root.impatient

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests of this process to this root, by kind."""
        return self._root.client.counts

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return an object that the storages of this root share."""
        return self._root.shared((self._root_uri, name), make)

    def beside(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Make calls in parallel."""
        others = [(call, self._root.started(call)) for call in calls[1:]]
        results: list[R] = []
        failed: Exception | None = None
        for call, future in [*((call, None) for call in calls[:1]), *others]:
            try:
                results.append(call() if future is None else future.result())
            except Exception as error:  # noqa: BLE001 - raised again when all have ended
                failed = failed or error
        if failed is not None:
            raise failed
        return results

    def look(self, name: str, pace: Pace) -> bytes | None:
        """Look for an object; see `Storage.look`."""

        def ask() -> bytes | None:
            try:
                return self.read(name)
            except FileNotFoundError:
                return None

        return self._root.looks.look(self._prefix + name, pace, ask)

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for several objects in parallel."""

        def look(name: str) -> None:
            with contextlib.suppress(OSError, KafkaError):
                self.look(name, pace)

        looks = self._root.looks
        self.beside([partial(look, name) for name in names if not looks.has_answer(self._prefix + name, pace)])

    def read(self, name: str) -> bytes:
        """Return the content of an object, which may have been prefetched."""
        fetched = self._root.fetched.pop(self._prefix + name)
        return self._root.client.get(self._prefix + name) if fetched is None else fetched

    def fetch(self, names: Sequence[str]) -> None:
        """Prefetch objects in parallel."""

        def get(name: str) -> None:
            with contextlib.suppress(OSError):
                self._root.fetched.put(name, self._root.client.get(name))

        self.beside([partial(get, self._prefix + name) for name in names])

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Answer later looks for the file without a request."""
        self._root.looks.missed(self._prefix + name, since, quiet_seconds)

    def tag(self, name: str) -> str:
        """Return the ETag of the last put."""
        return self._root.tags.get(self._prefix + name)


class ObjectAccess(TaskAccess):
    """Gives other processes access to a place in an object store.

    Args:
        root: the shared state of the root.
    """

    def __init__(self, root: SharedRoot) -> None:
        self._root = root

    def sendable(self, storage: Storage) -> Storage:
        """Return the storage, pickled with its options."""
        assert isinstance(storage, ObjectStorage)
        return storage.sendable()

    def sent_options(self) -> SentOptions | None:
        """Return the options of its client."""
        return self._root.options.for_tasks()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings for S3; for other storages, Hadoop uses its own."""
        return hadoop_settings(self._root.place, self._root.options)


class ObjectCoordination(Coordination):
    """Coordinates the processes that use a root in an object store: threads of one process queue, processes race.

    Args:
        root: the shared state of the root.
        root_uri: the root.
    """

    def __init__(self, root: SharedRoot, root_uri: str) -> None:
        self._root = root
        self._root_uri = root_uri

    @property
    def reach(self) -> Reach:
        """The processes of all machines."""
        return "everywhere"

    def check_writable(self, *, required: bool = True) -> None:
        """Probe the storage with a conditional create of an existing key."""
        try:
            self._root.prove()
        except PermissionError as cause:
            if required:
                raise TopicAuthorizationFailedError(
                    f"{self._root_uri} may not be written to: {cause.strerror}"
                ) from None

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other threads of this process, but not behind other processes."""
        return self._root.queues.turn(name, deadline, meanwhile)

    def leases(self) -> Leases:
        """Return heartbeats in the form of small objects."""
        return self._root.leases

    def now_ns(self) -> int:
        """Return the time by the storage's clock, to about a second."""
        return self._root.now_ns()


class ObjectStorage(Storage):
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
            raise NotStoredError(cause.errno, cause.strerror, cause.filename) from None
        except KafkaError as cause:
            raise NotStoredError(None, str(cause)) from cause
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

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the objects of a folder."""
        found = self._root.client.list((self._prefix + folder).rstrip("/"), deep=deep, after=after)
        # A table's log is not its data.
        return [entry for entry in found if TABLE_LOG not in entry.name.split("/")[:-1]]

    def folders(self) -> Sequence[str]:
        """List the names of the folders below, as far as objects imply them."""
        return self._root.client.folders(self._folder)

    def copy(self, source: str, target: Storage, name: str) -> bool:
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
