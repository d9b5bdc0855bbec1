"""Storage: bytes under a root, with the access of Spark's tasks, and coordination.

`put_if_absent` is the only compare-and-set of the project: everything that must not happen twice depends on it.
Everything else here reads, writes under new names, or is about fairness. Each storage has three collaborators that most
callers never need: a `Scheduler`, which matters for object stores only, a `TaskAccess` for Spark's processes, and the
`Coordination` of the processes of a root.
"""

from __future__ import annotations

import errno
import functools
import io
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaError
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.storage.scheduler import AT_ONCE, NOW, Pace, Scheduler

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline
    from kafkalike.model.groups.sessions import Leases

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

TABLE_LOG: Final = "_delta_log"
"""The folder of a Delta table that holds its log. A deep list of an object store omits it."""

Reach = Literal["process", "machine", "everywhere"]
"""Which processes see a stored file: this process, all processes of this machine, or processes of any machine."""


MAPPED: Final = frozenset(
    {
        "read",
        "look",
        "read_range",
        "open_input",
        "put_if_absent",
        "replace",
        "open_output",
        "size",
        "list",
        "folders",
        "make_folder",
        "copy",
        "remove",
        "sync",
    }
)
"""Methods of a `Storage` that may raise an `OSError`."""


class NotStoredError(OSError):
    """The storage refused before anything could become visible: nothing was stored, and nothing will be."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a folder."""

    name: str
    """Relative to the folder that was listed."""
    size: int
    """Size of the file in bytes."""
    modified_ms: int
    """Time of the write: ms since the epoch, by the storage's own clock."""
    tag: str = ""
    """The storage's name of the content (an ETag), which changes with the content. Empty where the storage has no such
    name."""


class TaskAccess:
    """Gives Spark's tasks, Hadoop's client and maintenance access to the same bytes.

    This base class is for storages that every process of the machine can open by itself, and that have one copy.
    """

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage that can be sent to the processes of a Spark job: it is pickled with its credentials.

        Any other storage that is pickled opens with the environment of the receiving process.

        Args:
            storage: the storage that this access belongs to.
        """
        return storage

    def sent_options(self) -> SentOptions | None:
        """Return the credentials that the processes of a Spark job need; None where they need none."""
        return None

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings that Hadoop's client needs to read here; empty where it needs none. Secret.

        Raises:
            KafkaConfigurationError: Hadoop's client cannot use these credentials.
        """
        return {}

    has_replicas = False
    """True if a table has replicas; known without asking them."""

    def replicas(self) -> Sequence[Storage] | None:
        """Return the replicas of a table that answer, each as a storage of its own; None where the table has none.

        Checkpoints and other files that belong to one replica are written to each of them.
        """
        return None

    def elsewhere(self) -> Sequence[Storage]:
        """Return other storages that may have a file that cannot be read here; empty where there are none."""
        return ()


def copies_of(storage: Storage) -> Sequence[Storage]:
    """Return the replicas of a table that answer, or the storage itself if the table has none."""
    found = storage.tasks.replicas()
    return [storage] if found is None else found


BY_ITSELF: Final = TaskAccess()
"""Access to storages that need no credentials."""


class Coordination(ABC):
    """Coordinates the processes of one root: write queues, heartbeats, its clock, and the check before writing.

    The guarantees of the log do not depend on it.
    """

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """Which processes see the files of this root."""

    def check_writable(self, *, required: bool = True) -> None:  # noqa: B027 - as below
        """Refuse a storage that does not keep several writers apart; probe it where its kind does not tell.

        Args:
            required: also refuse credentials that may not write. Otherwise nothing is probed with such credentials, and
                every write fails later.

        Raises:
            UnsafeStorageError: the storage does not keep several writers apart; the message names the failed check.
            TopicAuthorizationFailedError: these credentials may not write.
            KafkaConnectionError: the storage does not answer or does not exist.
        """

    @abstractmethod
    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other writers of this root, for fairness.

        Args:
            name: name of the queue, such as a table.
            deadline: end of the wait.
            meanwhile: called while waiting; its errors end the wait.

        Raises:
            KafkaTimeoutError: other writers held the turn until the deadline.
            TopicAuthorizationFailedError, KafkaStorageError: the root cannot be written.
        """

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove the files of queues with these names that nobody uses; return how many queues were removed."""
        del names
        return 0

    @abstractmethod
    def leases(self) -> Leases:
        """Return the heartbeats of group members, below the cluster's root."""

    def now_ns(self) -> int:
        """Return the time by the storage's own clock, in ns; `Entry.modified_ms` is measured by it."""
        return time.time_ns()

    def watch(self, folder: str, add: Callable[[str], object]) -> None:  # noqa: B027 - not all have something to do
        """Name a folder, if the kernel of this machine sees all files that any process creates there.

        Args:
            folder: URI of the folder.
            add: called with the path, at most once. It must not raise.
        """


