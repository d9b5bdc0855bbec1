"""PartitionReader: read a partition's records as Arrow chunks from a position on; find records by their time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError, OffsetOutOfRangeError
from kafkalike.log.topic.chunk import Chunk, first_undecodable
from kafkalike.log.topic.data_file import ReadOptions, longs
from kafkalike.log.topic.segment_rows import SegmentRows
from kafkalike.model.concurrency import OnError
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, SURELY, Pace

MAX_FILES: Final = 64
"""Small files that one chunk may join; bounds the time of one read of a topic of tiny appends."""

AHEAD_FILES: Final = 16
AHEAD_BYTES: Final = 1024 * 1024
"""Most files, and most bytes of them, that are fetched in parallel where each file is a request."""

RECORD_COST: Final = 32
"""Bytes of a record in memory beside its key, value and headers: offset, time and the columns' offsets."""


class ReadableLog(Protocol):
    """The methods of `TopicLog` that a reader uses."""

    fetch_bytes: int

    @property
    def info(self) -> TopicInfo:
        """Metadata of the topic."""
        ...

    @property
    def files(self) -> Storage:
        """Files of the topic's table."""
        ...

    def log_start(self, partition: int) -> int:
        """Return the first readable offset."""
        ...

    def log_end(self, partition: int) -> int:
        """Return the offset of the next record."""
        ...

    def holes_below(self, partition: int) -> int:
        """Return the offset below which missing records are not a loss."""
        ...

    def look_anew(self, pace: Pace = NOW) -> None:
        """Refresh, even if the log was cleaned up past the known version."""
        ...

    def is_live(self, segment: Segment) -> bool:
        """True if the segment's file is part of the table."""
        ...

    def segment_at_or_after(self, partition: int, offset: int) -> Segment | None:
        """Return the segment that holds an offset, or else the next one above."""
        ...

    def check_no_overlap(self, segment: Segment, position: int) -> None:
        """Refuse a segment that shares offsets with another one."""
        ...


