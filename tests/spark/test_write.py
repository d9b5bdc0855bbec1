"""What `kafkalike.spark.write` promises: Spark's Kafka sink, on topics that Python clients share."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    InvalidTopicError,
    KafkaConfigurationError,
    KafkaError,
    MessageSizeTooLargeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.properties import LONG_MAX
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.murmur2 import partition_for_key
from kafkalike.model.structs import TopicPartition
from kafkalike.spark import ProducerOptions, read, register_sql, write
from kafkalike.storage.parquet import open_parquet
from tests.tools.clusters import on_disk
from tests.tools.frames import rows

if TYPE_CHECKING:
    from kafkalike.model.structs import ConsumerRecord

HEADERS = "array<struct<key:string,value:binary>>"
UTC = dt.UTC
ANY_TIME = {"message.timestamp.after.max.ms": str(LONG_MAX)}


def consume(root: str, topic: str) -> list[ConsumerRecord]:
    """All records, by partition and offset, as a Python consumer reads them."""
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest", consumer_timeout_ms=0) as consumer:
        consumer.assign([TopicPartition(topic, p) for p in consumer.partitions_for_topic(topic) or ()])
        return sorted(consumer, key=lambda record: (record.partition, record.offset))


# --- columns -----------------------------------------------------------------------------------


def test_a_record_is_what_its_columns_say(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Key, value, headers, time and partition; a Python consumer sees them all."""
    cluster.create_topic("orders", 2, {})
    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 123_999, tzinfo=UTC)
    frame = spark.sql(
        f"SELECT 'k' AS key, X'00FF' AS value, 1 AS partition, :moment AS timestamp, 'x' AS other, "
        f"CAST(array(struct('b', X'01'), struct('a', NULL), struct('b', X'')) AS {HEADERS}) AS headers",
        args={"moment": moment},
    )

    written = write(frame, "orders", root)

    assert written == {TopicPartition("orders", 1): range(1)}
    (record,) = consume(root, "orders")
    assert (record.partition, record.offset, record.key, record.value) == (1, 0, b"k", b"\x00\xff")
    assert (record.timestamp, record.timestamp_type) == (1_709_209_800_123, 0)
    assert record.headers == [("b", b"\x01"), ("a", None), ("b", b"")]


def test_strings_and_bytes_are_the_same_record(spark: SparkSession, root: str) -> None:
    """STRING columns are UTF-8."""
    write(spark.sql("SELECT 'ké' AS key, 'vé' AS value"), "orders", root)
    write(spark.sql("SELECT CAST('ké' AS BINARY) AS key, CAST('vé' AS BINARY) AS value"), "orders", root)

    one, two = consume(root, "orders")
    assert (one.key, one.value) == (two.key, two.value) == ("ké".encode(), "vé".encode())


def test_null_values_keys_and_headers_survive(spark: SparkSession, root: str) -> None:
    """A null value is a tombstone; null is not empty; no headers are null headers."""
    frame = spark.sql("SELECT * FROM VALUES (NULL, NULL, NULL), ('', '', array()) AS t(key, value, h)").select(
        "key", "value", F.col("h").cast(HEADERS).alias("headers")
    )

    write(frame.coalesce(1), "orders", root)

    found = read(spark, "orders", root).orderBy("offset").select("key", "value", "headers").collect()
    assert [tuple(row) for row in found] == [(None, None, None), (b"", b"", [])]


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (
            "SELECT 'k' AS key",
            r"required attribute 'value' not found; the DataFrame has key\. .*to_json\(struct\(\*\)\) AS value",
        ),
        ("SELECT 1 AS value", r"value must be a\(n\) string or binary"),
        ("SELECT 'v' AS value, 1 AS key", r"key must be a\(n\) string or binary"),
        ("SELECT 'v' AS value, 1L AS partition", r"partition must be a\(n\) int"),
        ("SELECT 'v' AS value, 1 AS topic", r"topic must be a\(n\) string"),
        ("SELECT 'v' AS value, 'h' AS headers", r"headers must be a\(n\) array<struct<key:string,value:binary>>"),
        ("SELECT 'v' AS value, 5L AS timestamp", r"timestamp must be a\(n\) timestamp"),
    ],
)
def test_a_wrong_column_is_named(spark: SparkSession, root: str, query: str, said: str) -> None:
    """With the types it may have, before anything is written; no topic is made."""
    with pytest.raises(AnalysisException, match=said):
        write(spark.sql(query), "orders", root)

    assert on_disk(root).topics() == {}


