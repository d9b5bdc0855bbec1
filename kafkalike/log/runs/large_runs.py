"""Large runs: many records of one partition, as the Parquet file of a segment that only lacks its offsets.

A Spark task knows its records long before their offsets are known. A task with many records of one partition writes
them once, as a Parquet file with offsets that no log reaches (`placeholders`). When the offsets are known, the pages of
that column are written over, and the footer after them (`renumber`). All other bytes stay, and the file becomes the
segment.

The column stays the first of its row group, because readers use its place to decide which of the tasks that share a
file reads a row group. So the new pages must not be longer than the old ones. They hardly ever are: both count up by
one, and a placeholder is a longer number. If they are longer, the file is left as it is, and the caller writes a new
one.

Source of the fields' numbers: parquet.thrift of Apache Parquet's format.
"""

from __future__ import annotations

import contextlib
import uuid
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE, earliest_due
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage import parquet
from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet_footer import TAIL, Field, Struct, ended, footer_of, items, read_struct, write_struct
from kafkalike.storage.port import Storage

LARGE_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a partition, held by a task at a time, that start a file of their own."""

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""Approximate bytes of records in one file; a larger run of one partition becomes several files."""

OPEN_FILES: Final = 64
"""Most files that a task has open; for another one the oldest is finished."""

_COPIED_BYTES: Final = 8 * 1024 * 1024


class LargeRuns:
    """The open files of a task, one for each topic and partition.

    Args:
        files: the job's folder.
        task: number of the Spark partition of the records.
        codec_of: returns pyarrow's name of the compression for a topic's segments; None if tasks cannot finish them.
        done: gets the finished files, by topic.
    """

    def __init__(
        self,
        files: Storage,
        task: int,
        codec_of: Callable[[str], str | None],
        done: Mapping[str, list[StagedRun | LargeRun]],
    ) -> None:
        self._done = done
        self._files = files
        self._task = task
        self._codec_of = codec_of
        self._open: dict[tuple[str, int], _File] = {}

    def takes(self, topic: str, partition: int, size: int) -> bool:
        """True if records belong into such a file, because they are many or their partition has a file already.

        Args:
            topic: their topic.
            partition: their partition.
            size: their bytes in memory.
        """
        return (topic, partition) in self._open or (size >= LARGE_BYTES and self._codec_of(topic) is not None)

    def write(self, topic: str, partition: int, body: pa.Table) -> None:
        """Write records that `takes` has accepted."""
        file = self._open.get((topic, partition))
        if file is None:
            if len(self._open) == OPEN_FILES:
                self._finish(next(iter(self._open)))
            file = self._open[topic, partition] = _File(self._files, self._task, self._codec_of(topic) or "none")
        file.write(body)
        if file.bytes >= SEGMENT_BYTES:
            self._finish((topic, partition))

    def finish(self) -> None:
        """Finish all open files."""
        while self._open:
            self._finish(next(iter(self._open)))

    def give_up(self) -> None:
        """Remove all written files."""
        for file in self._open.values():
            file.give_up()
        for runs in self._done.values():
            for run in runs:
                if isinstance(run, LargeRun):
                    self._files.remove(run.file, quietly=True)

    def _finish(self, which: tuple[str, int]) -> None:
        topic, partition = which
        run = self._open[which].finish(self._task, partition)
        self._done[topic].append(run)
        del self._open[which]


