"""df.write.format("kafkalike"): what Spark's Kafka sink is given, in topics, by one table commit each."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.errors import OutOfOrderSequenceNumberError
from kafkalike.model.record_batch import TxnId
from kafkalike.spark import write
from kafkalike.spark.writes.commit import StagedCommit, commit_results
from kafkalike.spark.writes.staged_files import TaskResult, TopicRuns
from kafkalike.spark.writes.transactional_write import Naming
from tests.tools.clusters import on_disk
from tests.tools.frames import rows
from tests.tools.records import all_records, make_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.model.structs import ConsumerRecord

pytestmark = pytest.mark.timeout(300)

HEADERS = "array<struct<key:string,value:binary>>"
MOMENT = dt.datetime(2024, 2, 29, 12, 30, 0, 123_999, tzinfo=dt.UTC)


def save(frame: DataFrame, root: str, **given: str) -> None:
    """Write as a job for Kafka does; a name's `__` stands for a dot."""
    options = {name.replace("__", "."): value for name, value in given.items()}
    frame.write.format("kafkalike").option("kafka.bootstrap.servers", root).options(**options).mode("append").save()


def staged(root: str) -> list[Path]:
    """What is left of records that were staged."""
    return list(Path(root, "__staging").glob("*"))


def consume(root: str, topic: str) -> list[ConsumerRecord]:
    """All records, by partition and offset."""
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()])
        return sorted(consumer, key=lambda record: (record.partition, record.offset))


def plain(record: ConsumerRecord) -> tuple[Any, ...]:
    return (record.partition, record.offset, record.key, record.value, record.headers, record.timestamp)


# --- records -----------------------------------------------------------------------------------


def test_the_format_writes_what_the_function_writes(spark: SparkSession, root: str) -> None:
    """All columns with nulls in them, several Spark partitions: the same records at the same offsets."""
    for topic in ("function", "format"):
        make_topic(root, topic=topic, partitions=3)
    frame = spark.range(0, 300, numPartitions=3).select(
        F.when(F.col("id") % 7 > 0, F.concat(F.lit("kéy-"), F.col("id") % 11)).alias("key"),
        F.when(F.col("id") % 5 > 0, F.col("id").cast("string").cast("binary")).alias("value"),
        F.when((F.col("id") % 7 == 0) | (F.col("id") % 3 == 0), F.lit(1)).alias("partition"),
        F.timestamp_micros(F.lit(1_709_209_800_123_999) + F.col("id")).alias("timestamp"),
        F.when(F.col("id") % 4 == 1, F.array().cast(HEADERS))
        .when(
            F.col("id") % 4 > 1,
            F.array(
                F.struct(F.lit("a").alias("key"), F.col("id").cast("string").cast("binary").alias("value")),
                F.struct(F.lit("b").alias("key"), F.lit(None).cast("binary").alias("value")),
            ),
        )
        .alias("headers"),
        F.struct("id").alias("other"),
    )

    write(frame, "function", root)
    save(frame, root, topic="format", useTimestampColumn="true")

    assert [plain(record) for record in consume(root, "format")] == [plain(r) for r in consume(root, "function")]
    assert len(consume(root, "format")) == 300
    assert staged(root) == []


def test_records_without_time_get_that_of_the_append_and_go_on_at_the_log_end(spark: SparkSession, root: str) -> None:
    """A value alone is enough; a second write follows the first one."""
    make_topic(root, partitions=1)

    save(rows(spark, "a", None), root, topic="t")
    save(rows(spark, "b"), root, topic="t")

    found = consume(root, "t")
    assert [(r.offset, r.value, r.key, r.headers) for r in found] == [
        (0, b"a", None, []),
        (1, None, None, []),
        (2, b"b", None, []),
    ]
    assert found[0].timestamp <= found[2].timestamp
    assert on_disk(root).log("t").version == 2


