"""Lag: how far a group is or was behind, computed from committed offsets and segments without reading a record.

There are four measures. *Offsets* between the committed one and the log end: Kafka's LAG. *Records* that can still be
read: fewer if compaction or retention has removed some. *Milliseconds* between the last record read and the newest one.
The time of the *oldest unread* record: its age is the measure for alerts, because it also grows if the group has not
read anything yet, and if no new records come.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Final

from kafkalike.model.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """Distance of a committed offset from the end of its partition."""

    offsets: int
    """From the committed offset to the log end; 0 beyond it."""
    records: int
    """Records that can still be read from there. Exact if the committed offset is at the edge of a segment or the
    segment has a record for each offset; otherwise in proportion to the segment's offsets."""
    behind_ms: int
    """Time of the newest record minus time of the last one read; 0 without unread records. The time of a record inside
    a segment is interpolated by offset."""
    oldest_ms: int | None = None
    """Time of the oldest unread record, interpolated in the same way; None without unread records."""

    def waiting_ms(self, now_ms: int) -> int:
        """Return the age of the oldest unread record, ms; 0 if there is none or its time is in the future."""
        return 0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)


class PartitionIndex:
    """The segments of a partition, indexed to compute the lag of any number of committed offsets.

    Args:
        log_start: first readable offset.
        log_end: next offset to be written.
        segments: live segments in offset order.
    """

    __slots__ = ("_counts", "_starts", "log_end", "log_start", "newest_ms", "segments")

    def __init__(self, log_start: int, log_end: int, segments: Sequence[Segment]) -> None:
        self.log_start = log_start
        self.log_end = log_end
        self.segments = segments
        self.newest_ms = max((s.max_timestamp for s in segments), default=None)
        """Largest record time, ms; None if the partition is empty."""
        self._starts = [s.start for s in segments]
        self._counts = [0, *accumulate(s.num_records for s in segments)]

    def records_from(self, offset: int) -> int:
        """Return the number of readable records from an offset on."""
        wanted = max(offset, self.log_start)
        at = bisect_right(self._starts, wanted) - 1
        if at < 0:
            return self._counts[-1]
        later = self._counts[-1] - self._counts[at + 1]
        return later + _records_left(self.segments[at], wanted)

    def time_of(self, offset: int) -> int | None:
        """Return the time (ms) of the record at an offset, or of the last record before it; None if there is none."""
        at = bisect_right(self._starts, offset) - 1
        if at < 0:
            return None
        segment = self.segments[at]
        length = segment.stop - segment.start - 1
        if length <= 0 or offset >= segment.stop - 1:
            return segment.max_timestamp
        share = (offset - segment.start) / length
        return segment.min_timestamp + int(share * (segment.max_timestamp - segment.min_timestamp))

    def lag(self, committed: int) -> Lag:
        """Return the lag of a committed offset."""
        records = self.records_from(committed)
        return Lag(
            offsets=max(0, self.log_end - committed),
            records=records,
            behind_ms=self._behind(committed) if records else 0,
            oldest_ms=self._oldest(committed) if records else None,
        )

    def _oldest(self, committed: int) -> int | None:
        wanted = max(committed, self.log_start)
        at = bisect_right(self._starts, wanted) - 1
        if at >= 0 and self.segments[at].start < wanted < self.segments[at].stop:
            return self.time_of(wanted)
        # At the edge of a segment, or in a hole of compaction or retention, the next segment has the oldest record.
        following = at if at >= 0 and wanted < self.segments[at].stop else at + 1
        return self.segments[following].min_timestamp if following < len(self.segments) else None

    def _behind(self, committed: int) -> int:
        assert self.newest_ms is not None  # there are unread records, so there are segments
        read_ms = self.time_of(committed - 1) if committed > self.log_start else None
        if read_ms is None:
            # The group has read none of the remaining records, so its lag counts from the oldest one.
            read_ms = self.segments[0].min_timestamp
        return self.newest_ms - read_ms


