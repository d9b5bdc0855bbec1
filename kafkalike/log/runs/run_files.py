"""Run files: stage rows of a Spark job in the order of their Kafka partitions, and make segments from them.

This runs in Spark's Python workers, which import nothing but this module and its imports. A record's offset is known
only with its partition's log end, and that only under the topic's lock. So a job first stages its records without
offsets, sorted by topic and partition (`RunFile`), and numbered segments are made from them later (`write_segment`). A
task with many records of one partition writes the segment itself, which later gets only its offsets (`large_runs`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from kafkalike.log.runs.large_runs import SEGMENT_BYTES, LargeRuns, give_to_topic, read_large, segment_rows, time_range
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.topic.chunk import earliest_due
from kafkalike.log.topic.column_rules import WAITING
from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet import put_parquet
from kafkalike.storage.port import Storage

HELD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records that a task sorts at a time."""

FETCHING: Final = 16
"""Runs of a segment that are fetched in parallel from remote storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Place of the records of one segment."""

    name: str
    """Name of the segment's file in the topic's table."""
    partition: int
    start: int
    """Offset of its first record."""
    codec: str
    append_time_ms: int
    """Time of the append, ms: of every record in a topic with LogAppendTime, otherwise of records without a
    timestamp."""
    log_append_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSegment:
    """A finished segment file."""

    name: str
    partition: int
    offsets: range
    size: int
    min_time_ms: int
    max_time_ms: int
    due_ms: int
    """Earliest time (ms) in the `deliver_at` headers of its records; 0 if one may have none."""


class RunFile:
    """Files of a task's records: Arrow streams, each with records of one topic and partition, in their order.

    They are streams in one file, so that each can be read by one request for a range of bytes. Records that come in
    large numbers get files of their own (`LargeRuns`).

    Args:
        files: the job's folder.
        task: number of the Spark partition of the records.
        codec_of: see `LargeRuns`.
    """

    def __init__(self, files: Storage, task: int, codec_of: Callable[[str], str | None]) -> None:
        self.runs: defaultdict[str, list[StagedRun | LargeRun]] = defaultdict(list)
        """Written runs, by topic; the records of a partition in their order."""
        self._large = LargeRuns(files, task, codec_of, self.runs)
        self._files = files
        self._task = task
        self._held: dict[tuple[str, int], list[pa.Table]] = {}
        self._size = 0
        self._names: list[str] = []
        self._sink: pa.NativeFile | None = None

    def finish(self) -> None:
        """Write the remaining records. After an error here or earlier, the caller calls `give_up`.

        Raises:
            OSError, pa.ArrowException: the storage refused.
        """
        self._flush(last=True)
        self._large.finish()
        if self._sink is not None:
            self._sink.close()

    def give_up(self) -> None:
        """Remove all written files."""
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
        for name in self._names:
            self._files.remove(name, quietly=True)
        self._large.give_up()

    def add(self, topic: str, records: pa.Table) -> None:
        """Add records that have partitions (`ColumnRouter`); they are written once `HELD_BYTES` have accumulated."""
        # A small batch is sorted while the processor's cache holds it.
        for partition, part in _by_partition(records):
            self._held.setdefault((topic, partition), []).append(part)
        self._size += records.nbytes
        if self._size >= HELD_BYTES:
            self._flush(last=False)

    def _flush(self, *, last: bool) -> None:
        """Write the held records.

        Args:
            last: nothing follows. Records of a task that has only these stay together with other tasks' records;
                otherwise each task would make small files.
        """
        for (topic, partition), parts in self._held.items():
            table = pa.concat_tables(parts).combine_chunks()
            # Waiting records have no partition yet, so their file cannot become a segment.
            if partition != WAITING and self._large.takes(topic, partition, 0 if last else table.nbytes):
                self._large.write(topic, partition, table)
                continue
            for batch in table.to_batches():
                self._write(topic, partition, batch)
        self._held, self._size = {}, 0

    def _write(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        if self._sink is not None and self._sink.tell() >= SEGMENT_BYTES:
            # The place of a file is chosen when it is opened, by the free space.
            self._sink.close()
            self._sink = None
        if self._sink is None:
            self._names.append(f"{self._task:06d}-{uuid.uuid4().hex}.arrows")
            self._sink = self._files.open_output(self._names[-1])
        start = self._sink.tell()
        with ipc.new_stream(self._sink, batch.schema) as stream:
            stream.write_batch(batch)
        self.runs[topic].append(
            StagedRun(
                task=self._task,
                file=self._names[-1],
                start=start,
                stop=self._sink.tell(),
                partition=partition,
                rows=batch.num_rows,
                bytes=batch.nbytes,
            )
        )


def _by_partition(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the records of each partition, in their order of arrival."""
    partitions = table.column("partition").to_numpy()
    body = table.drop_columns(["partition"])
    first = int(partitions[0])
    if (partitions == first).all():
        yield first, body
        return
    # numpy sorts numbers of 16 bits in linear time.
    few = partitions.astype(np.uint16) if partitions.max() <= np.iinfo(np.uint16).max else partitions
    order = np.argsort(few, kind="stable")
    found, starts = np.unique(partitions[order], return_index=True)
    body = body.take(numbers(order, pa.int64()))
    bounds = [*starts.tolist(), len(order)]
    for at, partition in enumerate(found.tolist()):
        yield partition, body.slice(bounds[at], bounds[at + 1] - bounds[at])


def write_segment(
    staged: Storage, files: Storage, records: Sequence[StagedRun] | LargeRun, where: Numbering, *, keep: bool = False
) -> WrittenSegment:
    """Number staged records and write them as one segment.

    Args:
        staged: the job's folder.
        files: the topic's table.
        records: in the order of their offsets; at least one.
        where: the file and its first offset.
        keep: whether other processes may still need the staged files unchanged.

    Returns:
        The written segment.

    Raises:
        OSError, pa.ArrowException: the storage refused.
    """
    if isinstance(records, LargeRun):
        if not where.log_append_time and give_to_topic(staged, records, files, where.name, where.start, keep=keep):
            times = records.min_time_ms, records.max_time_ms
            return _written(where, records.rows, files.size(where.name), times, records.due_ms)
        body = read_large(staged, records)
    else:
        body = pa.Table.from_batches(list(read_runs(staged, records)))
    offsets = numbers(np.arange(where.start, where.start + body.num_rows, dtype=np.int64), pa.int64())
    table = segment_rows(body, offsets, where.append_time_ms, log_append_time=where.log_append_time)
    size, due_ms = put_parquet(files, where.name, table, where.codec), earliest_due(table.column("headers"))
    return _written(where, table.num_rows, size, time_range(table), due_ms)


def _written(where: Numbering, rows: int, size: int, times: tuple[int, int], due_ms: int) -> WrittenSegment:
    return WrittenSegment(
        name=where.name,
        partition=where.partition,
        offsets=range(where.start, where.start + rows),
        size=size,
        min_time_ms=times[0],
        max_time_ms=times[1],
        due_ms=due_ms,
    )


def read_runs(staged: Storage, runs: Sequence[StagedRun]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of staged runs."""

    def fetch(run: StagedRun) -> pa.Buffer:
        return staged.read_range(run.file, run.start, run.stop)

    if not staged.scheduler.is_remote or len(runs) == 1:
        for run in runs:
            yield from ipc.open_stream(fetch(run))
        return
    # Own threads, because the store's threads may all be waiting for calls that led here.
    with ThreadPoolExecutor(min(len(runs), FETCHING)) as pool:
        for content in pool.map(fetch, runs):
            yield from ipc.open_stream(content)