def test_a_column_timestamp_is_ignored_as_by_sparks_kafka_sink(spark: SparkSession, root: str) -> None:
    """Whatever its type: records that are copied get the time of the copy, and retention leaves them alone."""
    log = make_topic(root, partitions=1)
    old = rows(spark, "a").withColumn("timestamp", F.lit(MOMENT))
    began = log.clock.now_ms()

    save(old, root, topic="t")
    save(old.withColumn("timestamp", F.lit("never")), root, topic="t")
    save(old, root, topic="t", useTimestampColumn="TRUE")

    times = [record.timestamp for record in consume(root, "t")]
    assert began <= times[0] <= times[1]
    assert times[2] == 1_709_209_800_123


def test_a_column_timestamp_that_is_to_be_used_must_be_one(spark: SparkSession, root: str) -> None:
    """Missing, or of another type; nothing is written."""
    make_topic(root, partitions=1)
    text = rows(spark, "a").withColumn("timestamp", F.lit("never"))

    with pytest.raises(AnalysisException, match="has no column 'timestamp'"):
        save(rows(spark, "a"), root, topic="t", useTimestampColumn="true")
    with pytest.raises(AnalysisException, match=r"timestamp must be a\(n\) timestamp"):
        save(text, root, topic="t", useTimestampColumn="true")

    assert all_records(root) == {0: []}


def test_a_refused_record_leaves_no_topic_behind(spark: SparkSession, root: str) -> None:
    """Topics that are missing are created when all tasks have staged their records."""
    frame = spark.createDataFrame([("new", "1"), (None, "2")], "topic string, value string").coalesce(1)

    with pytest.raises(PySparkException, match="null topic"):
        save(frame, root)

    assert on_disk(root).topics() == {}


def test_the_column_names_the_topic_of_each_row(spark: SparkSession, root: str) -> None:
    """Each topic gets its rows in their order, by one commit; a missing one is created."""
    make_topic(root, (0, "old"), topic="a")
    frame = spark.createDataFrame(
        [("a", 0, "1"), ("b", 0, "2"), ("a", 1, "3"), ("a", 0, "4"), ("b", 0, "5")],
        "topic string, partition int, value string",
    ).coalesce(1)

    save(frame, root)

    assert all_records(root, "a") == {0: [(0, "old"), (1, "1"), (2, "4")], 1: [(0, "3")]}
    assert all_records(root, "b") == {0: [(0, "2"), (1, "5")]}
    assert staged(root) == []


def test_the_option_wins_over_the_column(spark: SparkSession, root: str) -> None:
    """As with Spark's Kafka sink; a null topic does not matter then."""
    frame = spark.createDataFrame([(None, "1"), ("b", "2")], "topic string, value string").coalesce(1)

    save(frame, root, topic="a")

    assert all_records(root, "a") == {0: [(0, "1"), (1, "2")]}
    assert set(on_disk(root).topics()) == {"a"}


def test_a_frame_without_rows_writes_nothing(spark: SparkSession, root: str) -> None:
    """The topic is created, as by `kafkalike.spark.write`."""
    save(rows(spark), root, topic="t")

    assert all_records(root) == {0: []}
    assert staged(root) == []


def test_the_codec_of_the_option_compresses_the_files(spark: SparkSession, root: str) -> None:
    """`kafka.compression.type`, where the topic does not say otherwise."""
    save(rows(spark, "a"), root, topic="t", kafka__compression__type="zstd", kafka__delivery__timeout__ms="60000")

    (file,) = Path(root, "t").glob("partition=0/*.parquet")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == "ZSTD"


# --- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": "bad name"}, "InvalidTopicError"),
        ({"topic": "t", "kafka__compression__type": "brotli"}, "UnsupportedCodecError"),
        ({"topic": "t", "topics": "t"}, "unknown option topics"),
        ({"topic": "t", "kafka__key__serializer": "x"}, "kafka.key.serializer is not supported"),
        # Delta's rules of the session look at every writer's options, and speak first.
        ({"topic": "t", "txnAppId": "x"}, "Both txnVersion and txnAppId must be specified"),
        ({}, "topic option required when no 'topic' attribute is present"),
    ],
)
def test_wrong_options_are_refused_by_name(spark: SparkSession, root: str, given: dict[str, str], said: str) -> None:
    """Before anything is computed or written."""
    with pytest.raises(PySparkException) as raised:
        save(rows(spark, "a"), root, **given)

    assert said in str(raised.value)
    assert not Path(root, "t").exists()


