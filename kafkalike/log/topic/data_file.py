"""DataFile: a data file of a topic, whose rows are read batch by batch, in any order.

A process keeps a limited number of them open between two reads (`OpenFiles`).
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa
from pyarrow._parquet import ParquetSchema, RowGroupMetaData

from kafkalike.errors import CorruptRecordError, KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.model.concurrency import OnError
from kafkalike.storage.parquet import HAS_FILTERS, KEY, UNREADABLE, ParquetInput, is_storage_error, open_parquet
from kafkalike.storage.parquet_footer import may_hold, xxh64

if TYPE_CHECKING:
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage


Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

COLUMNS: Final = tuple(field.name for field in CHUNK_SCHEMA)

MAX_ROWS: Final = 262_144
"""Rows decoded at a time, at most."""

WHOLE_BYTES: Final = 64 * 1024
"""Largest file that is fetched whole and decoded without threads, because threads take longer to wake up."""

FAR_WHOLE_BYTES: Final = 8 * 1024 * 1024
"""Largest file that is fetched whole from a remote storage, where a request takes longer than sending some
megabytes."""

PROBE_ROWS: Final = 64
"""Rows decoded to measure the size of records, if the file's statistics do not suffice."""

PROBE_BUFFER: Final = 64 * 1024
"""Bytes that a probe fetches at a time, instead of whole columns."""

PROBE_FREE_BYTES: Final = 64 * 1024 * 1024
"""A probe is made if a file's rows could be larger than this in memory."""


class FlawError(Exception):
    """A data file contradicts the table's log; the message names the contradiction."""


