"""Storage: bytes under a root, and what comes with them: scheduling of requests, tasks' access, and coordination.

`put_if_absent` is the one compare-and-set of the whole project: all that must not happen twice rests on it. Everything
else here is reading, writing under new names, and fairness. Each storage has three collaborators that most callers
never need: a `Scheduler`, which matters for object stores alone, a `TaskAccess` for Spark's processes, and the
`Coordination` of the processes of a root.
"""

from __future__ import annotations

import errno
import functools
import io
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, ParamSpec, TypeVar

import pyarrow as pa

from kafkalike.errors import KafkaError
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.groups.roster import Leases

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

P = ParamSpec("P")
T = TypeVar("T")
R = TypeVar("R")

TABLE_LOG: Final = "_delta_log"
"""The folder of a Delta table that holds its log; a deep list of an object store leaves it out."""

Reach = Literal["process", "machine", "everywhere"]
"""Who sees what is stored: this process, the processes of this machine, or processes of any machine."""


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
    """Bytes."""
    modified_ms: int
    """When it was written: ms since the epoch, by the storage's own clock."""
    tag: str = ""
    """What the storage calls its content (an ETag): another content has another one. Empty where it has no such name.
    """


@dataclass(frozen=True, slots=True)
class Pace:
    """Which answers of other looks of this process will do, where a look is a request that costs money."""

    since: float = math.inf
    """One to a question that was asked at this time or later, seconds of the machine's monotonic clock. None by
    default: the storage is asked."""
    longest: float = 0.0
    """Above 0, the look is one of somebody who waits for something new and comes again: looks are made less and less
    often then, down to one in so many seconds, and all who wait share them. `since` counts where it is earlier."""
    surely: bool = False
    """Whether a leader that gives no answer is an error at once. Else a look finds nothing new for as long as it may
    lag, which is right for those who come again, and wrong for those who conclude something from what is missing."""

    @property
    def waits(self) -> bool:
        """Whether it is a look of somebody who comes again."""
        return self.longest > 0


NOW: Final = Pace()
"""The storage is asked."""

SURELY: Final = Pace(surely=True)
"""The storage is asked, and silence is no answer."""


class Scheduler:
    """How requests to a storage are made where each takes many milliseconds and costs money: few, and side by side.

    This one serves all storages that need none of that: everything is done at once, and nothing is shared.
    """

    @property
    def is_remote(self) -> bool:
        """Whether a request takes many milliseconds and costs money."""
        return False

    @property
    def combines(self) -> bool:
        """Whether writers spare requests for each other.

        Appends wait beside the table for whoever commits next, commits are bundled, and plans are made beside looks.
        Not where a version is made at several places.
        """
        return False

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root by kind, such as `get`; empty where none are counted."""
        return {}

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return what the storages of this root share in this process, as long as any of them is in use.

        Where requests cost nothing, it is made anew each time.

        Args:
            name: what it is.
            make: makes it.
        """
        del name
        return make()

    def beside(self, calls: Sequence[Callable[[], R]]) -> list[R]:
        """Make calls, side by side where they wait for a network; the first one in the caller's thread.

        Args:
            calls: they must not call this themselves, except for the first one.

        Returns:
            What they return, in order.

        Raises:
            Exception: what the first of them that failed has raised. All have ended then.
        """
        return [calls[0]()] if len(calls) == 1 else [call() for call in calls]

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for several files side by side, where that saves time.

        Errors are ignored here; `Storage.look` raises them. It asks nothing if its pace takes answers since before
        this call.

        Args:
            names: the files.
            pace: as in `Storage.look`; a file that it has an answer for is not asked for.
        """

    def fetch(self, names: Sequence[str]) -> None:
        """Prefetch files that are read one after the other soon and never change, where that saves time.

        Errors are ignored here; `Storage.read` raises them.
        """

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Note that a list that was requested at a time showed no such file: that answers a look for it.

        Args:
            name: the file.
            since: seconds of the machine's monotonic clock.
            quiet_seconds: how long nothing has come into the folder.
        """

    def is_past(self, name: str) -> bool:
        """Return whether a version's file is known to have existed though a look does not find it.

        Later ones exist, and a checkpoint is in its place. False where a request would be needed to know that.
        """
        del name
        return False

    def tag(self, name: str) -> str:
        """Return the storage's name for the content that this process has put under a name; see `Entry.tag`.

        Empty where that is not known: there was no answer, or it was long ago.
        """
        del name
        return ""


