"""DeltaReader: a position in, Arrow chunks of the records from there on out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.errors import CorruptRecordError, DataLossError, OffsetOutOfRangeError
from kafkalike.log.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.storage import Files
from kafkalike.model.segments import Segment
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic_log import DeltaTopicLog

MAX_FILES: Final = 64
"""Small files that one chunk may join; bounds the time of one read of a topic of tiny appends."""

MAX_ROWS: Final = 262_144
"""Rows decoded at a time, at most."""

PROBE_ROWS: Final = 64
"""Rows decoded to see how large records are, where the file's own figures do not say."""

PROBE_BUFFER: Final = 64 * 1024
"""Bytes that a probe fetches at a time, instead of whole columns."""

PROBE_FREE_BYTES: Final = 64 * 1024 * 1024
"""Largest size in memory that a file's rows may come to at the worst without a probe."""

RECORD_COST: Final = 32
"""Bytes of a record in memory beside its key, value and headers: offset, time and the columns' own offsets."""

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
        self._decoded: pa.Table | None = None
        """Rows of `_segment` that were decoded and not yet handed out, from the position on."""

    def read(self, max_bytes: int) -> Chunk | None:
        """Records from the position on; None at the log end."""
        parts: list[pa.Table] = []
        left = max_bytes
        for _ in range(MAX_FILES):
            self._check_position()
            segment = self._next_segment()
            if segment is None:
                break
            table = self._rows_of(segment)
            if table is None:
                continue
            fitting = _fitting(table, left, slack=max_bytes // 8)
            count = fitting if parts else max(1, fitting)
            self._decoded = table.slice(count) if count < table.num_rows else None
            if count:
                parts.append(table.slice(0, count))
                left -= parts[-1].nbytes
                self.position = int(parts[-1].column("offset")[-1].as_py()) + 1
            if left <= 0 or self._decoded is not None:
                break
        if not parts:
            return None
        return Chunk(self._partition, parts[0] if len(parts) == 1 else pa.concat_tables(parts), self.position)

    def _check_position(self) -> None:
        log, p = self._log, self._partition
        live = range(log.log_start(p), log.log_end(p))
        if not live.start <= self.position <= live.stop:
            log.look_anew()
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
            if not log.config.compacted and stop > log.cleaned_below(p):
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
                table = self._decoded
                if table is None:
                    batch = next(self._batches, None)
                    if batch is None:
                        # Nothing at or above the position is left in it: a compacted segment whose tail is gone.
                        self._segment = None
                        self.position = segment.stop
                        return None
                    table = as_chunk_table(batch)
                self._decoded = None
                table = _from_position(table, self.position)
                if table.num_rows:
                    return table
        except (FileNotFoundError, pa.ArrowException, OSError) as cause:
            self._segment = None
            self._explain(segment, cause)
            return None

    def _open(self, segment: Segment) -> None:
        file = self._log.files.parquet(segment.path)
        groups = _row_groups(file, segment, self.position)
        files = self._log.files
        rows = rows_at_a_time(files, segment.path, file, groups, self._log.fetch_bytes, COLUMNS)
        self._batches = file.iter_batches(batch_size=rows, row_groups=groups, columns=COLUMNS)
        self._segment, self._decoded = segment, None

    def _explain(self, segment: Segment, cause: Exception) -> None:
        """A file could not be read: maintenance may have merged it away, the topic may be gone, or it is damaged."""
        self._log.look_anew()
        if not self._log.is_live(segment):
            return
        what = "is missing" if isinstance(cause, FileNotFoundError) else f"cannot be read: {cause}"
        message = (
            f"{self._log.info.name}-{self._partition}: offsets [{segment.start}, {segment.stop}) are lost: "
            f"{self._log.files.uri}/{segment.path} {what}"
        )
        raise CorruptRecordError(message) from cause


def rows_at_a_time(  # noqa: PLR0917
    files: Files, path: str, file: pq.ParquetFile, groups: Sequence[int], wanted: int, columns: Sequence[str]
) -> int:
    """How many rows of a file come to about `wanted` bytes when they are decoded.

    A file's figures count a value that is repeated once (dictionary pages), so that its rows may be far larger
    than they say. Where that could matter, the first rows are decoded to see.
    """
    metadata = [file.metadata.row_group(group) for group in groups]
    count = sum(int(group.num_rows) for group in metadata)
    size = sum(int(group.total_byte_size) for group in metadata)
    rows = min(MAX_ROWS, max(1, wanted * count // max(1, size)))
    # No value is larger than the file.
    if min(rows, count) <= PROBE_ROWS or min(rows, count) * size <= PROBE_FREE_BYTES:
        return rows
    probe = files.parquet(path, PROBE_BUFFER)
    first = next(probe.iter_batches(batch_size=PROBE_ROWS, row_groups=groups[:1], columns=list(columns)), None)
    if first is None:
        return rows
    return min(rows, max(1, wanted * int(first.num_rows) // max(1, int(first.nbytes))))


def moved_because(info: TopicInfo, partition: int, position: int) -> str:
    """Why offsets below the log start are gone; empty when the position is not below it."""
    return info.why_gone(partition, position)


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


def as_chunk_table(batch: pa.RecordBatch) -> pa.Table:
    """Rows of a data file as a table of `CHUNK_SCHEMA`, whichever engine has written them."""
    columns = []
    for field in CHUNK_SCHEMA:
        column = batch.column(batch.schema.get_field_index(field.name))
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=CHUNK_SCHEMA)


def _from_position(table: pa.Table, position: int) -> pa.Table:
    # A dozen look-ups at most; `to_numpy` would import pandas, a second of the first poll.
    offsets = table.column("offset")
    return table.slice(bisect_left(range(table.num_rows), position, key=lambda row: int(offsets[row].as_py())))


def _fitting(table: pa.Table, max_bytes: int, slack: int) -> int:
    """How many of the first rows come to `max_bytes` at most; all of them when the rest is below the slack."""
    if table.nbytes <= max_bytes + slack:
        return int(table.num_rows)
    import pyarrow.compute as pc  # 30 ms, which most processes never need

    sizes = np.full(table.num_rows, RECORD_COST + table.column("headers").nbytes // table.num_rows, np.int64)
    for name in ("key", "value"):
        sizes += pc.fill_null(pc.binary_length(table.column(name)), 0).to_numpy()
    return int(np.searchsorted(np.cumsum(sizes), max_bytes, side="right"))
