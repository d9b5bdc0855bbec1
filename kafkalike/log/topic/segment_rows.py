"""SegmentRows: a data file and a position in; its rows from there on out, in offset order, checked against the log.

Everything that reads records of a topic's data file reads them here: consumers, Spark's tasks, look-ups by time,
maintenance and `verify`. The table's log promises how many rows a file has, and its first and last offset. A file that
breaks the promise, or has other columns than a topic, is refused by name. A file whose rows are complete but not in
order, as OPTIMIZE, UPDATE or MERGE of other Delta writers leave them, is read in order.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError, KafkaStorageError
from kafkalike.log.store.arrays import numbers
from kafkalike.log.store.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.log.topic.chunk import CHUNK_SCHEMA

if TYPE_CHECKING:
    from kafkalike.log.store.port import Store
    from kafkalike.model.segments import Segment

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

COLUMNS: Final = tuple(field.name for field in CHUNK_SCHEMA)

MAX_ROWS: Final = 262_144
"""Rows decoded at a time, at most."""

PROBE_ROWS: Final = 64
"""Rows decoded to see how large records are, where the file's own figures do not say."""

PROBE_BUFFER: Final = 64 * 1024
"""Bytes that a probe fetches at a time, instead of whole columns."""

PROBE_FREE_BYTES: Final = 64 * 1024 * 1024
"""Largest size in memory that a file's rows may come to at the worst without a probe."""

SORT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records, about, that are sorted at a time. Each time the row groups that hold them are decoded again."""

OPEN_FILES: Final = 256
"""Data files that a process keeps open between two reads; many systems allow a process 1,024 open files."""


class MissingInsideError(DataLossError):
    """Offsets are missing between two rows of a file, where nothing may be missing.

    Args:
        message: what is missing, and where.
        lost: the offsets.
    """

    def __init__(self, message: str, lost: range) -> None:
        super().__init__(message)
        self.lost = lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How rows are wanted."""

    columns: tuple[str, ...] = COLUMNS
    """Columns of `CHUNK_SCHEMA`, `offset` among them."""
    batch_bytes: int
    """Bytes decoded at a time, about."""
    max_rows: int = MAX_ROWS
    """Rows decoded at a time, at most."""
    threads: bool = True
    """Whether columns are decoded side by side."""


def everywhere() -> int:
    """Offset below which offsets may be missing, for a reader that does not judge that."""
    return 2**63 - 1