class PartitionReader:
    """Reads one partition forward."""

    def __init__(self, log: ReadableLog, partition: int, position: int) -> None:
        self.position = position
        self._log = log
        self._partition = partition
        self._segment: Segment | None = None
        """The segment of `_rows`."""
        self._rows: SegmentRows | None = None
        self._decoded: pa.RecordBatch | None = None
        """Decoded rows of `_segment` from the position on that were not returned yet."""
        self._fetched = 0
        """Offset up to which files were prefetched."""
        self._end = position
        """The log end at the last check of the position."""

    def read(self, max_bytes: int) -> Chunk | None:
        """Return records from `position` on, in offset order, and move the position past them.

        Returns at least one record if there is one, and stops near `max_bytes`; `None` at the log end. Sees commits up
        to the log's last `refresh`.

        Raises:
            OffsetOutOfRangeError: the position is below the log start, or above the log end.
            DataLossError: the partition has a hole, which a topic that is not compacted must not have.
            CorruptRecordError: a data file is missing or damaged.
        """
        parts: list[pa.RecordBatch] = []
        left = max_bytes
        for _ in range(MAX_FILES):
            try:
                segment = self._next_segment()
                batch = None if segment is None else self._rows_of(segment)
            except KafkaError:
                if parts:
                    # Return the records before the error; the next call raises it.
                    break
                raise
            if segment is None:
                break
            if batch is None:
                continue
            size = int(batch.nbytes)
            fitting = batch.num_rows if size <= left + max_bytes // 8 else _fitting(batch, left)
            count = fitting if parts else max(1, fitting)
            count = self._decodable(batch, count, first=not parts)
            if count < batch.num_rows:
                self._decoded, batch = batch.slice(count), batch.slice(0, count)
                size = int(batch.nbytes)
            if count:
                parts.append(batch)
                left -= size
                self.position = int(longs(batch.column("offset"))[-1]) + 1
            if left <= 0 or self._decoded is not None or self.position == self._end:
                break
        if not parts:
            return None
        return Chunk(self._partition, pa.Table.from_batches(parts), self.position)

    def _decodable(self, batch: pa.RecordBatch, count: int, *, first: bool) -> int:
        """Return how many of the first rows precede a header whose key is not text.

        Args:
            batch: the next rows.
            count: the number of rows to return.
            first: True if no rows were collected before, so that such a row at the beginning is an error.

        Raises:
            CorruptRecordError: names the record's offset.
        """
        wrong = first_undecodable(batch.column("headers"))
        if wrong is None or wrong.row >= count:
            return count
        if wrong.row or not first:
            # The next call raises the error.
            return wrong.row
        self._decoded = batch
        offset = int(longs(batch.column("offset"))[0])
        raise CorruptRecordError(
            f"{self._log.info.name}-{self._partition}: the record at offset {offset} has {wrong}; seek to offset "
            f"{offset + 1} to read on"
        )

    def _check_position(self) -> None:
        log, p = self._log, self._partition
        live = range(log.log_start(p), log.log_end(p))
        if not live.start <= self.position <= live.stop:
            # The leader that acknowledged records above the end may be lost, so look again before resetting to the end.
            log.look_anew(SURELY if self.position > live.stop else NOW)
            live = range(log.log_start(p), log.log_end(p))
        if not live.start <= self.position <= live.stop:
            name = f"{log.info.name}-{p}"
            reason = log.info.why_gone(p, self.position)
            raise OffsetOutOfRangeError({name: self.position}, {name: live}, reason)
        self._end = live.stop

    def _next_segment(self) -> Segment | None:
        """Return the segment that holds the position, or the next one in a compacted topic."""
        self._check_position()
        log, p = self._log, self._partition
        current = self._segment
        if current is not None and current.start <= self.position < current.stop and log.is_live(current):
            return current
        segment, stop = self._segment_and_begin()
        if stop > self.position:
            if stop > log.holes_below(p):
                # Retention may have removed records after the last look at the metadata.
                log.look_anew()
                self._check_position()
                segment, stop = self._segment_and_begin()
            if stop > max(self.position, log.holes_below(p)):
                name = f"{log.info.name}-{p}"
                raise DataLossError(
                    f"{name}: offsets [{self.position}, {stop}) are missing though the log is [{log.log_start(p)}, "
                    f"{log.log_end(p)}): data loss; run `kafkalike verify --topic {log.info.name}`"
                )
            self.position = max(self.position, stop)
        return segment

    def _segment_and_begin(self) -> tuple[Segment | None, int]:
        """Return the segment at or above the position and its first offset; without one, None and the log end."""
        segment = self._log.segment_at_or_after(self._partition, self.position)
        return segment, self._end if segment is None else segment.start

    def _rows_of(self, segment: Segment) -> pa.RecordBatch | None:
        """Return the next rows of a segment from the position on; None if the segment must be looked up again."""
        batch, self._decoded = self._decoded, None
        if batch is not None and segment == self._segment:
            return batch
        try:
            with OnError(self._forget):
                return self._rows_from(segment).next()
        except (FileNotFoundError, CorruptRecordError) as cause:
            self._explain(segment, cause)
            return None

    def _rows_from(self, segment: Segment) -> SegmentRows:
        rows = self._rows
        if rows is None or segment != self._segment or rows.position != self.position:
            self._forget()
            log, p = self._log, self._partition
            log.check_no_overlap(segment, self.position)
            if log.files.scheduler.is_remote and segment.start >= self._fetched:
                self._fetch_ahead(segment)
            rows = SegmentRows(
                log.files,
                segment,
                self.position,
                ReadOptions(batch_bytes=log.fetch_bytes),
                name=f"{log.info.name}-{p}",
                holes_below=lambda: log.holes_below(p),
            )
            self._segment, self._rows = segment, rows
        return rows

    def _fetch_ahead(self, segment: Segment) -> None:
        """Fetch a small file and the small files after it, in parallel."""
        names: list[str] = []
        following: Segment | None = segment
        room = AHEAD_BYTES
        while following is not None and len(names) < AHEAD_FILES and following.size_bytes <= room:
            names.append(following.path)
            room -= following.size_bytes
            self._fetched = following.stop
            following = self._log.segment_at_or_after(self._partition, following.stop)
        if len(names) > 1:
            self._log.files.scheduler.fetch(names)

    def _forget(self) -> None:
        rows, self._rows, self._segment, self._decoded = self._rows, None, None, None
        if rows is not None:
            rows.close()

    def _explain(self, segment: Segment, cause: Exception) -> None:
        """Return if maintenance has replaced an unreadable file; else raise the reason, such as a deleted topic."""
        self._log.look_anew()
        if not self._log.is_live(segment):
            return
        if isinstance(cause, CorruptRecordError):
            raise cause
        raise CorruptRecordError(
            f"{self._log.info.name}-{self._partition}: offsets [{segment.start}, {segment.stop}) are lost: "
            f"{self._log.files.uri}/{segment.path} is missing"
        ) from cause


