"""Segments: the data files of a topic as ranges of offsets, and the arithmetic of offsets; ranges are half-open.

A segment is one data file of a topic table: a range of consecutive offsets of one partition. Its offset and time
range come from the file's statistics and serve as `.index` and `.timeindex` serve a Kafka segment.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import attrgetter, gt
from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.structs import TopicPartition

DUE_KEY: Final = "deliverAt"
"""Key of our own in a file's statistics; see `Segment.due_ms`. Delta's readers ignore it."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One data file of a partition."""

    partition: int
    start: int
    """First offset of the file."""
    stop: int
    """Last offset of the file + 1."""
    num_records: int
    """Less than `stop - start` only in a compacted topic."""
    min_timestamp: int
    max_timestamp: int
    """ms since the epoch."""
    size_bytes: int
    path: str
    """File, relative to the table's folder."""
    modification_ms: int = 0
    due_ms: int = 0
    """Earliest time (ms) in the `deliver_at` headers of its records; 0 if one may have none."""

    @property
    def offsets(self) -> range:
        """Its range of offsets."""
        return range(self.start, self.stop)


_start: Final = attrgetter("start")
_stop: Final = attrgetter("stop")


def _overlap(run: Sequence[Segment]) -> bool:
    """Return whether any segment, in offset order, starts before the one before it ends."""
    return len(run) > 1 and any(map(gt, map(_stop, run), map(_start, islice(run, 1, None))))


class SegmentIndex:
    """The live segments of one topic by partition, in offset order.

    The log passes it the adds and removes of each table commit in commit order.
    """

    __slots__ = ("_by_partition", "_by_path", "_overlapping", "ends")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._by_partition: dict[int, list[Segment]] = {}
        self._by_path: dict[str, Segment] = {}
        self.ends: dict[int, int] = {}
        """Log ends of the partitions that ever had a segment. Read-only; `add` and `raise_end` change it."""
        self._overlapping: set[int] = set()
        """Partitions in which some offset may be in two segments, which only foreign writers of the table cause."""
        for segment in sorted(segments, key=_start):
            self._by_partition.setdefault(segment.partition, []).append(segment)
            self._by_path[segment.path] = segment
        for partition, run in self._by_partition.items():
            self.ends[partition] = max(map(_stop, run))
            if _overlap(run):
                self._overlapping.add(partition)

    def raise_end(self, segment: Segment) -> None:
        """Keep the log end above a segment, even if it is not live, because offsets are never reused."""
        self.raise_end_to(segment.partition, segment.stop)

    def raise_end_to(self, partition: int, end: int) -> None:
        """Keep the log end of a partition at or above `end`."""
        if end > self.ends.get(partition, 0):
            self.ends[partition] = end

    def add(self, segment: Segment) -> None:
        """Add a segment; a segment with a known path changes nothing."""
        if segment.path in self._by_path:
            return
        # The path is recorded last, so that a call repeated after an interrupt does not take the segment for known.
        partition, start, stop = segment.partition, segment.start, segment.stop
        if stop > self.ends.get(partition, 0):
            self.ends[partition] = stop
        run = self._by_partition.setdefault(partition, [])
        at = len(run)
        if run and run[-1].start > start:
            at = bisect_right(run, start, key=_start)
        run.insert(at, segment)
        if (at and run[at - 1].stop > start) or (at + 1 < len(run) and stop > run[at + 1].start):
            self._overlapping.add(partition)
        self._by_path[segment.path] = segment

    def remove(self, path: str) -> None:
        """Remove a segment; the log end stays, because offsets are never reused."""
        segment = self._by_path.pop(path, None)
        if segment is None:
            return
        run = self._by_partition[segment.partition]
        at = bisect_left(run, segment.start, key=_start)
        # Several segments start at the same offset if a foreign writer has copied files.
        del run[run.index(segment, at)]
        if segment.partition in self._overlapping and not _overlap(run):
            self._overlapping.remove(segment.partition)

    def overlap(self, segment: Segment) -> Segment | None:
        """Return another live segment that covers some offsets of this one; None if there is none."""
        if segment.partition not in self._overlapping:
            return None
        others = (s for s in self.segments(segment.partition) if s.path != segment.path)
        return next((s for s in others if s.start < segment.stop and s.stop > segment.start), None)

    @property
    def paths(self) -> KeysView[str]:
        """Files of the live segments: a view, which follows changes."""
        return self._by_path.keys()

    def has(self, path: str) -> bool:
        """Return whether a segment with this file is live."""
        return path in self._by_path

    def end(self, partition: int) -> int:
        """Return the highest `stop` that the partition ever had; 0 if it never had a segment."""
        return self.ends.get(partition, 0)

    def segments(self, partition: int) -> Sequence[Segment]:
        """Return the live segments of a partition in offset order."""
        return self._by_partition.get(partition, ())

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over all live segments by partition and offset."""
        return chain.from_iterable(map(self._by_partition.__getitem__, sorted(self._by_partition)))

    def __len__(self) -> int:
        """Return the number of live segments."""
        return len(self._by_path)

    def at_or_after(self, partition: int, offset: int) -> Segment | None:
        """Return the segment with `offset`, or else the next one above it; None at the log end."""
        run = self._by_partition.get(partition)
        if not run:
            return None
        if partition in self._overlapping:
            return next((s for s in run if s.stop > offset), None)
        # A consumer at the tail reads the last file, or waits at its end.
        if run[-1].start <= offset:
            return run[-1] if run[-1].stop > offset else None
        at = bisect_right(run, offset, key=_start)
        if at and run[at - 1].stop > offset:
            return run[at - 1]
        return run[at]

    def within(self, partition: int, offsets: range) -> list[Segment]:
        """Return the live segments of a partition that overlap a range of offsets, in offset order."""
        if not offsets:
            return []
        run = self._by_partition.get(partition, [])
        if partition in self._overlapping:
            return [s for s in run if s.start < offsets.stop and s.stop > offsets.start]
        first = bisect_right(run, offsets.start, key=_start)
        if first and run[first - 1].stop > offsets.start:
            first -= 1
        return run[first : max(first, bisect_left(run, offsets.stop, key=_start))]

    def first_with_time(self, partition: int, timestamp_ms: int, start: int) -> Iterator[Segment]:
        """Yield segments, in offset order from offset `start`, that may have a record at or after a time."""
        for segment in self._by_partition.get(partition, ()):
            if segment.stop > start and segment.max_timestamp >= timestamp_ms:
                yield segment


MARK: Final = "kafkalike:offsets"
"""Key next to the topics in the offsets of a checkpoint of `format("kafkalike")`; topic names cannot have a colon."""

MAX_OFFSET: Final = 2**63 - 1
"""Largest value of Delta's BIGINT, and so the largest offset."""