class _AtOnce(Scheduler):
    is_remote = False
    combines = False


AT_ONCE: Final = _AtOnce()
"""That of storages whose requests cost a system call. Its two answers are attributes: each look asks for them."""


class TaskAccess:
    """How Spark's tasks, Hadoop's client and maintenance reach the same bytes.

    This one serves all storages that every process of the machine opens by itself, and that have one copy.
    """

    def sendable(self, storage: Storage) -> Storage:
        """Return a storage to be sent to the processes of a Spark job: its credentials are pickled with it.

        Any other storage that is pickled is opened with the environment of the other process.

        Args:
            storage: the one whose access this is.
        """
        return storage

    def sent_options(self) -> SentOptions | None:
        """Return the credentials that the processes of a Spark job need; None where they need none."""
        return None

    def hadoop_settings(self) -> Mapping[str, str]:
        """Return the settings that Hadoop's client needs to read here; empty where it needs none. Secret.

        Raises:
            KafkaConfigurationError: there is no way to give it these credentials.
        """
        return {}

    has_replicas = False
    """Whether a table has replicas; known without asking them."""

    def replicas(self) -> Sequence[Storage] | None:
        """Return the replicas of a table that answer, each by itself; None where it has none.

        Checkpoints and other files that are each replica's own are written to each of them.
        """
        return None

    def elsewhere(self) -> Sequence[Storage]:
        """Return other storages that may have a file that cannot be read here; empty where there are none."""
        return ()


def copies_of(storage: Storage) -> Sequence[Storage]:
    """Return the replicas of a table that answer, or the storage itself where it has none."""
    found = storage.tasks.replicas()
    return [storage] if found is None else found


BY_ITSELF: Final = TaskAccess()
"""That of storages that need no credentials."""


class Coordination(ABC):
    """How processes that use one root notice each other: queues, heartbeats, its clock, and who may write at all.

    No guarantee of the log rests on it.
    """

    @property
    @abstractmethod
    def reach(self) -> Reach:
        """Who else sees what is stored here."""

    def check_writable(self, *, required: bool = True) -> None:  # noqa: B027 - as below
        """Refuse a storage that does not keep several writers apart; tried out where that cannot be known.

        Args:
            required: whether credentials that may not write are refused as well. Else nothing is tried with such, and
                every write fails later.

        Raises:
            UnsafeStorageError: nothing there keeps several writers apart; says what was seen.
            TopicAuthorizationFailedError: these credentials may not write.
            KafkaConnectionError: it gives no answer, or is not there.
        """

    @abstractmethod
    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other writers of this root, for fairness.

        Args:
            name: what they queue for, such as a table.
            deadline: until when to wait.
            meanwhile: called while waiting; what it raises ends the waiting.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
            TopicAuthorizationFailedError, KafkaStorageError: the root cannot be written.
        """

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove what queues of these names have left behind, where nobody is in them; returns how many went."""
        del names
        return 0

    @abstractmethod
    def leases(self) -> Leases:
        """Return the heartbeats of group members, below the cluster's root."""

    def now_ns(self) -> int:
        """Return the time by the storage's own clock, ns, by which `Entry.modified_ms` is measured."""
        return time.time_ns()

    def watch(self, folder: str, add: Callable[[str], object]) -> None:  # noqa: B027 - not all have something to do
        """Name a folder, if the kernel of this machine sees all files that anybody puts there.

        Args:
            folder: its URI.
            add: called with its path, at most once. It must not raise.
        """


