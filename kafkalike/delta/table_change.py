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
    """One table version that is to be made, with its data files written already, under names that nobody sees yet."""

    operation: str
    """What the table's history calls it."""
    time_ms: int
    """Time of the change, ms since the epoch."""
    requires: Sequence[Requirement] = ()
    """What it was planned on."""
    adds: Sequence[Add] = ()
    """Data files that come in. They are there already, and nobody names them yet."""
    removes: Sequence[Add] = ()
    """Data files that go out. They stay on the disk until vacuum."""
    txns: Mapping[str, int] = field(default_factory=dict)
    """Delta transactions: application → its version from now on."""
    note: Mapping[str, Any] = field(default_factory=dict)
    """Goes into the commit's user metadata, beside its id."""
    closes: bool | None = None
    """Whether it closes the table to foreign writers, or opens it; None leaves it as it is."""


@dataclass(frozen=True, slots=True)
class Unchanged(Generic[T]):
    """A plan that needs no table version: what it found instead."""

    value: T


@dataclass(frozen=True, slots=True)
class Landed:
    """A change that is a table version."""

    version: int
    change: Change
    content: bytes
    """Its commit file."""


class Requirement(Protocol):
    """Something that a change was planned on."""

    def broken(self, state: TableState) -> str:
        """Why it does not hold any more; empty where it does."""
        ...


@dataclass(frozen=True, slots=True)
class EndsAt:
    """The log end of a partition, as the table has it, is the one that offsets were counted from."""

    partition: int
    offset: int

    def broken(self, state: TableState) -> str:
        """See `Requirement`."""
        end = state.end(self.partition)
        return "" if end == self.offset else f"the log end of partition {self.partition} moved to {end}"


@dataclass(frozen=True, slots=True)
class FilesLive:
    """Data files are part of the table."""

    paths: Collection[str]

    def broken(self, state: TableState) -> str:
        """See `Requirement`."""
        gone = [path for path in self.paths if not state.index.has(path)]
        return f"{gone[0]} was replaced or removed" if gone else ""


@dataclass(frozen=True, slots=True)
class LastOf:
    """The latest version of an application is the one that was seen; None: it has never written."""

    app_id: str
    version: int | None

    def broken(self, state: TableState) -> str:
        """See `Requirement`."""
        latest = state.txns.get(self.app_id)
        return "" if latest == self.version else f"the latest version of {self.app_id} is {latest}"


@dataclass(frozen=True, slots=True)
class Still:
    """Something outside of the table is as it was."""

    what: Callable[[], bool]
    name: str
    """What it is, for the error: "the topic's settings"."""

    def broken(self, state: TableState) -> str:
        """See `Requirement`."""
        del state
        return "" if self.what() else f"{self.name} changed"


Plan = Callable[[TableState], "Change | Unchanged[T]"]
"""Makes a change of a state, with its files; called again when a requirement of the last one broke. It may raise: then
nothing is done."""


def broken_requirement(change: Change, fenced: int, state: TableState) -> str:
    """Why a change has to be planned anew; empty where everything is as it was when it was planned.

    Args:
        change: the change, with its requirements.
        fenced: version of the latest fence when it was planned.
        state: the table now.
    """
    if state.fenced != fenced:
        return f"version {state.fenced} is a fence"
    return next(filter(None, [one.broken(state) for one in change.requires]), "")


def planned_commit(change: Change, version: int, append_id: str) -> CommitFile:
    """The commit that makes a change a table version.

    Args:
        change: what it does.
        version: its number.
        append_id: by which it is recognised.
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
"""A writer that has read a commit, or made one, so short a time ago queues without another look."""

SHORT_PATIENCE_SECONDS: Final = 0.05
"""How long an impatient writer queues after its turn could not be had the last time."""


class WriteQueue:
    """Turns of one client's threads. Thread-safe.

    Args:
        root: the cluster's files.
        location: the table's folder below it.
        clock: time and waiting.
        patience: seconds that a writer queues behind others before it goes on all the same; None waits.
        look: reads what others wrote, so that little is left to do in the turn, and is called again and again while
            one waits; returns a number that has risen if there was something.
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
        """Whether the turn could not be had the last time."""

    @contextlib.contextmanager
    def held(self, deadline: Deadline) -> Iterator[None]:
        """Have one turn; a thread that has it already goes on.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
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
        """Queue behind other writers; but not for ever behind one that was stopped while it had its turn.

        Without patience's end, a member that is stopped in the middle of a commit would stop its whole group, and
        nobody could write that its session is over; a producer that is stopped in an append would stop its topic.

        Args:
            deadline: until when to try.
            seen: what `look` returned a moment ago; None looks before one queues.

        Raises:
            KafkaTimeoutError: the deadline is over.
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
                # Where rows have come meanwhile, the queue may only be long; after a short wait it says nothing.
                told = self._impatient or self._look() != seen
                self._impatient = True
                if not told:
                    where = f"{self._root.uri}/{self._location}"
                    _log.warning("%s: a writer holds the lock and does nothing; going on without it", where)
            yield


def cleaning_turn(location: str) -> str:
    """What those queue for who write checkpoints to a table's log, and clean it up.

    Processes of other releases use the same name, so it stays; `~` cannot be part of a topic's name.
    """
    return f"condense~{location}"


def maintenance_turn(name: str) -> str:
    """What maintenance runs of a topic, or of something else that has this name, queue for."""
    return f"maintenance~{name}"


def turns_of(location: str) -> list[str]:
    """All that is queued for about a topic whose table has this folder."""
    return [location, cleaning_turn(location), maintenance_turn(location)]
