"""Table change: a plan's result, the requirements it rests on, its commit file, and the queue of a table's writers.

The queue is for fairness alone: the compare-and-set is `Storage.put_if_absent` of the version's file.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkalike.delta.actions import Add
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.storage.port import Storage

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A table version to make. Its data files are written already; no version names them yet."""

    operation: str
    """Operation in the table's history."""
    time_ms: int
    """Time of the change, ms since the epoch."""
    requires: Sequence[Requirement] = ()
    """The facts that it was planned on."""
    adds: Sequence[Add] = ()
    """Data files to add; they exist, and no version names them."""
    removes: Sequence[Add] = ()
    """Data files to remove; they stay on the disk until vacuum."""
    txns: Mapping[str, int] = field(default_factory=dict)
    """Delta transactions: the new version of each application."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Entries of the commit's user metadata beside its id."""
    closes: bool | None = None
    """True closes the table to foreign writers, False opens it, None leaves the protocol unchanged."""


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T]):
    """Result of a plan that needs no table version."""

    value: T


@dataclass(frozen=True, slots=True)
class Landed:
    """A change that became a table version."""

    version: int
    change: Change
    content: bytes
    """Bytes of its commit file."""


class Requirement(Protocol):
    """A fact that a change was planned on."""

    def broken(self, state: TableState) -> str:
        """Return the reason why it is broken; empty while it holds."""
        ...


@dataclass(frozen=True, slots=True)
class EndsAt:
    """The log end of a partition, from which offsets were counted."""

    partition: int
    offset: int

    def broken(self, state: TableState) -> str:
        """Compare the partition's log end with the expected one."""
        end = state.end(self.partition)
        return "" if end == self.offset else f"the log end of partition {self.partition} moved to {end}"


@dataclass(frozen=True, slots=True)
class FilesLive:
    """Data files that are part of the table."""

    paths: Collection[str]

    def broken(self, state: TableState) -> str:
        """Return the first file that the table does not have any more."""
        gone = [path for path in self.paths if not state.index.has(path)]
        return f"{gone[0]} was replaced or removed" if gone else ""


@dataclass(frozen=True, slots=True)
class LastOf:
    """The latest version of an application; None if it has never written."""

    app_id: str
    version: int | None

    def broken(self, state: TableState) -> str:
        """Compare the application's latest version with the expected one."""
        latest = state.txns.get(self.app_id)
        return "" if latest == self.version else f"the latest version of {self.app_id} is {latest}"


@dataclass(frozen=True, slots=True)
class Still:
    """A fact outside of the table."""

    what: Callable[[], bool]
    name: str
    """Name for the error: "the topic's settings"."""

    def broken(self, state: TableState) -> str:
        """Check the fact; the table's state does not matter."""
        del state
        return "" if self.what() else f"{self.name} changed"


Plan = Callable[[TableState], "Change | Unchanged[T]"]
"""Plans a change of a state, and writes its files; called again if a requirement of the last change broke. An error
that it raises leaves the table unchanged."""


def broken_requirement(change: Change, fenced: int, state: TableState) -> str:
    """Return the reason why a change must be planned again; empty if all its requirements hold.

    Args:
        change: the change, with its requirements.
        fenced: version of the latest fence when it was planned.
        state: the table's current state.
    """
    if state.fenced != fenced:
        return f"version {state.fenced} is a fence"
    return next(filter(None, [one.broken(state) for one in change.requires]), "")


def planned_commit(change: Change, version: int, append_id: str) -> CommitFile:
    """Return the commit that makes a change a table version.

    Args:
        change: the change.
        version: number of the version.
        append_id: id that identifies the commit.
    """
    return CommitFile(
        version=version,
        time_ms=change.time_ms,
        operation=change.operation,
        append_id=append_id,
        adds=change.adds,
        removes=change.removes,
        txns=change.txns,
        note=change.note,
        closes=change.closes,
    )


_log = logging.getLogger(__name__)

NEW_SECONDS: Final = 1.0
"""A writer that has read or made a commit within this time queues without refreshing."""

SHORT_PATIENCE_SECONDS: Final = 0.05
"""Wait of an impatient writer, after it did not get its turn the last time."""


class WriteQueue:
    """Turns of one client's threads. Thread-safe.

    Args:
        root: the cluster's files.
        location: the table's folder below it.
        clock: time and waiting.
        patience: seconds that a writer queues behind others before it proceeds without its turn; None waits.
        look: reads the news of other writers, so that little is left to do in the turn; called repeatedly during a
            wait. Returns a number that rises with news.
    """

    def __init__(
        self,
        root: Storage,
        location: str,
        clock: Clock,
        patience: float | None,
        look: Callable[[], int],
    ) -> None:
        self.patience = patience
        self._root = root
        self._location = location
        self._clock = clock
        self._look = look
        self._holding = threading.local()
        self._impatient = False
        """True if the last wait for a turn timed out."""

    @contextlib.contextmanager
    def held(self, deadline: Deadline) -> Iterator[None]:
        """Hold one turn; a thread that holds it already proceeds.

        Raises:
            KafkaTimeoutError: other writers held it until the deadline.
        """
        if getattr(self._holding, "now", False):
            yield
            return
        with self._root.coordination.turn(self._location, deadline, self._look):
            self._holding.now = True
            try:
                yield
            finally:
                self._holding.now = False

    @contextlib.contextmanager
    def awaited(self, deadline: Deadline, seen: int | None = None) -> Iterator[None]:
        """Queue behind other writers, but not forever behind a stopped one.

        Without this limit, a member that is stopped during a commit would stop its whole group, because nobody could
        write that its session expired. A producer that is stopped during an append would stop its topic.

        Args:
            deadline: until when to try.
            seen: recent result of `look`; None calls it before queueing.

        Raises:
            KafkaTimeoutError: the deadline expired.
        """
        if self.patience is None:
            with self.held(deadline):
                yield
            return
        wait = SHORT_PATIENCE_SECONDS if self._impatient else self.patience
        if seen is None:
            seen = self._look()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.held(Deadline(self._clock, min(wait, deadline.remaining()) * 1000)))
                self._impatient = False
            except KafkaTimeoutError:
                if deadline.expired():
                    raise
                # With news the queue may only be long, and after a short wait missing news prove nothing: do not warn.
                told = self._impatient or self._look() != seen
                self._impatient = True
                if not told:
                    where = f"{self._root.uri}/{self._location}"
                    _log.warning("%s: a writer holds the lock and does nothing; going on without it", where)
            yield


def cleaning_turn(location: str) -> str:
    """Return the turn of checkpoints and clean-ups of a table's log.

    Processes of other releases use the same name. A topic's name cannot contain `~`.
    """
    return f"condense~{location}"


def maintenance_turn(name: str) -> str:
    """Return the turn of maintenance runs of a topic, or of another thing with this name."""
    return f"maintenance~{name}"


def turns_of(location: str) -> list[str]:
    """Return all turns of a topic whose table has this folder."""
    return [location, cleaning_turn(location), maintenance_turn(location)]