def test_a_mode_other_than_append_is_refused(spark: SparkSession, root: str) -> None:
    """Spark's own default mode, errorifexists, does not even come here."""
    make_topic(root, (0, "a"))
    writer = rows(spark, "b").write.format("kafkalike").options(**{"kafka.bootstrap.servers": root, "topic": "t"})

    with pytest.raises(
        AnalysisException, match=r'UNSUPPORTED_DATA_SOURCE_SAVE_MODE.*written in the "ErrorIfExists" mode'
    ):
        writer.save()
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        writer.mode("overwrite").save()

    assert all_records(root)[0] == [(0, "a")]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT 'k' AS key", "required attribute 'value' not found"),
        ("SELECT 1 AS value", "value must be a(n) string or binary, not int"),
        ("SELECT 'a' AS value, 1L AS partition", "partition must be a(n) int, not bigint"),
        ("SELECT 'a' AS value, map('a', 'b') AS headers", "headers must be a(n) array<struct"),
    ],
)
def test_wrong_columns_are_refused_by_name(spark: SparkSession, root: str, query: str, said: str) -> None:
    """With the words of `kafkalike.spark.write`."""
    with pytest.raises(PySparkException) as raised:
        save(spark.sql(query), root, topic="t")

    assert said in str(raised.value)
    assert not Path(root, "t").exists()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("SELECT 't' AS topic, 7 AS partition, 'x' AS value", "UnknownTopicOrPartitionError: t: partition 7"),
        ("SELECT NULL AS topic, 0 AS partition, 'x' AS value", "KAFKA_NULL_TOPIC_IN_DATA"),
        ("SELECT 't' AS topic, 0 AS partition, repeat('x', 2000000) AS value", "MessageSizeTooLargeError: t: a record"),
        ("SELECT 'bad name' AS topic, 0 AS partition, 'x' AS value", "InvalidTopicError"),
        ("SELECT CAST(X'FF' AS STRING) AS topic, 0 AS partition, 'x' AS value", "InvalidTopicError"),
    ],
)
def test_a_record_that_is_refused_keeps_all_others_out(spark: SparkSession, root: str, bad: str, said: str) -> None:
    """Whichever task finds it; and no task is tried again for it."""
    make_topic(root, (0, "old"))
    good = spark.sql("SELECT 't' AS topic, 0 AS partition, 'good' AS value")

    with pytest.raises(PySparkException) as raised:
        save(good.unionAll(spark.sql(bad)), root)

    assert said in str(raised.value)
    assert "failed 4 times" not in str(raised.value)
    assert all_records(root) == {0: [(0, "old")], 1: []}
    assert staged(root) == []


def test_a_header_name_that_is_not_utf8_keeps_all_records_out(spark: SparkSession, root: str) -> None:
    make_topic(root, (0, "old"))
    names = "if(id = 999, CAST(X'FF' AS STRING), 'fine')"
    frame = spark.range(1_000).selectExpr(
        "'v' AS value", f"CAST(array(struct({names}, X'01')) AS {HEADERS}) AS headers"
    )

    with pytest.raises(PySparkException) as raised:
        save(frame, root, topic="t")

    assert "which is not UTF-8" in str(raised.value)
    assert all_records(root) == {0: [(0, "old")], 1: []}


# --- what runs twice ---------------------------------------------------------------------------


