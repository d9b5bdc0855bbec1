"""Lag history: commits of a group and the segments of a partition in, lag at past moments out; no record is read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from kafkalike.model.segments import Segment

RATE_MS: Final = 15 * 60_000
"""Rates are means over so many ms before a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The lag of a group in a partition at a past moment."""

    time_ms: int
    committed: int
    log_end: int
    consumed_per_second: float | None
    """Offsets by which the commits moved on; None without an earlier commit to compare with, or when they went back."""
    produced_per_second: float | None
    """Offsets by which the log grew meanwhile; None where the first one is."""

    @property
    def lag(self) -> int:
        """Offsets from the committed one to the log end."""
        return max(0, self.log_end - self.committed)

    @property
    def catch_up_seconds(self) -> float | None:
        """When the lag will be gone if both rates stay; 0 when it is gone, None when it will not be."""
        if self.lag == 0:
            return 0.0
        if self.consumed_per_second is None or self.produced_per_second is None:
            return None
        gain = self.consumed_per_second - self.produced_per_second
        return self.lag / gain if gain > 0 else None


class GrowthIndex:
    """When a partition's log reached which offset, as far as its live segments show.

    A segment was there when its file was made. Merging makes files anew, but offsets are appended in order, so a
    segment is not younger than any after it; one whose file is younger than that was rewritten, and inside it the
    records' own times show how it grew.

    Args:
        log_start: first offset that may be read; the log is not known to have been shorter.
        segments: live ones in offset order.
    """

    __slots__ = ("_log_start", "_segments", "_there")

    def __init__(self, log_start: int, segments: Sequence[Segment]) -> None:
        self._log_start = log_start
        self._segments = segments
        there: list[int] = []
        bound: int | None = None
        for segment in reversed(segments):
            bound = segment.modification_ms if bound is None else min(bound, segment.modification_ms)
            there.append(bound)
        self._there = there[::-1]

    def log_end(self, at_ms: int) -> int:
        """Where the log ended at a moment."""
        whole = bisect_right(self._there, at_ms)
        reached = self._segments[whole - 1].stop if whole else self._log_start
        if whole == len(self._segments):
            return reached
        following = self._segments[whole]
        if following.modification_ms <= self._there[whole] or following.min_timestamp > at_ms:
            return reached
        span = max(1, following.max_timestamp - following.min_timestamp)
        share = min(1.0, (at_ms - following.min_timestamp) / span)
        return max(reached, following.start + int(share * (following.stop - following.start)))


class CommitIndex:
    """What was committed when.

    Args:
        commits: (time in ms, offset), in the order in which they were written; None where a commit was deleted.
    """

    __slots__ = ("_offsets", "_times")

    def __init__(self, commits: Sequence[tuple[int, int | None]]) -> None:
        times: list[int] = []
        latest = 0
        for at, _ in commits:
            # Clocks of different hosts differ: the order of the rows is what counts.
            latest = max(latest, at)
            times.append(latest)
        self._times = times
        self._offsets = [offset for _, offset in commits]

    @property
    def first_ms(self) -> int | None:
        """Time of the first commit."""
        return self._times[0] if self._times else None

    def at(self, at_ms: int) -> int | None:
        """The offset that was committed at a moment; None where there was none."""
        known = bisect_right(self._times, at_ms)
        return self._offsets[known - 1] if known else None

    def fell(self, from_ms: int, until_ms: int) -> bool:
        """Whether a commit between two moments went back behind the one before."""
        low = max(0, bisect_right(self._times, from_ms) - 1)
        run = [at for at in self._offsets[low : bisect_right(self._times, until_ms)] if at is not None]
        return any(b < a for a, b in pairwise(run))


def history(
    commits: CommitIndex, growth: GrowthIndex, times_ms: Sequence[int], rate_ms: int = RATE_MS
) -> Iterator[Moment]:
    """The lag at some moments; those before the first commit are left out.

    Args:
        commits: of one group in one partition.
        growth: of that partition.
        times_ms: moments, ms.
        rate_ms: span of the rates.
    """
    first = commits.first_ms
    if first is None:
        return
    for now in times_ms:
        committed = commits.at(now)
        if committed is None:
            continue
        before = max(first, now - rate_ms)
        earlier = commits.at(before)
        seconds = (now - before) / 1000
        consumed = produced = None
        if earlier is not None and seconds > 0 and not commits.fell(before, now):
            consumed = (committed - earlier) / seconds
            produced = (growth.log_end(now) - growth.log_end(before)) / seconds
        yield Moment(
            time_ms=now,
            committed=committed,
            log_end=growth.log_end(now),
            consumed_per_second=consumed,
            produced_per_second=produced,
        )


def moments(now_ms: int, span_ms: int, step_ms: int) -> list[int]:
    """Evenly spaced moments over a span that ends now, oldest first, both ends included.

    >>> moments(100, 20, 10)
    [80, 90, 100]
    """
    return list(range(now_ms - span_ms // step_ms * step_ms, now_ms + 1, step_ms))
