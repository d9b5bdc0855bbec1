"""Replayed: which letters of a partition went back already ↔ an offset and a note that a group commits.

The group's offset is that of the first letter that did not; the note says which ones above it did, as a filter leaves
gaps. So the group's lag is the number of letters that wait, or a little more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from kafkalike.model.structs import OffsetAndMetadata

_MARK: Final = "replayed "
"""A note begins with it; one that does not is somebody else's, and says nothing."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Letters of one partition that went back."""

    below: int = 0
    """All below this did, or are gone."""
    above: tuple[range, ...] = ()
    """And these: ascending, apart from each other and from `below`."""

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None, start: int) -> Self:
        """What a group has committed.

        Args:
            committed: offset and note; None where there is none.
            start: the partition's log start: what lies below is gone.
        """
        if committed is None:
            return cls(start)
        return cls(committed.offset, _parsed(committed.metadata, committed.offset)).from_start(start)

    def __contains__(self, offset: int) -> bool:
        return offset < self.below or any(offset in run for run in self.above)

    def with_these(self, more: Iterable[range]) -> Self:
        """With some more letters."""
        runs = [*self.above, *(run for run in more if run)]
        merged: list[range] = []
        for run in sorted(runs, key=lambda run: run.start):
            if merged and run.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, run.stop))
            else:
                merged.append(run)
        return type(self)(self.below, tuple(merged)).from_start(self.below)

    def from_start(self, start: int) -> Self:
        """With all below an offset."""
        below = max(self.below, start)
        for run in self.above:
            if run.start <= below:
                below = max(below, run.stop)
        return type(self)(below, tuple(run for run in self.above if run.start > below))

    def position(self) -> OffsetAndMetadata:
        """What a group commits."""
        runs = ",".join(f"{run.start - self.below}+{len(run)}" for run in self.above)
        return OffsetAndMetadata(self.below, _MARK + runs if runs else "")


def _parsed(note: str, below: int) -> tuple[range, ...]:
    if not note.startswith(_MARK):
        return ()
    runs: list[range] = []
    for part in note.removeprefix(_MARK).split(","):
        start, _, length = part.partition("+")
        if not (start.isdecimal() and length.isdecimal()):
            return ()
        run = range(below + int(start), below + int(start) + int(length))
        if not run or run.start <= (runs[-1].stop if runs else below):
            return ()
        runs.append(run)
    return tuple(runs)