def failing_once(folder: str) -> Any:
    """Gives the rows on; the first try of each task fails at the last one."""

    def steps(frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        context = TaskContext.get()
        assert context is not None
        yield from frames
        Path(folder, f"{context.partitionId()}-{context.attemptNumber()}").touch()
        if context.attemptNumber() == 0:
            message = "the first try"
            raise RuntimeError(message)

    return steps


def test_a_task_that_is_tried_again_counts_once(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """Only what the results name is committed; what the first try has staged is removed."""
    make_topic(root)
    numbers = spark.range(0, 40, numPartitions=2).selectExpr("cast(id AS string) AS key", "cast(id AS string) AS value")

    save(numbers.mapInPandas(failing_once(str(tmp_path)), numbers.schema), root, topic="t")

    assert {path.name for path in tmp_path.glob("*-*")} == {"0-0", "0-1", "1-0", "1-1"}
    assert sorted(int(value) for records in all_records(root).values() for _, value in records) == list(range(40))
    assert staged(root) == []


def test_a_job_that_fails_leaves_nothing(spark: SparkSession, root: str) -> None:
    """Spark calls for the writer's `abort`."""
    make_topic(root)
    frame = spark.range(0, 4, numPartitions=2).selectExpr("if(id = 3, raise_error('no'), 'x') AS value")

    with pytest.raises(PySparkException, match="no"):
        save(frame, root, topic="t")

    assert all_records(root) == {0: [], 1: []}
    assert staged(root) == []


def test_a_rerun_under_the_same_id_adds_nothing(spark: SparkSession, root: str) -> None:
    """The names of Delta's own writer, the meaning of `kafkalike.spark.write`, which knows it too."""
    make_topic(root, partitions=1)

    save(rows(spark, "a"), root, topic="t", txnAppId="job", txnVersion="5")
    save(rows(spark, "a"), root, topic="t", txnAppId="job", txnVersion="5")
    again = write(rows(spark, "a"), "t", root, txn_id="job", txn_version=5)
    with pytest.raises(PySparkException, match="OutOfOrderSequenceNumberError"):
        save(rows(spark, "b"), root, topic="t", txnAppId="job", txnVersion="4")
    save(rows(spark, "c"), root, topic="t", txnAppId="job", txnVersion="6")

    assert again.duplicate
    assert all_records(root) == {0: [(0, "a"), (1, "c")]}
    assert staged(root) == []


def test_a_rerun_does_not_compute_its_rows(spark: SparkSession, root: str) -> None:
    """It is told before the job begins; of 400 MB no more is made than Spark sends ahead to a task.

    Unless a task ends before its socket was full for the first time: Spark's worker then throws away what comes, and
    Spark sends on until there is nothing left. That depends on who is faster, so one of three tries counts.
    """
    make_topic(root, partitions=1)
    save(rows(spark, "a"), root, topic="t", txnAppId="job", txnVersion="5")
    never = "if(id < 1999999, repeat('x', 200), raise_error('all was computed')) AS value"
    frame = spark.range(0, 2_000_000, numPartitions=1).selectExpr(never)

    for left in (2, 1, 0):
        try:
            save(frame, root, topic="t", txnAppId="job", txnVersion="5")
            break
        except PySparkException as error:
            if not left or "all was computed" not in str(error):
                raise
    with pytest.raises(PySparkException, match="OutOfOrderSequenceNumberError"):
        save(frame, root, topic="t", txnAppId="job", txnVersion="4")

    assert all_records(root) == {0: [(0, "a")]}
    assert staged(root) == []


def test_a_rerun_whose_records_went_meanwhile_is_an_error(root: str) -> None:
    """The tasks have left their rows out: an empty write under the id would lose them for good."""
    log = make_topic(root, partitions=1)
    cluster = on_disk(root)
    left_out = TaskResult(topics={"t": TopicRuns(log.info.topic_id, [], left_out=True)})

    with pytest.raises(OutOfOrderSequenceNumberError, match="does not show them any more; run it again"):
        commit_results(
            cluster,
            "t",
            [left_out],
            cluster.store,
            StagedCommit(codec="none", timeout_ms=60_000, naming=Naming.of(TxnId("job", 5))),
        )

    assert cluster.log("t").txn_version("job") is None
