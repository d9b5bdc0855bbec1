"""Append through Spark: a DataFrame or a batch in, one table commit out.

Where the topic has a lock (local roots) DataFrames go by way of `append_staged`, not by this one, and for a batch the
log end is read under the lock and the write follows. Elsewhere the write's own plan reads the records at or above the
log end, which must come back empty: Delta then refuses the commit when another writer has appended to one of those
partitions meanwhile, and the append is numbered again (decision 003).
"""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

# The import registers the conversion of Java's conflicts to the classes of `delta.exceptions`.
import delta  # noqa: F401
import delta.exceptions as conflicts
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import IntegerType, StructType

from kafkalike import errors, faults
from kafkalike.clock import SYSTEM_CLOCK, Deadline
from kafkalike.errors import KafkaError, LogCorruptError, UnknownOutcomeError
from kafkalike.expr.numbering import at_or_above, with_offsets
from kafkalike.expr.sink import HEADERS, arrow_columns
from kafkalike.log.append_local import plan_batch, user_metadata
from kafkalike.log.job_errors import let_go, raise_refusal
from kafkalike.log.layout import TOPIC_COLUMNS
from kafkalike.log.port import Appended, TxnId
from kafkalike.log.routing import Rules
from kafkalike.log.session import as_written, beside, running_session
from kafkalike.log.staging import route
from kafkalike.log.topic_log import DeltaTopicLog
from kafkalike.log.validate import check_batch, codec_for
from kafkalike.model.batch import RecordBatch
from kafkalike.model.offsets import assign_offsets

if TYPE_CHECKING:
    from kafkalike.config.topic import TopicConfig

CONFLICTS: Final = tuple(getattr(conflicts, name) for name in conflicts.__all__)
"""delta-spark's conflict classes share no base of their own, so all are listed."""