def _records_left(segment: Segment, offset: int) -> int:
    """Return the number of records of a segment at or after an offset that is not below its start."""
    left = segment.stop - offset
    if left <= 0:
        return 0
    length = segment.stop - segment.start
    # Rounded up, because the last offset of a segment always has a record.
    return -(-segment.num_records * left // length)


def total(lags: Iterable[Lag]) -> Lag:
    """Return the lag of a topic or group: sums of offsets and records, the longest time, and the oldest record."""
    known = list(lags)
    return Lag(
        offsets=sum(lag.offsets for lag in known),
        records=sum(lag.records for lag in known),
        behind_ms=max((lag.behind_ms for lag in known), default=0),
        oldest_ms=min((lag.oldest_ms for lag in known if lag.oldest_ms is not None), default=None),
    )


RATE_MS: Final = 15 * 60_000
"""Time in ms before a moment over which rates are averaged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The lag of a group in a partition at a past moment."""

    time_ms: int
    committed: int
    log_end: int
    consumed_per_second: float | None
    """Offsets per second by which the commits advanced; None without an earlier commit to compare with, or if they went
    back."""
    produced_per_second: float | None
    """Offsets per second by which the log grew in that time; None if `consumed_per_second` is None."""

    @property
    def lag(self) -> int:
        """Offsets from the committed one to the log end."""
        return max(0, self.log_end - self.committed)

    @property
    def catch_up_seconds(self) -> float | None:
        """Seconds until the lag is 0 at these rates; None if it does not shrink."""
        if self.lag == 0:
            return 0.0
        if self.consumed_per_second is None or self.produced_per_second is None:
            return None
        gain = self.consumed_per_second - self.produced_per_second
        return self.lag / gain if gain > 0 else None


class GrowthIndex:
    """When a partition's log reached each offset, as far as its live segments show.

    A segment existed from the time its file was made. Merging rewrites files, but offsets are appended in order, so
    a segment is not younger than any segment after it. If its file is younger, it was rewritten, and the records' own
    times show how the log grew inside it.

    Args:
        log_start: first readable offset, which is the lower bound of the log end.
        segments: live segments in offset order.
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
        """Return the log end at a moment."""
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
    """The committed offsets of a partition over time.

    Args:
        commits: (time in ms, offset) in the order in which they were written; None for a deleted commit.
    """

    __slots__ = ("_offsets", "_times")

    def __init__(self, commits: Sequence[tuple[int, int | None]]) -> None:
        times: list[int] = []
        latest = 0
        for at, _ in commits:
            # Clocks of hosts differ, so the order of the rows decides.
            latest = max(latest, at)
            times.append(latest)
        self._times = times
        self._offsets = [offset for _, offset in commits]

    @property
    def first_ms(self) -> int | None:
        """Time of the first commit, ms."""
        return self._times[0] if self._times else None

    def at(self, at_ms: int) -> int | None:
        """Return the committed offset at a moment, or None."""
        known = bisect_right(self._times, at_ms)
        return self._offsets[known - 1] if known else None

    def fell(self, from_ms: int, until_ms: int) -> bool:
        """Return whether a commit between two moments went back to a lower offset."""
        low = max(0, bisect_right(self._times, from_ms) - 1)
        run = [at for at in self._offsets[low : bisect_right(self._times, until_ms)] if at is not None]
        return any(b < a for a, b in pairwise(run))


def history(
    commits: CommitIndex, growth: GrowthIndex, times_ms: Sequence[int], rate_ms: int = RATE_MS
) -> Iterator[Moment]:
    """Yield the lag at some moments, without those before the first commit.

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
    """Return evenly spaced moments over a span that ends now, oldest first, both ends included.

    >>> moments(100, 20, 10)
    [80, 90, 100]
    """
    return list(range(now_ms - span_ms // step_ms * step_ms, now_ms + 1, step_ms))
