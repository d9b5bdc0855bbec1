"""Append of a DataFrame to a local root: a Spark job puts the records down, this process numbers and commits them.

Two steps (decision 017). The job computes the DataFrame once, before the topic's lock is taken, and each task writes
its records into one file, sorted by Kafka partition (`staging`). Under the lock the log end is read, the segments are
written from those files, and one table version is made of them: the same loop as for a producer's batch.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import errors, faults
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.errors import KafkaStorageError
from kafkalike.log.append_local import PARQUET_CODECS, refused, segment_name, segment_stats
from kafkalike.log.commits import Add
from kafkalike.log.job_errors import raise_refusal
from kafkalike.log.port import Appended, TxnId
from kafkalike.log.routing import Rules
from kafkalike.log.staging import STAGED_COLUMNS, Numbering, Run, Written, stage, write_segment
from kafkalike.log.staging_folder import staging_folder
from kafkalike.log.storage import LocalFiles

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.config.topic import TopicConfig
    from kafkalike.log.storage import Files
    from kafkalike.log.topic_log import DeltaTopicLog
    from kafkalike.model.topic import TopicInfo

SEGMENT_BYTES: Final = 256 * 1024 * 1024
"""About how many bytes of records go into one file; a larger run of one partition becomes several."""

SPREAD_BYTES: Final = 1024 * 1024 * 1024
"""From how many bytes on the segments are written by Spark's tasks, where these run on other machines."""


def append_staged(
    log: DeltaTopicLog, frame: DataFrame, *, codec: str, timeout_ms: float, txn: TxnId | None
) -> Appended:
    """Append a DataFrame in one table commit. See `append_spark.append_frame`."""
    if txn is not None:
        # A rerun costs no job.
        log.ready_to_append()
        done = log.already_appended(txn)
        if done is not None:
            return done
    with staging_folder(str(Path(log.files.uri).parent)) as folder:
        payload = _StagedPayload(frame.sparkSession, _run(log, frame, folder))
        faults.point("append.staged")
        # Rivals are waited for from here on: however long the source took, there is time for them.
        deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
        return log.append_payload(payload, codec=codec, deadline=deadline, txn=txn)


def _run(log: DeltaTopicLog, frame: DataFrame, folder: Path) -> list[Run]:
    """Compute the DataFrame and put its records down; the runs in the order of their offsets."""
    try:
        rows = arrow_columns(frame).mapInArrow(partial(stage, str(folder), rules_of(log)), STAGED_COLUMNS).collect()
    except (PySparkException, Py4JError, OSError) as cause:
        raise_refusal(log.info.name, cause)
    for row in rows:
        if row["refused"] is not None:
            raise getattr(errors, row["refused"])(f"{log.info.name}: {row['error']}")
        if row["error"] is not None:
            message = f"{log.info.name}: the storage refused the records, nothing was written: {row['error']}"
            raise KafkaStorageError(message)
    runs = [Run(r["task"], r["nth"], r["partition"], r["rows"], r["bytes"], r["path"]) for r in rows]
    return sorted(runs, key=lambda run: (run.partition, run.task, run.nth))


def rules_of(log: DeltaTopicLog) -> Rules:
    """The topic's rules now; records without key begin at a partition drawn anew."""
    return Rules.of(log.info, log.config, log.clock, random.randrange(log.info.num_partitions))  # noqa: S311


def arrow_columns(frame: DataFrame) -> DataFrame:
    """The columns that `routing.routed` takes.

    Spark takes 6 µs to hand over an array that is null, thirty times as long as an empty one; so headers are left out
    where the DataFrame has none, and go as empty arrays with a flag elsewhere.
    """
    columns = [name for name in ("partition", "timestamp", "key", "value") if name in frame.columns]
    if "headers" not in frame.columns:
        return frame.select(*columns)
    headers = F.coalesce(F.col("headers"), F.array()).alias("headers")
    return frame.select(*columns, headers, F.col("headers").isNotNull().alias("has_headers"))


@dataclass(frozen=True, slots=True)
class _StagedPayload:
    """Staged records as a payload of `DeltaTopicLog.append_payload`."""

    spark: SparkSession
    runs: Sequence[Run]
    """In the order of their offsets, partition by partition."""

    def counts(self) -> Mapping[int, int]:
        found: Counter[int] = Counter()
        for run in self.runs:
            found[run.partition] += run.rows
        return found

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Done by the job, record by record."""

    def write(self, files: Files, plan: Mapping[int, range], *, codec: str, now_ms: int, now_counts: bool) -> list[Add]:
        faults.point("append.before_files")
        jobs = [
            (
                runs,
                Numbering(
                    uri=files.uri,
                    name=segment_name(partition, start),
                    partition=partition,
                    start=start,
                    codec=PARQUET_CODECS[codec],
                    append_time_ms=now_ms,
                    log_append_time=now_counts,
                ),
            )
            for partition, start, runs in _segments(self.runs, plan)
        ]
        try:
            written = self._write_all(jobs)
        except (OSError, pa.ArrowException, PySparkException, Py4JError) as cause:
            # What tasks have written has names that only they know; vacuum finds it.
            failed = [_add(where.name, where.partition, 0, now_ms, {}) for _, where in jobs]
            raise refused(files, failed, cause) from cause
        return [_add(w.name, w.partition, w.size, now_ms, _stats(w)) for w in written]

    def _write_all(self, jobs: list[tuple[list[Run], Numbering]]) -> list[Written]:
        context = self.spark.sparkContext
        if sum(run.bytes for run in self.runs) > SPREAD_BYTES and not (context.master or "local").startswith("local"):
            return context.parallelize(jobs, len(jobs)).map(write_anew).collect()
        return _in_threads(jobs)


def _in_threads(jobs: list[tuple[list[Run], Numbering]]) -> list[Written]:
    """All segments, a core each; pyarrow works outside Python's lock."""
    if len(jobs) < 2:  # noqa: PLR2004
        return [_write_one(job) for job in jobs]
    with ThreadPoolExecutor(min(len(jobs), os.cpu_count() or 1)) as pool:
        return list(pool.map(_write_one, jobs))


def write_anew(job: tuple[list[Run], Numbering]) -> Written:
    """Write a segment in a Spark task, under a name that no other attempt at it has.

    Spark may run a task twice at a time (speculation, an executor that it takes for lost): the one that is late, or is
    stopped half-way, must not open the file that the other one has finished.
    """
    runs, where = job
    return _write_one((runs, replace(where, name=segment_name(where.partition, where.start))))


def _write_one(job: tuple[list[Run], Numbering]) -> Written:
    runs, where = job
    return write_segment(LocalFiles(where.uri), runs, where)


def _segments(runs: Sequence[Run], plan: Mapping[int, range]) -> Iterator[tuple[int, int, list[Run]]]:
    """Runs of each file: partition, first offset, runs."""
    for partition, own in groupby(runs, key=lambda run: run.partition):
        start, held, size = plan[partition].start, list[Run](), 0
        for run in own:
            if held and size + run.bytes > SEGMENT_BYTES:
                yield partition, start, held
                start, held, size = start + sum(r.rows for r in held), [], 0
            held.append(run)
            size += run.bytes
        yield partition, start, held


def _stats(written: Written) -> dict[str, object]:
    ends = (written.offsets[0], written.offsets[-1])
    return segment_stats(len(written.offsets), ends, (written.min_time_ms, written.max_time_ms))


def _add(name: str, partition: int, size: int, now_ms: int, stats: Mapping[str, object]) -> Add:
    return Add(path=name, partition=partition, size=size, modification_ms=now_ms, data_change=True, stats=stats)