def storage_errors(method: Callable[P, T]) -> Callable[P, T]:
    """Raise an `OSError` for what a library raises when it can do nothing with a name or a range.

    Clients take an `OSError` of a storage for what it is, and anything else for a fault of theirs. Foreign writers may
    put any name into a table's log, such as one with a NUL.
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
    """A class whose subclasses raise nothing but an `OSError` in the methods that talk to a storage."""

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

    A method that raises `FileNotFoundError` has found nothing under the name. Any other `OSError` means that the
    storage did not answer, or not as asked. Methods of implementations are mapped by `storage_errors`.
    """

    scheduler: Scheduler = AT_ONCE
    tasks: TaskAccess = BY_ITSELF
    coordination: Coordination

    @property
    @abstractmethod
    def uri(self) -> str:
        """Where the root is: an absolute path or a URI."""

    @abstractmethod
    def at(self, folder: str) -> Storage:
        """Return the storage of a folder below this one; neither has to exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileNotFoundError: there is none.
        """

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Return the content of a file that may not exist yet; None while it does not.

        Args:
            name: the file, which is not changed once it exists.
            pace: whether the answer that another look of this process got will do, where looks cost money.
        """
        del pace
        try:
            return self.read(name)
        except FileNotFoundError:
            return None

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Return bytes of a file; memory that may be shared with the storage's own.

        Args:
            name: the file.
            start: the first byte.
            stop: after the last one; the file must have that many bytes.

        Raises:
            FileNotFoundError: there is no such file.
        """
        content = self.read(name)
        if not 0 <= start <= stop <= len(content):
            raise OSError(errno.EINVAL, f"it has {len(content)} bytes, and not those from {start} to {stop}", name)
        return pa.py_buffer(content[start:stop])

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading at any place.

        Args:
            name: the file.
            buffer_size: bytes that the caller will ask for at a time; 0 when it reads large parts at once.

        Raises:
            FileNotFoundError: there is none.
        """
        del buffer_size
        return pa.BufferReader(self.read(name))

    @abstractmethod
    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file with its whole content at once, unless there is one.

        Its folder must exist, where there are folders: see `make_folder`.

        False means only that there is a file. Whether it is this caller's own, of a try whose answer was lost, is seen
        by reading it: so the content must carry an id.

        Args:
            name: the file.
            content: its bytes.
            durable: it must survive a power failure when this returns.

        Returns:
            Whether this call created it.

        Raises:
            NotStoredError: nothing was created, and nothing will be.
            OSError: unknown: the file may be there, or may still appear.
        """

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file, over an older one if there is one; readers see either of the two, whole."""

    def open_output(self, name: str) -> pa.NativeFile:
        """Open a stream that makes a new file, which exists when the stream is closed.

        The partition's folder is made if need be.

        Raises:
            FileNotFoundError: on a local disk, the root of this storage is gone: a late writer must not bring it back.
        """
        return pa.PythonFile(BufferedOutput(lambda content: self.replace(name, content)), "w")

    @abstractmethod
    def size(self, name: str) -> int:
        """Return the size of a file, bytes.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder; empty when there is no such folder.

        For opening, checks and maintenance; not for the hot path.

        Args:
            folder: which one.
            deep: with those of the folders below it, `_delta_log` excepted.
            after: only files whose names come after this one, as the bytes of UTF-8 are ordered.
        """

    @abstractmethod
    def folders(self) -> Sequence[str]:
        """List the names of the folders right below this one that hold anything; for maintenance. No links."""

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those above it; it may exist. Does nothing where there are no folders."""

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Give a file of this storage to another one of the same cluster, without reading it if that is possible.

        Args:
            source: the file here.
            target: the other storage.
            name: the file's name there.

        Returns:
            Whether both are one file on the disk, so that the second one takes no room. To remove one leaves the other.
        """
        # First: a source that is gone leaves no empty file.
        content = self.read(source)
        with target.open_output(name) as stream:
            stream.write(content)
        return False

    @abstractmethod
    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file; one that is gone already is fine.

        Args:
            name: the file.
            quietly: it is one that nobody names. Failing is harmless then, and no error: maintenance finds it.
        """

    def sync(self, name: str) -> None:
        """Make a file survive a power failure. Does nothing where each file that is acknowledged does."""


class BufferedOutput(io.BytesIO):
    """A file in the making, which is handed over as a whole when it is closed, once.

    Args:
        done: takes its content.
    """

    def __init__(self, done: Callable[[bytes], object]) -> None:
        super().__init__()
        self._done = done

    def close(self) -> None:
        """Hand it over."""
        if not self.closed:
            content = self.getvalue()
            super().close()
            self._done(content)
