"""`write`: append a DataFrame to a topic, or to several, and return the offsets of its records."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import BinaryType, IntegerType

from kafkalike.connect import connect
from kafkalike.errors import (
    IllegalArgumentError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.config.server_config import MAX_PARTITIONS
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import Appended, TxnId
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.call_options import Partitioner, ProducerOptions, RecordSchemas, SchemaChoice
from kafkalike.spark.record_columns import sink_columns
from kafkalike.spark.typed.encode import named_errors, record_columns
from kafkalike.spark.typed.reader_schema import registry_place
from kafkalike.spark.writes.commit import StagedCommit, found_again, written_before
from kafkalike.spark.writes.frame_append import append_staged
from kafkalike.spark.writes.staged_files import StagingTarget
from kafkalike.spark.writes.targets import target_of
from kafkalike.spark.writes.write_ids import Naming

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.transactions.group_claims import GroupOffsets
    from kafkalike.spark.writes.transactional_write import Together

_log = logging.getLogger(__name__)


class Written(dict[TopicPartition, range]):
    """Offsets written, by topic and partition: half-open ranges.

    Attributes:
        duplicate: True when a `txn_id` showed that the records had been written before; nothing was added.
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

    All of the records are written or none. In one topic they are one table commit. Several topics are one transaction:
    it is decided by one commit, and comes into the topics then, each in one table commit, whatever becomes of this
    process; `kafkalike.snapshot` shows all of it or nothing. Offsets are dense. The records of a partition stand in the
    order of the DataFrame's Spark partitions and of the rows in each. The DataFrame is computed once, and other
    producers do not wait for that.

    Args:
        frame: columns of Spark's Kafka sink: `value` STRING or BINARY (null is a tombstone), and optionally `key`,
            `headers ARRAY<STRUCT<key STRING, value BINARY>>`, `topic` STRING, `partition` INT, and `timestamp`
            TIMESTAMP, or STRING such as `2026-01-02T09:30:00Z` (null or missing: the time of the write).
            Other columns are left out.
        topic: the topic; wins over the column. One that is missing is created, with as many partitions as the column
            `partition` asks for; so are those of the column `topic`. With a partitioner, which is told how many there
            are, the DataFrame is computed once more to find that out, and topics of the column get the default.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        schemas: the schema of the values: `latest` for the newest version of the subject `<topic>-value`, `avro`,
            `json` or `protobuf` for one made of the columns, or a `kafkalike.schemas.Schema`; or `RecordSchemas`, for
            keys and more. The value is the column `value`, or where there is none a struct of all columns that are no
            others of a record. None: keys and values are bytes or text. It needs the argument `topic`.
        txn_id: names the application whose write this is; with `txn_version`, a rerun adds nothing.
        txn_version: number of the write; it must rise with each one of the application.
        producer_options: partitioner, compression and how long to wait.
        storage_options: who asks an object store; see `kafkalike.connect.connect`. They go to the tasks as part of
            a function, and stand in no plan, log or setting of Spark's.

    Returns:
        The offsets written.

    Raises:
        AnalysisException: a column is missing or has a wrong type.
        SchemaRegistryError: there is no such schema, or it must not be registered; nothing was written.
        SerializationError: the columns, or a row, do not fit the schema; nothing was written.
        UnsafeStorageError: the root can only be read, or its storage does not keep several writers apart.
        IllegalArgumentError: bad arguments, or a null topic in the data.
        MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError, UnknownTopicOrPartitionError: a record
            that its topic does not take; nothing was written.
        OutOfOrderSequenceNumberError: `txn_version` is below the latest one and was never written; nothing was written.
        TopicAlreadyExistsError: a topic of the column was missing, and was created meanwhile with other settings than
            the cluster's defaults; nothing was written.
        ProducerFencedError: another process has begun to write under this `txn_id`; nothing was written.
        KafkaTimeoutError: other writers were faster; nothing was written.
        KafkaStorageError: the storage refused; nothing was written. A note of it or of `KafkaTimeoutError` says so
            where a write to several topics is decided all the same.
        UnknownOutcomeError: the outcome could not be found out.
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
    """See `write` and `StagedCommit`; `naming` is asked before anything is computed and again before it is written.

    With `has_state` the frame is computed even if its records were written before: a batch of a streaming query makes
    the state that the next batch needs, and Spark ends a query some of whose state was not made.
    """
    partitioner, codec = producer_options.partitioner, producer_options.codec
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    records = sink_columns(frame, needs_topic=topic is None)
    names = "partition" in records.columns
    if topic is not None and partitioner is not None:
        _ensure_topic(cluster, check_topic_name(topic), records, sources)
    written = False
    if naming is not None:
        # A rerun costs no job.
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
    """Create a topic that is missing with the partitions that the records name: a partitioner is told how many."""
    if "partition" in records.columns and topic not in cluster.topics() and cluster.server.auto_create_topics:
        highest = records.agg(F.max("partition")).collect()[0][0]
        needed = max(0 if highest is None else highest + 1, *(sources or {}).values(), 0)
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
    """A DataFrame of columns as one of records, and the cluster; see `write`."""
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    return record_columns(frame, topic, registry_place(cluster, schemas.registry), schemas), cluster


def with_partitioner(records: DataFrame, partitioner: Partitioner | None, target: StagingTarget) -> DataFrame:
    """Records with the partitions that a partitioner chooses for them."""
    return records if partitioner is None else _chosen(records, _by_topic(records, partitioner, target))


def _compute(frame: DataFrame) -> None:
    """Compute all rows and write none: the topic may have got rules since that it would refuse them by."""
    frame.write.format("noop").mode("overwrite").save()


def ranges_of(done: Mapping[str, Appended]) -> Written:
    """The offsets of all topics."""
    return Written(
        {
            TopicPartition(topic, p): run
            for topic, appended in sorted(done.items())
            for p, run in appended.ranges.items()
        }
    )


def _written(done: Mapping[str, Appended], naming: Naming | None) -> Written:
    """The same, and whether they were there before."""
    written = ranges_of(done)
    for topic, appended in done.items():
        if appended.duplicate and naming is not None:
            written.duplicate = True
            _log.warning("%s: nothing was written: %s had written version %d before", topic, *naming.name)
    return written


def _chosen(records: DataFrame, by_key: Column) -> DataFrame:
    """Let a partitioner's choice count for the records whose partition is null."""
    chosen = by_key.cast(IntegerType())
    given = F.coalesce(F.col("partition"), chosen) if "partition" in records.columns else chosen
    return records.withColumn("partition", given)


def _by_topic(records: DataFrame, partitioner: Partitioner, target: StagingTarget) -> Column:
    """What a partitioner chooses for each record.

    Topics are many, numbers of partitions few: it is asked once for each number that occurs.
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
