"""`write`: append a DataFrame to one or more topics, and return the offsets of its records.

A write has two steps (decisions 017 and 020). A Spark job computes the DataFrame once, before a topic's lock is taken,
and each task writes its records into one file, sorted by topic and Kafka partition (`staged_files`). Then this process
locks each topic in turn, reads its log end, writes the segments from those files, and makes one table version of them
(`commit`): the same loop as for a producer's batch. Several topics are one transaction (decision 032).
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafkalike.errors.kafka_error import innermost
from kafkalike.errors.optional_imports import require_module
from kafkalike.log.runs.run_files import Numbering, WrittenSegment
from kafkalike.log.runs.run_manifest import LargeRun, StagedRun
from kafkalike.log.runs.run_payload import Job, Writing, in_threads, write_anew
from kafkalike.maintenance.staging_folder import scratch_folder, staging_place
from kafkalike.maintenance.staging_prefix import StagingFolder
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.config.topic_config import MAX_PARTITIONS
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.call_options import Partitioner, ProducerOptions, RecordSchemas, SchemaChoice
from kafkalike.spark.jvm.python_worker import PromptAnswer, task_number
from kafkalike.spark.jvm.spark_connect import check_same_root, is_remote, tasks_here
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES, raise_refusal
from kafkalike.spark.record_columns import arrow_columns, sink_columns
from kafkalike.spark.typed.decode import registry_place
from kafkalike.spark.typed.encode import named_errors, record_columns
from kafkalike.spark.writes.commit import StagedCommit, commit_results, found_again, written_before
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, left_out, stage_topics
from kafkalike.spark.writes.targets import partitions_read, target_of
from kafkalike.spark.writes.transactional_write import Naming, Together

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.transactions.group_claims import GroupOffsets
    from kafkalike.storage.port import Storage


_log = logging.getLogger(__name__)

DESCRIPTION: Final = "spark.job.description"
"""Local property that Spark's pages show as the description of a thread's jobs."""


class Written(dict[TopicPartition, range]):
    """Offsets written, by topic and partition: half-open ranges.

    Attributes:
        duplicate: True if a `txn_id` showed that the records had been written before; nothing was added.
    """

    duplicate: bool = False


def write(
    frame: DataFrame,
    topic: str | None = None,
    bootstrap_servers: Address | None = None,
    *,
    schemas: RecordSchemas | SchemaChoice | None = None,
    txn_id: str | None = None,
    txn_version: int | None = None,
    producer_options: ProducerOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
) -> Written:
    """Produce a DataFrame: every row becomes a record.

    Either all records are written or none. Records of one topic are one table commit. Several topics are one
    transaction, which is decided by one commit. Each topic then gets its part in one table commit, even if this process
    dies; `kafkalike.snapshot` shows all of it or nothing. Offsets are dense. The records of a partition are in the
    order of the DataFrame's Spark partitions and their rows. The DataFrame is computed once, and other producers do not
    wait for that.

    Args:
        frame: columns of Spark's Kafka sink: `value` STRING or BINARY (null is a tombstone), and optionally `key`,
            `headers ARRAY<STRUCT<key STRING, value BINARY>>`, `topic` STRING, `partition` INT, and `timestamp`
            TIMESTAMP, or STRING such as `2026-01-02T09:30:00Z` (null or missing: the time of the write). Other columns
            are left out.
        topic: the topic; wins over the column `topic`. Missing topics are created, with as many partitions as the
            column `partition` names. With a partitioner, which needs their number, the DataFrame is computed a second
            time to find it out, and topics of the column get the default number.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        schemas: the schema of the values: `latest` for the newest version of the subject `<topic>-value`; `avro`,
            `json-schema` or `protobuf` for a schema derived from the columns; or a `kafkalike.schemas.Schema`.
            `RecordSchemas` has more choices, such as keys. The value is the column `value`, or without one a struct of
            the columns that are not `key`, `topic`, `partition`, `timestamp` or `headers`. Needs the argument `topic`.
            None: keys and values are bytes or text.
        txn_id: names the application that writes; with `txn_version`, a rerun adds nothing.
        txn_version: number of the write; it must rise with each write of the application.
        producer_options: partitioner, compression and timeout.
        storage_options: credentials and endpoint of an object store; see `kafkalike.connect.connect`. They go to the
            tasks as part of a function, and do not appear in plans, logs or settings of Spark.

    Returns:
        The offsets written.

    Raises:
        AnalysisException: a column is missing or has a wrong type.
        SchemaRegistryError: the schema does not exist, or must not be registered; nothing was written.
        SerializationError: the columns, or a row, do not fit the schema; nothing was written.
        UnsafeStorageError: the root is read-only, or its storage cannot coordinate several writers.
        IllegalArgumentError: bad arguments, or a null topic in the data.
        MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError, UnknownTopicOrPartitionError: a topic
            rejects a record; nothing was written.
        OutOfOrderSequenceNumberError: `txn_version` is below the latest one and was never written; nothing was written.
        TopicAlreadyExistsError: a topic of the column was missing, and was created meanwhile with other settings than
            the cluster's defaults; nothing was written.
        ProducerFencedError: another process has started to write under this `txn_id`; nothing was written.
        KafkaTimeoutError: other writers won every attempt until the timeout; nothing was written.
        KafkaStorageError: the storage failed; nothing was written. A note on this error or `KafkaTimeoutError` tells if
            a transaction of several topics was decided nevertheless.
        UnknownOutcomeError: the outcome could not be determined.

    Example:
        ```python
        orders = spark.createDataFrame([("alice", "tea"), ("bob", "milk")], "key STRING, value STRING")
        print(ks.write(orders, "orders", "./data"))  # {TopicPartition(topic='orders', partition=0): range(0, 2)}
        ```
    """
    txn = _txn(txn_id, txn_version)
    wanted = RecordSchemas.of(schemas)
    if wanted:
        frame, bootstrap_servers = with_schemas(frame, topic, bootstrap_servers, storage_options, wanted)
        storage_options = None
    with named_errors():
        return produce(
            frame,
            topic,
            bootstrap_servers,
            producer_options=producer_options or ProducerOptions(),
            naming=None if txn is None else Naming.of(txn),
            storage_options=storage_options,
        )


def produce(
    frame: DataFrame,
    topic: str | None,
    bootstrap_servers: Address | None,
    *,
    producer_options: ProducerOptions,
    naming: Naming | None,
    storage_options: StorageOptionsLike | None = None,
    offsets: GroupOffsets | None = None,
    together: Together | None = None,
    has_state: bool = False,
    sources: Mapping[str, int] | None = None,
) -> Written:
    """Write a DataFrame; see `write` and `StagedCommit`.

    `naming` is checked before the computation and before the commit.

    With `has_state` the frame is computed even if its records were written before, because a batch of a streaming query
    creates the state that the next batch needs, and Spark fails a query with missing state.
    """
    partitioner, codec = producer_options.partitioner, producer_options.codec
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    records = sink_columns(frame, needs_topic=topic is None)
    names = "partition" in records.columns
    if topic is not None and partitioner is not None:
        _ensure_topic(cluster, check_topic_name(topic), records, sources)
    written = False
    if naming is not None:
        # A rerun does not start a job.
        before = written_before(cluster, naming, topic)
        if before is not None:
            if has_state:
                _compute(frame)
            return _written(before, naming)
        if topic is not None and topic in cluster.topics():
            log = cluster.log(topic)
            own = naming.check(topic, log.txn_version(naming.app_id))
            written = found_again(log, own) is not None
            if written and has_state:
                _compute(frame)
    target = target_of(cluster, topic, codec=codec, written=written, names_partitions=names and partitioner is None)
    sent = with_partitioner(records, partitioner, target)
    how = StagedCommit(
        codec=codec,
        timeout_ms=producer_options.delivery_timeout_ms,
        naming=naming,
        offsets=offsets or {},
        together=together,
        sources=sources,
    )
    return _written(append_staged(cluster, sent, target, how), naming)


def _ensure_topic(cluster: Cluster, topic: str, records: DataFrame, sources: Mapping[str, int] | None) -> None:
    """Create a missing topic with the partitions that the records name, because a partitioner needs their number."""
    if "partition" in records.columns and topic not in cluster.topics() and cluster.server.auto_create_topics:
        highest = records.agg(F.max("partition")).collect()[0][0]
        needed = max(0 if highest is None else highest + 1, partitions_read(sources, topic))
        if needed > MAX_PARTITIONS:
            raise UnknownTopicOrPartitionError(
                f"{topic}: partition {needed - 1} does not exist: a topic has at most {MAX_PARTITIONS} partitions"
            )
        if needed > cluster.server.num_partitions:
            with suppress(TopicAlreadyExistsError):
                cluster.create_topic(topic, needed, {})
    cluster.ensure_topic(topic)


def with_schemas(
    frame: DataFrame,
    topic: str | None,
    bootstrap_servers: Address | None,
    storage_options: StorageOptionsLike | None,
    schemas: RecordSchemas,
) -> tuple[DataFrame, Cluster]:
    """Turn a DataFrame of columns into records, and open the cluster; see `write`."""
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    return record_columns(frame, topic, registry_place(cluster, schemas.registry), schemas), cluster


def with_partitioner(records: DataFrame, partitioner: Partitioner | None, target: StagingTarget) -> DataFrame:
    """Add the partitions that a partitioner chooses."""
    return records if partitioner is None else _chosen(records, _by_topic(records, partitioner, target))


def _compute(frame: DataFrame) -> None:
    """Compute all rows without writing them; the topic may have new rules that would reject them."""
    frame.write.format("noop").mode("overwrite").save()


def ranges_of(done: Mapping[str, Appended]) -> Written:
    """Collect the offsets of all topics."""
    return Written(
        {
            TopicPartition(topic, p): run
            for topic, appended in sorted(done.items())
            for p, run in appended.ranges.items()
        }
    )


def _written(done: Mapping[str, Appended], naming: Naming | None) -> Written:
    """Collect the offsets of all topics, and log which of them were written before."""
    written = ranges_of(done)
    for topic, appended in done.items():
        if appended.duplicate and naming is not None:
            written.duplicate = True
            _log.warning("%s: nothing was written: %s had written version %d before", topic, *naming.name)
    return written


def _chosen(records: DataFrame, by_key: Column) -> DataFrame:
    """Use a partitioner's choice for records whose partition is null."""
    chosen = by_key.cast(IntegerType())
    given = F.coalesce(F.col("partition"), chosen) if "partition" in records.columns else chosen
    return records.withColumn("partition", given)