def _fitting(batch: pa.RecordBatch, max_bytes: int) -> int:
    """Return how many of the first rows come to at most `max_bytes`."""
    sizes = np.full(batch.num_rows, RECORD_COST + batch.column("headers").nbytes // batch.num_rows, np.int64)
    for name in ("key", "value"):
        column = batch.column(name)
        # The end of each row's bytes; a null has none. `to_numpy` would import pandas, a second of the first poll.
        sizes += np.diff(np.frombuffer(column.buffers()[1], np.int32, batch.num_rows + 1, column.offset * 4))
    return int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))


_COLUMNS: Final = ("offset", "timestamp")


def first_at_or_after(
    log: ReadableLog, segments: Iterable[Segment], timestamp_ms: int, start: int
) -> OffsetAndTimestamp | None:
    """Return the first record, in offset order from an offset on, whose timestamp is at or after a time.

    A file whose records have several timestamps is read, because the log's statistics do not suffice for it.

    Args:
        log: the topic.
        segments: candidates in offset order.
        timestamp_ms: the time.
        start: the offset.
    """
    for segment in segments:
        log.check_no_overlap(segment, start)
        if segment.start >= start and segment.min_timestamp == segment.max_timestamp:
            return OffsetAndTimestamp(segment.start, segment.min_timestamp)
        for offsets, times in _times(log, segment, start):
            hit = int(np.argmax(times >= timestamp_ms))
            if times[hit] >= timestamp_ms:
                return OffsetAndTimestamp(int(offsets[hit]), int(times[hit]))
    return None


def latest_record(log: ReadableLog, segments: Iterable[Segment], start: int) -> OffsetAndTimestamp | None:
    """Return the first record, from an offset on, with the largest timestamp; see `first_at_or_after`."""
    best: OffsetAndTimestamp | None = None
    for segment in sorted(segments, key=lambda s: (-s.max_timestamp, s.start)):
        if best is not None and (segment.max_timestamp, -segment.start) <= (best.timestamp, -best.offset):
            break
        log.check_no_overlap(segment, start)
        for offsets, times in _times(log, segment, start):
            at = int(np.argmax(times))
            found = OffsetAndTimestamp(int(offsets[at]), int(times[at]))
            if best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset):
                best = found
    return best


def _times(log: ReadableLog, segment: Segment, start: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the offsets and times (ms) of a segment from an offset on, in offset order."""
    name = f"{log.info.name}-{segment.partition}"
    reading = ReadOptions(columns=_COLUMNS, batch_bytes=log.fetch_bytes)
    rows = SegmentRows(log.files, segment, start, reading, name=name)
    try:
        while (batch := rows.next()) is not None:
            times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
            yield batch.column("offset").to_numpy(), times
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{name}: {log.files.uri}/{segment.path} cannot be read: {cause}") from cause
    finally:
        rows.close()
