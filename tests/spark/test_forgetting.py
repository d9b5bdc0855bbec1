"""Forgetting keys beside Spark: keys of a DataFrame, rewriting in tasks, a stream that lags, and SQL."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import ForgetOptions, forget
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import forget as forget_keys
from kafkalike.spark import register_sql
from tests.tools.findings import errors_of
from tests.tools.upkeep import pairs_of, topic

NOW = SYSTEM_CLOCK.now_ms()
PARTITIONS = 2


@pytest.fixture
def log(root: str) -> TopicLog:
    """Three appends of twenty keys each."""
    log = topic(root, "t", PARTITIONS, {})
    for turn in range(3):
        made = RecordBatch()
        for number in range(20):
            key = b"key-%02d" % number
            made.add(partition_for_key(key, PARTITIONS), key, b"%d" % turn, NOW)
        log.append(made)
    return log


def keys_left(log: TopicLog) -> set[str | None]:
    return {key for p in range(PARTITIONS) for _, key, _ in pairs_of(log, p)}


def test_the_keys_of_a_frame_go_by_tasks_and_as_text_or_bytes(spark: SparkSession, root: str, log: TopicLog) -> None:
    gone = [f"key-{number:02d}" for number in range(15)]
    frame = spark.createDataFrame([(key,) for key in [*gone, gone[0], None]], "id STRING")

    planned = forget_keys(frame, "t", root, column="id")
    done = forget_keys(frame.selectExpr("CAST(id AS BINARY) AS key"), "t", root, dry_run=False)

    assert (planned.executed, planned.keys, planned.records) == (False, 15, 45)
    assert (done.executed, done.keys, done.records) == (True, 15, 45)
    assert keys_left(log) == {f"key-{number:02d}" for number in range(15, 20)}
    assert errors_of(root) == []


def test_frames_that_name_no_keys_are_refused(spark: SparkSession, root: str, log: TopicLog) -> None:
    with pytest.raises(IllegalArgumentError, match="no column 'key', but id"):
        forget_keys(spark.range(1), "t", root)
    with pytest.raises(IllegalArgumentError, match="BINARY or STRING, not bigint"):
        forget_keys(spark.range(1), "t", root, column="id")
    with pytest.raises(IllegalArgumentError, match="at least one key"):
        forget_keys(spark.createDataFrame([], "key STRING"), "t", root)


def test_a_stream_that_lags_and_sql_go_on_beside_it(
    spark: SparkSession, root: str, log: TopicLog, tmp_path: Path
) -> None:
    """The stream has read the first records, and its files are gone when it goes on."""

    def stream() -> None:
        rows = (
            spark.readStream.format("kafkalike")
            .option("kafka.bootstrap.servers", root)
            .option("subscribe", "t")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", "10")
            .load()
        )
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(once=True) if not (tmp_path / "out").exists() else writer.trigger(availableNow=True)
        query.start(str(tmp_path / "out")).awaitTermination()

    stream()
    register_sql(spark, root, temporary=True)
    counted = "SELECT count(*) AS n FROM t"
    before = spark.sql(counted).collect()[0]["n"]

    forget("t", root, keys=[b"key-00", b"key-19"], dry_run=False, options=ForgetOptions(now=True))
    after = spark.sql(counted).collect()[0]["n"]
    stream()

    seen = [row["offset"] + 1_000 * row["partition"] for row in spark.read.parquet(str(tmp_path / "out")).collect()]
    left = [at + 1_000 * p for p in range(PARTITIONS) for at, _, _ in pairs_of(log, p)]
    assert (before, after) == (60, 54)
    assert len(seen) == len(set(seen))
    assert set(left) <= set(seen)
