"""Broker storage: the root of a broker, or a folder below it, with timeouts and with errors for a missing root.

Several roots form a cluster, so no client waits for a single root forever: calls to a folder have the timeout of
`TimedCalls`, requests to a bucket that of `ImpatientClient`. A root that is not mounted looks empty, so an empty answer
is followed by a check of the root's sign; a missing sign is an error. A bucket has no mount that could be missing, so
its sign is checked only from time to time, and after each failure.
"""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pyarrow as pa

from kafkalike.delta.layout import BROKERS
from kafkalike.errors import KafkaError
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.replication.cluster.broker_coordination import LONG, BucketRootCoordination, FolderRootCoordination
from kafkalike.replication.cluster.root_sign import SIGN_SECONDS, Founding, check_sign, opened_root
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Coordination, Entry, Storage, TaskAccess
from kafkalike.storage.scheduler import NOW, Pace
from kafkalike.storage.timeouts import TimedFile, calls_of

if TYPE_CHECKING:
    from kafkalike.storage.impatient_client import ImpatientClient

T = TypeVar("T")

ALIVE_SECONDS: Final = 2.0
"""How long a bucket counts as available after an answer."""


class BrokerRoot(ABC):
    """Makes the calls of one root.

    Args:
        plain: the root without timeouts.
        founding: the state of the cluster: a root without a sign is correct until the cluster is made.
    """

    alive_seconds = SIGN_SECONDS
    """How long an answer shows that the root is there."""

    coordination: Coordination

    def __init__(self, plain: Storage, founding: Founding) -> None:
        self.plain = plain
        self.founding = founding

    def check(self, seconds: float = SIGN_SECONDS) -> None:
        """Raise `OSError` unless the root is there and belongs to a broker.

        Args:
            seconds: the maximum age of the last full read of its sign.
        """
        self.call(lambda: check_sign(self.plain, self.founding, seconds))

    @abstractmethod
    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a call; see `TimedCalls.call`."""

    @abstractmethod
    def silent_seconds(self) -> float:
        """Return how long the root is known not to answer, seconds; 0 if it answers."""

    @abstractmethod
    def ask_again(self) -> None:
        """Check whether a root that is currently skipped answers again."""

    @abstractmethod
    def set_lag(self, lag_ms: int) -> None:
        """Set `replica.lag.time.max.ms`."""

    @abstractmethod
    def open_input(self, folder: Storage, name: str, buffer_size: int) -> pa.NativeFile:
        """Open a file of a folder for reading."""

    @abstractmethod
    def read_range(self, folder: Storage, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file of a folder."""

    @abstractmethod
    def make_folder(self, folder: Storage, name: str) -> None:
        """Make a folder below another folder, and missing folders between it and the root, but never the root."""

    @abstractmethod
    def prepare_write(self) -> None:
        """Raise `OSError` unless the root isolates concurrent writers."""

    @abstractmethod
    def sendable(self, storage: BrokerStorage) -> Storage:
        """Return a storage for the processes of a Spark job."""

    @abstractmethod
    def reduce(self, storage: BrokerStorage) -> tuple[Any, ...]:
        """Return the pickled form of a storage."""


