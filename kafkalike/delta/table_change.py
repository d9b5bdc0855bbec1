"""Table change: what a plan makes of a table's state, and whether it still holds; the commit that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from kafkalike.delta.actions import Add
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table_state import TableState

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
