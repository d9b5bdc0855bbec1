"""ObjectStorage: a place in an object store as a store. Written to only once it was tried out, see `probe`.

There are no locks. What keeps writers apart is the conditional put alone; threads of one process queue, so that they
do not race each other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaError, TopicAuthorizationFailedError
from kafkalike.model.config.storage_options import SentOptions, StorageOptions, resolve_options
from kafkalike.model.groups.sessions import Leases
from kafkalike.storage.hadoop import hadoop_settings
from kafkalike.storage.object_client import check_process
from kafkalike.storage.object_files import RangeFile, UploadFile
from kafkalike.storage.object_root import named_root, object_root
from kafkalike.storage.port import NOW, TABLE_LOG, Entry, NotStoredError, Pace, Reach, Storage
from kafkalike.storage.shared_root import SharedRoot, shared_root
from kafkalike.storage.unbounded import UnboundedStore

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")


def open_objects(
    uri: str,
    given: StorageOptions | None = None,
    environ: Mapping[str, str] | None = None,
    *,
    impatient: bool = False,
) -> ObjectStorage | None:
    """The store of a place in an object store; None for a URI that names none. Makes no request.

    Args:
        uri: any spelling of it.
        given: the user's options; environment variables say what these do not.
        environ: those variables; None takes the process's own.
        impatient: there are other roots that can be asked instead, so requests are given up after some seconds.

    Raises:
        KafkaConfigurationError: see `object_root` and `resolve_options`.
        UnsafeStorageError: a kind of storage that nobody has tried.
        IllegalStateError: a child after a fork, whose parent has used an object store.
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
    """On another machine the storage is opened with that machine's environment, or with what was sent along."""
    # What was sent is all: a session token of this machine must not be added to a key of the other one.
    store = open_objects(uri, options, None if options is None else {}, impatient=impatient)
    assert store is not None
    if options is not None:
        store = store.for_tasks()
    return store.at(folder) if folder else store


