"""Small files: the segments of a partition in, runs of adjacent small ones that should become one file out.

Tiered, so that a byte is rewritten only a few times however many small appends follow: a run is merged when the result
is at least twice as large as its largest part, or when nothing more can join it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kafkalike.model.maintenance.retention import append_times
from kafkalike.model.segments import Segment

MIN_RUN: Final = 4
"""Files that a run must have while more may still join it: fewer are not worth a table commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """What makes a file small, and old enough."""

    target_bytes: int
    """Bytes that a merged file may have at most, as the sum of its parts."""
    max_span_ms: int
    """Time between the appends of the first and the last part at most (`segment.ms`), ms: a merged file leaves by
    retention as a whole."""
    min_age_ms: int
    """Time since its append, ms, before a file is touched."""
    min_run: int = MIN_RUN


Run = tuple[Segment, ...]


def plan_merges(segments: Sequence[Segment], now_ms: int, policy: MergePolicy, holes_below: int = 0) -> list[Run]:
    """Runs of adjacent segments of one partition, each to be rewritten into one file; in offset order, disjoint.

    Args:
        segments: live data files in offset order, without those below the log start.
        now_ms: the time, ms.
        policy: the limits.
        holes_below: offset below which compaction may have taken records. A hole that ends above it is data loss, which
            readers see between two files but not inside one: no run goes over it.
    """
    times = append_times(segments)
    cold = 0
    while cold < len(segments) and now_ms - times[cold] >= policy.min_age_ms:
        cold += 1
    runs: list[Run] = []
    start = 0
    while start < cold:
        stop, closed = _grow(segments, times, start, cold, policy, holes_below)
        runs += _worth(segments[start:stop], policy, closed=closed)
        start = stop
    return runs


def _grow(  # noqa: PLR0917
    segments: Sequence[Segment], times: Sequence[int], start: int, cold: int, policy: MergePolicy, holes_below: int
) -> tuple[int, bool]:
    """End of the longest run from a segment on that may become one file, and whether a limit ended it."""
    size = segments[start].size_bytes
    stop = start + 1
    while stop < cold:
        size += segments[stop].size_bytes
        if segments[stop].start > max(segments[stop - 1].stop, holes_below):
            return stop, True
        if size > policy.target_bytes or times[stop] - times[start] > policy.max_span_ms:
            return stop, True
        stop += 1
    return stop, False


def _worth(run: Sequence[Segment], policy: MergePolicy, *, closed: bool) -> list[Run]:
    if len(run) < 2 or (not closed and len(run) < policy.min_run):  # noqa: PLR2004 - one file is merged already
        return []
    sizes = [s.size_bytes for s in run]
    largest = max(range(len(run)), key=lambda at: (sizes[at], -at))
    if closed or sum(sizes) >= 2 * sizes[largest]:
        return [tuple(run)]
    # A large file among small ones: it stays as it is, the small ones may be worth it by themselves.
    left = _worth(run[:largest], policy, closed=False)
    return left + _worth(run[largest + 1 :], policy, closed=False)
