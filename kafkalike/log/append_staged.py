"""Append of a DataFrame to a local root: a Spark job puts the records down, this process numbers and commits them.

Two steps (decision 017). The job computes the DataFrame once, before the topic's lock is taken, and each task writes
its records into one file, sorted by Kafka partition (`staging`). Under the lock the log end is read, the segments are
written from those files, and one table version is made of them: the same loop as for a producer's batch.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.log.job_errors import raise_refusal
from kafkalike.log.port import Appended, TxnId
from kafkalike.log.routing import Rules
from kafkalike.log.staged_payload import Job, StagedPayload, in_threads, raise_told, write_anew
from kafkalike.log.staging import STAGED_COLUMNS, Run, Written, stage
from kafkalike.log.staging_folder import staging_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.topic_log import DeltaTopicLog

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
        payload = StagedPayload(_run(log, frame, folder), partial(_write_all, frame.sparkSession))
        faults.point("append.staged")
        # Rivals are waited for from here on: however long the source took, there is time for them.
        deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
        return log.append_payload(payload, codec=codec, deadline=deadline, txn=txn)


def _run(log: DeltaTopicLog, frame: DataFrame, folder: Path) -> list[Run]:
    """Compute the DataFrame and put its records down."""
    try:
        rows = arrow_columns(frame).mapInArrow(partial(stage, str(folder), rules_of(log)), STAGED_COLUMNS).collect()
    except (PySparkException, Py4JError, OSError) as cause:
        raise_refusal(log.info.name, cause)
    for row in rows:
        if row["error"] is not None:
            raise_told(log.info.name, row["refused"], row["error"])
    return [Run(r["task"], r["nth"], r["partition"], r["rows"], r["bytes"], r["path"]) for r in rows]


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


def _write_all(spark: SparkSession, jobs: list[Job]) -> list[Written]:
    context, size = spark.sparkContext, sum(run.bytes for runs, _ in jobs for run in runs)
    if size > SPREAD_BYTES and not (context.master or "local").startswith("local"):
        return context.parallelize(jobs, len(jobs)).map(write_anew).collect()
    return in_threads(jobs)