def _by_topic(records: DataFrame, partitioner: Partitioner, target: StagingTarget) -> Column:
    """Call a partitioner for the keys of all records.

    It is called once for each number of partitions, because there are many topics with few different numbers.
    """
    key = _key(records)
    if target.topic is not None:
        return partitioner(key, target.rules(target.topic).num_partitions)
    topics: dict[int, list[str]] = {}
    for name, known in target.known.items():
        topics.setdefault(known.rules.num_partitions, []).append(name)
    found = F.lit(None).cast(IntegerType())
    if target.missing is not None:
        found = partitioner(key, target.missing.num_partitions).cast(IntegerType())
        topics.pop(target.missing.num_partitions, None)
    for total, names in topics.items():
        found = F.when(F.col("topic").isin(names), partitioner(key, total).cast(IntegerType())).otherwise(found)
    return found


def _key(records: DataFrame) -> Column:
    return F.col("key") if "key" in records.columns else F.lit(None).cast(BinaryType())


def _txn(txn_id: str | None, txn_version: int | None) -> TxnId | None:
    if (txn_id is None) != (txn_version is None):
        raise IllegalArgumentError("txn_id and txn_version go together")
    if txn_id is None or txn_version is None:
        return None
    if not txn_id or type(txn_version) is not int or txn_version < 0:
        raise IllegalArgumentError(
            f"txn_id must be a text and txn_version a whole number from 0, not {txn_id!r} and {txn_version!r}"
        )
    return TxnId(txn_id, txn_version)


