"""Waiting appends: which of them the next table commit takes, and what became of each.

In an object store a table gets some ten versions a second, however many write. So a writer that has met others puts its
append beside the table, and whoever commits next commits for all. What keeps an append from landing twice is the chain
of versions alone: a commit names the appends that it took, and nobody takes one without knowing every commit that was
made since it was put there.

On a control table a unit is what one caller wants written at once: the offsets of a commit, a group's new roster, or
rows of several kinds that must not be torn apart. It sees the state with all units before it, so its rule is looked at
where its rows will stand, whoever writes them. It holds as a whole, or leaves no row.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from kafkalike.model.record_batch import TRANSACTIONS
from kafkalike.model.row_value import ControlState

PARTS_KEY: Final = "parts"
"""Key, in a commit's user metadata, of the appends that it took. A list, which may be empty: its writer has looked for
appends that wait."""

MOST_WRITERS: Final = 1024
"""Writers that a table's state remembers; of those that wrote longest ago nothing is known any more."""

MOST_PARTS: Final = 64
"""Appends that one commit takes at most: each is a request of its own."""

MOST_ROOM_MS: Final = 60_000
"""How long, ms, a word that asks for room counts at most, whatever it says."""

_ROOM: Final = re.compile(r"([0-9]{20})-([0-9a-f]{1,64})-room-([0-9]{1,9})")
_NAME: Final = re.compile(r"([0-9]{20})-([0-9a-f]{1,64})-([0-9]{1,18})")


@dataclass(frozen=True, slots=True, order=True)
class WaitingAppend:
    """An append that was put beside the table."""

    base: int
    """Version of the table that its writer had seen before it put it there: no commit up to it has taken it."""
    writer: str
    """Who put it there; hexadecimal digits."""
    sequence: int
    """Rises with each append of the writer, who has one at a time."""

    @property
    def name(self) -> str:
        """Its file."""
        return f"{self.base:020d}-{self.id}"

    @property
    def id(self) -> str:
        """What `dump-log` shows for it, and errors name."""
        return f"{self.writer}-{self.sequence}"


@dataclass(frozen=True, slots=True, order=True)
class Room:
    """A word beside the table: nobody is to make a version for a while but who has put it there."""

    base: int
    """Version that its writer had seen: who has seen an older one goes first."""
    writer: str
    """Who put it there; hexadecimal digits."""
    millis: int
    """How long it counts, ms."""

    @property
    def name(self) -> str:
        """Its file. Releases that do not know it take it for no append, and do not give way."""
        return f"{self.base:020d}-{self.writer}-room-{self.millis}"


OWN: Final = WaitingAppend(0, "", 0)
"""In place of a name: the append of the commit's writer, which did not wait."""


def parse_name(name: str) -> WaitingAppend | None:
    """The append that a file holds; None for any other file."""
    found = _NAME.fullmatch(name)
    return WaitingAppend(int(found[1]), found[2], int(found[3])) if found else None


def parse_room(name: str) -> Room | None:
    """The word that a file is; None for any other file."""
    found = _ROOM.fullmatch(name)
    return Room(int(found[1]), found[2], int(found[3])) if found else None


def gives_way(found: Mapping[Room, float], own: Room | None) -> bool:
    """Whether who wants to make a version is not to, as somebody else has asked for room before.

    Args:
        found: words beside the table, with their age in ms.
        own: the one of the writer, if it has put one there.
    """
    asked = (room for room, age in found.items() if age < min(room.millis, MOST_ROOM_MS))
    return any(own is None or room < own for room in asked)


@dataclass(frozen=True, slots=True)
class Placed:
    """An append that a table commit took."""

    sequence: int
    version: int
    """Table version that holds it."""
    ranges: Mapping[int, range]
    """Its offsets, by partition."""
    time_ms: int = 0
    """Time of the commit, ms."""
    duplicate: bool = False
    """Whether it was there before, by the name of its write."""