def test_the_topic_must_come_from_somewhere(spark: SparkSession, root: str) -> None:
    """Neither argument nor column."""
    with pytest.raises(AnalysisException, match="topic option required"):
        write(rows(spark, "v"), bootstrap_servers=root)


def test_the_topic_argument_wins_over_the_column(spark: SparkSession, root: str) -> None:
    """As the option does in Spark's sink."""
    written = write(rows(spark, "v").withColumn("topic", F.lit("other")), "orders", root)

    assert set(written) == {TopicPartition("orders", 0)}


def test_rows_go_to_the_topics_they_name(spark: SparkSession, root: str) -> None:
    """One table commit for each."""
    frame = spark.sql("SELECT * FROM VALUES ('a.b', '1'), ('a_b', '2'), ('a.b', '3') AS t(topic, value)").coalesce(1)

    written = write(frame, bootstrap_servers=root)

    assert written == {TopicPartition("a.b", 0): range(2), TopicPartition("a_b", 0): range(1)}
    assert [r.value for r in consume(root, "a.b")] == [b"1", b"3"]
    assert [r.value for r in consume(root, "a_b")] == [b"2"]


def test_topics_get_rows_of_one_computation_when_executors_lose_what_they_kept(
    spark: SparkSession, root: str, tmp_path: Path
) -> None:
    """No row is in two topics or in none: the source gives other rows each time, and nothing of it is kept."""
    computed = tmp_path / "computed"
    computed.touch()

    def compute(_: Iterable[int]) -> Iterator[tuple[str, str]]:
        with computed.open("a", encoding="utf-8") as count:
            count.write("x")
        number = computed.stat().st_size
        yield from ((topic, str(number)) for topic in ("a", "b"))

    def lose(_: Column, __: int) -> Column:
        """Choose no partition, and drop cached blocks as the death of their executor does."""
        jvm: Any = spark.sparkContext._jvm
        for number in spark.sparkContext._jsc.getPersistentRDDs():
            jvm.org.apache.spark.SparkEnv.get().blockManager().removeRdd(number)
        return F.lit(None)

    source = spark.sparkContext.parallelize([0], 1).mapPartitions(compute)

    write(
        spark.createDataFrame(source, "topic string, value string"),
        bootstrap_servers=root,
        producer_options=ProducerOptions(partitioner=lose),
    )

    assert [[r.value for r in consume(root, topic)] for topic in ("a", "b")] == [[b"1"], [b"1"]]
    assert computed.read_text(encoding="utf-8") == "x"


def test_a_partitioner_is_asked_for_the_number_of_partitions_of_each_topic(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Of topics that are there, and of one that the write creates."""
    cluster.create_topic("three", 3, {})
    cluster.create_topic("five", 5, {})
    frame = spark.sql("SELECT * FROM VALUES ('three', '1'), ('five', '2'), ('new', '3') AS t(topic, value)")

    written = write(
        frame, bootstrap_servers=root, producer_options=ProducerOptions(partitioner=lambda _, total: F.lit(total - 1))
    )

    assert set(written) == {TopicPartition("three", 2), TopicPartition("five", 4), TopicPartition("new", 0)}


def test_a_topic_that_is_created_meanwhile_with_other_settings_is_an_error(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Records that were given their partitions for one partition must not go to one of three."""

    def create(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        on_disk(root).create_topic("new", 3, {})

    frame = spark.sql("SELECT 'new' AS topic, 'v' AS value").coalesce(1)

    with pytest.raises(TopicAlreadyExistsError, match=r"created meanwhile.*nothing was written"):
        write(frame.mapInArrow(create, "topic string, value string"), bootstrap_servers=root)

    assert [cluster.log("new").log_end(p) for p in range(3)] == [0, 0, 0]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("NULL", IllegalArgumentError),
        ("'a/b'", InvalidTopicError),
        ("CAST(X'FF' AS STRING)", InvalidTopicError),
    ],
)
def test_a_row_without_a_usable_topic_keeps_all_rows_out(
    spark: SparkSession, root: str, topic: str, error: type[KafkaError]
) -> None:
    """Null, illegal names, and bytes that are not UTF-8."""
    frame = spark.sql(f"SELECT * FROM VALUES ('ok', '1'), ({topic}, '2') AS t(topic, value)")  # noqa: S608

    with pytest.raises(error):
        write(frame, bootstrap_servers=root)

    assert on_disk(root).topics() == {}


