"""BoundedStore: a broker's root that is waited for for a while only; see `kafkalike.storage.timeouts`."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaStorageError
from kafkalike.model.groups.sessions import Leases
from kafkalike.replication.cluster.broker_store import BrokerStore, Founding, opened_root
from kafkalike.storage.local import LOCKS
from kafkalike.storage.locks.lock import TableLock
from kafkalike.storage.locks.try_lock import try_lock
from kafkalike.storage.port import NOW, Entry, Pace, Storage
from kafkalike.storage.timeouts import Handle, TimedCalls, TimedFile, calls_of

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline
    from kafkalike.storage.local import LocalStorage

T = TypeVar("T")

OPEN_FILES: Final = "/proc/self/fd"
"""Where Linux has what this process has opened, by number."""

FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
"""How a folder is opened."""

LONG: Final = 3.0
"""How many times as long as others a call may take that writes, or forces data to the disk."""


class BoundedStore(BrokerStore):
    """A folder of a local disk that is a broker's root, or one below it; no call takes longer than it may.

    Args:
        root: the root as a plain store.
        founding: see `BrokerStore`.
        folder: below it; empty for the root itself.
    """

    def __init__(self, root: LocalStorage, founding: Founding, folder: str = "") -> None:
        super().__init__(root, founding, folder)
        self._calls = calls_of(root.uri)

    def __reduce__(self) -> tuple[type[BoundedStore], tuple[LocalStorage, Founding, str]]:
        """Elsewhere it has threads of its own."""
        return BoundedStore, (self._plain, self._founding, self._folder)

    @property
    def _folder(self) -> str:
        return self.uri.removeprefix(self._plain.uri).strip("/")

    def at(self, folder: str) -> BoundedStore:
        """The store of a folder below."""
        prefix = self._folder
        return BoundedStore(self._plain, self._founding, f"{prefix}/{folder}" if prefix else folder)

    def set_lag(self, lag_ms: int) -> None:
        """Set its timeout by `replica.lag.time.max.ms`."""
        self._calls.set_lag(lag_ms)

    def check_there(self) -> None:
        """Raise `OSError` unless the root is there and is a broker's."""
        self._calls.call(super().check_there)

    def silent_seconds(self) -> float:
        """For how long a call of it has hung."""
        return self._calls.silent_seconds()

    def try_out(self) -> None:
        """A network file system is tried out."""
        self._calls.call(super().try_out, LONG)

    def read(self, name: str) -> bytes:
        """Content of a file."""
        read = super().read
        return self._calls.call(lambda: read(name), LONG)

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of a file that may not be there yet."""
        look = super().look
        return self._calls.call(lambda: look(name, pace))

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file."""
        put = super().put_if_absent
        return self._calls.call(lambda: put(name, content, durable=durable), LONG)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file."""
        replace = super().replace
        self._calls.call(lambda: replace(name, content), LONG)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        del buffer_size
        return pa.PythonFile(TimedFile(self._calls, self.path(name)), "r")

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file, not mapped: to read a mapped file may hang as well, and nothing can be done about that."""
        with TimedFile(self._calls, self.path(name)) as file:
            file.seek(start)
            content = file.read(stop - start)
        if len(content) < stop - start:
            raise OSError(f"{len(content)} bytes are left where {stop - start} were asked for: {self.path(name)}")
        return pa.py_buffer(content)

    def size(self, name: str) -> int:
        """Bytes of a file."""
        size = super().size
        return self._calls.call(lambda: size(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder."""
        listed = super().list
        return self._calls.call(lambda: listed(folder, deep=deep, after=after), LONG)

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        folders = super().folders
        return self._calls.call(folders)

    def make_folder(self, folder: str) -> None:
        """Make a folder."""
        make = super().make_folder
        self._calls.call(lambda: make(folder))

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Give a file to another store."""
        copy = super().copy
        return self._calls.call(lambda: copy(source, target, name), LONG)

    def discard(self, name: str) -> None:
        """Try to remove a file that nobody names."""
        discard = super().discard
        with contextlib.suppress(OSError):
            self._calls.call(lambda: discard(name))

    def remove(self, name: str) -> None:
        """Remove a file."""
        remove = super().remove
        self._calls.call(lambda: remove(name))

    def sync(self, name: str) -> None:
        """Make a file, and its name, survive a power failure."""
        sync = super().sync
        self._calls.call(lambda: sync(name), LONG)

    @contextlib.contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Hold the lock of that name: by one call where nobody has it."""
        lock, taken = try_lock(self._calls, name, self._open_locks), False
        try:
            try:
                taken = self._founding.done and lock.take()
                # Python leaves out a `finally` if an interrupt hits a `return` in its block.
                if taken:
                    yield
            finally:
                lock.release()
        finally:
            # An interrupt may have come before that.
            lock.release()
        if taken:
            return
        with self._queued(name, deadline, meanwhile):
            yield

    @contextlib.contextmanager
    def _queued(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Queue for the lock of that name, and hold it.

        Its folder is held open meanwhile, so that no lock is ever made in another one that comes to stand in its place.
        """
        if not self._founding.done or not os.path.isdir(OPEN_FILES):  # noqa: PTH112
            with super().turn(name, deadline, meanwhile):
                yield
            return
        opened = Handle(self._calls, self._open_locks)
        try:
            try:
                opened.take()
                folder = f"{OPEN_FILES}/{opened.descriptor}"
                with TableLock(folder, name, f"{self._plain.uri}/{LOCKS}", self._calls.call).held(deadline, meanwhile):
                    yield
            finally:
                opened.release()
        finally:
            # As above.
            opened.release()

    def _open_locks(self) -> int:
        super().check_there()
        with opened_root(self._plain.uri) as root:
            try:
                return os.open(LOCKS, FOLDER, dir_fd=root)
            except FileNotFoundError:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(LOCKS, 0o700, dir_fd=root)
                return os.open(LOCKS, FOLDER, dir_fd=root)

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove their lock files."""
        forget, wanted = super().forget_turns, list(names)
        try:
            return self._calls.call(lambda: forget(wanted))
        except OSError:
            return 0

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Name the folder, unless other machines may write to it, or it does not answer."""
        watch = super().watch
        with contextlib.suppress(OSError):
            self._calls.call(lambda: watch(folder, add))

    def leases(self) -> Leases:
        """Heartbeats as the times of files."""
        return BoundedLeases(super().leases(), self._calls)


class BoundedLeases:
    """Leases on a storage that may hang. Thread-safe.

    Args:
        leases: there.
        calls: the storage's.
    """

    def __init__(self, leases: Leases, calls: TimedCalls) -> None:
        self._leases = leases
        self._calls = calls

    def renew(self, group_id: str, member_id: str) -> None:
        """Give a heartbeat."""
        self._call(lambda: self._leases.renew(group_id, member_id))

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """When members gave their last heartbeat."""
        wanted = list(member_ids)
        return self._call(lambda: self._leases.read(group_id, wanted))

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member."""
        with contextlib.suppress(KafkaStorageError):
            self._call(lambda: self._leases.drop(group_id, member_id))

    def _call(self, work: Callable[[], T]) -> T:
        try:
            return self._calls.call(work)
        except OSError as cause:
            raise KafkaStorageError(f"heartbeats: {cause}") from cause
