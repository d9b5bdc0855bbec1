"""spark.read.format("kafkalike"): options in, rows as Spark's Kafka source gives them out."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from chispa import assert_df_equality
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import read, write
from tests.tools.kinds import only_on_disk
from tests.tools.places import PLACES, new_roots
from tests.tools.records import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(scope="module", params=PLACES)
def root(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One cluster for all tests of this file; each one has topics of its own."""
    with new_roots(request.param, spark, tmp_path_factory.mktemp("source")) as new_root:
        yield new_root()


def load(spark: SparkSession, root: str, topic: str, **given: str) -> DataFrame:
    return (
        spark.read.format("kafkalike").options(**{"kafka.bootstrap.servers": root, "subscribe": topic}, **given).load()
    )


def values(frame: DataFrame) -> list[str]:
    rows = frame.orderBy("topic", "partition", "offset").select(F.col("value").cast("string")).collect()
    return [row[0] for row in rows]


def test_behaviour_01_columns_are_those_of_sparks_kafka_source(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Names, types and order; headers last, and only when they are asked for."""
    cluster.create_topic("columns", 1, {})
    ddl = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    headers = ", headers array<struct<key:string,value:binary>>"

    assert load(spark, root, "columns").schema == spark.createDataFrame([], ddl).schema
    assert load(spark, root, "columns", includeHeaders="TRUE").schema == spark.createDataFrame([], ddl + headers).schema


def test_behaviours_02_and_03_records_come_as_they_were_written(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Null keys, values and headers; repeated header keys in order; times to the ms; both kinds of time."""
    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=dt.UTC)
    ms = int(moment.timestamp() * 1000)
    cluster.create_topic("records", 2, {})
    cluster.create_topic("appended", 1, {"message.timestamp.type": "LogAppendTime"})
    batch = RecordBatch()
    batch.add(0, b"k", None, ms)
    batch.add(0, None, b"v", ms)
    batch.add(1, None, None, 0, [("a", b"1"), ("b", None), ("a", b"")])
    batch.add(1, b"", b"\xff\x00", ms, [])
    cluster.log("records").append(batch)
    fill(cluster, "appended", "x")
    headers = [("a", bytearray(b"1")), ("b", None), ("a", bytearray())]
    epoch = dt.datetime.fromtimestamp(0, dt.UTC)

    found = load(spark, root, "records", includeHeaders="true")

    expected = spark.createDataFrame(
        [
            (bytearray(b"k"), None, "records", 0, 0, moment, 0, None),
            (None, bytearray(b"v"), "records", 0, 1, moment, 0, None),
            (None, None, "records", 1, 0, epoch, 0, headers),
            (bytearray(), bytearray(b"\xff\x00"), "records", 1, 1, moment, 0, None),
        ],
        found.schema,
    )
    assert_df_equality(found, expected, ignore_row_order=True)
    assert load(spark, root, "appended").select("timestampType").collect() == [(1,)]


def test_behaviours_06_07_and_10_wrong_options_are_refused_at_load(spark: SparkSession, root: str) -> None:
    """By Spark, with the text of the error that says what was wrong."""
    source = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root)

    with pytest.raises(AnalysisException, match="exactly one of the topic options"):
        source.load()
    with pytest.raises(AnalysisException, match="no topics to subscribe to"):
        source.option("subscribe", "").load()
    with pytest.raises(AnalysisException, match=r"kafka.auto.offset.reset is not supported"):
        source.option("subscribe", "t").option("kafka.auto.offset.reset", "latest").load()
    with pytest.raises(AnalysisException, match="must name the cluster's root"):
        spark.read.format("kafkalike").option("subscribe", "t").load()