@dataclass(frozen=True, slots=True)
class TakenAppends:
    """The appends that table commits took, as far as they are known."""

    since: int
    """Every commit above this version is known."""
    latest: Mapping[str, Placed] = field(default_factory=dict)
    """The last one of each writer."""

    def after(self, placed: Mapping[str, Placed]) -> TakenAppends:
        """With one more commit, the one after the last that is known, which took these by writer."""
        if not placed:
            return self
        latest = {**self.latest, **placed}
        since = self.since
        if len(latest) > MOST_WRITERS:
            # By version, newest first: what is forgotten is older than all that is known.
            kept = sorted(latest.items(), key=lambda item: -item[1].version)
            since = max(since, kept[MOST_WRITERS // 2][1].version)
            latest = {writer: found for writer, found in kept if found.version > since}
        return TakenAppends(since, latest)

    def knows(self, part: WaitingAppend) -> bool:
        """Whether it can be said what became of an append up to now."""
        return self.since <= part.base

    def of(self, part: WaitingAppend) -> Placed | None:
        """What became of an append; None when no commit took it. Only for one that is known, see `knows`."""
        found = self.latest.get(part.writer)
        return found if found is not None and found.sequence == part.sequence else None

    def may_take(self, part: WaitingAppend) -> bool:
        """Whether the next commit may take an append: it is surely in none before."""
        if not self.knows(part):
            return False
        found = self.latest.get(part.writer)
        return found is None or found.sequence < part.sequence


def to_take(
    found: Iterable[WaitingAppend], taken: TakenAppends, dead: Collection[WaitingAppend] = (), most: int = MOST_PARTS
) -> list[WaitingAppend]:
    """Those appends that the next commit takes, in its order: who has waited longest comes first.

    A writer puts its next append there only when it knows what became of the one before, so of several of one writer
    all but the last are settled.

    Args:
        found: what waits.
        taken: what commits took.
        dead: those of `found` that must not be taken, such as withdrawn ones; they take nobody's place.
        most: how many.
    """
    last: dict[str, WaitingAppend] = {}
    for part in found:
        known = last.get(part.writer)
        if known is None or known.sequence < part.sequence:
            last[part.writer] = part
    return sorted(part for part in last.values() if part not in dead and taken.may_take(part))[:most]


def numbered(ends: Mapping[int, int], counts: Sequence[Mapping[int, int]]) -> list[dict[int, range]]:
    """Give each append its runs of offsets, one after the other.

    Args:
        ends: next offset to be written, by partition.
        counts: records of each append, by partition.
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
    """What a commit says of its appends: writer, sequence, first and next offset by partition, name of the write."""
    return [
        [
            part.writer,
            part.sequence,
            {str(p): [run.start, run.stop] for p, run in runs.items()},
            *([] if txn is None else [list(txn)]),
        ]
        for part, runs, txn in parts
    ]


def from_note(version: int, note: Mapping[str, Any], time_ms: int) -> dict[str, Placed]:
    """The appends that a commit took of those that waited, by writer.

    Args:
        version: the commit's.
        note: its user metadata.
        time_ms: its time, where the note has none.
    """
    when = int(note.get("time", time_ms))
    return {
        str(writer): Placed(int(sequence), version, _runs(runs), when)
        for writer, sequence, runs, *_ in note.get(PARTS_KEY) or ()
        if writer
    }


def ids_of(note: Mapping[str, Any]) -> tuple[str, ...]:
    """The appends that a commit took of those that waited, as people are told."""
    return tuple(f"{writer}-{sequence}" for writer, sequence, *_ in note.get(PARTS_KEY) or () if writer)


def parts_of(note: Mapping[str, Any]) -> list[tuple[str, dict[int, range], int | None]]:
    """The appends of a commit: what people are told each is called, its offsets, and the transaction that it brought.

    The one of the commit's own writer has an empty name.
    """
    found = []
    for writer, sequence, runs, *txn in note.get(PARTS_KEY) or ():
        number = txn[0][1] if txn and txn[0][0] == TRANSACTIONS else None
        found.append((f"{writer}-{sequence}" if writer else "", _runs(runs), number))
    return found


def ranges_of_write(note: Mapping[str, Any], app_id: str, txn_version: int) -> dict[int, range] | None:
    """The offsets of the write of a name among those of a commit; None where it does not tell them apart."""
    for _, _, runs, *txn in note.get(PARTS_KEY) or ():
        if txn == [[app_id, txn_version]]:
            return _runs(runs)
    return None


def _runs(runs: Mapping[str, Any]) -> dict[int, range]:
    return {int(p): range(*run) for p, run in runs.items()}


S = TypeVar("S", bound=ControlState)
R = TypeVar("R")

Unit = Callable[[S], Sequence[R]]
"""Makes rows of a state, numbered from the one after its last on; none where nothing is to be written. It raises what
refuses it. It may be called several times."""

MOST_UNITS: Final = 256
"""Units that wait in one file at most."""


@dataclass(frozen=True, slots=True)
class InTurn(Generic[R]):
    """Rows of many units, in one order."""

    rows: Sequence[R]
    runs: Sequence[dict[int, range]]
    """For each part: the numbers of the rows of those of its units that hold, by the unit's place in it. A unit that is
    missing here was refused."""


def in_turn(state: S, parts: Sequence[Sequence[Unit[S, Any]]]) -> InTurn[Any]:
    """Let units make their rows, one after the other.

    Args:
        state: what the first one sees.
        parts: units that wait together, by those who put them there; in order.
    """
    rows: list[Any] = []
    runs: list[dict[int, range]] = []
    for units in parts:
        held: dict[int, range] = {}
        for nth, unit in enumerate(units):
            try:
                made = list(unit(state))
                after = state.applied(made)
            except Exception:  # noqa: BLE001, S112 - whatever refuses it: its own caller asks it again, and is told
                continue
            held[nth] = range(state.seq + 1, after.seq + 1)
            rows += made
            state = after
        runs.append(held)
    return InTurn(rows, runs)