SPREAD_BYTES: Final = 1024 * 1024 * 1024
FAR_SPREAD_BYTES: Final = 64 * 1024 * 1024
"""Bytes from which tasks on other machines write the segments: on a disk, and in an object store, where otherwise all
bytes would go to this machine and back."""


def append_staged(
    cluster: Cluster, frame: DataFrame, target: StagingTarget, how: StagedCommit
) -> Mapping[str, Appended]:
    """Append a DataFrame: one table commit for one topic, otherwise one transaction.

    Args:
        cluster: cluster of the topics.
        frame: columns from `record_columns.sink_columns`.
        target: topics of the rows; nothing is computed for a rerun that it knows.
        how: see `StagedCommit`; its timeout starts when the DataFrame has been computed.

    Returns:
        The offsets written, by topic.

    Raises:
        KafkaError: see `kafkalike.spark.write`.
    """
    check_same_root(frame.sparkSession, cluster)
    with _place(cluster, frame.sparkSession, target, how) as folder:
        results = [left_out(target)] if target.written else run_job(frame, target, folder)
        spark = frame.sparkSession
        # The timeout for other writers starts here, so that a slow source does not use it up.
        return commit_results(
            cluster, target.topic, results, folder.files, how, partial(write_all, spark), task_writing(spark)
        )


