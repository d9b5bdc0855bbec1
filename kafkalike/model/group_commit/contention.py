"""Pace: how long things took and how many write in, how long to wait for what out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

RIVALS_SECONDS: Final = 10.0
"""How long a writer that has met others looks for appends that wait."""

LAP_PUTS: Final = 6.0
"""How long it takes to commit for all, in times of one small put: some looks, the records, and the version."""

LEAST_ROOM: Final = 2.0
MOST_ROOM: Final = 60.0
"""How long, s, others give way to one who asks for room. If it dies, they wait for so long in vain."""


@dataclass(frozen=True, slots=True)
class CommitTimings:
    """How fast things go."""

    put_seconds: float
    """How long a small put takes."""
    crowd: int = 1
    """Appends in the latest combined version."""
    attempt_seconds: float = 0.0
    """How long an attempt at a version took lately."""

    @property
    def small_lap(self) -> float:
        """How long a version of small appends takes at most, as a rule, s."""
        return LAP_PUTS * self.put_seconds

    @property
    def lap(self) -> float:
        """How long a version for all takes at most, as a rule, s."""
        return max(self.small_lap, 1.25 * self.attempt_seconds)

    def room(self) -> float:
        """How long others are to give way, s: for some tries, of which the first may be lost to who is at work."""
        return min(MOST_ROOM, max(LEAST_ROOM, 4 * self.lap))

    def look(self) -> float:
        """Seconds between two looks. The more wait, the less often each looks: it is always some request's turn."""
        return self.put_seconds * max(1.0, self.crowd / 16)

    def patience(self, jitter: float) -> float:
        """Seconds without a new version after which a writer that waits makes one.

        Longer than the latest version's writer needs for its next; drawn, so that not all of them try at once.

        Args:
            jitter: random number from 0 to 1.
        """
        return self.lap + jitter * self.put_seconds * max(2, self.crowd)


@dataclass(frozen=True, slots=True)
class Contention:
    """What a writer knows of others at the table."""

    met: float = float("-inf")
    """When it last saw an append of one, s."""
    pace: CommitTimings = CommitTimings(0.025)

    def alone(self, now: float) -> bool:
        """Whether it may commit without looking for appends that wait."""
        return now - self.met > RIVALS_SECONDS

    def crowded(self, crowd: int) -> Contention:
        """Having made a version for so many."""
        return replace(self, pace=replace(self.pace, crowd=crowd))

    def seen(self, now: float) -> Contention:
        """Having met others now."""
        return replace(self, met=now)

    def attempted(self, seconds: float) -> Contention:
        """Having tried to make a version, for so many seconds; the newest counts for half."""
        before = self.pace.attempt_seconds or seconds
        return replace(self, pace=replace(self.pace, attempt_seconds=0.5 * (before + seconds)))

    def took(self, seconds: float) -> Contention:
        """Having put a small file, in so many seconds; the newest counts for half."""
        return replace(self, pace=replace(self.pace, put_seconds=0.5 * (self.pace.put_seconds + seconds)))