SPARK_CODECS: Final = {"none": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4_raw", "zstd": "zstd"}
"""Kafka's codec names in Spark; its own `lz4` is Hadoop's framing, which other Parquet readers do not know."""

STALE: Final = "kafkalike:stale log end"

_sessions = threading.local()
_known_tables: dict[str, str] = {}
"""Topic id by table, for tables this JVM has cached; see `_forget_old_table`."""


class SparkAppender:
    """Writes batches of a KafkaProducer through Spark: in the running session, else in one of its own."""

    def append(
        self, log: DeltaTopicLog, batch: RecordBatch, *, codec: str, deadline: Deadline, txn: TxnId | None
    ) -> Appended:
        """See `TopicLog.append`."""
        spark = own_session(running_session())

        def numbered(config: TopicConfig, now_ms: int, ends: dict[int, int]) -> DataFrame:
            check_batch(batch, log.info, config, now_ms)
            return _batch_frame(spark, batch, ends, now_ms if config.log_append_time else None)

        touched = sorted(set(batch.partitions))
        return _append(log, spark, numbered, touched, codec=codec, deadline=deadline, txn=txn)


def own_session(running: SparkSession) -> SparkSession:
    """A session of this thread's own over the running one: settings of one write must not reach another."""
    known: SparkSession | None = getattr(_sessions, "session", None)
    if known is None or known.sparkContext is not running.sparkContext:
        known = beside(running)
        _sessions.session = known
    return known


def append_frame(
    log: DeltaTopicLog,
    frame: DataFrame,
    *,
    codec: str = "none",
    timeout_ms: float,
    txn: TxnId | None = None,
) -> Appended:
    """Append a DataFrame in one table commit, where no lock keeps writers apart.

    Args:
        log: the topic.
        frame: columns `value` BINARY, and unless all are null `timestamp` TIMESTAMP (null: time of the append), `key`
            BINARY, `partition` INT and `headers`.
        codec: compression, used when the topic says `producer`.
        timeout_ms: how long to wait for other writers and retry, ms.
        txn: makes a rerun add nothing.

    Returns:
        What was written; `ranges` is empty for a frame without rows.
    """
    deadline = Deadline(SYSTEM_CLOCK, timeout_ms)
    partitions = list(log.info.partitions)
    # A rival can make the write start again; the source must not be computed again, as its rows could differ.
    source = _routed(log, frame).persist(StorageLevel.MEMORY_AND_DISK)

    def numbered(config: TopicConfig, now_ms: int, ends: dict[int, int]) -> DataFrame:
        now = F.timestamp_millis(F.lit(now_ms))
        time = now if config.log_append_time else F.coalesce(F.timestamp_millis(F.unix_millis("timestamp")), now)
        kind = F.lit(int(config.log_append_time))
        timed = source.withColumn("timestamp", time).withColumn("timestampType", kind)
        return with_offsets(timed, ends, len(partitions))

    try:
        return _append(log, frame.sparkSession, numbered, partitions, codec=codec, deadline=deadline, txn=txn)
    finally:
        let_go(source)


def _routed(log: DeltaTopicLog, frame: DataFrame) -> DataFrame:
    """The records with their partitions; computing it fails for one that the topic does not take."""
    sent = arrow_columns(frame)
    schema = StructType([f for f in sent.schema.fields if f.name != "partition"]).add("partition", IntegerType())
    found = sent.mapInArrow(partial(route, _rules(log)), schema)
    if "headers" in found.columns:
        found = found.withColumn("headers", F.when(F.col("has_headers"), F.col("headers"))).drop("has_headers")
    missing = {"timestamp": "timestamp", "key": "binary", "headers": HEADERS.simpleString()}
    nulls = {name: F.lit(None).cast(kind) for name, kind in missing.items() if name not in found.columns}
    return found.withColumns(nulls)


def _rules(log: DeltaTopicLog) -> Rules:
    """The topic's rules now; records without key begin at a partition drawn anew."""
    turn = random.randrange(log.info.num_partitions)  # noqa: S311 - spreads small writes, guards nothing
    return Rules.of(log.info.num_partitions, log.config, log.clock, turn)


def _append(
    log: DeltaTopicLog,
    spark: SparkSession,
    numbered: Callable[[TopicConfig, int, dict[int, int]], DataFrame],
    touched: list[int],
    *,
    codec: str,
    deadline: Deadline,
    txn: TxnId | None,
) -> Appended:
    append_id = uuid.uuid4().hex
    attempt = 0
    with log.exclusive(deadline):
        while True:
            log.ready_to_append()
            done = log.already_appended(txn)
            if done is not None:
                return done
            now, config = log.clock.now_ms(), log.config
            # One snapshot for both: rows numbered from one log end and rivals looked for above another could overlap.
            since, ends = log.snapshot()
            frame = numbered(config, now, ends).select(*TOPIC_COLUMNS)
            if not log.locked:
                frame = frame.unionByName(_self_read(spark, log, {p: ends[p] for p in touched}))
            _forget_old_table(spark, log)
            try:
                faults.point("append.before_commit")
                _save(
                    frame,
                    log.files.uri,
                    SPARK_CODECS[codec_for(config, codec)],
                    user_metadata(append_id, now, txn),
                    txn,
                )
                faults.point("append.after_commit")
            except (*CONFLICTS, PySparkException, Py4JError, OSError) as cause:
                # OSError: the JVM is gone. What it had committed is found in the table all the same.
                landed = _settle(log, append_id, since, cause)
                if landed is not None:
                    return landed
                attempt += 1
                log.back_off(attempt, deadline)
                continue
            return _written(log, append_id, since, txn)


def _save(frame: DataFrame, uri: str, codec: str, metadata: str, txn: TxnId | None) -> None:
    if frame.sparkSession.conf.get("spark.sql.maxConcurrentOutputFileWriters", "0") == "0":
        # Without open files per partition the writer sorts by partition, and that sort does not keep the order.
        frame = frame.sortWithinPartitions("partition", "offset")
    writer = frame.write.format("delta").mode("append").option("compression", codec).option("userMetadata", metadata)
    if txn is not None:
        writer = writer.option("txnAppId", txn.app_id).option("txnVersion", txn.version)
    with as_written(frame.sparkSession):
        writer.save(uri)


def _self_read(spark: SparkSession, log: DeltaTopicLog, ends: dict[int, int]) -> DataFrame:
    """The records at or above the log end, of which there must be none: reading them is what makes rivals conflict.

    The error sits in a projection, which Spark does not move below the filter.
    """
    table = spark.read.format("delta").load(log.files.uri)
    stale = F.raise_error(F.lit(STALE)).cast("binary")
    rivals = table.where(at_or_above(ends))
    return rivals.select(*[stale.alias(c) if c == "value" else F.col(c) for c in TOPIC_COLUMNS])


def _settle(log: DeltaTopicLog, append_id: str, since: int, cause: Exception) -> Appended | None:
    """Find out what became of a write that raised.

    Returns:
        The commit when it landed all the same; None when a rival was faster, so that it may be tried again.

    Raises:
        KafkaError, PySparkException: refused, nothing was written; see `raise_refusal`.
        UnknownOutcomeError: the table cannot be read to find out.
    """
    try:
        log.refresh()
        landed = log.find_append(append_id, since)
    except (KafkaError, OSError) as second:
        if isinstance(second, (errors.TopicDeletedError, LogCorruptError)):
            raise
        raise UnknownOutcomeError(f"append to {log.info.name}", append_id) from cause
    if landed is not None:
        return landed
    if not isinstance(cause, CONFLICTS) and STALE not in str(cause):
        raise_refusal(log.info.name, cause)
    return None


def _written(log: DeltaTopicLog, append_id: str, since: int, txn: TxnId | None) -> Appended:
    """The commit of a write that raised nothing. Delta skips a repeated `txn` silently, so it is looked for."""
    log.refresh()
    landed = log.find_append(append_id, since)
    if landed is not None:
        return landed
    repeated = log.already_appended(txn)
    if repeated is not None:
        return repeated
    # Delta makes no commit for a frame without rows, and that is the only write it leaves out without a `txn`.
    return Appended(version=log.version, ranges={}, append_time_ms=log.clock.now_ms())


def _forget_old_table(spark: SparkSession, log: DeltaTopicLog) -> None:
    """Drop the JVM's cached log of a table that was deleted and created again at the same place."""
    known = _known_tables.get(log.files.uri)
    if known != log.info.topic_id:
        if known is not None:
            jvm = spark.sparkContext._jvm  # noqa: SLF001 - Delta has no public way to drop its cache
            assert jvm is not None
            jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        _known_tables[log.files.uri] = log.info.topic_id


def _batch_frame(
    spark: SparkSession, batch: RecordBatch, log_end: dict[int, int], append_time_ms: int | None
) -> DataFrame:
    """A batch with its offsets as a DataFrame of one task, in offset order."""
    plan = plan_batch(batch, log_end)
    times = batch.timestamps if append_time_ms is None else [append_time_ms] * len(batch)
    table = pa.table(
        {
            "partition": pa.array(batch.partitions, pa.int32()),
            "offset": pa.array(assign_offsets(batch.partitions, plan), pa.int64()),
            "timestamp": pa.array([t * 1000 for t in times], pa.int64()).cast(pa.timestamp("us", "UTC")),
            "timestampType": pa.array([int(append_time_ms is not None)] * len(batch), pa.int32()),
            "key": pa.array(batch.keys, pa.binary()),
            "value": pa.array(batch.values, pa.binary()),
            "headers": pa.array(
                [None if h is None else [{"key": k, "value": v} for k, v in h] for h in batch.headers],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    return spark.createDataFrame(table).coalesce(1).sortWithinPartitions("partition", "offset")