class _File:
    """A file in progress."""

    def __init__(self, files: Storage, task: int, codec: str) -> None:
        self.bytes = self._rows = 0
        self._name = f"{task:06d}-{uuid.uuid4().hex}.parquet"
        self._files = files
        self._sink = files.open_output(self._name)
        self._codec = codec
        self._writer: parquet.ParquetOutput | None = None
        self._times: list[int] = []
        self._due: list[int] = []

    def write(self, body: pa.Table) -> None:
        rows = body.num_rows
        # A producer stamps a record when it gets it, not at the commit.
        table = segment_rows(body, placeholders(rows, self._rows), SYSTEM_CLOCK.now_ms(), log_append_time=False)
        group = parquet.group_rows(rows, body.nbytes)
        if self._writer is None:
            bloom = parquet.key_filter(table, group, rows)
            self._writer = parquet.parquet_writer(CHUNK_SCHEMA, self._sink, self._codec, ("offset",), bloom)
        self._writer.write_table(table, row_group_size=group)
        self._times += time_range(table)
        self._due.append(earliest_due(table.column("headers")))
        self._rows += rows
        self.bytes += body.nbytes

    def finish(self, task: int, partition: int) -> LargeRun:
        if self._writer is not None:
            self._writer.close()
        self._sink.close()
        return LargeRun(
            task=task,
            file=self._name,
            partition=partition,
            rows=self._rows,
            bytes=self.bytes,
            min_time_ms=min(self._times),
            max_time_ms=max(self._times),
            footer_crc=footer_checksum(f"{self._files.uri}/{self._name}"),
            due_ms=min(self._due),
        )

    def give_up(self) -> None:
        # Otherwise the garbage-collected writer would write its footer into a closed file.
        if self._writer is not None:
            self._writer.is_open = False
        with contextlib.suppress(OSError):
            self._sink.close()
        self._files.remove(self._name, quietly=True)


def give_to_topic(staged: Storage, run: LargeRun, files: Storage, name: str, start: int, *, keep: bool = False) -> bool:
    """Number the records of a file and make it a data file of a topic, without copying it if possible.

    A file is numbered once, so that a file that a topic may have is never changed.

    Args:
        staged: the job's folder, on this machine.
        run: the records.
        files: the topic's table, on this machine.
        name: name of the data file.
        start: offset of the first record.
        keep: whether other processes may still need the staged file; then a copy is numbered.

    Returns:
        True if it was done; otherwise the caller writes a new file.

    Raises:
        OSError: the storage refused, or the file is damaged.
    """
    offsets = range(start, start + run.rows)
    if files.tasks.has_replicas:
        # Each replica needs a file of its own, so one file cannot be numbered in place or linked.
        return False
    try:
        if keep:
            return _number_copy(staged, run, files, name, offsets)
        if not renumber(f"{staged.uri}/{run.file}", offsets, run.footer_crc):
            return False
    except PermissionError:
        # The task ran as another user, whose files this process can only read.
        return False
    except ValueError as cause:
        raise _damaged(staged, run, cause) from cause
    staged.copy(run.file, files, name)
    return True


def _number_copy(staged: Storage, run: LargeRun, files: Storage, name: str, offsets: range) -> bool:
    """Number a copy, so that a killed process leaves a file that no table names."""
    with staged.open_input(run.file) as source, files.open_output(name) as sink:
        while chunk := source.read_buffer(_COPIED_BYTES):
            sink.write(chunk)
    done = False
    try:
        done = renumber(f"{files.uri}/{name}", offsets, run.footer_crc)
    finally:
        if not done:
            files.remove(name, quietly=True)
    return done


def read_large(staged: Storage, run: LargeRun) -> pa.Table:
    """Read the records of a file and verify its checksums.

    Raises:
        OSError: the file cannot be read, or is damaged.
    """
    try:
        with parquet.open_parquet(staged, run.file) as file:
            found = file.read()
    except parquet.UNREADABLE as cause:
        if parquet.is_storage_error(cause):
            raise
        raise _damaged(staged, run, cause) from cause
    if found.num_rows != run.rows or not found.schema.equals(CHUNK_SCHEMA):
        raise _damaged(staged, run, "its records differ from the records that its task wrote")
    return found


class DamagedRunError(OSError):
    """A staged file does not hold the records that its task wrote."""


def _damaged(staged: Storage, run: LargeRun, why: object) -> DamagedRunError:
    return DamagedRunError(f"{staged.uri}/{run.file} is damaged: {why}")


