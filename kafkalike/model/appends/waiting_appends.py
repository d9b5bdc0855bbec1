"""Waiting appends: choose the appends that the next table commit takes, and find the outcome of each.

In an object store a table gets some ten versions a second, regardless of the number of writers. A writer that has met
others therefore puts its append into a file next to the table, and the next writer to commit takes all of them. Only
the chain of versions keeps an append from being committed twice: a commit names the appends that it took, and no writer
takes one without knowing every commit since its file was put.

On a control table a unit is a set of rows that one caller writes at once: the offsets of a commit, a group's new
roster, or rows of several kinds that must be atomic. It sees the state with all units before it, so its rule is checked
at the position where its rows will be, whichever process writes them. Either all of its rows are written, or none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar

from kafkalike.errors import UnknownOutcomeError
from kafkalike.model.appends.taken_appends import TakenAppends, WaitingAppend
from kafkalike.model.row_value import ControlState

MOST_PARTS: Final = 64
"""Most appends that one commit takes, because each is a request of its own."""

MOST_ROOM_MS: Final = 60_000
"""Longest duration of a reservation, ms; longer ones are cut."""

_ROOM: Final = re.compile(r"([0-9]{20})-([0-9a-f]{1,64})-room-([0-9]{1,9})")
_NAME: Final = re.compile(r"([0-9]{20})-([0-9a-f]{1,64})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True, order=True)
class Room:
    """A reservation: a file next to the table by which a writer asks the others to make no versions for a while."""

    base: int
    """Version that its writer had seen: the writer with the oldest one goes first."""
    writer: str
    """Id of its writer; hexadecimal digits."""
    millis: int
    """Duration of the reservation, ms."""

    @property
    def name(self) -> str:
        """Name of its file. Older releases do not parse it as an append, and do not give way."""
        return f"{self.base:020d}-{self.writer}-room-{self.millis}"


OWN: Final = WaitingAppend(0, "", 0)
"""Placeholder for the append of the commit's writer, which did not wait."""


def parse_name(name: str) -> WaitingAppend | None:
    """Parse the name of a waiting append's file; None for any other file."""
    found = _NAME.fullmatch(name)
    return WaitingAppend(int(found[1]), found[2], int(found[3])) if found else None


def parse_room(name: str) -> Room | None:
    """Parse the name of a reservation's file; None for any other file."""
    found = _ROOM.fullmatch(name)
    return Room(int(found[1]), found[2], int(found[3])) if found else None


def gives_way(found: Mapping[Room, float], own: Room | None) -> bool:
    """Return whether a writer must not make a version, because another one has an earlier reservation.

    Args:
        found: reservations next to the table, with their age in ms.
        own: the writer's own reservation, if it has one.
    """
    asked = (room for room, age in found.items() if age < min(room.millis, MOST_ROOM_MS))
    return any(own is None or room < own for room in asked)


def to_take(
    found: Iterable[WaitingAppend], taken: TakenAppends, dead: Collection[WaitingAppend] = (), most: int = MOST_PARTS
) -> list[WaitingAppend]:
    """Return the appends that the next commit takes, in its order: the longest wait first.

    A writer puts its next append only when it knows the outcome of the one before, so the outcomes of all but the last
    of several appends of one writer are known.

    Args:
        found: the waiting appends.
        taken: the appends that commits took.
        dead: appends of `found` that must not be taken, such as withdrawn ones; they do not count toward `most`.
        most: largest number of appends.
    """
    last: dict[str, WaitingAppend] = {}
    for part in found:
        known = last.get(part.writer)
        if known is None or known.sequence < part.sequence:
            last[part.writer] = part
    return sorted(part for part in last.values() if part not in dead and taken.may_take(part))[:most]


def numbered(ends: Mapping[int, int], counts: Sequence[Mapping[int, int]]) -> list[dict[int, range]]:
    """Give each append its ranges of offsets, one after the other.

    Args:
        ends: next offset to be written, by partition.
        counts: number of records of each append, by partition.
    """
    following = dict(ends)
    runs = []
    for wanted in counts:
        own = {p: range(following[p], following[p] + rows) for p, rows in sorted(wanted.items()) if rows}
        following.update({p: run.stop for p, run in own.items()})
        runs.append(own)
    return runs


# --- in a commit's user metadata ------------------------------------------------------------------


def to_note(parts: Sequence[tuple[WaitingAppend, Mapping[int, range], tuple[str, int] | None]]) -> list[Any]:
    """Describe the appends of a commit: writer, sequence, first and next offset by partition, id of the write."""
    return [
        [
            part.writer,
            part.sequence,
            {str(p): [run.start, run.stop] for p, run in runs.items()},
            *([] if txn is None else [list(txn)]),
        ]
        for part, runs, txn in parts
    ]


S = TypeVar("S", bound=ControlState)
R = TypeVar("R")

Unit = Callable[[S], Sequence[R]]
"""Returns rows for a state, numbered from the one after its last; none if there is nothing to write. It raises an error
to reject the rows. It may be called several times."""

MOST_UNITS: Final = 256
"""Most units in one waiting file."""


@dataclass(frozen=True, slots=True)
class InTurn(Generic[R]):
    """Rows of many units, in one order."""

    rows: Sequence[R]
    runs: Sequence[dict[int, range]]
    """For each part, the numbers of the rows of its accepted units, by the unit's place in it. Missing units were
    rejected."""


def in_turn(state: S, parts: Sequence[Sequence[Unit[S, Any]]]) -> InTurn[Any]:
    """Apply units one after the other.

    Args:
        state: state that the first unit sees.
        parts: units by waiting file, in order.
    """
    rows: list[Any] = []
    runs: list[dict[int, range]] = []
    for units in parts:
        held: dict[int, range] = {}
        for nth, unit in enumerate(units):
            try:
                made = list(unit(state))
                after = state.applied(made)
            except Exception:  # noqa: BLE001, S112 - any reason to reject: the unit's own caller applies it again and gets the error
                continue
            held[nth] = range(state.seq + 1, after.seq + 1)
            rows += made
            state = after
        runs.append(held)
    return InTurn(rows, runs)


class Lost(Enum):
    """Reason why an attempt made no version."""

    LOST = "lost"
    """Another writer made that version."""
    BUSY = "busy"
    """Not tried: another thread of this process is making a version."""
    GIVES_WAY = "gives way"
    """Not tried: another writer has reserved the next versions for an append that cannot wait."""


LOST: Final = Lost.LOST
BUSY: Final = Lost.BUSY
GIVES_WAY: Final = Lost.GIVES_WAY


class ForgottenError(UnknownOutcomeError):
    """The outcome of an append is unknown and stays so, because the log has no record of it."""