class FolderRoot(BrokerRoot):
    """A folder of this machine; workers make its calls.

    Args:
        plain: the folder without timeouts.
        founding: the state of the cluster.
    """

    def __init__(self, plain: LocalStorage, founding: Founding) -> None:
        super().__init__(plain, founding)
        self._plain = plain
        self.calls = calls_of(plain.uri)
        self.coordination = FolderRootCoordination(plain, self.calls, founding, self.check)

    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a call of the root."""
        return self.calls.call(work, times)

    def silent_seconds(self) -> float:
        """Return how long the root is known not to answer, seconds."""
        return self.calls.silent_seconds()

    def ask_again(self) -> None:
        """Do nothing: a folder is never skipped."""
        # A call that hangs ends when the root is back.
        return

    def set_lag(self, lag_ms: int) -> None:
        """Set the timeout by `replica.lag.time.max.ms`, where there is one to set."""
        self.calls.set_lag(lag_ms)

    def open_input(self, folder: Storage, name: str, buffer_size: int) -> pa.NativeFile:
        """Open a file for reading."""
        del buffer_size
        return pa.PythonFile(TimedFile(self.calls, f"{folder.uri}/{name}"), "r")

    def read_range(self, folder: Storage, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        # Not mapped, because reading a mapped file may hang without a timeout.
        with TimedFile(self.calls, f"{folder.uri}/{name}") as file:
            file.seek(start)
            content = file.read(stop - start)
        if len(content) < stop - start:
            raise OSError(f"{len(content)} bytes are left where {stop - start} were asked for: {folder.uri}/{name}")
        return pa.py_buffer(content)

    def make_folder(self, folder: Storage, name: str) -> None:
        """Make a folder and its missing parents."""
        if not self.founding.done:
            folder.make_folder(name)
            return
        path, wanted = "", f"{folder.uri}/{name}".removeprefix(self.plain.uri).strip("/")
        with opened_root(self.plain.uri) as root:
            for part in wanted.split("/"):
                path = f"{path}/{part}".strip("/")
                with contextlib.suppress(FileExistsError):
                    os.mkdir(path, 0o700, dir_fd=root)
                    self._plain.coordination.synced.discard(f"{self.plain.uri}/{path}")

    def prepare_write(self) -> None:
        """Do nothing: opening the root has checked it."""
        return

    def sendable(self, storage: BrokerStorage) -> Storage:
        """Return a storage for the processes of a Spark job."""
        return storage

    def reduce(self, storage: BrokerStorage) -> tuple[Any, ...]:
        """Return the pickled form of a storage."""
        # Another process has workers of its own.
        return _reopened_folder, (self._plain, self.founding, storage.folder)


def _reopened_folder(plain: LocalStorage, founding: Founding, folder: str) -> BrokerStorage:
    return BrokerStorage(FolderRoot(plain, founding), folder)


class BucketRoot(BrokerRoot):
    """A location in an object store; its requests have timeouts of their own.

    Args:
        plain: the location without timeouts.
        founding: the state of the cluster.
        client: makes its requests.
    """

    alive_seconds = ALIVE_SECONDS

    def __init__(self, plain: Storage, founding: Founding, client: ImpatientClient) -> None:
        super().__init__(plain, founding)
        self._client = client
        self.coordination = BucketRootCoordination(plain.coordination)

    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a request, which has its own timeout."""
        del times
        try:
            return work()
        except FileNotFoundError:
            raise
        except OSError:
            # The next check of the root must not use an older answer.
            self.founding.checked.pop(self.plain.uri, None)
            raise

    def silent_seconds(self) -> float:
        """Return how long the root is known not to answer, seconds."""
        return self._client.silent_seconds()

    def ask_again(self) -> None:
        """Check whether the root answers again."""
        # After a failure, the client refuses requests to the bucket for half a second.
        self._client.ask_again()

    def set_lag(self, lag_ms: int) -> None:
        """Do nothing: the timeout of a request depends on its size."""
        del lag_ms

    def open_input(self, folder: Storage, name: str, buffer_size: int) -> pa.NativeFile:
        """Open a file for reading."""
        return self.call(lambda: folder.open_input(name, buffer_size))

    def read_range(self, folder: Storage, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        return folder.read_range(name, start, stop)

    def make_folder(self, folder: Storage, name: str) -> None:
        """Do nothing: object stores have no folders."""
        del folder, name

    def prepare_write(self) -> None:
        """Raise `OSError` unless the root isolates concurrent writers."""
        try:
            self.plain.coordination.check_writable()
        except KafkaError as cause:
            raise OSError(str(cause)) from cause

    def sendable(self, storage: BrokerStorage) -> Storage:
        """Return a storage for the processes of a Spark job."""
        return storage.plain.tasks.sendable(storage.plain)

    def reduce(self, storage: BrokerStorage) -> tuple[Any, ...]:
        """Return the pickled form of a storage."""
        found = storage.plain.__reduce__()
        assert isinstance(found, tuple)
        return found


class BrokerStorage(Storage):
    """A broker's root, or a folder below it.

    Args:
        root: makes its calls.
        folder: path below the root; empty for the root itself.
    """

    uri: str = ""

    def __init__(self, root: BrokerRoot, folder: str = "") -> None:
        self.root = root
        self.folder = folder
        self.plain = root.plain.at(folder) if folder else root.plain
        """The folder without timeouts and without checks of the root's sign."""
        self.uri = self.plain.uri
        self.scheduler = self.plain.scheduler
        self.tasks = _BrokerTasks(root, self.plain)
        self.coordination = root.coordination

    def __repr__(self) -> str:
        """Return a text for error messages."""
        return f"BrokerStorage({self.uri!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the pickled form of this storage."""
        return self.root.reduce(self)

    # --- the root ------------------------------------------------------------------------------

    def check_there(self) -> None:
        """Raise `OSError` unless the root is there and belongs to a broker."""
        self.root.check()

    def is_there(self) -> bool:
        """Return whether the root is there and belongs to a broker."""
        try:
            self.root.check(self.root.alive_seconds)
        except OSError:
            return False
        return True

    def _asked(self, name: str, ask: Callable[[], T], times: float = 1.0) -> T:
        """Make a call; a file counts as missing only if the root is there."""

        def asked() -> T:
            try:
                return ask()
            except FileNotFoundError:
                if not name.endswith(BROKERS):
                    self.check_there()
                raise

        return self.root.call(asked, times)

    def _found(self, ask: Callable[[], T], times: float = 1.0) -> T:
        """Make a call; an empty answer counts only if the root is there."""

        def asked() -> T:
            found = ask()
            if not found:
                self.check_there()
            return found

        return self.root.call(asked, times)

    def _write(self, name: str, write: Callable[[], T]) -> T:
        """Make a call that writes, unless the root is missing."""

        def checked() -> T:
            if not name.endswith(BROKERS):
                self.check_there()
            return write()

        return self._asked(name, checked, LONG)

    # --- files ---------------------------------------------------------------------------------

    def at(self, folder: str) -> BrokerStorage:
        """Return the storage of a folder below."""
        return BrokerStorage(self.root, f"{self.folder}/{folder}" if self.folder else folder)

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._asked(name, lambda: self.plain.read(name), LONG)

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of a file that may not exist yet."""
        return self._found(lambda: self.plain.look(name, pace))

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file."""
        return self._asked(name, lambda: self.root.read_range(self.plain, name, start, stop), LONG)

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        # Each read of the file is a call with a timeout.
        try:
            return self.root.open_input(self.plain, name, buffer_size)
        except FileNotFoundError:
            self.check_there()
            raise

    def size(self, name: str) -> int:
        """Return the size of a file, bytes."""
        return self._asked(name, lambda: self.plain.size(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder."""
        return self._found(lambda: self.plain.list(folder, deep=deep, after=after), LONG)

    def folders(self) -> Sequence[str]:
        """List the names of the folders below."""
        return self._found(self.plain.folders)

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file unless it exists."""
        return self._write(name, lambda: self.plain.put_if_absent(name, content, durable=durable))

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, or overwrite it."""

        def replace() -> None:
            self.root.prepare_write()
            self.plain.replace(name, content)

        self._write(name, replace)

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file."""
        return self.plain.open_output(name)

    def make_folder(self, folder: str) -> None:
        """Make a folder below the root."""

        def make() -> None:
            self.check_there()
            self.root.make_folder(self.plain, folder)

        self.root.call(make)

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy a file to another storage."""
        if isinstance(target, BrokerStorage):
            folders = isinstance(self.root, FolderRoot) and isinstance(target.root, FolderRoot)
            if target.root is not self.root and not folders:
                # The other root may hang or be missing; its own calls detect that.
                target.replace(name, self.read(source))
                return False
            target = target.plain
        place = target
        return self.root.call(lambda: self.plain.copy(source, place, name), LONG)

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file from the root."""
        try:
            self.root.call(lambda: self.plain.remove(name, quietly=quietly))
        except OSError:
            if not quietly:
                raise

    def sync(self, name: str) -> None:
        """Make a file survive a power failure."""
        self.root.call(lambda: self.plain.sync(name), LONG)


class _BrokerTasks(TaskAccess):
    """Gives other processes access to a broker's storage."""

    def __init__(self, root: BrokerRoot, plain: Storage) -> None:
        self._root = root
        self._plain = plain

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage for the processes of a Spark job."""
        assert isinstance(storage, BrokerStorage)
        return self._root.sendable(storage)

    def sent_options(self) -> SentOptions | None:
        """Return the credentials of the root."""
        return self._plain.tasks.sent_options()

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings for Hadoop's client."""
        return self._plain.tasks.hadoop_settings()