class ObjectStorage(UnboundedStore):
    """Objects below a root, by `open_objects`; `Storage` says what each method guarantees.

    Args:
        root: what the root's stores share.
        root_uri: the root.
        folder: the one below it that this is.
        sent: whether it is to be sent to a Spark job; see `for_tasks`.
    """

    def __init__(self, root: SharedRoot, root_uri: str, folder: str = "", *, sent: bool = False) -> None:
        self._root = root
        self._sent = sent
        self._root_uri = root_uri
        self._folder = folder
        self._prefix = f"{folder}/" if folder else ""
        self.uri = f"{root_uri}/{folder}" if folder else root_uri

    def __repr__(self) -> str:
        """For error messages: never with options."""
        return f"ObjectStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Callable[..., ObjectStorage], tuple[str, str, StorageOptions | None]]:
        """Options hold secrets, so they go along only where somebody has asked for it."""
        opened = partial(_reopened, impatient=True) if self._root.impatient else _reopened
        return opened, (self._root_uri, self._folder, self._root.options.for_tasks() if self._sent else None)

    @property
    def reach(self) -> Reach:
        """Every machine."""
        return "everywhere"

    @property
    def far(self) -> bool:
        """It is."""
        return True

    @property
    def combines(self) -> bool:
        """They do."""
        return True

    @property
    def requests(self) -> Mapping[str, int]:
        """Those of this process at this root."""
        return self._root.client.counts

    def elsewhere(self) -> Sequence[Storage]:
        """Nowhere."""
        return ()

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """See `Storage.shared`."""
        return self._root.shared((self._root_uri, name), make)

    def check_writable(self) -> None:
        """Refuse a storage that does not keep writers apart, or that may not be written to."""
        try:
            self._root.prove()
        except PermissionError as cause:
            raise TopicAuthorizationFailedError(f"{self._root_uri} may not be written to: {cause.strerror}") from None

    def try_out(self) -> None:
        """Create a key twice, and look what the storage says."""
        with contextlib.suppress(PermissionError):
            self._root.prove()

    def at(self, folder: str) -> ObjectStorage:
        """The store of a folder below."""
        return ObjectStorage(self._root, self._root_uri, self._prefix + folder, sent=self._sent)

    def above(self) -> Iterator[ObjectStorage]:
        """The places above the root, from the nearest one up to the bucket, asked with the root's options.

        Requests there count as this root's, when the next place is taken.
        """
        path = self._root.place.path
        while path:
            path = path.rpartition("/")[0]
            place = replace(self._root.place, path=path)
            store = ObjectStorage(shared_root(place, self._root.options, impatient=self._root.impatient), place.uri)
            before = store.requests.get("list", 0)
            yield store
            self._root.client.count("list", store.requests.get("list", 0) - before)

    def holds(self, folder: str) -> bool:
        """Whether there is any object in a folder, in one request.

        Raises:
            OSError: the storage does not say.
        """
        return self._root.client.holds(self._prefix + folder)

    def copies(self) -> Sequence[Storage]:
        """This one."""
        return [self]

    def for_tasks(self) -> ObjectStorage:
        """The same, whose options go along."""
        return ObjectStorage(self._root, self._root_uri, self._folder, sent=True)

    def sent_options(self) -> SentOptions | None:
        """What its client was made with."""
        return self._root.options.for_tasks()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Of S3; with the others, Hadoop goes by its own settings."""
        return hadoop_settings(self._root.place, self._root.options)

    def read(self, name: str) -> bytes:
        """Content of an object."""
        fetched = self._root.fetched.pop(self._prefix + name)
        return self._root.client.get(self._prefix + name) if fetched is None else fetched

    def fetch(self, names: Sequence[str]) -> None:
        """Get objects side by side."""

        def get(name: str) -> None:
            with contextlib.suppress(OSError):
                self._root.fetched.put(name, self._root.client.get(name))

        self.beside([partial(get, self._prefix + name) for name in names])

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of an object that may not be there yet."""

        def ask() -> bytes | None:
            try:
                return self.read(name)
            except FileNotFoundError:
                return None

        return self._root.looks.look(self._prefix + name, pace, ask)

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for objects side by side."""

        def look(name: str) -> None:
            with contextlib.suppress(OSError, KafkaError):
                self.look(name, pace)

        looks = self._root.looks
        self.beside([partial(look, name) for name in names if not looks.has_answer(self._prefix + name, pace)])

    def beside(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls side by side."""
        others = [(call, self._root.started(call)) for call in calls[1:]]
        results: list[T] = []
        failed: Exception | None = None
        for call, future in [*((call, None) for call in calls[:1]), *others]:
            try:
                results.append(call() if future is None else future.result())
            except Exception as error:  # noqa: BLE001 - raised again when all have ended
                failed = failed or error
        if failed is not None:
            raise failed
        return results

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create an object unless there is one; it survives every failure that the storage survives."""
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

    def tag(self, name: str) -> str:
        """As the storage has answered."""
        return self._root.tags.get(self._prefix + name)

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Spare who waits for the file a look."""
        self._root.looks.missed(self._prefix + name, since, quiet_seconds)

    def replace(self, name: str, content: bytes) -> None:
        """Write an object, over an older one if there is one."""
        try:
            self._root.client.put(self._prefix + name, content)
        finally:
            self._root.looks.forget(self._prefix + name)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open an object for reading at any place."""
        return pa.PythonFile(RangeFile(self._root.client, self._prefix + name, in_steps=buffer_size > 0), "r")

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of an object, in one request."""
        return pa.py_buffer(self._root.client.get_range(self._prefix + name, start, stop))

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new object when it is closed."""
        return pa.PythonFile(UploadFile(self._root.client, self._prefix + name), "w")

    def size(self, name: str) -> int:
        """Bytes of an object."""
        return self._root.client.head(self._prefix + name)[0]

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Objects of a folder."""
        found = self._root.client.list((self._prefix + folder).rstrip("/"), deep=deep, after=after)
        # A table's log is not its data.
        return [entry for entry in found if TABLE_LOG not in entry.name.split("/")[:-1]]

    def folders(self) -> Sequence[str]:
        """Names of the folders below, of which there are as many as objects make there be."""
        return self._root.client.folders(self._folder)

    def make_folder(self, folder: str) -> None:
        """There are no folders."""

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy an object within the store."""
        if not isinstance(target, ObjectStorage) or target._root is not self._root:  # noqa: SLF001
            target.replace(name, self.read(source))
            return False
        self._root.client.copy(self._prefix + source, target._prefix + name)  # noqa: SLF001 - another of the same class
        return False

    def discard(self, name: str) -> None:
        """Try to remove an object that nobody names."""
        with contextlib.suppress(OSError):
            self.remove(name)

    def remove(self, name: str) -> None:
        """Remove an object."""
        try:
            self._root.client.delete(self._prefix + name)
        finally:
            self._root.looks.forget(self._prefix + name)

    def sync(self, name: str) -> None:
        """An object that was acknowledged is as safe as the storage makes it."""

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other threads of this process; other processes are not waited for."""
        return self._root.queues.turn(name, deadline, meanwhile)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Nothing is left behind."""
        del names
        return 0

    def leases(self) -> Leases:
        """Heartbeats as small objects."""
        return self._root.leases

    def now_ns(self) -> int:
        """The storage's clock, to a second or so."""
        return self._root.now_ns()
