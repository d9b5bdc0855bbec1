"""Append of a DataFrame: a Spark job stages the records, this process numbers and commits them.

Two steps (decisions 017 and 020). The job computes the DataFrame once, before a topic's lock is taken, and each task
writes its records into one file, sorted by topic and Kafka partition (`staged_topics`). Then each topic in turn is
locked, its log end is read, the segments are written from those files, and one table version is made of them
(`staged_commit`): the same loop as for a producer's batch. Several topics are one transaction (decision 032).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkalike.errors.java_errors import innermost
from kafkalike.log.runs.run_files import Numbering, WrittenSegment
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.runs.run_payload import Job, Writing, in_threads, write_anew
from kafkalike.maintenance.staging.scratch import scratch_folder
from kafkalike.maintenance.staging.staging_folder import staging_place
from kafkalike.maintenance.staging.staging_prefix import StagingFolder
from kafkalike.model.record_batch import Appended
from kafkalike.spark.jvm.job_errors import SPARK_FAILURES, raise_refusal
from kafkalike.spark.jvm.python_worker import PromptAnswer, task_number
from kafkalike.spark.jvm.spark_connect import check_same_root, is_remote, tasks_here
from kafkalike.spark.record_columns import arrow_columns
from kafkalike.spark.writes.commit import StagedCommit, commit_results
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, left_out, stage_topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.storage.port import Storage

SPREAD_BYTES: Final = 1024 * 1024 * 1024
FAR_SPREAD_BYTES: Final = 64 * 1024 * 1024
"""From how many bytes on the segments are written by Spark's tasks, where these run on other machines: on a disk, and
in an object store, where all bytes would else go to this machine and back."""


def append_staged(
    cluster: Cluster, frame: DataFrame, target: StagingTarget, how: StagedCommit
) -> Mapping[str, Appended]:
    """Append a DataFrame: one table commit where it has one topic, else one transaction.

    Args:
        cluster: where the topics are.
        frame: columns as `record_columns.sink_columns` gives them.
        target: where the rows go; of a rerun that it knows, nothing is computed.
        how: see `StagedCommit`; its time counts from when the DataFrame has been computed.

    Returns:
        What was written, by topic.

    Raises:
        KafkaError: see `kafkalike.spark.write`.
    """
    check_same_root(frame.sparkSession, cluster)
    with _place(cluster, frame.sparkSession, target, how) as folder:
        results = [left_out(target)] if target.written else run_job(frame, target, folder)
        spark = frame.sparkSession
        # Other writers are waited for from here on: however long the source took, there is time for them.
        return commit_results(
            cluster, target.topic, results, folder.files, how, partial(write_all, spark), task_writing(spark)
        )


def _place(
    cluster: Cluster, spark: SparkSession, target: StagingTarget, how: StagedCommit
) -> AbstractContextManager[StagingFolder]:
    """Where a write stages its records. What is decided for several topics others must find, who may be elsewhere."""
    if cluster.store.coordination.reach == "everywhere" and target.topic is not None and not how.offsets:
        near = tasks_here(spark)
        if near is not None:
            return scratch_folder(near, cluster.store)
    return staging_place(cluster.store)


def task_writing(spark: SparkSession) -> Writing:
    """What writes the segments of a decided transaction, in tasks where they are many."""
    return partial(write_all, spark, keep=True)


def run_job(frame: DataFrame, target: StagingTarget, folder: StagingFolder) -> list[TaskResult]:
    """Compute the DataFrame and stage its records."""
    try:
        rows = (
            arrow_columns(frame).mapInArrow(partial(_stage, PromptAnswer(), target, folder), "result BINARY").collect()
        )
    except (*SPARK_FAILURES, OSError) as cause:
        raise_refusal(target.topic or "the write", cause)
    return [pickle.loads(row["result"]) for row in rows]  # noqa: S301 - made by `_stage`


def _stage(
    _: PromptAnswer, target: StagingTarget, folder: StagingFolder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """One task of the job; Spark takes results only as rows."""
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(stage_topics(target, folder, batches, task_number()))]})


def write_all(
    spark: SparkSession, staged: Storage, files: Storage, jobs: list[Job], *, keep: bool = False
) -> list[WrittenSegment]:
    """Write segments, in tasks where they are many.

    Args:
        spark: whose tasks.
        staged: where the records are.
        files: the topic's table.
        jobs: the segments.
        keep: whether others may need the staged files still, as they are.
    """
    # A large run only gets its offsets, and that must have one writer: of two attempts at a task one may be late.
    large = [job for job in jobs if isinstance(job[0], LargeRun)]
    small = [(runs, where) for runs, where in jobs if not isinstance(runs, LargeRun)]
    return [*in_threads(staged, files, large, keep=keep), *_write_small(spark, staged, files, small)]


def _write_small(
    spark: SparkSession, staged: Storage, files: Storage, jobs: list[tuple[list[StagedRun], Numbering]]
) -> list[WrittenSegment]:
    if is_remote(spark):
        # A client of Spark Connect cannot tell where the tasks are.
        return in_threads(staged, files, jobs)
    context, size = spark.sparkContext, sum(run.bytes for runs, _ in jobs for run in runs)
    most = SPREAD_BYTES if files.coordination.reach == "machine" else FAR_SPREAD_BYTES
    # Replicas are written by this process, which knows who they are.
    alone = not files.tasks.has_replicas
    if alone and size > most and not (context.master or "local").startswith("local"):
        # The stores go with the function: what is parallelized is written to a file first.
        write = partial(write_anew, staged.tasks.sendable(staged), files.tasks.sendable(files))
        try:
            return context.parallelize(jobs, len(jobs)).map(write).collect()
        except SPARK_FAILURES as cause:
            # What tasks have written has names that only they know; maintenance finds it.
            raise OSError(f"Spark could not write the segments: {innermost(cause)}") from cause
    return in_threads(staged, files, jobs)
