"""DeltaReader: a position in, Arrow chunks of the records from there on out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.errors import CorruptRecordError, DataLossError, OffsetOutOfRangeError
from kafkalike.log.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.model.segments import Segment
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic_log import DeltaTopicLog

MAX_FILES: Final = 64
"""Small files that one chunk may join; bounds the time of one read of a topic of tiny appends."""

MIN_ROWS: Final = 64
MAX_ROWS: Final = 262_144
"""Rows decoded at a time."""

COLUMNS: Final = [field.name for field in CHUNK_SCHEMA]


class DeltaReader:
    """Reads one partition forward. See `PartitionReader`."""

    def __init__(self, log: DeltaTopicLog, partition: int, position: int) -> None:
        self.position = position
        self._log = log
        self._partition = partition
        self._segment: Segment | None = None
        """The segment that `_batches` reads."""
        self._batches: Iterator[pa.RecordBatch] = iter(())

    def read(self, max_bytes: int) -> Chunk | None:
        """Records from the position on; None at the log end."""
        parts: list[pa.Table] = []
        size = 0
        for _ in range(MAX_FILES):
            self._check_position()
            segment = self._next_segment()
            if segment is None:
                break
            table = self._rows_of(segment)
            if table is None:
                continue
            parts.append(table)
            size += table.nbytes
            self.position = int(table.column("offset")[-1].as_py()) + 1
            if size >= max_bytes:
                break
        if not parts:
            return None
        return Chunk(self._partition, parts[0] if len(parts) == 1 else pa.concat_tables(parts), self.position)

    def _check_position(self) -> None:
        log, p = self._log, self._partition
        live = range(log.log_start(p), log.log_end(p))
        if not live.start <= self.position <= live.stop:
            name = f"{log.info.name}-{p}"
            reason = moved_because(log.info, p, self.position)
            raise OffsetOutOfRangeError({name: self.position}, {name: live}, reason)

    def _next_segment(self) -> Segment | None:
        """The segment that holds the position, or the next one in a compacted topic."""
        log, p = self._log, self._partition
        current = self._segment
        if current is not None and current.start <= self.position < current.stop and log.is_live(current):
            return current
        segment = log.segment_at_or_after(p, self.position)
        stop = log.log_end(p) if segment is None else segment.start
        if stop > self.position:
            if not log.config.compacted:
                name = f"{log.info.name}-{p}"
                message = (
                    f"{name}: offsets [{self.position}, {stop}) are missing though the log is [{log.log_start(p)}, "
                    f"{log.log_end(p)}): data loss; `kafkalike verify --topic {log.info.name}` says more"
                )
                raise DataLossError(message)
            self.position = stop
        return segment

    def _rows_of(self, segment: Segment) -> pa.Table | None:
        """The next rows of a segment from the position on; None when the segment must be looked up again."""
        try:
            if segment is not self._segment:
                self._open(segment)
            while True:
                batch = next(self._batches, None)
                if batch is None:
                    # Nothing at or above the position is left in it: a compacted segment whose tail is gone.
                    self._segment = None
                    self.position = segment.stop
                    return None
                table = _from_position(_as_chunk_table(batch), self.position)
                if table.num_rows:
                    return table
        except (FileNotFoundError, pa.ArrowException, OSError) as cause:
            self._segment = None
            self._explain(segment, cause)
            return None

    def _open(self, segment: Segment) -> None:
        file = self._log.files.parquet(segment.path)
        groups = _row_groups(file, segment, self.position)
        rows = file.metadata.num_rows
        size = sum(file.metadata.row_group(i).total_byte_size for i in range(file.metadata.num_row_groups))
        per_record = max(1, size // max(1, rows))
        batch_rows = min(MAX_ROWS, max(MIN_ROWS, self._log.fetch_bytes // per_record))
        self._batches = file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=COLUMNS)
        self._segment = segment

    def _explain(self, segment: Segment, cause: Exception) -> None:
        """A file could not be read: maintenance may have merged it away, the topic may be gone, or it is damaged."""
        self._log.refresh()
        if not self._log.is_live(segment):
            return
        what = "is missing" if isinstance(cause, FileNotFoundError) else f"cannot be read: {cause}"
        message = (
            f"{self._log.info.name}-{self._partition}: offsets [{segment.start}, {segment.stop}) are lost: "
            f"{self._log.files.uri}/{segment.path} {what}"
        )
        raise CorruptRecordError(message) from cause


def moved_because(info: TopicInfo, partition: int, position: int) -> str:
    """Why offsets below the log start are gone; empty when the position is not below it."""
    moved = info.log_starts.get(partition)
    if moved is None or position >= moved.offset:
        return ""
    return f"log start moved to {moved.offset} by {moved.reason}, run {moved.run}"


def _row_groups(file: pq.ParquetFile, segment: Segment, position: int) -> list[int]:
    """Row groups that may hold the position or records above it.

    In a segment without holes the row number says it; else the first groups are kept and their rows filtered.
    """
    count = file.metadata.num_row_groups
    if segment.num_records != segment.stop - segment.start:
        return list(range(count))
    first_row = position - segment.start
    before = 0
    for group in range(count):
        before += file.metadata.row_group(group).num_rows
        if first_row < before:
            return list(range(group, count))
    return []


def _as_chunk_table(batch: pa.RecordBatch) -> pa.Table:
    columns = []
    for field in CHUNK_SCHEMA:
        column = batch.column(batch.schema.get_field_index(field.name))
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=CHUNK_SCHEMA)


def _from_position(table: pa.Table, position: int) -> pa.Table:
    offsets = table.column("offset").to_numpy()
    if not len(offsets) or offsets[0] >= position:
        return table
    return table.slice(int(np.searchsorted(offsets, position)))
