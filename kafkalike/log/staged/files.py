"""Staging: rows of a Spark job in, files of rows in the order of their Kafka partitions out, and from those segments.

This runs in Spark's Python workers, which import nothing but this module and what it needs. A record's offset is known
only when its partition's log end is, and that only under the topic's lock; so a job first stages its records, sorted by
topic and partition but without offsets (`StagedFile`), and the numbered segments are made from that (`write_segment`).
"""

from __future__ import annotations

import contextlib
import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from kafkalike.log.store.arrays import numbers
from kafkalike.log.store.parquet import put_parquet
from kafkalike.log.store.port import Store
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE

HELD_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records that a task sorts at a time."""


@dataclass(frozen=True, slots=True)
class Run:
    """Records of one partition that stand together in a staged file."""

    task: int
    """Spark partition they come from; a partition's records are numbered in this order."""
    file: str
    """The staged file, and where in it they stand: bytes from `start` to before `stop`, an Arrow stream."""
    start: int
    stop: int
    partition: int
    rows: int
    bytes: int
    """What they take in memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbering:
    """Where the records of one segment go."""

    name: str
    """Name of the segment's file in the topic's table."""
    partition: int
    start: int
    """Offset of its first record."""
    codec: str
    append_time_ms: int
    """Time of the append, ms: of every record in a topic with LogAppendTime, else of those that have none."""
    log_append_time: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished file."""

    name: str
    partition: int
    offsets: range
    size: int
    min_time_ms: int
    max_time_ms: int


class StagedFile:
    """A file of a task's records: Arrow streams, each with records of one topic and partition, in their order.

    Streams rather than one Arrow file: whoever numbers them reads each by one request for a range of bytes.

    Args:
        files: the job's folder.
        task: number of the Spark partition that they come from.
    """

    def __init__(self, files: Store, task: int) -> None:
        self.name = f"{task:06d}-{uuid.uuid4().hex}.arrows"
        self.runs: defaultdict[str, list[Run]] = defaultdict(list)
        """What has been written, by topic."""
        self._files = files
        self._task = task
        self._held: dict[tuple[str, int], list[pa.Table]] = {}
        self._size = 0
        self._sink: pa.NativeFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            try:
                self._flush()
                if self._sink is not None:
                    self._sink.close()
            except BaseException:
                self._give_up()
                raise
        else:
            self._give_up()

    def _give_up(self) -> None:
        if self._sink is not None:
            with contextlib.suppress(OSError):
                self._sink.close()
            self._files.discard(self.name)

    def add(self, topic: str, records: pa.Table) -> None:
        """Take records that have their partitions (`Router`); written when `HELD_BYTES` have come together."""
        # A small batch is sorted while the processor's cache holds it.
        for partition, part in _by_partition(records):
            self._held.setdefault((topic, partition), []).append(part)
        self._size += records.nbytes
        if self._size >= HELD_BYTES:
            self._flush()

    def _flush(self) -> None:
        for (topic, partition), parts in self._held.items():
            for batch in pa.concat_tables(parts).combine_chunks().to_batches():
                self._write(topic, partition, batch)
        self._held, self._size = {}, 0

    def _write(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        if self._sink is None:
            self._sink = self._files.open_output(self.name)
        start = self._sink.tell()
        with ipc.new_stream(self._sink, batch.schema) as stream:
            stream.write_batch(batch)
        self.runs[topic].append(
            Run(
                task=self._task,
                file=self.name,
                start=start,
                stop=self._sink.tell(),
                partition=partition,
                rows=batch.num_rows,
                bytes=batch.nbytes,
            )
        )


def _by_partition(table: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """The records of each partition, in the order they came in."""
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


def write_segment(staged: Store, files: Store, runs: Sequence[Run], where: Numbering) -> Written:
    """Number staged records and write them as one segment.

    Args:
        staged: the job's folder.
        files: the topic's table.
        runs: the records, in the order of their offsets; at least one.
        where: the file and its first offset.

    Returns:
        What was written.

    Raises:
        OSError, pa.ArrowException: the storage refused.
    """
    table = _records(staged, runs, where)
    size = put_parquet(files, where.name, table, where.codec)
    times = table.column("timestamp").cast(pa.int64()).to_numpy()
    return Written(
        name=where.name,
        partition=where.partition,
        offsets=range(where.start, where.start + table.num_rows),
        size=size,
        min_time_ms=int(times.min()) // 1000,
        max_time_ms=int(times.max()) // 1000,
    )


def _records(staged: Store, runs: Sequence[Run], where: Numbering) -> pa.Table:
    body = pa.Table.from_batches(list(_batches(staged, runs)))
    rows = body.num_rows
    columns = {
        "offset": numbers(np.arange(where.start, where.start + rows, dtype=np.int64), pa.int64()),
        "timestamp": _times(body, where),
        "timestampType": numbers(np.full(rows, int(where.log_append_time), np.int32), pa.int32()),
        "key": body.column("key") if "key" in body.column_names else pa.nulls(rows, pa.binary()),
        "value": body.column("value"),
        "headers": _headers(body, rows),
    }
    arrays = [
        column if column.type == f.type else column.cast(f.type)
        for f, column in ((f, columns[f.name]) for f in CHUNK_SCHEMA)
    ]
    return pa.Table.from_arrays(arrays, schema=CHUNK_SCHEMA)


def _batches(staged: Store, runs: Sequence[Run]) -> Iterator[pa.RecordBatch]:
    """The staged batches."""
    for run in runs:
        yield from ipc.open_stream(staged.read_range(run.file, run.start, run.stop))


def _times(body: pa.Table, where: Numbering) -> pa.Array:
    """Times in whole ms; those of the append where the topic or the record asks for it."""
    now = where.append_time_ms * 1000
    if where.log_append_time or "timestamp" not in body.column_names:
        return numbers(np.full(body.num_rows, now, np.int64), pa.timestamp("us", "UTC"))
    times = body.column("timestamp").cast(pa.int64()).fill_null(now).to_numpy()
    return numbers(times // 1000 * 1000, pa.timestamp("us", "UTC"))


def _headers(body: pa.Table, rows: int) -> pa.Array | pa.ChunkedArray:
    """Headers, null where the flag says that they were."""
    if "headers" not in body.column_names:
        return pa.nulls(rows, HEADERS_TYPE)
    lists = body.column("headers").cast(HEADERS_TYPE)
    absent = pc.invert(body.column("has_headers"))
    if not pc.any(absent).as_py():
        return lists
    held = pa.concat_arrays(lists.chunks)
    return pa.ListArray.from_arrays(held.offsets, held.values, type=HEADERS_TYPE, mask=pa.concat_arrays(absent.chunks))