def segment_rows(body: pa.Table, offsets: pa.Array, now_ms: int, *, log_append_time: bool) -> pa.Table:
    """Combine the columns of a segment.

    Args:
        body: columns `value`, and optionally `timestamp`, `key` and `headers`, with `has_headers` if null headers are
            stored as empty ones.
        offsets: the records' offsets.
        now_ms: time of records without one, ms.
        log_append_time: whether all records get that time.

    Returns:
        The columns of `CHUNK_SCHEMA`.
    """
    rows = body.num_rows
    columns = {
        "offset": offsets,
        "timestamp": _times(body, now_ms * 1000, log_append_time=log_append_time),
        "timestampType": numbers(np.full(rows, int(log_append_time), np.int32), pa.int32()),
        "key": body.column("key") if "key" in body.column_names else pa.nulls(rows, pa.binary()),
        "value": body.column("value"),
        "headers": _headers(body, rows),
    }
    arrays = [
        column if column.type == f.type else column.cast(f.type)
        for f, column in ((f, columns[f.name]) for f in CHUNK_SCHEMA)
    ]
    return pa.Table.from_arrays(arrays, schema=CHUNK_SCHEMA)


def time_range(rows: pa.Table) -> tuple[int, int]:
    """Return the first and the last time of a segment's records, ms."""
    times = rows.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()) // 1000, int(times.max()) // 1000