class SegmentRows:
    """Reads one data file forward. After an error the next call tries again from the same position.

    Args:
        files: the topic's table.
        segment: what the table's log says of the file.
        position: offset to begin at.
        reading: which columns, and how much at a time.
        name: the partition, for errors.
        holes_below: gives the offset below which compaction may have taken records. Asked when offsets are missing.
    """

    def __init__(
        self,
        files: Store,
        segment: Segment,
        position: int,
        reading: Reading,
        *,
        name: str,
        holes_below: Callable[[], int] = everywhere,
    ) -> None:
        self.position = max(position, segment.start)
        """The next offset to be handed out."""
        self._files = files
        self._segment = segment
        self._reading = reading
        self._name = name
        self._holes_below = holes_below
        self._dense = segment.num_records == segment.stop - segment.start
        self._waiting: pa.RecordBatch | None = None
        """Rows that were checked and not handed out, all at or above the position."""
        self._file: pq.ParquetFile | None = None
        self._batches: Iterator[pa.RecordBatch] | None = None
        self._before = 0
        """Offset of the row before the next one that `_batches` gives. In a file without holes all follow from it."""
        self._left = 0
        """Rows that `_batches` has yet to give."""
        self._sorting = False

    @property
    def is_open(self) -> bool:
        """Whether it holds an open file."""
        return self._file is not None

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        file, self._file, self._batches, self._sorting = self._file, None, None, False
        if file is not None:
            file.close(force=True)

    def next(self, stop: int | None = None) -> pa.RecordBatch | None:
        """The next rows.

        Args:
            stop: offset to end before; None takes the segment's end.

        Returns:
            At least one row, in offset order, the first at the position or after a hole that compaction has left;
            None when there are no more below `stop`. `position` is the offset after them.

        Raises:
            FileNotFoundError: the file is gone.
            CorruptRecordError: the file is damaged, is no file of a topic, or does not hold what the log says.
            MissingInsideError: offsets are missing; the position is behind them now.
            KafkaStorageError: the storage cannot be read now.
        """
        stop = self._segment.stop if stop is None else min(stop, self._segment.stop)
        if self.position >= stop:
            return None
        batch = self._fetch() if self._waiting is None else self._waiting
        offsets = _offsets(batch)
        first = int(offsets[0])
        if first > self.position:
            lost = range(self.position, min(first, stop))
            self.position, self._waiting = lost.stop, batch
            if first > self._holes_below():
                self._missing(lost)
            if first >= stop:
                return None
        end = len(offsets) if offsets[-1] < stop else int(np.searchsorted(offsets, stop))
        if not self._dense:
            end = min(end, self._unbroken(offsets))
        self._waiting = batch.slice(end) if end < len(offsets) else None
        self.position = int(offsets[end - 1]) + 1
        return batch.slice(0, end)

    def _unbroken(self, offsets: Longs) -> int:
        """How many of the first rows have no hole between them but those of compaction."""
        after = np.flatnonzero(np.diff(offsets) > 1) + 1
        if not len(after) or offsets[after[-1]] <= (below := self._holes_below()):
            return len(offsets)
        return int(after[offsets[after] > below][0])

    def _missing(self, lost: range) -> NoReturn:
        message = (
            f"{self._name}: offsets [{lost.start}, {lost.stop}) are missing in {self._files.uri}/{self._segment.path}: "
            "data loss; another writer of the table has deleted their records"
        )
        raise MissingInsideError(message, lost)

    # --- reading -------------------------------------------------------------------------------

    def _fetch(self) -> pa.RecordBatch:
        """The next rows of the file at or above the position, checked."""
        try:
            with _open_files.using(self):
                while True:
                    batch = self._decoded()
                    offsets = _offsets(batch)
                    if not self._left:
                        # The last row is there, and none comes after it.
                        self.close()
                    if offsets[-1] >= self.position:
                        return batch.slice(int(np.searchsorted(offsets, self.position)))
        except (FileNotFoundError, KafkaError):
            self.close()
            raise
        except UNREADABLE as cause:
            self.close()
            raise self._named(cause) from cause
        except BaseException:
            self.close()
            raise

    def _decoded(self) -> pa.RecordBatch:
        """The next rows of the file."""
        if self._batches is None:
            self._open()
        while True:
            batch = None if self._batches is None else next(self._batches, None)
            if batch is None:
                self._broken(f"it ends {self._left} records early")
            if not batch.num_rows:
                continue
            if not self._keeps(batch):
                if self._sorting:
                    self._broken("its records are not those that its own offsets say")
                self._sort()
                continue
            self._before = int(_offsets(batch)[-1])
            self._left -= batch.num_rows
            if not self._left and self._before != self._segment.stop - 1:
                self._broken(f"its last record has offset {self._before}")
            return batch

    def _open(self) -> None:
        segment = self._segment
        self._file = file = open_parquet(self._files, segment.path)
        flaw = flaw_of_columns(file)
        if flaw:
            self._broken(flaw)
        if file.metadata.num_rows != segment.num_records:
            self._broken(f"it has {file.metadata.num_rows} records instead of {segment.num_records}")
        groups, rows_before = self._groups(file)
        self._before = segment.start - 1 + rows_before
        self._left = segment.num_records - rows_before
        rows = self._rows(file, groups, self._reading.batch_bytes)
        self._batches = self._decode(file, groups, rows)

    def _groups(self, file: pq.ParquetFile) -> tuple[list[int], int]:
        """Row groups that may hold the position or records above it, and the number of rows before them.

        In a file without holes the row number says it; else all are read, and their rows are counted.
        """
        groups = range(file.metadata.num_row_groups)
        before = 0
        if self._dense:
            for group in groups:
                rows = int(file.metadata.row_group(group).num_rows)
                if self.position - self._segment.start < before + rows:
                    return list(groups[group:]), before
                before += rows
            self._broken("its row groups have fewer records than its footer says")
        return list(groups), 0

    def _rows(self, file: pq.ParquetFile, groups: Sequence[int], wanted: int) -> int:
        rows = rows_at_a_time(self._files, self._segment.path, file, groups, wanted, self._reading.columns)
        return min(rows, self._reading.max_rows)

    def _decode(self, file: pq.ParquetFile, groups: Sequence[int], rows: int) -> Iterator[pa.RecordBatch]:
        reading = self._reading
        schema = _schema_of(reading.columns)
        for batch in file.iter_batches(
            batch_size=rows, row_groups=list(groups), columns=list(reading.columns), use_threads=reading.threads
        ):
            columns = [self._typed(batch.column(field.name), field) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _typed(self, column: pa.Array, field: pa.Field) -> pa.Array:
        """A column as topics have it, whichever engine has written it."""
        if column.null_count and not field.nullable:
            self._broken(f"it has records without {field.name}")
        if column.type.equals(field.type):
            return column
        if kind_of(column.type) != kind_of(field.type):
            self._broken(f"its column {field.name} is {kind_of(column.type)}, not {kind_of(field.type)}")
        return column.cast(field.type)

    def _keeps(self, batch: pa.RecordBatch) -> bool:
        """Whether the next rows have offsets, in order, that the log says they have."""
        offsets = _offsets(batch)
        first, last = int(offsets[0]), int(offsets[-1])
        if self._dense:
            follows = first == self._before + 1 and last == self._before + len(offsets)
            return follows and bool((np.diff(offsets) == 1).all())
        begins = self._segment.start if self._left == self._segment.num_records else self._before + 1
        follows = first == begins if begins == self._segment.start else first >= begins
        return follows and last < self._segment.stop and bool((np.diff(offsets) > 0).all())

    # --- files that are not in order -----------------------------------------------------------

    def _sort(self) -> None:
        """Go on in offset order, if the file holds all that the log promises."""
        segment, file = self._segment, self._file
        assert file is not None
        column = file.read(columns=["offset"]).column("offset")
        if column.null_count:
            self._broken("it has records without offset")
        if len(column) != segment.num_records:
            self._broken(f"it has {len(column)} records instead of {segment.num_records}")
        offsets = np.concatenate([_longs(part) for part in column.chunks])
        order = np.argsort(offsets, kind="stable")
        ordered = offsets[order]
        if ordered[0] != segment.start or ordered[-1] != segment.stop - 1:
            self._broken(f"its offsets are from {ordered[0]} to {ordered[-1]}")
        if (np.diff(ordered) <= 0).any():
            self._broken(f"it has offset {ordered[:-1][np.diff(ordered) <= 0][0]} more than once")
        begin = int(np.searchsorted(ordered, self.position))
        self._before = int(ordered[begin - 1]) if begin else segment.start - 1
        self._left = len(order) - begin
        self._sorting = True
        self._batches = self._in_order(file, order[begin:])

    def _in_order(self, file: pq.ParquetFile, order: Longs) -> Iterator[pa.RecordBatch]:
        """Rows by their numbers in the file, `SORT_BYTES` at a time."""
        groups = range(file.metadata.num_row_groups)
        ends = np.cumsum([int(file.metadata.row_group(group).num_rows) for group in groups])
        rows = self._rows(file, groups, self._reading.batch_bytes)
        at_once = max(rows, rows_at_a_time(self._files, self._segment.path, file, groups, SORT_BYTES, COLUMNS))
        for at in range(0, len(order), at_once):
            wanted = order[at : at + at_once]
            ascending = np.sort(wanted)
            parts: list[pa.RecordBatch] = []
            for group in np.unique(np.searchsorted(ends, ascending, side="right")).tolist():
                row = int(ends[group - 1]) if group else 0
                for batch in self._decode(file, [group], rows):
                    low, high = np.searchsorted(ascending, [row, row + batch.num_rows])
                    if low < high:
                        parts.append(batch.take(numbers(ascending[low:high] - row, pa.int64())))
                    row += batch.num_rows
            table = pa.Table.from_batches(parts).take(numbers(np.searchsorted(ascending, wanted), pa.int64()))
            yield from table.combine_chunks().to_batches(max_chunksize=rows)

    # --- errors --------------------------------------------------------------------------------

    def _broken(self, what: str) -> NoReturn:
        segment = self._segment
        raise CorruptRecordError(f"{self._where} should hold [{segment.start}, {segment.stop}), but {what}")

    def _named(self, cause: BaseException) -> KafkaError:
        if is_storage_error(cause):
            return KafkaStorageError(f"{self._where} cannot be read now: {cause}")
        return CorruptRecordError(f"{self._where} cannot be read: {cause}")

    @property
    def _where(self) -> str:
        segment = self._segment
        return f"{self._name}: offsets [{segment.start}, {segment.stop}) are lost: {self._files.uri}/{segment.path}"


def flaw_of_columns(file: pq.ParquetFile) -> str:
    """What is wrong with the columns of a data file; empty when they are a topic's. Columns beside them do no harm."""
    global _sound  # noqa: PLW0603 - one reference, replaced as a whole
    if _sound is not None and file.schema.equals(_sound):
        return ""
    schema = file.schema_arrow
    for field in CHUNK_SCHEMA:
        found = schema.get_all_field_indices(field.name)
        if len(found) != 1:
            return f"it has {len(found) or 'no'} columns {field.name}" if found else f"it has no column {field.name}"
        kind = kind_of(schema.field(found[0]).type)
        if kind != kind_of(field.type):
            return f"its column {field.name} is {kind}, not {kind_of(field.type)}"
    _sound = file.schema
    return ""


_sound: pq.ParquetSchema | None = None
"""Schema of the last file with the right columns: nearly all files have the same."""


def kind_of(kind: pa.DataType) -> str:
    """A type's name without what engines choose differently: names of list elements, the width of lengths, zones."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{kind_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {kind_of(f.type)}' for f in kind)}>"
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}]"
    return str(kind).removeprefix("large_").removesuffix("_view")


def rows_at_a_time(  # noqa: PLR0917
    files: Store, path: str, file: pq.ParquetFile, groups: Sequence[int], wanted: int, columns: Sequence[str]
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
    with contextlib.closing(open_parquet(files, path, PROBE_BUFFER)) as probe:
        batches = probe.iter_batches(batch_size=PROBE_ROWS, row_groups=list(groups)[:1], columns=list(columns))
        first = next(batches, None)
    if first is None:
        return rows
    return min(rows, max(1, wanted * int(first.num_rows) // max(1, int(first.nbytes))))


@lru_cache
def _schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Some columns as topics have them."""
    return pa.schema([CHUNK_SCHEMA.field(name) for name in columns])


def _offsets(batch: pa.RecordBatch) -> Longs:
    return _longs(batch.column("offset"))


def _longs(column: pa.Array) -> Longs:
    """A view of 64-bit numbers without nulls; `to_numpy` would import pandas, a second of the first poll."""
    values: Longs = np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
    return values


class _OpenFiles:
    """The files that the readers of a process hold open between two reads, at most `limit` of them.

    Args:
        limit: most of them.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Begin with none. Caller: a process that was forked, whose parent may have held the lock."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[weakref.ref[SegmentRows], None] = OrderedDict()

    @contextlib.contextmanager
    def using(self, rows: SegmentRows) -> Iterator[None]:
        """Keep a file from being closed; afterwards close those whose last use is the longest ago."""
        key = weakref.ref(rows)
        with self._lock:
            self._idle.pop(key, None)
        try:
            yield
        finally:
            with self._lock:
                if rows.is_open:
                    self._idle[key] = None
                while len(self._idle) > self._limit:
                    oldest = self._idle.popitem(last=False)[0]()
                    if oldest is not None:
                        oldest.close()


_open_files: Final = _OpenFiles(OPEN_FILES)

os.register_at_fork(after_in_child=_open_files.forget)