def test_behaviour_08_topics_are_chosen_by_list_json_or_pattern(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Several in one frame."""
    for topic in ("chosen-a", "chosen-b", "chosenB"):
        cluster.create_topic(topic, 2, {})
        fill(cluster, topic, f"{topic}-0")
        fill(cluster, topic, f"{topic}-1", partition=1)
    source = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root)

    assigned = source.option("assign", '{"chosen-a":[1],"chosenB":[0]}').load()
    patterned = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root)

    assert values(assigned) == ["chosen-a-1", "chosenB-0"]
    assert values(patterned.option("subscribePattern", "osen-.").load()) == [
        f"chosen-{topic}-{p}" for topic in "ab" for p in range(2)
    ]
    assert values(load(spark, root, "chosen-b, chosenB")) == ["chosen-b-0", "chosen-b-1", "chosenB-0", "chosenB-1"]


def test_behaviours_12_16_and_18_a_range_is_half_open(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Offsets, marks and times; start and end of different kinds; an end behind all records is the log end."""
    cluster.create_topic("range", 1, {})
    fill(cluster, "range", *"abcde", at_ms=100)

    def between(**given: str) -> list[str]:
        return values(load(spark, root, "range", **given))

    assert between() == [*"abcde"]
    assert between(startingOffsets='{"range":{"0":1}}', endingOffsets='{"range":{"0":3}}') == [*"bc"]
    assert between(startingOffsets='{"range":{"0":-2}}', endingOffsets='{"range":{"0":-1}}') == [*"abcde"]
    assert between(startingTimestamp="101", endingTimestamp="103") == [*"bc"]
    assert between(startingOffsetsByTimestamp='{"range":{"0":103}}', endingTimestamp="999") == [*"de"]
    assert between(startingOffsets='{"range":{"0":2}}', endingOffsets='{"range":{"0":2}}') == []
    with pytest.raises(PySparkException, match="RESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: range-0: the start 4"):
        between(startingOffsets='{"range":{"0":4}}', endingTimestamp="101")
    with pytest.raises(PySparkException, match="startingOffsets: latest is not supported for batch"):
        between(startingOffsets="latest")


def test_behaviour_20_a_frame_is_bound_when_it_first_runs_and_load_binds_anew(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Spark 4.2 keeps what a Python source has planned for a DataFrame; twice in one query, it is read twice."""
    cluster.create_topic("bound", 1, {})
    fill(cluster, "bound", "a")
    frame = load(spark, root, "bound")
    fixed = load(spark, root, "bound", endingOffsets='{"bound":{"0":1}}')

    fill(cluster, "bound", "b")

    assert values(frame.union(frame)) == ["a", "a", "b", "b"]
    fill(cluster, "bound", "c")
    assert values(frame) == ["a", "b"]
    assert values(load(spark, root, "bound")) == ["a", "b", "c"]
    assert values(fixed) == ["a"]
    cluster.move_log_start("bound", {0: 1}, "retention", "r")
    assert values(load(spark, root, "bound")) == ["b", "c"]


def test_behaviours_21_and_22_ranges_are_split_over_tasks(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Small partitions share a task by default; the order inside one is that of offsets."""
    cluster.create_topic("split", 2, {})
    fill(cluster, "split", *map(str, range(100)))
    fill(cluster, "split", *map(str, range(10)), partition=1)

    def tasks(**given: str) -> list[tuple[int, list[int]]]:
        found = load(spark, root, "split", **given).select(F.spark_partition_id(), "partition", "offset").collect()
        numbers = sorted({row[0] for row in found})
        return [
            (next(r[1] for r in found if r[0] == number), [r[2] for r in found if r[0] == number]) for number in numbers
        ]

    assert tasks() == [(0, [*range(100), *range(10)])]
    assert tasks(minPartitions="1") == [(0, [*range(100)]), (1, [*range(10)])]
    four = tasks(minPartitions="4")
    assert [(p, offsets[0], offsets[-1]) for p, offsets in four] == [(0, 0, 32), (0, 33, 65), (0, 66, 99), (1, 0, 9)]
    assert [len(offsets) for _, offsets in tasks(maxRecordsPerPartition="40")] == [33, 33, 34, 10]
    assert sorted(offset for p, offsets in four if p == 0 for offset in offsets) == [*range(100)]
    assert tasks(maxPartitions="1") == [(0, [*range(100), *range(10)])]
    assert [len(offsets) for _, offsets in tasks(maxPartitions="2", maxRecordsPerPartition="40")] == [66, 44]


def test_behaviour_38_a_batch_skips_what_is_gone_when_it_may(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Else it names topic, partition, offsets and reason."""
    cluster.create_topic("gone", 1, {})
    fill(cluster, "gone", *"abcd")
    cluster.move_log_start("gone", {0: 2}, "retention", "run-9")
    asked = {"startingOffsets": json.dumps({"gone": {"0": 0}})}

    assert values(load(spark, root, "gone", failOnDataLoss="false", **asked)) == [*"cd"]
    with pytest.raises(PySparkException, match=r"gone-0: the start 0 is not in the log, which is \[2, 4\).*run-9"):
        values(load(spark, root, "gone", **asked))


@only_on_disk("root")
def test_both_ways_of_reading_give_the_same_rows(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """The format and `kafkalike.spark.read`, over what both writers have written."""
    cluster.create_topic("both", 3, {})
    batch = RecordBatch()
    for number in range(300):
        batch.add(number % 3, b"%d" % number, None if number % 7 == 0 else b"v" * number, 1_000 * number, [("h", b"x")])
    cluster.log("both").append(batch)
    late = F.timestamp_millis(F.lit(1_700_000_000_123) + F.col("id")).alias("timestamp")
    write(spark.range(500).select(F.col("id").cast("string").alias("value"), late), "both", root)

    native = read(spark, "both", root)
    found = load(spark, root, "both", includeHeaders="true")

    assert found.count() == 800
    assert found.exceptAll(native).count() == 0
    assert native.exceptAll(found).count() == 0


def test_behaviour_41_the_isolation_levels_show_the_same(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """There are no open transactions: an append is visible whole or not at all."""
    cluster.create_topic("isolated", 1, {})
    fill(cluster, "isolated", "a")

    for level in ("read_committed", "read_uncommitted"):
        given: dict[str, Any] = {"kafka.isolation.level": level}
        assert values(load(spark, root, "isolated", **given)) == ["a"]


def test_another_schema_is_refused(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """The columns are fixed, as those of Spark's Kafka source are."""
    cluster.create_topic("fixed", 1, {})
    options = {"kafka.bootstrap.servers": root, "subscribe": "fixed"}

    with pytest.raises(PySparkException, match="fixed schema"):
        spark.read.format("kafkalike").schema("value string").options(**options).load().count()


def test_a_topic_can_be_read_in_sql(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """As a temporary view, like every other format."""
    cluster.create_topic("in-sql", 1, {})
    fill(cluster, "in-sql", "a", "b")

    load(spark, root, "in-sql").createOrReplaceTempView("in_sql")

    assert spark.sql("SELECT max(offset) FROM in_sql WHERE partition = 0").collect() == [(1,)]
    spark.catalog.dropTempView("in_sql")
