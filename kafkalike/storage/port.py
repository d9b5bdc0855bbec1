"""Storage: names below a root in, bytes out; the only place that knows what a storage can do.

`put_if_absent` is the one compare-and-set of the whole project: all that must not happen twice rests on it. Everything
else here is reading, writing under new names, and fairness.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol, TypeVar

import pyarrow as pa

from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.groups.sessions import Leases

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline

T = TypeVar("T")

TABLE_LOG: Final = "_delta_log"
"""The folder of a Delta table that holds its log; a deep list of an object store leaves it out."""

Reach = Literal["process", "machine", "everywhere"]
"""Who sees what is stored: this process, the processes of this machine, or processes of any machine."""


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


class Storage(Protocol):
    """Files below a root. Names are relative to it, with `/` between folders. Thread-safe.

    A method that raises `FileNotFoundError` has found nothing under the name. Any other `OSError` means that the
    storage did not answer, or not as asked.
    """

    @property
    def uri(self) -> str:
        """Where the root is: an absolute path or a URI."""
        ...

    @property
    def reach(self) -> Reach:
        """Who else sees what is stored here."""
        ...

    @property
    def far(self) -> bool:
        """Whether a request takes many milliseconds and costs money: then they are to be few, and side by side."""
        ...

    @property
    def combines(self) -> bool:
        """Whether writers spare requests for each other.

        Appends wait beside the table for whoever commits next, commits are joined, and plans are made beside looks. Not
        where a version is made at several places.
        """
        ...

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root's storage by kind, such as `get`; empty where none count."""
        ...

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """What the stores of this root share in this process, as long as any of them is in use.

        Where requests cost nothing, it is made anew each time.

        Args:
            name: what it is.
            make: makes it.
        """
        ...

    def check_writable(self) -> None:
        """Refuse a storage that can only be read.

        Raises:
            UnsafeStorageError: nothing there keeps several writers apart.
            TopicAuthorizationFailedError: these credentials may not write.
            KafkaConnectionError: it gives no answer, or is not there.
        """
        ...

    def try_out(self) -> None:
        """Make sure that the storage keeps several writers apart, where that cannot be known beforehand.

        Where these credentials may not write, nothing is tried, and every write is refused later.

        Raises:
            UnsafeStorageError: it does not; says what was seen.
            KafkaConnectionError: it gives no answer, or is not there.
        """
        ...

    def at(self, folder: str) -> Storage:
        """The store of a folder below this one; neither has to exist."""
        ...

    def copies(self) -> Sequence[Storage]:
        """The stores that have all that is here, each for itself, and answer: this one, or the replicas of a table.

        What is each replica's own, such as checkpoints, is written to each of them.
        """
        ...

    def elsewhere(self) -> Sequence[Storage]:
        """Where a file can be read that cannot be read here: each replica for itself; empty where there is none."""
        ...

    def for_tasks(self) -> Storage:
        """This store, to be sent to the processes of a Spark job: when it is pickled, what asks the storage goes along.

        Any other store that is pickled is opened with what the environment of the other process says.
        """
        ...

    def sent_options(self) -> SentOptions | None:
        """Who asks the storage, to be sent to the processes of a Spark job; None where nobody has to say it."""
        ...

    def hadoop_settings(self) -> Mapping[str, str]:
        """What Hadoop's client must be told to read here; empty where it knows by itself. Not to be shown.

        Raises:
            KafkaConfigurationError: it cannot be told who asks.
        """
        ...

    def read(self, name: str) -> bytes:
        """Content of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def look(self, name: str, pace: Pace = NOW) -> bytes | None:
        """Content of a file that may not be there yet.

        Args:
            name: the file, which is not changed once it is there.
            pace: whether the answer that another look of this process got will do.

        Returns:
            None when there is none.
        """
        ...

    def look_ahead(self, names: Sequence[str], pace: Pace = NOW) -> None:
        """Look for several files side by side, where that saves time.

        What goes wrong is met again by `look`, which asks no more if its pace takes answers since before this call.

        Args:
            names: the files.
            pace: as in `look`; a file that it has an answer for is not asked for.
        """
        ...

    def fetch(self, names: Sequence[str]) -> None:
        """Get files ahead that are read one after the other soon, and never change; where that saves time.

        What goes wrong is met again by `read`.
        """
        ...

    def watch(self, folder: str, add: Callable[[str], object]) -> None:
        """Name a folder, if the kernel of this machine sees all files that anybody puts there.

        Args:
            folder: below the store's own.
            add: called with its path, at most once. It must not raise.
        """
        ...

    def beside(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """Make calls, side by side where they wait for a network; the first one in the caller's thread.

        Args:
            calls: they must not call this themselves, but for the first one.

        Returns:
            What they return, in order.

        Raises:
            Exception: what the first of them that failed has raised. All have ended then.
        """
        ...

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file with its whole content at once, unless there is one.

        Its folder must exist, where there are folders: see `make_folder`.

        False means only that there is a file. Whether it is this caller's own, of a try whose answer was lost, is seen
        by reading it: so the content must carry an id.

        Args:
            name: the file.
            content: what it holds.
            durable: it must survive a power failure when this returns.

        Returns:
            Whether this call created it.

        Raises:
            NotStoredError: nothing was created, and nothing will be.
            OSError: unknown: the file may be there, or may still appear.
        """
        ...

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, over an older one if there is one; readers see either of the two, whole."""
        ...

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading at any place.

        Args:
            name: the file.
            buffer_size: bytes that the caller will ask for at a time; 0 when it reads large parts at once.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file.

        Args:
            name: the file.
            start: the first byte.
            stop: after the last one; the file must have that many bytes.

        Returns:
            `stop - start` bytes; memory that may be shared with the storage's own.

        Raises:
            FileNotFoundError: there is no such file.
        """
        ...

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file, which is there when the stream is closed.

        The partition's folder is made if need be.

        Raises:
            FileNotFoundError: on a local disk, the root of this store is gone: a late writer must not bring it back.
        """
        ...

    def size(self, name: str) -> int:
        """Bytes of a file.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def tag(self, name: str) -> str:
        """What the storage called the content that `put_if_absent` gave this file in this process, see `Entry.tag`.

        Returns:
            Empty where that is not known: it had no answer, or was long ago.
        """
        ...

    def note_missing(self, name: str, since: float, quiet_seconds: float) -> None:
        """Take note that a list which was asked for at a time showed no such file: the answer to a look for it.

        Args:
            name: the file.
            since: seconds of the machine's monotonic clock.
            quiet_seconds: how long nothing has come into the folder.
        """
        ...

    def is_past(self, name: str) -> bool:
        """Whether a file of a log is known to have been there, as later ones are, though a look does not find it.

        Then a checkpoint is in its place. False where that is not known without a request.
        """
        ...

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder; empty when there is no such folder.

        For opening, checks and maintenance; not for the hot path.

        Args:
            folder: which one.
            deep: with those of the folders below it, `_delta_log` excepted.
            after: only files whose names come after this one, as the bytes of UTF-8 are ordered.
        """
        ...

    def folders(self) -> Sequence[str]:
        """Names of the folders right below this one that hold anything; for maintenance. Links to folders are none."""
        ...

    def make_folder(self, folder: str) -> None:
        """Make a folder, and those above it; it may exist. Does nothing where there are no folders."""
        ...

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Give a file of this store to another one of the same cluster, without reading it if that is possible.

        Args:
            source: the file here.
            target: the other store.
            name: what the file is called there.

        Returns:
            Whether both are one file on the disk, so that the second one takes no room. To remove one leaves the other.
        """
        ...

    def discard(self, name: str) -> None:
        """Try to remove a file that nobody names; failing is harmless, maintenance finds it."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file that nobody needs; one that is gone already is fine."""
        ...

    def sync(self, name: str) -> None:
        """Make a file survive a power failure."""
        ...

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other writers of this root. For fairness: no guarantee of the log rests on it.

        Args:
            name: what they queue for, such as a table.
            deadline: until when to wait.
            meanwhile: called while waiting; what it raises ends the waiting.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
            TopicAuthorizationFailedError, KafkaStorageError: the root cannot be written.
        """
        ...

    def forget_turns(self, names: Iterable[str]) -> int:
        """Remove what queues of these names have left behind, where nobody is in them.

        Returns:
            How many went.
        """
        ...

    def leases(self) -> Leases:
        """Heartbeats of group members, below the cluster's root."""
        ...

    def now_ns(self) -> int:
        """The storage's own clock, ns; what `Entry.modified_ms` is measured by."""
        ...
