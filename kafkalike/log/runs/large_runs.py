"""Large runs: many records of one partition, as the Parquet file of a segment that only lacks its offsets.

What a task has so much of that it makes a file of its own is written once: the file that the task stages becomes the
segment, when its offsets are written over the placeholders in it (`placeholder_offsets`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkalike.log.runs.placeholder_offsets import footer_checksum, placeholders, renumber
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet import UNREADABLE, group_rows, is_storage_error, key_filter, open_parquet, parquet_writer
from kafkalike.storage.port import Storage

LARGE_BYTES: Final = 8 * 1024 * 1024
"""From how many bytes of a partition that a task holds at a time on, they begin a file of their own."""

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""About how many bytes of records go into one file; a larger run of one partition becomes several."""

OPEN_FILES: Final = 64
"""Most files that a task has open at a time; the oldest is finished for a new one."""


_COPIED_BYTES: Final = 8 * 1024 * 1024


class LargeRuns:
    """The files that a task writes, one for each topic and partition at a time.

    Args:
        files: the job's folder.
        task: number of the Spark partition that the records come from.
        codec_of: pyarrow's name of the compression for the segments of a topic; None: tasks cannot finish them.
        done: takes the files that are finished, by topic.
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
        """Whether records belong into such a file: much comes at a time, or there is one already.

        Args:
            topic: theirs.
            partition: theirs.
            size: their bytes in memory.
        """
        return (topic, partition) in self._open or (size >= LARGE_BYTES and self._codec_of(topic) is not None)

    def write(self, topic: str, partition: int, body: pa.Table) -> None:
        """Write records that `takes` has said yes to."""
        file = self._open.get((topic, partition))
        if file is None:
            if len(self._open) == OPEN_FILES:
                self._finish(next(iter(self._open)))
            file = self._open[topic, partition] = _File(self._files, self._task, self._codec_of(topic) or "none")
        file.write(body)
        if file.bytes >= SEGMENT_BYTES:
            self._finish((topic, partition))

    def finish(self) -> None:
        """Finish all files."""
        while self._open:
            self._finish(next(iter(self._open)))

    def give_up(self) -> None:
        """Remove what was written."""
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
    """A file that is being written."""

    def __init__(self, files: Storage, task: int, codec: str) -> None:
        self.bytes = self._rows = 0
        self._name = f"{task:06d}-{uuid.uuid4().hex}.parquet"
        self._files = files
        self._sink = files.open_output(self._name)
        self._codec = codec
        self._writer: pq.ParquetWriter | None = None
        self._times: list[int] = []

    def write(self, body: pa.Table) -> None:
        rows = body.num_rows
        # A producer's time is that of the moment when it has the record, not that of the commit.
        table = segment_rows(body, placeholders(rows, self._rows), SYSTEM_CLOCK.now_ms(), log_append_time=False)
        group = group_rows(rows, body.nbytes)
        if self._writer is None:
            bloom = key_filter(table, group, rows)
            self._writer = parquet_writer(CHUNK_SCHEMA, self._sink, self._codec, ("offset",), bloom)
        self._writer.write_table(table, row_group_size=group)
        self._times += time_range(table)
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
        )

    def give_up(self) -> None:
        # Else it would write the footer when it is collected, into a file that is closed.
        if self._writer is not None:
            self._writer.is_open = False
        with contextlib.suppress(OSError):
            self._sink.close()
        self._files.remove(self._name, quietly=True)


def give_to_topic(staged: Storage, run: LargeRun, files: Storage, name: str, start: int, *, keep: bool = False) -> bool:
    """Number the records of a file and make it a data file of a topic, without copying it where that is possible.

    A file is numbered once: what a topic may have already is never changed.

    Args:
        staged: the job's folder, on this machine.
        run: the records.
        files: the topic's table, on this machine.
        name: of the data file.
        start: offset of the first record.
        keep: whether others may need the staged file still: then a copy of its bytes is numbered.

    Returns:
        Whether it was done. If not, the file must be written anew.

    Raises:
        OSError: the storage refused, or the file is damaged.
    """
    offsets = range(start, start + run.rows)
    if files.tasks.has_replicas:
        # There is no one file that could be numbered in place, or linked.
        return False
    try:
        if keep:
            return _number_copy(staged, run, files, name, offsets)
        if not renumber(f"{staged.uri}/{run.file}", offsets, run.footer_crc):
            return False
    except PermissionError:
        # The task ran as another user, whose files can be read and not written.
        return False
    except ValueError as cause:
        raise _damaged(staged, run, cause) from cause
    staged.copy(run.file, files, name)
    return True


def _number_copy(staged: Storage, run: LargeRun, files: Storage, name: str, offsets: range) -> bool:
    """The same with a copy: whoever is killed half-way leaves a file that no table names."""
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
    """The records of a file, with all its checksums looked at.

    Raises:
        OSError: it cannot be read, or is damaged.
    """
    try:
        with open_parquet(staged, run.file) as file:
            found = file.read()
    except UNREADABLE as cause:
        if is_storage_error(cause):
            raise
        raise _damaged(staged, run, cause) from cause
    if found.num_rows != run.rows or not found.schema.equals(CHUNK_SCHEMA):
        raise _damaged(staged, run, "it has other records than its task has written")
    return found


class DamagedRunError(OSError):
    """A staged file does not hold what its task has written."""


def _damaged(staged: Storage, run: LargeRun, why: object) -> DamagedRunError:
    return DamagedRunError(f"{staged.uri}/{run.file} is damaged: {why}")


def segment_rows(body: pa.Table, offsets: pa.Array, now_ms: int, *, log_append_time: bool) -> pa.Table:
    """Put the columns of a segment together.

    Args:
        body: columns `value`, and optionally `timestamp`, `key` and `headers`, with `has_headers` where null headers
            stand as empty ones.
        offsets: those of the records.
        now_ms: time of records that have none, ms.
        log_append_time: it is the time of all records.

    Returns:
        Columns as `CHUNK_SCHEMA` says.
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
    """The first and the last time of a segment's records, ms."""
    times = rows.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()) // 1000, int(times.max()) // 1000


def _times(body: pa.Table, now: int, *, log_append_time: bool) -> pa.Array:
    """Times in whole ms; `now`, in µs, where the topic or the record asks for it."""
    if log_append_time or "timestamp" not in body.column_names:
        return numbers(np.full(body.num_rows, now, np.int64), pa.timestamp("us", "UTC"))
    times = body.column("timestamp").cast(pa.int64()).fill_null(now).to_numpy()
    return numbers(times // 1000 * 1000, pa.timestamp("us", "UTC"))


def _headers(body: pa.Table, rows: int) -> pa.Array | pa.ChunkedArray:
    """Headers, null where the flag says that they were."""
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
