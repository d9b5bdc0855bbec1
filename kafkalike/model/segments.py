"""Segments: the data files of a topic as ranges of offsets, and the arithmetic of offsets; ranges are half-open.

A segment is one data file of a topic table: a range of consecutive offsets of one partition. Its offset and time
range come from the file's statistics and serve as `.index` and `.timeindex` serve a Kafka segment.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, Final, overload

from kafkalike.errors import LogCorruptError

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

    @property
    def has_own_name(self) -> bool:
        """True if its file has a name of ours; other writers need not sort records by offset."""
        return _NAME.fullmatch(self.path) is not None


_PATH: Final = "partition={}/part-{:020d}-{}.parquet".format


def segment_path(partition: int, start: int, unique: str) -> str:
    """Return the name of a segment's file, relative to the table's folder.

    Args:
        partition: its partition.
        start: its first offset.
        unique: a new UUID, as 32 hexadecimal digits.
    """
    return _PATH(partition, start, unique)


_NAME: Final = re.compile(r"partition=(0|[1-9][0-9]*)/part-([0-9]{20})-([0-9a-f]{32})\.parquet", re.ASCII)

_ROW: Final = struct.Struct("<8q16s")
"""A segment in an index: its numbers, and the UUID in the name of its file. A process keeps all segments of the topics
that it uses, and a topic of small appends has very many. A row takes 80 bytes, a `Segment` with its path 440."""

_SIZE: Final = _ROW.size
_START: Final = struct.Struct("<q")
_SPAN: Final = struct.Struct("<2q64x")

_OTHER: Final = bytes(8)
"""Beginning of the last field of a row whose file has another name. No UUID begins so."""

_Rows = bytes | bytearray
"""Rows of one partition in offset order. Iterate over a copy: an array that is iterated over cannot grow."""


def _place(path: str) -> tuple[int, int, bytes] | None:
    """Return the partition, first offset and last field of a row whose file has a name of ours."""
    found = _NAME.fullmatch(path)
    unique = b"" if found is None else bytes.fromhex(found[3])
    return None if found is None or unique.startswith(_OTHER) else (int(found[1]), int(found[2]), unique)


def _span(rows: _Rows, at: int) -> tuple[int, int]:
    start, stop = _SPAN.unpack_from(rows, at * _SIZE)
    return start, stop


def _first_from(rows: _Rows, start: int) -> int:
    """Return the number of rows that start below an offset."""
    return bisect_left(range(len(rows) // _SIZE), start, key=lambda at: _START.unpack_from(rows, at * _SIZE)[0])


def _first_beyond(rows: _Rows, offset: int) -> int:
    """Return the number of rows that stop at an offset or below; the rows must not overlap."""
    at = _first_from(rows, offset + 1)
    return at - 1 if at and _span(rows, at - 1)[1] > offset else at


def _overlap(rows: _Rows) -> bool:
    """Return whether any row starts before the one before it stops."""
    return any(stop > start for (_, stop), (start, _) in pairwise(_SPAN.iter_unpack(rows)))


@dataclass(frozen=True, slots=True)
class _Run(Sequence[Segment]):
    """Segments of a partition whose files have names of ours, made on access."""

    partition: int
    rows: bytes

    def __len__(self) -> int:
        return len(self.rows) // _SIZE

    def __iter__(self) -> Iterator[Segment]:
        return map(self._made, _ROW.iter_unpack(self.rows))

    @overload
    def __getitem__(self, at: int) -> Segment: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Segment]: ...
    def __getitem__(self, at: int | slice) -> Segment | Sequence[Segment]:
        if isinstance(at, slice):
            places = range(len(self))[at]
            if places.step == 1:
                return _Run(self.partition, self.rows[places.start * _SIZE : places.stop * _SIZE])
            return [self[place] for place in places]
        return self._made(_ROW.unpack_from(self.rows, range(len(self))[at] * _SIZE))

    def _made(self, row: tuple[Any, ...]) -> Segment:
        start, stop, records, earliest, latest, size, modified, due, unique = row
        path = _PATH(self.partition, start, unique.hex())
        return Segment(self.partition, start, stop, records, earliest, latest, size, path, modified, due)


@dataclass(frozen=True, slots=True, eq=False)
class _Paths(AbstractSet[str]):
    """Files of the segments of an index."""

    index: SegmentIndex

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[str]:
        return self.index.each_path()

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> Any:  # noqa: ANN401 - what operators return
        return set(it)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and self.index.has(path)


class SegmentIndex:
    """The live segments of one topic by partition, in offset order.

    The log passes it the adds and removes of each table commit in commit order.
    """

    __slots__ = ("_others", "_overlapping", "_places", "_rows", "_serial", "ends")

    def __init__(self, segments: Iterable[Segment] = ()) -> None:
        self._rows: dict[int, bytearray] = {}
        self._places: dict[str, tuple[int, int, bytes]] = {}
        """Results of `_place` for files that have other names than ours."""
        self._others: dict[bytes, str] = {}
        """These names by the last field of their rows."""
        self._serial = 0
        self.ends: dict[int, int] = {}
        """Log ends of the partitions that ever had a segment. Read-only; `add` and `raise_end` change it."""
        self._overlapping: set[int] = set()
        """Partitions in which some offset may be in two segments, which only foreign writers of the table cause."""
        loaded: dict[int, list[bytes]] = {}
        for segment in segments:
            loaded.setdefault(segment.partition, []).append(self._new_row(segment))
            self.raise_end(segment)
        for partition, rows in loaded.items():
            rows.sort(key=lambda row: _span(row, 0)[0])
            joined = b"".join(rows)
            if _overlap(joined):
                self._overlapping.add(partition)
            self._rows[partition] = bytearray(joined)

    def _new_row(self, segment: Segment) -> bytes:
        """Return the row of a new segment, and note the name of its file if it is a foreign name.

        Raises:
            LogCorruptError: a number is beyond Delta's BIGINT.
        """
        s, place = segment, _place(segment.path)
        if place is not None and place[:2] == (s.partition, s.start):
            unique = place[2]
        else:
            self._serial += 1
            unique = _OTHER + self._serial.to_bytes(8, "big")
            self._places[s.path], self._others[unique] = (s.partition, s.start, unique), s.path
        numbers = s.start, s.stop, s.num_records, s.min_timestamp, s.max_timestamp, s.size_bytes, s.modification_ms
        try:
            return _ROW.pack(*numbers, s.due_ms, unique)
        except struct.error as cause:
            raise LogCorruptError(f"the log has a number that no file can have, of {s.path}: {numbers}") from cause

    def _find(self, path: str) -> tuple[int, int] | None:
        """Return the partition of a live file, and the place of its row."""
        place = self._places.get(path) or _place(path)
        if place is None or place[0] not in self._rows:
            return None
        partition, start, unique = place
        rows = self._rows[partition]
        # Several segments start at the same offset if a foreign writer has copied files.
        for at in range(_first_from(rows, start), len(rows) // _SIZE):
            if _span(rows, at)[0] != start:
                break
            if rows.startswith(unique, (at + 1) * _SIZE - len(unique)):
                return partition, at
        return None

    def _made(self, partition: int, rows: Iterable[tuple[Any, ...]]) -> Iterator[Segment]:
        # Without calls of our own, because checks and maintenance go over all segments several times.
        for start, stop, records, earliest, latest, size, modified, due, unique in rows:
            path = self._others.get(unique) or _PATH(partition, start, unique.hex())
            yield Segment(partition, start, stop, records, earliest, latest, size, path, modified, due)

    def _every(self, partition: int) -> Iterator[Segment]:
        return self._made(partition, _ROW.iter_unpack(bytes(self._rows.get(partition, b""))))

    def raise_end(self, segment: Segment) -> None:
        """Keep the log end above a segment, even if it is not live, because offsets are never reused."""
        self.raise_end_to(segment.partition, segment.stop)

    def raise_end_to(self, partition: int, end: int) -> None:
        """Keep the log end of a partition at or above `end`."""
        if end > self.ends.get(partition, 0):
            self.ends[partition] = end

    def add(self, segment: Segment) -> None:
        """Add a segment; a segment with a known path changes nothing.

        Raises:
            LogCorruptError: a number is beyond Delta's BIGINT.
        """
        partition, start = segment.partition, segment.start
        rows, end = self._rows.setdefault(partition, bytearray()), self.ends.get(partition, 0)
        # Appends start at the log end or above it, behind all other segments.
        late = start < end
        if (late or segment.path in self._places) and self.has(segment.path):
            return
        at = count = len(rows) // _SIZE
        before = 0
        if late:
            at = _first_from(rows, start + 1)
            before = _span(rows, at - 1)[1] if at else 0
        rows[at * _SIZE : at * _SIZE] = self._new_row(segment)
        if segment.stop > end:
            self.ends[partition] = segment.stop
        if before > start or (at < count and segment.stop > _span(rows, at + 1)[0]):
            self._overlapping.add(partition)

    def remove(self, *paths: str) -> None:
        """Remove segments; the log end stays, because offsets are never reused."""
        gone: dict[int, list[int]] = {}
        for path in paths:
            found = self._find(path)
            if found is not None:
                gone.setdefault(found[0], []).append(found[1])
        for path in paths:
            if path in self._places:
                del self._others[self._places.pop(path)[-1]]
        for partition, places in gone.items():
            rows = self._rows[partition]
            edges = [-1, *sorted(set(places)), len(rows) // _SIZE]
            rows = bytearray().join(rows[(a + 1) * _SIZE : b * _SIZE] for a, b in pairwise(edges))
            self._rows[partition] = rows
            if partition in self._overlapping and not _overlap(bytes(rows)):
                self._overlapping.remove(partition)

    def overlap(self, segment: Segment) -> Segment | None:
        """Return another live segment that covers some offsets of this one; None if there is none."""
        if segment.partition not in self._overlapping:
            return None
        others = (s for s in self._every(segment.partition) if s.path != segment.path)
        return next((s for s in others if s.start < segment.stop and s.stop > segment.start), None)

    @property
    def paths(self) -> AbstractSet[str]:
        """Files of the live segments: a view, which follows changes."""
        return _Paths(self)

    def each_path(self) -> Iterator[str]:
        """Return an iterator over the files of the live segments, which makes no segments."""
        return chain.from_iterable(map(self._paths_of, sorted(self._rows)))

    def _paths_of(self, partition: int) -> list[str]:
        rows = _ROW.iter_unpack(bytes(self._rows[partition]))
        return [self._others.get(row[-1]) or _PATH(partition, row[0], row[-1].hex()) for row in rows]

    def has(self, path: str) -> bool:
        """Return whether a segment with this file is live."""
        return self._find(path) is not None

    @property
    def has_other_names(self) -> bool:
        """True if the file of any live segment has another name than ours."""
        return bool(self._places)

    def end(self, partition: int) -> int:
        """Return the highest `stop` that the partition ever had; 0 if it never had a segment."""
        return self.ends.get(partition, 0)

    def segments(self, partition: int, above: int | None = None) -> Sequence[Segment]:
        """Return the live segments of a partition in offset order, as they are now.

        Args:
            partition: the partition.
            above: leave out segments that stop at this offset or below.
        """
        if partition in self._overlapping or self._places:
            return tuple(s for s in self._every(partition) if above is None or s.stop > above)
        rows = self._rows.get(partition, b"")
        first = 0 if above is None else _first_beyond(rows, above)
        return _Run(partition, bytes(rows[first * _SIZE :])) if rows else ()

    def __iter__(self) -> Iterator[Segment]:
        """Iterate over all live segments by partition and offset."""
        return chain.from_iterable(map(self._every, sorted(self._rows)))

    def __len__(self) -> int:
        """Return the number of live segments."""
        return sum(map(len, self._rows.values())) // _SIZE

    def _at(self, partition: int, at: int) -> Segment:
        return next(self._made(partition, [_ROW.unpack_from(self._rows[partition], at * _SIZE)]))

    def at_or_after(self, partition: int, offset: int) -> Segment | None:
        """Return the segment with `offset`, or else the next one above it; None at the log end."""
        if partition in self._overlapping:
            return next((s for s in self._every(partition) if s.stop > offset), None)
        rows = self._rows.get(partition, b"")
        at = len(rows) // _SIZE
        # A consumer at the tail reads the last file, or waits at its end.
        if at and _span(rows, at - 1)[1] > offset:
            at = at - 1 if _span(rows, at - 1)[0] <= offset else _first_beyond(rows, offset)
            return self._at(partition, at)
        return None

    def within(self, partition: int, offsets: range) -> list[Segment]:
        """Return the live segments of a partition that overlap a range of offsets, in offset order."""
        if not offsets:
            return []
        if partition in self._overlapping:
            return [s for s in self._every(partition) if s.start < offsets.stop and s.stop > offsets.start]
        rows = self._rows.get(partition, b"")
        places = range(_first_beyond(rows, offsets.start), _first_from(rows, offsets.stop))
        return [self._at(partition, at) for at in places]

    def first_with_time(self, partition: int, timestamp_ms: int, start: int) -> Iterator[Segment]:
        """Yield segments, in offset order from offset `start`, that may have a record at or after a time."""
        rows = _ROW.iter_unpack(bytes(self._rows.get(partition, b"")))
        return self._made(partition, (row for row in rows if row[1] > start and row[4] >= timestamp_ms))


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