@contextlib.contextmanager
def named_flaws(where: str, then: str = "") -> Iterator[None]:
    """Turn the errors of a data file into a client's errors; `FileNotFoundError` passes through.

    Args:
        where: name of the file, for the error.
        then: end of the message for a damaged file; begins with `. `, or is empty.

    Raises:
        CorruptRecordError: the file is damaged, or contradicts the log.
        KafkaStorageError: the storage cannot be read at present.
        FileNotFoundError: the file does not exist.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except (*UNREADABLE, FlawError) as cause:
        if is_storage_error(cause):
            raise KafkaStorageError(f"{where} cannot be read now: {cause}") from cause
        raise CorruptRecordError(f"{where} cannot be read: {cause}{then}") from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """Columns and sizes of a read."""

    columns: tuple[str, ...] = COLUMNS
    """Columns of `CHUNK_SCHEMA`, `offset` among them."""
    batch_bytes: int
    """Approximate bytes decoded at a time."""
    max_rows: int = MAX_ROWS
    """Rows decoded at a time, at most."""
    threads: bool = True
    """True to decode the columns of a large file in parallel."""


class DataFile:
    """An open data file.

    Args:
        files: the topic's table.
        segment: the log's entry for the file.
        reading: columns, and how much to decode at a time.

    Raises:
        FlawError: its columns are not a topic's, or its number of rows contradicts the log.
        FileNotFoundError: the file does not exist. OSError, pa.ArrowException: the file is damaged, or the storage does
            not answer.
    """

    def __init__(self, files: Storage, segment: Segment, reading: ReadOptions) -> None:
        self._files = files
        self._path = segment.path
        self._reading = reading
        self._small = segment.size_bytes <= WHOLE_BYTES
        whole = segment.size_bytes <= (FAR_WHOLE_BYTES if files.scheduler.is_remote else WHOLE_BYTES)
        self._file = open_parquet(files, segment.path, whole=whole)
        with OnError(self.close):
            self.groups = self._checked(segment)
            """Rows of each row group."""

    def _checked(self, segment: Segment) -> list[int]:
        metadata = self._file.metadata
        flaw = flaw_of_columns(self._file)
        if not flaw and metadata.num_rows != segment.num_records:
            flaw = f"it has {metadata.num_rows} records instead of {segment.num_records}"
        if flaw:
            raise FlawError(flaw)
        return [int(metadata.row_group(number).num_rows) for number in range(metadata.num_row_groups)]

    def close(self) -> None:
        """Close the Parquet file."""
        self._file.close()

    def offsets(self) -> Longs:
        """Return the offsets of all rows, in the file's order.

        Raises:
            FlawError: a row has no offset.
        """
        column = self._file.read(columns=["offset"]).column("offset")
        if column.null_count:
            raise FlawError("it has records without offset")
        return np.concatenate([longs(part) for part in column.chunks])

    def groups_with(self, keys: Iterable[bytes]) -> list[int]:
        """Return the row groups that may hold any of some keys, by their Bloom filters."""
        metadata = self._file.metadata
        if not HAS_FILTERS:
            return list(range(metadata.num_row_groups))
        hashes = [xxh64(key) for key in keys]
        return [
            number for number in range(metadata.num_row_groups) if self._may_hold(metadata.row_group(number), hashes)
        ]

    def keys_of(self, group: int) -> list[pa.Array]:
        """Return the keys of a row group without reading its other columns."""
        found = self._file.iter_batches(
            batch_size=MAX_ROWS, row_groups=[group], columns=[KEY], use_threads=not self._small
        )
        return [batch.column(0).cast(pa.binary()) for batch in found]

    def _may_hold(self, group: RowGroupMetaData, hashes: Sequence[int]) -> bool:
        chunks = (group.column(number) for number in range(group.num_columns))
        chunk = next(chunk for chunk in chunks if chunk.path_in_schema == KEY)
        start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length
        if not start or not length:
            return True
        if self._files.scheduler.is_remote or len(hashes) > 1:
            whole = bytes(self._files.read_range(self._path, start, start + length))
            return any(may_hold(lambda at, to: whole[at:to], length, hashed) for hashed in hashes)
        return may_hold(
            lambda at, to: bytes(self._files.read_range(self._path, start + at, start + to)), length, hashes[0]
        )

    def rows_of(self, batch_bytes: int, groups: Sequence[int], columns: tuple[str, ...] = COLUMNS) -> int:
        """Return the number of rows of some row groups that come to about this many bytes; see `rows_at_a_time`."""
        return rows_at_a_time(self._files, self._path, self._file, groups, batch_bytes, columns)

    def rows_at_once(self, groups: Sequence[int]) -> int:
        """Return the number of rows of some row groups to decode at a time."""
        reading = self._reading
        return min(self.rows_of(reading.batch_bytes, groups, reading.columns), reading.max_rows)

    def batches(self, groups: Sequence[int], rows: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of some row groups.

        Args:
            groups: their numbers.
            rows: rows at a time; None uses the file's `ReadOptions`.

        Raises:
            FlawError: a column contradicts the file's footer.
        """
        reading = self._reading
        found = self._file.iter_batches(
            batch_size=self.rows_at_once(groups) if rows is None else rows,
            row_groups=list(groups),
            columns=list(reading.columns),
            use_threads=reading.threads and not self._small,
        )
        return (_typed(batch, reading.columns) for batch in found)


def flaw_of_columns(file: ParquetInput) -> str:
    """Return the defect of a data file's columns; empty if it has the columns of a topic, possibly among others."""
    global _sound  # noqa: PLW0603 - one reference, replaced as a whole
    if _sound is not None and file.metadata.schema.equals(_sound):
        return ""
    schema = file.schema_arrow
    for field in CHUNK_SCHEMA:
        found = schema.get_all_field_indices(field.name)
        if len(found) != 1:
            return f"it has {len(found) or 'no'} columns {field.name}" if found else f"it has no column {field.name}"
        kind = kind_of(schema.field(found[0]).type)
        if kind != kind_of(field.type):
            return f"its column {field.name} is {kind}, not {kind_of(field.type)}"
    _sound = file.metadata.schema
    return ""