def _times(body: pa.Table, now: int, *, log_append_time: bool) -> pa.Array:
    """Return times in whole ms; `now`, in µs, for records without one or with LogAppendTime."""
    if log_append_time or "timestamp" not in body.column_names:
        return numbers(np.full(body.num_rows, now, np.int64), pa.timestamp("us", "UTC"))
    times = body.column("timestamp").cast(pa.int64()).fill_null(now).to_numpy()
    return numbers(times // 1000 * 1000, pa.timestamp("us", "UTC"))


def _headers(body: pa.Table, rows: int) -> pa.Array | pa.ChunkedArray:
    """Return the headers, null for records without the flag."""
    if "headers" not in body.column_names:
        return pa.nulls(rows, HEADERS_TYPE)
    lists = body.column("headers").cast(HEADERS_TYPE)
    if "has_headers" not in body.column_names:
        return lists
    absent = pc.invert(body.column("has_headers"))
    if not pc.any(absent).as_py():
        return lists
    held = pa.concat_arrays(lists.chunks)
    return pa.ListArray.from_arrays(held.offsets, held.values, type=HEADERS_TYPE, mask=pa.concat_arrays(absent.chunks))


FIRST: Final = 1 << 62
"""The first placeholder offset."""

# Fields of the footer, of a row group, of a column chunk and of its metadata.
_ROW_GROUPS: Final = 4
_COLUMNS, _BYTES, _ROWS, _STORED = 1, 2, 3, 6
_ABOUT: Final = 3
_PATH, _PLAIN_SIZE, _SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 11

_OFFSET: Final = pa.schema([pa.field("offset", pa.int64(), nullable=False)])


def placeholders(rows: int, before: int) -> pa.Array:
    """Return offsets for records that have none yet.

    Args:
        rows: number of records.
        before: number of records already in the file.
    """
    return numbers(np.arange(FIRST + before, FIRST + before + rows, dtype=np.int64), pa.int64())


def renumber(path: str, offsets: range, footer_crc: int) -> bool:
    """Give the records of a file their offsets, in place.

    Args:
        path: a file without readers, as `parquet_writer` writes it, with `offset` first of several columns and
            uncompressed.
        offsets: the records' offsets.
        footer_crc: `footer_checksum` of the finished file.

    Returns:
        True if it was done. Otherwise the file is unchanged: its footer differs from the finished file's because of an
        earlier call or damage, or the offsets need more room.

    Raises:
        OSError: the file cannot be read or written.
        ValueError: the file has another structure.
    """
    try:
        return _renumber(path, offsets, footer_crc)
    except (LookupError, TypeError, AttributeError) as cause:
        raise ValueError(f"its footer is damaged: {cause!r}") from cause


def _renumber(path: str, offsets: range, footer_crc: int) -> bool:
    with open(path, "r+b") as file:  # noqa: PTH123 - bytes at places
        found = _footer(file.fileno())
        if found.checksum != footer_crc:
            return False
        groups = [cast("Struct", group) for group in items(found.fields, _ROW_GROUPS)]
        rows = [_number(group, _ROWS) for group in groups]
        if sum(rows) != len(offsets):
            raise ValueError(f"it has {sum(rows)} records instead of {len(offsets)}")
        pages = _pages(offsets.start, rows)
        for group, page in zip(groups, pages, strict=True):
            if len(page.content) > _room(group):
                return False
        for group, page in zip(groups, pages, strict=True):
            # Not pwrite: on a full disk it may write only a part, which its caller would have to check.
            file.seek(_number(_first_column(group), _DATA_PAGE))
            file.write(page.content)
            _put_first_column(group, page.about)
        file.seek(found.at)
        file.write(ended(write_struct(found.fields)))
        file.truncate()
    return True


def footer_checksum(path: str) -> int:
    """Return the CRC-32 of the footer of a finished file."""
    with open(path, "rb") as file:  # noqa: PTH123 - bytes at places
        return _footer(file.fileno()).checksum


@dataclass(frozen=True, slots=True)
class _Footer:
    at: int
    """The footer's place in the file."""
    fields: Struct
    checksum: int
    """CRC-32 of the footer's bytes."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The offsets of a row group."""

    content: bytes
    about: Struct
    """Metadata of the column."""


def _footer(handle: int) -> _Footer:
    at, content = footer_of(handle)
    return _Footer(at, read_struct(content), zlib.crc32(content))


def _pages(start: int, rows: Sequence[int]) -> list[_Page]:
    """Return the column as pyarrow writes it, row group by row group."""
    sink = pa.BufferOutputStream()
    at = start
    with parquet.parquet_writer(_OFFSET, sink, "none") as writer:
        for count in rows:
            offsets = numbers(np.arange(at, at + count, dtype=np.int64), pa.int64())
            writer.write_table(pa.Table.from_arrays([offsets], schema=_OFFSET), row_group_size=count)
            at += count
    content = sink.getvalue().to_pybytes()
    size = int.from_bytes(content[-TAIL:-4], "little")
    groups = items(read_struct(content[-TAIL - size : -TAIL]), _ROW_GROUPS)
    return [_page(content, _first_column(cast("Struct", group))) for group in groups]


def _page(content: bytes, about: Struct) -> _Page:
    at = _number(about, _DATA_PAGE)
    return _Page(content[at : at + _number(about, _SIZE)], about)


def _first_column(group: Struct) -> Struct:
    """Return the metadata of the offsets of a row group."""
    about = cast("Struct", cast("Struct", items(group, _COLUMNS)[0])[_ABOUT].value)
    if items(about, _PATH) != [b"offset"] or _DICTIONARY_PAGE in about:
        raise ValueError("the first column does not hold plain offsets")
    return about


def _room(group: Struct) -> int:
    """Return the bytes between the first page of offsets and the next column."""
    following = cast("Struct", cast("Struct", items(group, _COLUMNS)[1])[_ABOUT].value)
    begins = [_number(following, number) for number in (_DICTIONARY_PAGE, _DATA_PAGE) if number in following]
    return min(begins) - _number(_first_column(group), _DATA_PAGE)


def _put_first_column(group: Struct, about: Struct) -> None:
    """Replace the metadata of the offsets; their pages keep their place."""
    old = _first_column(group)
    new = {**about, _DATA_PAGE: old[_DATA_PAGE]}
    cast("Struct", items(group, _COLUMNS)[0])[_ABOUT].value = new
    for total, part in ((_BYTES, _PLAIN_SIZE), (_STORED, _SIZE)):
        if total in group:
            grown = _number(new, part) - _number(old, part)
            group[total] = Field(group[total].kind, _number(group, total) + grown)


def _number(fields: Struct, number: int) -> int:
    found = fields[number].value if number in fields else None
    if not isinstance(found, int):
        raise ValueError(f"the Parquet footer lacks field {number}")  # noqa: TRY004 - the file is wrong, not the caller
    return found
