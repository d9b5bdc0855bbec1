"""Column payload: records as Arrow columns in, Parquet files of an append out."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.log.topic.batch_payload import refused, segment_name, unwritten, written
from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.log.topic.column_batch import ColumnBatch
from kafkalike.log.topic.validate import RECORD_ERRORS, SchemasOf, check_batch
from kafkalike.model import faults
from kafkalike.storage.arrays import numbers
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.model.config.topic import TopicConfig
    from kafkalike.model.topic import TopicInfo

IN_THREADS: Final = 4 * 1024 * 1024
"""Bytes from which it pays to write the files of an append side by side on a local disk."""


@dataclass(frozen=True, slots=True)
class ColumnPayload:
    """Records as Arrow columns as a payload; see `Payload`."""

    batch: ColumnBatch
    schemas: SchemasOf | None
    """The cluster's registry."""

    def counts(self) -> Mapping[int, int]:
        """See `Payload`."""
        return self.batch.counts()

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """See `Payload`. The rules are `check_batch`'s, asked for the rows that break them if any row does."""
        try:
            check_batch(
                self.batch.records(self.batch.extremes(config.schemas.parts)), info, config, now_ms, self.schemas
            )
        except RECORD_ERRORS:
            # The same once more for all, so that the error names the record.
            check_batch(self.batch.records(), info, config, now_ms, self.schemas)
            raise

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """One Parquet file per partition."""
        faults.point("append.before_files")
        named = {p: segment_name(p, run.start) for p, run in plan.items()}
        calls = [
            partial(self._write, files, name, rows, plan[p], codec, now_ms, now_counts)
            for (p, name), rows in zip(named.items(), self._rows(list(named)), strict=True)
        ]
        try:
            return _beside(files, calls, self.batch.size)
        except (OSError, pa.ArrowException) as cause:
            failed = [
                Add(path=name, partition=p, size=0, modification_ms=now_ms, data_change=True, stats={})
                for p, name in named.items()
            ]
            raise refused(files, failed, cause) from cause

    def _rows(self, partitions: list[int]) -> list[pa.Array | None]:
        """Row numbers of each partition, in sending order; None stands for all rows."""
        if len(partitions) == 1:
            return [None]
        where = self.batch.partitions
        # NumPy sorts numbers of 16 bits in linear time.
        few = where.astype(np.uint16) if where.max() <= np.iinfo(np.uint16).max else where
        order = np.argsort(few, kind="stable")
        held = where[order]
        return [
            numbers(order[slice(*np.searchsorted(held, [p, p + 1]))].astype(np.int64), pa.int64()) for p in partitions
        ]

    def _write(  # noqa: PLR0917 - called through `partial` alone
        self,
        files: Storage,
        name: str,
        rows: pa.Array | None,
        run: range,
        codec: str,
        now_ms: int,
        now_counts: bool,  # noqa: FBT001
    ) -> Add:
        body = self.batch.table if rows is None else self.batch.table.take(rows)
        columns = {f.name: body.column(f.name) for f in body.schema}
        columns["offset"] = numbers(np.arange(run.start, run.stop, dtype=np.int64), pa.int64())
        columns["timestampType"] = numbers(np.full(len(run), int(now_counts), np.int32), pa.int32())
        if now_counts:
            columns["timestamp"] = numbers(np.full(len(run), now_ms * 1000, np.int64), pa.timestamp("us", "UTC"))
        table = pa.Table.from_arrays([columns[f.name] for f in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)
        partition = int(name.partition("/")[0].removeprefix("partition="))
        return written(files, unwritten(name, partition, table, now_ms), table, codec)


def _beside(files: Storage, calls: Sequence[Callable[[], Add]], size: int) -> list[Add]:
    """Make all calls, side by side where that helps; all have ended then."""
    if files.far or len(calls) == 1 or size < IN_THREADS:
        return files.beside(calls)
    with ThreadPoolExecutor(min(len(calls), os.cpu_count() or 1)) as pool:
        return [done.result() for done in [pool.submit(call) for call in calls]]