def _place(
    cluster: Cluster, spark: SparkSession, target: StagingTarget, how: StagedCommit
) -> AbstractContextManager[StagingFolder]:
    """Choose the folder for staged records.

    A transaction of several topics may be completed by a process on another machine, which must find the staged files.
    """
    if cluster.store.coordination.reach == "everywhere" and target.topic is not None and not how.offsets:
        near = tasks_here(spark)
        if near is not None:
            return scratch_folder(near, cluster.store)
    return staging_place(cluster.store)


def task_writing(spark: SparkSession) -> Writing:
    """Return the function that writes the segments of a decided transaction, in tasks if there are many bytes."""
    return partial(write_all, spark, keep=True)


def run_job(frame: DataFrame, target: StagingTarget, folder: StagingFolder) -> list[TaskResult]:
    """Compute the DataFrame and stage its records."""
    # PySpark wants it for `mapInArrow`, and does not bring it.
    require_module("pandas", "writes from Spark")
    try:
        with described_jobs(frame.sparkSession, f"kafkalike: write to {target.topic or 'topics'}"):
            staged = arrow_columns(frame).mapInArrow(partial(_stage, PromptAnswer(), target, folder), "result BINARY")
            rows = staged.collect()
    except (*SPARK_FAILURES, OSError) as cause:
        raise_refusal(target.topic or "the write", cause)
    return [pickle.loads(row["result"]) for row in rows]  # noqa: S301 - made by `_stage`


@contextmanager
def described_jobs(spark: SparkSession, text: str) -> Iterator[None]:
    """Describe the jobs of this thread on Spark's pages, unless the caller or a streaming query describes them."""
    context = None if is_remote(spark) else spark.sparkContext
    if context is None or context.getLocalProperty(DESCRIPTION) is not None:
        yield
        return
    context.setLocalProperty(DESCRIPTION, text)
    try:
        yield
    finally:
        context.setLocalProperty(DESCRIPTION, None)  # type: ignore[arg-type] # None removes it


def _stage(
    _: PromptAnswer, target: StagingTarget, folder: StagingFolder, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run one task of the job; Spark accepts results only as rows."""
    yield pa.RecordBatch.from_pydict({"result": [pickle.dumps(stage_topics(target, folder, batches, task_number()))]})


def write_all(
    spark: SparkSession, staged: Storage, files: Storage, jobs: list[Job], *, keep: bool = False
) -> list[WrittenSegment]:
    """Write segments, in tasks if there are many bytes.

    Args:
        spark: the session of the tasks.
        staged: the job's folder.
        files: the topic's table.
        jobs: the segments.
        keep: whether to keep the staged files, because other processes may need them.
    """
    # A large run only gets its offsets, by a single writer, because of two attempts at a task one may be late.
    large = [job for job in jobs if isinstance(job[0], LargeRun)]
    small = [(runs, where) for runs, where in jobs if not isinstance(runs, LargeRun)]
    return [*in_threads(staged, files, large, keep=keep), *_write_small(spark, staged, files, small)]


def _write_small(
    spark: SparkSession, staged: Storage, files: Storage, jobs: list[tuple[list[StagedRun], Numbering]]
) -> list[WrittenSegment]:
    if is_remote(spark):
        # A client of Spark Connect does not know where the tasks run.
        return in_threads(staged, files, jobs)
    context, size = spark.sparkContext, sum(run.bytes for runs, _ in jobs for run in runs)
    most = SPREAD_BYTES if files.coordination.reach == "machine" else FAR_SPREAD_BYTES
    # This process writes the replicas, because it knows them.
    alone = not files.tasks.has_replicas
    if alone and size > most and not (context.master or "local").startswith("local"):
        # The stores go with the function, because Spark first writes parallelized data to a file.
        write = partial(write_anew, staged.tasks.sendable(staged), files.tasks.sendable(files))
        try:
            return context.parallelize(jobs, len(jobs)).map(write).collect()
        except SPARK_FAILURES as cause:
            # Only the tasks know the names of their files; maintenance finds those files.
            raise OSError(f"Spark could not write the segments: {innermost(cause)}") from cause
    return in_threads(staged, files, jobs)
