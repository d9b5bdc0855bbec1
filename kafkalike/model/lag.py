"""Lag: a committed offset and the segments of its partition in, how far behind it is out; no record is read.

Four measures. *Offsets* between the committed one and the log end, Kafka's LAG. *Records* that can still be read:
fewer where compaction or retention has removed some. *Milliseconds* between the last record read and the newest one.
The time of the *oldest unread* record: how long it has waited is what an alert asks for, since it also grows where
nothing was read yet, and where nothing new comes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kafkalike.model.segments import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a committed offset is behind its partition."""

    offsets: int
    """From the committed offset to the log end; 0 beyond it."""
    records: int
    """Records that can still be read from there on. Exact where the committed offset stands at the edge of a segment or
    the segment has a record for each offset, else in proportion to the segment's offsets."""
    behind_ms: int
    """Time of the newest record minus time of the last one read; 0 when there is none to read. The time of a record
    inside a segment is taken in proportion to the segment's offsets."""
    oldest_ms: int | None = None
    """Time of the oldest record that was not read, found in the same way; None when there is none to read."""

    def waiting_ms(self, now_ms: int) -> int:
        """How long the oldest record that was not read has waited; 0 when there is none, or it is of the future."""
        return 0 if self.oldest_ms is None else max(0, now_ms - self.oldest_ms)


class PartitionIndex:
    """What the segments of a partition say about lag, for any number of committed offsets.

    Args:
        log_start: first offset that may be read.
        log_end: next offset to be written.
        segments: live ones in offset order.
    """

    __slots__ = ("_counts", "_starts", "log_end", "log_start", "newest_ms", "segments")

    def __init__(self, log_start: int, log_end: int, segments: Sequence[Segment]) -> None:
        self.log_start = log_start
        self.log_end = log_end
        self.segments = segments
        self.newest_ms = max((s.max_timestamp for s in segments), default=None)
        """Largest record time, ms; None when the partition is empty."""
        self._starts = [s.start for s in segments]
        self._counts = [0, *accumulate(s.num_records for s in segments)]

    def records_from(self, offset: int) -> int:
        """How many records can be read from an offset on."""
        wanted = max(offset, self.log_start)
        at = bisect_right(self._starts, wanted) - 1
        if at < 0:
            return self._counts[-1]
        later = self._counts[-1] - self._counts[at + 1]
        return later + _records_left(self.segments[at], wanted)

    def time_of(self, offset: int) -> int | None:
        """Time (ms) of the record at an offset, or of the last one before it; None when there is none."""
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
        """How far a committed offset is behind."""
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
        # At the edge of a segment, or where compaction or retention has left a hole, the next one begins.
        following = at if at >= 0 and wanted < self.segments[at].stop else at + 1
        return self.segments[following].min_timestamp if following < len(self.segments) else None

    def _behind(self, committed: int) -> int:
        assert self.newest_ms is not None  # there are segments: records wait
        read_ms = self.time_of(committed - 1) if committed > self.log_start else None
        if read_ms is None:
            # Nothing that is still there was read: the oldest record waits.
            read_ms = self.segments[0].min_timestamp
        return self.newest_ms - read_ms


def _records_left(segment: Segment, offset: int) -> int:
    """Records of a segment at or after an offset that is not below its start."""
    left = segment.stop - offset
    if left <= 0:
        return 0
    length = segment.stop - segment.start
    # Rounded up: the last offset of a segment always has a record.
    return -(-segment.num_records * left // length)


def total(lags: Iterable[Lag]) -> Lag:
    """Lag of a topic or a group: the sums of offsets and of records, the longest time, and the oldest record."""
    known = list(lags)
    return Lag(
        offsets=sum(lag.offsets for lag in known),
        records=sum(lag.records for lag in known),
        behind_ms=max((lag.behind_ms for lag in known), default=0),
        oldest_ms=min((lag.oldest_ms for lag in known if lag.oldest_ms is not None), default=None),
    )