_sound: ParquetSchema | None = None
"""Schema of the last file with the right columns, because nearly all files have the same."""


def kind_of(kind: pa.DataType) -> str:
    """Return a type's name without details that engines choose: list elements' names, width of lengths, time zones."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"list<{kind_of(kind.value_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{f.name}: {kind_of(f.type)}' for f in kind)}>"
    if pa.types.is_timestamp(kind):
        return f"timestamp[{kind.unit}]"
    return str(kind).removeprefix("large_").removesuffix("_view")


def rows_at_a_time(  # noqa: PLR0917
    files: Storage, path: str, file: ParquetInput, groups: Sequence[int], wanted: int, columns: Sequence[str]
) -> int:
    """Return the number of rows of a file that come to about `wanted` bytes when they are decoded.

    A file's statistics count a repeated value once (dictionary pages), so its rows may be far larger. If that could
    matter, the first rows are decoded as a probe.
    """
    count = size = 0
    for number in groups:
        group = file.metadata.row_group(number)
        count += int(group.num_rows)
        size += int(group.total_byte_size)
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


def longs(column: pa.Array) -> Longs:
    """Return a view of 64-bit numbers without nulls. `to_numpy` would import pandas, a second of the first poll."""
    values: Longs = np.frombuffer(column.buffers()[1], np.int64, len(column), column.offset * 8)
    return values


@lru_cache
def _schema_of(columns: tuple[str, ...]) -> pa.Schema:
    """Return the topic's schema of some columns."""
    return pa.schema([CHUNK_SCHEMA.field(name) for name in columns])


@lru_cache
def _required(columns: tuple[str, ...]) -> tuple[int, ...]:
    """Return the positions of those columns that have no nulls in a topic."""
    return tuple(at for at, name in enumerate(columns) if not CHUNK_SCHEMA.field(name).nullable)


def _typed(batch: pa.RecordBatch, columns: tuple[str, ...]) -> pa.RecordBatch:
    """Return rows with the types of a topic's columns, independent of the engine that wrote them."""
    schema = _schema_of(columns)
    found = batch
    if not batch.schema.equals(schema):
        found = pa.RecordBatch.from_arrays([_cast(batch.column(field.name), field) for field in schema], schema=schema)
    for at in _required(columns):
        if found.column(at).null_count:
            raise FlawError(f"it has records without {columns[at]}")
    return found


def _cast(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type.equals(field.type):
        return column
    if kind_of(column.type) != kind_of(field.type):
        raise FlawError(f"its column {field.name} is {kind_of(column.type)}, not {kind_of(field.type)}")
    return column.cast(field.type)


LIMIT: Final = 256
"""Data files that a process keeps open between two reads; many systems allow a process 1,024 open files."""


class Holder(Protocol):
    """An object that may keep a file open."""

    @property
    def is_open(self) -> bool:
        """True if its file is open."""
        ...

    def close(self) -> None:
        """Close the file; the next read opens it again."""
        ...


class OpenFiles:
    """The open files of a process. Thread-safe.

    Args:
        limit: most files.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.forget()

    def forget(self) -> None:
        """Reset to no open files. Called in a forked process, because the parent may have held the lock."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[weakref.ref[Holder], None] = OrderedDict()

    @contextlib.contextmanager
    def using(self, holder: Holder) -> Iterator[None]:
        """Keep a file open during its use; afterwards close the least recently used files above the limit."""
        key = weakref.ref(holder)
        with self._lock:
            self._idle.pop(key, None)
        try:
            yield
        finally:
            with self._lock:
                if holder.is_open:
                    self._idle[key] = None
                while len(self._idle) > self._limit:
                    oldest = self._idle.popitem(last=False)[0]()
                    if oldest is not None:
                        oldest.close()


open_files: Final = OpenFiles(LIMIT)

os.register_at_fork(after_in_child=open_files.forget)
