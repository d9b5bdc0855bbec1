"""Taken appends: the waiting appends that table commits took, as the commits' user metadata list them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkalike.model.record_batch import TRANSACTIONS

PARTS_KEY: Final = "parts"
"""Key, in a commit's user metadata, of the appends that it took. A list, even if empty, shows that its writer has
looked for waiting appends."""

MOST_WRITERS: Final = 1024
"""Number of writers that a table's state remembers; the least recent ones are forgotten."""


class WaitingAppend(NamedTuple):
    """An append that waits in a file next to the table."""

    base: int
    """Version of the table that its writer had seen before it put the file: no commit up to it has taken the append."""
    writer: str
    """Id of its writer; hexadecimal digits."""
    sequence: int
    """Increases with each append of the writer, which has one at a time."""

    @property
    def name(self) -> str:
        """Name of its file."""
        return f"{self.base:020d}-{self.id}"

    @property
    def id(self) -> str:
        """Id that `dump-log` and errors show."""
        return f"{self.writer}-{self.sequence}"


@dataclass(frozen=True, slots=True)
class Placed:
    """An append that a table commit took."""

    sequence: int
    version: int
    """Table version with the append."""
    ranges: Mapping[int, range]
    """Its offsets, by partition."""
    time_ms: int = 0
    """Time of the commit, ms."""
    duplicate: bool = False
    """True if the append was in the log before, by the id of its write."""


@dataclass(frozen=True, slots=True)
class TakenAppends:
    """The known appends that table commits took."""

    since: int
    """Every commit above this version is known."""
    latest: Mapping[str, Placed] = field(default_factory=dict)
    """The last append of each writer."""

    def after(self, placed: Mapping[str, Placed]) -> TakenAppends:
        """Return the state after the next commit, which took the appends `placed`, by writer."""
        if not placed:
            return self
        latest = {**self.latest, **placed}
        since = self.since
        if len(latest) > MOST_WRITERS:
            # By version, newest first, so that forgotten appends are older than all known ones.
            kept = sorted(latest.items(), key=lambda item: -item[1].version)
            since = max(since, kept[MOST_WRITERS // 2][1].version)
            latest = {writer: found for writer, found in kept if found.version > since}
        return TakenAppends(since, latest)

    def knows(self, part: WaitingAppend) -> bool:
        """Return whether the outcome of an append is known up to the latest commit."""
        return self.since <= part.base

    def of(self, part: WaitingAppend) -> Placed | None:
        """Return the outcome of an append; None if no commit took it. Only valid if `knows` is true."""
        found = self.latest.get(part.writer)
        return found if found is not None and found.sequence == part.sequence else None

    def may_take(self, part: WaitingAppend) -> bool:
        """Return whether the next commit may take an append, because no earlier one has."""
        if not self.knows(part):
            return False
        found = self.latest.get(part.writer)
        return found is None or found.sequence < part.sequence


def from_note(version: int, note: Mapping[str, Any], time_ms: int) -> dict[str, Placed]:
    """Parse the waiting appends that a commit took, by writer.

    Args:
        version: version of the commit.
        note: its user metadata.
        time_ms: its time, if the note has none.
    """
    when = int(note.get("time", time_ms))
    return {
        str(writer): Placed(int(sequence), version, _runs(runs), when)
        for writer, sequence, runs, *_ in note.get(PARTS_KEY) or ()
        if writer
    }


def ids_of(note: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the ids of the waiting appends that a commit took, as shown to people."""
    return tuple(f"{writer}-{sequence}" for writer, sequence, *_ in note.get(PARTS_KEY) or () if writer)


def parts_of(note: Mapping[str, Any]) -> list[tuple[str, dict[int, range], int | None]]:
    """Return the appends of a commit: id as shown to people, offsets, and number of the transaction that it carries.

    The id of the append of the commit's own writer is empty.
    """
    found = []
    for writer, sequence, runs, *txn in note.get(PARTS_KEY) or ():
        number = txn[0][1] if txn and txn[0][0] == TRANSACTIONS else None
        found.append((f"{writer}-{sequence}" if writer else "", _runs(runs), number))
    return found


def ranges_of_write(note: Mapping[str, Any], app_id: str, txn_version: int) -> dict[int, range] | None:
    """Return the offsets of one write in a commit, by its id; None if the commit does not list them."""
    for _, _, runs, *txn in note.get(PARTS_KEY) or ():
        if txn == [[app_id, txn_version]]:
            return _runs(runs)
    return None


def _runs(runs: Mapping[str, Any]) -> dict[int, range]:
    return {int(p): range(*run) for p, run in runs.items()}