def plan_offsets(log_end: Mapping[int, int], counts: Mapping[int, int]) -> dict[int, range]:
    """Give each partition the next free range of offsets.

    Args:
        log_end: next offset to be written, by partition; 0 for a partition that is missing.
        counts: number of records to be written, by partition.

    Returns:
        The range of each partition that gets at least one record.
    """
    return {p: range(log_end.get(p, 0), log_end.get(p, 0) + n) for p, n in counts.items() if n > 0}


@dataclass(frozen=True, slots=True)
class EndOffsetIs:
    """Requirement of a plan at commit time: the log end of the partition has not changed since the plan was made."""

    partition: int
    expected: int

    def holds(self, log_end: Mapping[int, int]) -> bool:
        """Return whether the log end is as expected."""
        return log_end.get(self.partition, 0) == self.expected


def requirements(plan: Mapping[int, range]) -> tuple[EndOffsetIs, ...]:
    """Return the requirements that keep the offsets of this plan dense and unique at commit time."""
    return tuple(EndOffsetIs(p, run.start) for p, run in sorted(plan.items()))


@dataclass(frozen=True, slots=True)
class Gap:
    """A range of offsets of a partition that no segment has."""

    partition: int
    missing: range


@dataclass(frozen=True, slots=True)
class Overlap:
    """A range of offsets of a partition that two segments have."""

    partition: int
    doubled: range


def gaps_and_overlaps(partition: int, runs: Iterable[range], start: int) -> list[Gap | Overlap]:
    """Find where the ranges of a partition, in order from `start`, leave a hole or cover an offset twice.

    Offsets below `start` are ignored because retention has deleted them.
    """
    found: list[Gap | Overlap] = []
    expected = start
    above = (range(max(run.start, start), run.stop) for run in runs if run.stop > start)
    for run in sorted(above, key=lambda r: (r.start, r.stop)):
        if run.start > expected:
            found.append(Gap(partition, range(expected, run.start)))
        elif run.start < expected:
            found.append(Overlap(partition, range(run.start, min(expected, run.stop))))
        expected = max(expected, run.stop)
    return found


def shifted(
    committed: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """Move the committed offsets of a group by a number of offsets; results may lie outside of the log.

    Args:
        committed: the group's offsets.
        partitions: partitions to move.
        by: number of offsets; negative to move back.

    Raises:
        IllegalArgumentError: a partition has no committed offset.
    """
    moved = {}
    for tp in partitions:
        if tp not in committed:
            where = f"{tp.topic}-{tp.partition}"
            raise IllegalArgumentError(
                f"Cannot shift offset for partition {where} since there is no current committed offset"
            )
        moved[tp] = committed[tp] + by
    return moved


def storable(offset: int) -> int:
    """Return the nearest offset that a table can store: offsets outside the range are outside of every log."""
    return min(max(offset, 0), MAX_OFFSET)