def storage_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Raise an `OSError` for the errors of libraries that cannot handle a name or a range.

    Clients treat an `OSError` as a failure of the storage, and anything else as a bug. Foreign writers may put any name
    into a table's log, such as one with a NUL.
    """

    @functools.wraps(method)
    def mapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (ValueError, OverflowError, pa.ArrowException) as cause:
            if isinstance(cause, OSError | MemoryError | KafkaError):
                raise
            raise OSError(errno.EINVAL, f"{cause}: {args[1:]!r:.200}") from cause

    return mapped


class MappedErrors:
    """A class whose subclasses raise only `OSError` in the methods that access a storage."""

    def __init_subclass__(cls, *, mapped: frozenset[str] = frozenset()) -> None:
        """Map the errors of an implementation, so that none can forget it.

        Args:
            mapped: methods that call nothing but mapped methods.
        """
        super().__init_subclass__()
        for name in (MAPPED - mapped) & vars(cls).keys():
            setattr(cls, name, storage_errors(vars(cls)[name]))


class Storage(MappedErrors, ABC, mapped=frozenset({"look"})):
    """Bytes under a root. Names are relative to it, with `/` between folders. Thread-safe.

    `FileNotFoundError` means that the name does not exist. Any other `OSError` means that the storage did not answer,
    or answered with an error. `storage_errors` maps the errors of all implementations.
    """

    scheduler: Scheduler = AT_ONCE
    tasks: TaskAccess = BY_ITSELF
    coordination: Coordination

    @property
    @abstractmethod
    def uri(self) -> str:
        """Location of the root: an absolute path or a URI."""

    @abstractmethod
    def at(self, folder: str) -> Storage:
        """Return the storage of a folder below this one; neither has to exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of a file that may not exist yet; None while it does not.

        Args:
            name: a file that never changes once it exists.
            pace: which answers to other looks of this process are accepted, where looks cost money.
        """
        del pace
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file, possibly in memory that is shared with the storage.

        Args:
            name: the file.
            start: position of the first byte.
            stop: position after the last byte; the file must have that many bytes.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        content = self.read(name)
        if not 0 <= start <= stop <= len(content):
            raise OSError(errno.EINVAL, f"it has {len(content)} bytes, and not those from {start} to {stop}", name)
        return pa.py_buffer(content[start:stop])

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for random access.

        Args:
            name: the file.
            buffer_size: bytes that the caller will read at a time; 0 if it reads large parts at once.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        del buffer_size
        return pa.BufferReader(self.read(name))

    @abstractmethod
    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file with its whole content at once, unless it exists.

        Its folder must exist, where there are folders: see `make_folder`.

        False means only that the file exists. It may be this caller's own, from a try whose answer was lost. Only its
        content tells, so the content must carry an id.

        Args:
            name: the file.
            content: its bytes.
            durable: the file must survive a power failure when this returns.

        Returns:
            Whether this call created the file.

        Raises:
            NotStoredError: nothing was created, and nothing will be.
            OSError: unknown: the file may exist, or may still appear.
        """

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Create or overwrite a file; readers see either the old or the new content, whole."""

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that creates a new file when it is closed.

        Creates the partition's folder if it is missing.

        Raises:
            FileNotFoundError: on a local disk, the root of this storage was removed. A late writer must not bring it
                back.
        """
        return pa.PythonFile(BufferedOutput(lambda content: self.replace(name, content)), "w")

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file, in bytes.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    @abstractmethod
    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder; empty if the folder does not exist.

        For opening, checks and maintenance; not for the hot path.

        Args:
            folder: name of the folder.
            deep: include the folders below it, except `_delta_log`.
            after: only files whose names come after this one, in the order of their UTF-8 bytes.
        """

    @abstractmethod
    def folders(self) -> Sequence[str]:
        """List the names of the non-empty folders right below this one, without links; for maintenance."""

    def make_folder(self, folder: str) -> None:
        """Create a folder and its parents, if they are missing. Does nothing where the storage has no folders."""

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy a file to another storage of the same cluster, without reading it if possible.

        Args:
            source: the file here.
            target: the other storage.
            name: the file's name there.

        Returns:
            Whether both names share one file on the disk, so that the copy takes no space. Removing one leaves the
                other.
        """
        # Read first, so that a missing source leaves no empty file.
        content = self.read(source)
        with target.open_output(name) as stream:
            stream.write(content)
        return False

    @abstractmethod
    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file, if it exists.

        Args:
            name: the file.
            quietly: nothing refers to the file. Failing is harmless then and not an error: maintenance finds the file.
        """

    def sync(self, name: str) -> None:
        """Make a file survive a power failure. Does nothing where every acknowledged file does."""


class BufferedOutput(io.BytesIO):
    """A file in memory that is passed on as a whole, once, when it is closed.

    Args:
        done: takes the content.
    """

    def __init__(self, done: Callable[[bytes], object]) -> None:
        super().__init__()
        self._done = done

    def close(self) -> None:
        """Pass the content on, at the first call."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._done(content)