@pytest.mark.parametrize("row", [0, 3_999])
def test_a_header_name_that_is_not_utf8_keeps_all_rows_out(spark: SparkSession, root: str, row: int) -> None:
    """Wherever it stands: Spark's text is bytes that nobody has looked at."""
    name = f"if(id = {row}, CAST(X'FF' AS STRING), 'fine')"
    frame = spark.range(4_000).selectExpr(
        "CAST(id AS STRING) AS value", f"CAST(array(struct({name}, X'01')) AS {HEADERS}) AS headers"
    )

    with pytest.raises(InvalidRecordError, match=r"header with the key b'\\xff', which is not UTF-8"):
        write(frame, "orders", root)

    assert consume(root, "orders") == []


# --- partitions --------------------------------------------------------------------------------


def test_a_key_goes_to_the_partition_a_python_producer_chooses(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Murmur2 of the key's bytes, whatever they are."""
    cluster.create_topic("orders", 7, {})
    keys = [b"", b"a", b"order-17", "Grüße".encode(), b"\xff\xfe", bytes(range(256)), *(b"k%d" % n for n in range(40))]
    frame = spark.createDataFrame([(bytearray(key), bytearray(b"s")) for key in keys], "key binary, value binary")

    write(frame, "orders", root)
    with KafkaProducer(bootstrap_servers=root) as producer:
        for key in keys:
            producer.send("orders", key=key, value=b"p")

    places: dict[bytes, set[int]] = {}
    for record in consume(root, "orders"):
        places.setdefault(record.key, set()).add(record.partition)
    assert places == {key: {partition_for_key(key, 7)} for key in keys}


def test_an_explicit_partition_wins_over_the_key_and_null_leaves_it_to_the_key(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """A null in the column is as if the column were not there."""
    cluster.create_topic("orders", 5, {})
    frame = spark.sql(
        "SELECT * FROM VALUES ('k', 'a', 4), ('k', 'b', NULL), (NULL, 'c', 3) AS t(key, value, partition)"
    )

    write(frame, "orders", root)

    places = {record.value: record.partition for record in consume(root, "orders")}
    assert places == {b"a": 4, b"b": partition_for_key(b"k", 5), b"c": 3}


@pytest.mark.parametrize("partition", [-1, 5])
def test_a_partition_that_does_not_exist_keeps_all_rows_out(
    spark: SparkSession, root: str, cluster: Cluster, partition: int
) -> None:
    """The error says which and how many there are."""
    cluster.create_topic("orders", 5, {})
    frame = rows(spark, "a", "b").withColumn("partition", F.when(F.col("value") == "b", partition).otherwise(0))

    with pytest.raises(UnknownTopicOrPartitionError, match=rf"partition {partition} does not exist.*0 to 4"):
        write(frame, "orders", root)

    assert cluster.log("orders").log_end(0) == 0


def test_a_partitioner_of_ones_own_is_asked_before_the_default(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """After the partition column; null leaves it to the key's hash."""
    cluster.create_topic("orders", 4, {})
    frame = spark.sql(
        "SELECT * FROM VALUES ('3', 'a', NULL), ('x', 'b', NULL), ('3', 'c', 0) AS t(key, value, partition)"
    )

    def by_number(key: Column, count: int) -> Column:
        return F.try_to_number(key.cast("string"), F.lit("9")).cast("int") % count

    write(frame, "orders", root, producer_options=ProducerOptions(partitioner=by_number))

    places = {record.value: record.partition for record in consume(root, "orders")}
    assert places == {b"a": 3, b"b": partition_for_key(b"x", 4), b"c": 0}


def test_records_without_key_spread_evenly(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """In turns of rows."""
    cluster.create_topic("orders", 4, {})

    written = write(spark.range(0, 4_096, 1, 2).select(F.col("id").cast("string").alias("value")), "orders", root)

    assert [len(written[TopicPartition("orders", p)]) for p in range(4)] == [1_024] * 4


# --- offsets and order -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [60_000, pytest.param(200_000, marks=pytest.mark.full)])
def test_many_rows_are_dense_and_in_order(spark: SparkSession, root: str, cluster: Cluster, size: int) -> None:
    """Each partition's offsets have no hole, and rows of one Spark partition keep their order in each."""
    cluster.create_topic("orders", 3, {})
    frame = spark.range(0, size, 1, 4).select(
        (F.col("id") % 1000).cast("string").alias("key"), F.col("id").cast("string").alias("value")
    )

    write(rows(spark, "first").withColumn("partition", F.lit(0)), "orders", root)
    written = write(frame, "orders", root)

    found = read(spark, "orders", root).select(
        "partition", "offset", F.col("value").cast("string").cast("int").alias("n")
    )
    facts = found.groupBy("partition").agg(F.count("*"), F.min("offset"), F.max("offset"), F.countDistinct("offset"))
    by_partition = {row[0]: tuple(row)[1:] for row in facts.collect()}
    for p in range(3):
        run = written[TopicPartition("orders", p)]
        assert run.start == (1 if p == 0 else 0)
        assert by_partition[p] == (run.stop, 0, run.stop - 1, run.stop)
    assert sum(len(run) for run in written.values()) == size
    log = cluster.log("orders")
    for p in range(3):
        reader, last = log.reader(p, written[TopicPartition("orders", p)].start), dict.fromkeys(range(4), -1)
        while (chunk := reader.read(10_000_000)) is not None:
            for value in chunk.columns().values:
                number = int(value or b"")
                assert number > last[number * 4 // size]
                last[number * 4 // size] = number


def test_both_ways_of_writing_take_turns_on_one_topic(spark: SparkSession, root: str) -> None:
    """Spark and an in-process producer see each other's log end."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        for turn in range(3):
            write(rows(spark, f"s{turn}"), "orders", root)
            producer.send("orders", f"p{turn}".encode()).get(timeout=30)

    records = consume(root, "orders")
    assert [(r.offset, r.value) for r in records] == list(enumerate([b"s0", b"p0", b"s1", b"p1", b"s2", b"p2"]))


def test_spark_and_python_give_the_same_rows(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Written by either, read by either."""
    columns = "key binary, value binary, timestamp timestamp, headers array<struct<key:string,value:binary>>"
    content: list[tuple[Any, ...]] = [
        (b"a", b"1", dt.datetime(2024, 1, 1, tzinfo=UTC), [("h", b"x"), ("h", None)]),
        (None, b"", dt.datetime(1970, 1, 1, tzinfo=UTC), None),
        (b"", None, dt.datetime(2500, 1, 1, 0, 0, 0, 1_000, tzinfo=UTC), None),
    ]
    for topic in ("spark", "python"):
        cluster.create_topic(topic, 1, ANY_TIME)
    write(spark.createDataFrame(content, columns).coalesce(1), "spark", root)
    with KafkaProducer(bootstrap_servers=root) as producer:
        for key, value, moment, headers in content:
            milliseconds = (moment - dt.datetime(1970, 1, 1, tzinfo=UTC)) // dt.timedelta(milliseconds=1)
            producer.send("python", key=key, value=value, timestamp_ms=milliseconds, headers=headers or [])

    by_spark, by_python = (read(spark, name, root).drop("topic") for name in ("spark", "python"))
    assert_df_equality(by_spark, by_python, ignore_row_order=True, ignore_nullable=True)
    assert [r._replace(topic="") for r in consume(root, "spark")] == [
        r._replace(topic="") for r in consume(root, "python")
    ]


def test_an_empty_frame_writes_nothing(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """No offsets and no table commit; the topic is made all the same."""
    assert write(rows(spark, "v").where("false"), "orders", root) == {}
    assert cluster.log("orders").version == 0


# --- time --------------------------------------------------------------------------------------


def test_a_missing_time_is_that_of_the_append(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """One time for all of them, in the column or without it."""
    before = cluster.clock.now_ms()
    frame = spark.sql("SELECT * FROM VALUES ('a', NULL), ('b', TIMESTAMP'2020-01-01') AS t(value, timestamp)")

    write(frame.coalesce(1), "orders", root)
    write(rows(spark, "c", "d"), "orders", root)

    a, b, c, d = (record.timestamp for record in consume(root, "orders"))
    assert before <= a <= c == d <= cluster.clock.now_ms()
    assert b == 1_577_836_800_000


def test_append_time_replaces_the_rows_own(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """With LogAppendTime; the log finds the same time."""
    cluster.create_topic("orders", 1, {"message.timestamp.type": "LogAppendTime"})
    before = cluster.clock.now_ms()

    write(spark.sql("SELECT 'v' AS value, TIMESTAMP'2020-01-01' AS timestamp"), "orders", root)

    (record,) = consume(root, "orders")
    assert before <= record.timestamp <= cluster.clock.now_ms()
    assert record.timestamp_type == 1


@pytest.mark.parametrize("text", ["1969-12-31 23:59:59.999", "+10000-01-01 00:00:00"])
def test_a_time_that_no_record_may_have_keeps_all_rows_out(spark: SparkSession, root: str, text: str) -> None:
    """Before the epoch and beyond the year 9999."""
    frame = rows(spark, "v").withColumn("timestamp", F.lit(text).cast("timestamp"))

    with pytest.raises(InvalidTimestampError):
        write(frame, "orders", root)


def test_a_time_too_far_away_for_the_topic_keeps_all_rows_out(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """`message.timestamp.before.max.ms`."""
    cluster.create_topic("orders", 1, {"message.timestamp.before.max.ms": "60000"})

    with pytest.raises(InvalidTimestampError):
        write(spark.sql("SELECT 'v' AS value, TIMESTAMP'2020-01-01' AS timestamp"), "orders", root)
    write(rows(spark, "v"), "orders", root)

    assert len(consume(root, "orders")) == 1


@pytest.mark.parametrize("zone", [pytest.param("America/New_York", marks=pytest.mark.full), "Asia/Tokyo"])
def test_a_session_of_the_users_own_writes_the_same(spark: SparkSession, root: str, zone: str) -> None:
    """Another time zone, INT96 times and a writer that sorts by partition: offsets, order and times are right."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", zone)
    own.conf.set("spark.sql.maxConcurrentOutputFileWriters", "0")
    own.conf.set("spark.sql.parquet.outputTimestampType", "INT96")
    on_disk(root).create_topic("orders", 3, ANY_TIME)
    times = [0, 1_709_209_800_123, 9_223_372_036_855, MAX_TIMESTAMP_MS]
    frame = own.range(0, 4_000, 1, 2).select(
        (F.col("id") % 50).cast("string").alias("key"),
        F.col("id").cast("string").alias("value"),
        F.timestamp_millis(F.get(F.array(*map(F.lit, times)), (F.col("id") % 4).cast("int"))).alias("timestamp"),
    )

    written = write(frame, "orders", root)

    records = consume(root, "orders")
    assert sum(len(run) for run in written.values()) == len(records) == 4_000
    assert all(record.timestamp == times[int(record.value) % 4] for record in records)
    for p in range(3):
        mine = [int(r.value) for r in records if r.partition == p]
        assert [r.offset for r in records if r.partition == p] == list(range(len(mine)))
        assert [n for n in mine if n < 2_000] == sorted(n for n in mine if n < 2_000)
    fresh = on_disk(root).log("orders")
    assert fresh.max_timestamp(0) is not None
    assert {s.min_timestamp for p in range(3) for s in fresh.segments(p)} == {0}
    assert {s.max_timestamp for p in range(3) for s in fresh.segments(p)} == {MAX_TIMESTAMP_MS}


# --- refusals ----------------------------------------------------------------------------------


def test_a_record_that_is_too_large_keeps_all_rows_out(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Key, value and headers count as they do for a Python producer."""
    cluster.create_topic("orders", 1, {"max.message.bytes": "80"})
    headers = F.array(F.struct(F.lit("hé").alias("key"), F.lit(b"v").alias("value")))

    write(rows(spark, "vvv").withColumns({"key": F.lit("kkk"), "headers": headers}), "orders", root)
    with pytest.raises(MessageSizeTooLargeError, match=r"81 bytes; max\.message\.bytes=80"):
        write(rows(spark, "vvvv").withColumns({"key": F.lit("kkk"), "headers": headers}), "orders", root)

    assert len(consume(root, "orders")) == 1


def test_a_compacted_topic_takes_no_row_without_key(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """The error says why."""
    cluster.create_topic("latest", 1, {"cleanup.policy": "compact"})

    with pytest.raises(InvalidRecordError, match=r"cleanup\.policy=compact"):
        write(rows(spark, "v"), "latest", root)


@pytest.mark.parametrize("headers", ["array(NULL)", "array(named_struct('key', NULL, 'value', X'01'))"])
def test_a_header_needs_a_key(spark: SparkSession, root: str, headers: str) -> None:
    """As in Kafka; no Python consumer could show it."""
    frame = rows(spark, "v").withColumn("headers", F.expr(headers).cast(HEADERS))

    with pytest.raises(InvalidRecordError, match="header"):
        write(frame, "orders", root)


def test_a_missing_topic_fails_where_topics_are_not_made_by_writing(spark: SparkSession, root: str) -> None:
    """`auto.create.topics.enable=false`."""
    closed = on_disk(root, server=ServerProperties.from_properties({"auto.create.topics.enable": "false"}))

    with pytest.raises(UnknownTopicOrPartitionError):
        write(rows(spark, "v"), "orders", closed)


def test_an_error_of_the_users_own_query_stays_as_spark_tells_it(spark: SparkSession, root: str) -> None:
    """Not as an error of the storage."""
    with pytest.raises(PySparkException, match="DIVIDE_BY_ZERO"):
        write(spark.range(1).select((F.lit(1) / F.col("id")).cast("string").alias("value")), "orders", root)


def test_an_error_of_the_users_own_python_stays_as_spark_tells_it(spark: SparkSession, root: str) -> None:
    """Nor is it one of the storage."""

    def fail(row: Any) -> Any:
        raise ValueError(f"cannot use {row}")

    frame = spark.createDataFrame(spark.range(1).rdd.map(fail), "value string")

    with pytest.raises(PySparkException, match="cannot use Row"):
        write(frame, "orders", root)


def test_arguments_without_meaning_are_refused(spark: SparkSession, root: str) -> None:
    """A codec that Kafka does not know, half a transaction, a cluster in memory."""
    with pytest.raises(UnsupportedCodecError):
        write(rows(spark, "v"), "orders", root, producer_options=ProducerOptions(compression_type="brotli"))
    for txn in (
        {"txn_id": "job"},
        {"txn_version": 1},
        {"txn_id": "", "txn_version": 1},
        {"txn_id": "j", "txn_version": -1},
    ):
        with pytest.raises(IllegalArgumentError):
            write(rows(spark, "v"), "orders", root, **txn)
    with pytest.raises(KafkaConfigurationError, match="memory"):
        write(rows(spark, "v"), "orders", MemoryCluster())


# --- codecs, reruns, plans -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "topic", "found"),
    [
        (None, "producer", "UNCOMPRESSED"),
        ("gzip", "producer", "GZIP"),
        ("snappy", "producer", "SNAPPY"),
        ("lz4", "producer", "LZ4"),
        ("zstd", "producer", "ZSTD"),
        ("gzip", "zstd", "ZSTD"),
        ("gzip", "none", "UNCOMPRESSED"),
    ],
)
def test_the_file_has_the_codec_that_was_asked_for(
    spark: SparkSession, root: str, cluster: Cluster, asked: str | None, topic: str, found: str
) -> None:
    """The topic's own wins; a Python consumer can read all of them."""
    cluster.create_topic("orders", 1, {"compression.type": topic})

    write(rows(spark, "v" * 1000), "orders", root, producer_options=ProducerOptions(compression_type=asked))

    log = cluster.log("orders")
    group = open_parquet(log.files, log.segments(0)[0].path).metadata.row_group(0)
    assert {group.column(at).compression for at in range(group.num_columns)} == {found}
    assert consume(root, "orders")[0].value == b"v" * 1000


def test_a_rerun_adds_nothing_and_finds_its_offsets(
    spark: SparkSession, root: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In Python and in Spark the same application and version are the same write."""
    write(rows(spark, "before"), "orders", root)
    first = write(rows(spark, "a", "b"), "orders", root, txn_id="job", txn_version=0)

    again = write(rows(spark, "a", "b"), "orders", root, txn_id="job", txn_version=0)
    newer = write(rows(spark, "c"), "orders", root, txn_id="job", txn_version=1)

    assert again == first == {TopicPartition("orders", 0): range(1, 3)}
    assert (first.duplicate, again.duplicate, newer.duplicate) == (False, True, False)
    assert "nothing was written: job had written version 0 before" in caplog.text
    assert [record.value for record in consume(root, "orders")] == [b"before", b"a", b"b", b"c"]


def test_a_source_is_computed_once_and_before_the_lock(spark: SparkSession, root: str) -> None:
    """Lazily planned sources included."""
    counter = spark.sparkContext.accumulator(0)

    def count(row: Any) -> Any:
        counter.add(1)
        return row

    frame = spark.createDataFrame(spark.range(10).rdd.map(count), "id long").select(
        F.to_json(F.struct("*")).alias("value")
    )

    write(frame, "orders", root)

    assert counter.value == 10
    assert Counter(record.value for record in consume(root, "orders"))[b'{"id":3}'] == 1


def test_a_source_that_takes_long_leaves_the_whole_delivery_timeout_for_rivals(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Another writer holds the topic until the records are staged, which takes longer than the timeout."""
    cluster.create_topic("orders", 1, {})
    held, failed = threading.Event(), threading.Event()

    def slowly(batches: Iterator[Any]) -> Iterator[Any]:
        import time

        for batch in batches:
            time.sleep(1.5)
            yield batch

    def hold() -> None:
        with cluster.log("orders").exclusive(Deadline(SYSTEM_CLOCK, 10_000)):
            held.set()
            while not failed.is_set() and not list(Path(root, "__staging").glob("*/*.arrows")):
                failed.wait(0.01)

    rival = threading.Thread(target=hold)
    rival.start()
    try:
        assert held.wait(10)
        written = write(
            rows(spark, "v").mapInArrow(slowly, "value string"),
            "orders",
            root,
            producer_options=ProducerOptions(delivery_timeout_ms=1_000),
        )
    finally:
        failed.set()
        rival.join()

    assert written == {TopicPartition("orders", 0): range(1)}


def test_topics_own_folder_as_a_root_is_refused_by_every_entry_point(spark: SparkSession, tmp_path: Path) -> None:
    """It is the path that one reads as Delta: a VACUUM there would delete the records."""
    frame = spark.createDataFrame([("a",)], "value STRING")
    write(frame, "orders", str(tmp_path / "root"))
    folder = str(tmp_path / "root" / "orders")
    before = {str(path) for path in Path(folder).rglob("*")}
    options = {"kafka.bootstrap.servers": folder}

    for act in (
        lambda: write(frame, "orders", folder),
        lambda: read(spark, "orders", folder),
        lambda: register_sql(spark, folder, temporary=True),
        lambda: frame.write.format("kafkalike").options(**options, topic="orders").mode("append").save(),
        lambda: spark.read.format("kafkalike").options(**options, subscribe="orders").load().count(),
    ):
        with pytest.raises((KafkaConfigurationError, PySparkException), match="name the root of the cluster"):
            act()

    assert {str(path) for path in Path(folder).rglob("*")} == before
