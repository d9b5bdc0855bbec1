"""Table change: what a plan makes of a table's state, and whether it still holds; the commit that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kafkalike.delta.actions import Add
from kafkalike.delta.commit_file import CommitFile
from kafkalike.delta.table_state import Requirement, TableState

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


Plan = Callable[[TableState], "Change | Unchanged[T]"]
"""Makes a change of a state, with its files; called again when a requirement of the last one broke. It may raise: then
nothing is done."""


def holds(change: Change, fenced: int, state: TableState) -> bool:
    """Whether everything is as it was when a change was planned.

    Args:
        change: the change, with its requirements.
        fenced: version of the latest fence when it was planned.
        state: the table now.
    """
    return state.fenced == fenced and all(r.holds(state) for r in change.requires)


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
