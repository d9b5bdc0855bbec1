"""Times: a time and data files in offset order in; the first record at or after it, or the latest one, out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from kafkalike.errors import CorruptRecordError
from kafkalike.log.topic.data_file import Reading
from kafkalike.log.topic.reader import ReadableLog
from kafkalike.log.topic.segment_rows import SegmentRows
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp

_COLUMNS: Final = ("offset", "timestamp")


def first_at_or_after(
    log: ReadableLog, segments: Iterable[Segment], timestamp_ms: int, start: int
) -> OffsetAndTimestamp | None:
    """The first record, in offset order from an offset on, whose timestamp is at or after a time.

    A file is read only where the log's statistics do not say it: where its records have several timestamps.

    Args:
        log: the topic.
        segments: those that may have one, in offset order.
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


def latest(log: ReadableLog, segments: Iterable[Segment], start: int) -> OffsetAndTimestamp | None:
    """The first record, from an offset on, that has the largest timestamp; see `first_at_or_after`."""
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
    """Offsets and times (ms) of a segment from an offset on, in offset order."""
    name = f"{log.info.name}-{segment.partition}"
    reading = Reading(columns=_COLUMNS, batch_bytes=log.fetch_bytes)
    rows = SegmentRows(log.files, segment, start, reading, name=name)
    try:
        while (batch := rows.next()) is not None:
            times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
            yield batch.column("offset").to_numpy(), times
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{name}: {log.files.uri}/{segment.path} cannot be read: {cause}") from cause
    finally:
        rows.close()
