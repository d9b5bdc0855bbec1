"""Batches of the format that the driver plans: the format's rows, without what the query does not need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException, PySparkException

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.reads.table_scan import SWITCH
from tests.tools.damage import rewrite
from tests.tools.records import fill
from tests.tools.upkeep import EAGER, upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def driver_plans(spark: SparkSession) -> Iterator[None]:
    before = str(spark.conf.get(SWITCH, "false"))
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.set(SWITCH, before)


@pytest.fixture
def topics(cluster: Cluster) -> Cluster:
    """Topic `t` with offsets 0 to 4 in partition 0, the first of which is below the log start, and 2 in partition 1."""
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"abc")
    fill(cluster, "t", "d", "e", at_ms=5_000)
    fill(cluster, "t", *"xy", partition=1)
    cluster.move_log_start("t", {0: 1}, "retention", "r")
    return cluster


def load(spark: SparkSession, root: str, **given: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": root, "subscribe": "t"}
    return spark.read.format("kafkalike").options(**options, **given).load()


def plan_of(frame: DataFrame) -> str:
    """The physical plan of a DataFrame."""
    jdf: Any = frame._jdf
    return str(jdf.queryExecution().executedPlan().toString())


def rows(frame: DataFrame) -> list[tuple[int, int, str]]:
    found = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return [(row.partition, row.offset, row.value) for row in found]


def opened(frame: DataFrame) -> int:
    """Number of tasks, each of which opens a file, of a frame with a task for each partition and file at most."""
    return int(frame.rdd.getNumPartitions())


CONDITIONS = {
    "offset": ("offset >= 2 AND offset < 4", [(0, 2, "c"), (0, 3, "d")]),
    "time": ("timestamp >= timestamp_millis(5000)", [(0, 3, "d"), (0, 4, "e")]),
    "time before": ("timestamp < timestamp_micros(1001001)", [(0, 1, "b"), (1, 0, "x"), (1, 1, "y")]),
    "partition": ("partition = 1", [(1, 0, "x"), (1, 1, "y")]),
    "none fits": ("offset > 17", []),
    "key and value": ("key IS NULL AND value = CAST('y' AS BINARY)", [(1, 1, "y")]),
}


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_condition_gives_the_rows_of_the_formats_own_reader(
    spark: SparkSession, root: str, topics: Cluster, condition: str, expected: list[tuple[int, int, str]]
) -> None:
    """In the order of offsets, as the format reads."""
    frame = load(spark, root)
    found = rows(frame.where(condition))
    spark.conf.set(SWITCH, "false")
    others = load(spark, root)

    assert "kafkalike[Subscribe[t]]" in plan_of(frame)
    assert "kafkalike[Subscribe[t]]" not in plan_of(others)
    assert frame.schema == others.schema
    assert found == rows(others.where(condition)) == expected


def test_files_without_fitting_records_are_not_read(spark: SparkSession, root: str, topics: Cluster) -> None:
    each = load(spark, root, maxRecordsPerPartition="2")

    assert opened(each) == 3
    assert opened(each.where("partition = 1")) == 1
    assert opened(each.where("offset >= 3")) == 1


def test_count_and_offsets_read_no_values(spark: SparkSession, root: str, topics: Cluster) -> None:
    frame = load(spark, root)

    assert frame.count() == 6
    counted = frame.groupBy("partition").count()
    assert "value" not in plan_of(counted)
    assert sorted(map(tuple, counted.collect())) == [(0, 4), (1, 2)]
    assert [row.offset for row in frame.select("offset").collect()] == [1, 2, 3, 4, 0, 1]


def test_range_of_offsets_cuts_files(spark: SparkSession, root: str, topics: Cluster) -> None:
    ends = {"startingOffsets": '{"t":{"0":2,"1":-2}}', "endingOffsets": '{"t":{"0":4,"1":1}}'}
    frame = load(spark, root, includeHeaders="true", **ends)

    assert rows(frame) == [(0, 2, "c"), (0, 3, "d"), (1, 0, "x")]
    assert frame.count() == 3


def test_frame_keeps_the_offsets_of_its_first_query(spark: SparkSession, root: str, topics: Cluster) -> None:
    """Views and joins as well; `load` finds the newest records."""
    frame = load(spark, root)
    frame.createOrReplaceTempView("scanned")
    fill(topics, "t", "f")

    assert spark.sql("SELECT count(*) FROM scanned WHERE partition = 0").collect()[0][0] == 5
    fill(topics, "t", "g")
    assert rows(frame.where(frame["offset"] > 3)) == [(0, 4, "e"), (0, 5, "f")]
    joined = frame.alias("a").join(frame.alias("b"), "offset").where("a.partition < b.partition")
    assert joined.count() == 1
    assert load(spark, root).count() == 8


@pytest.fixture
def view(spark: SparkSession, root: str, topics: Cluster) -> Iterator[DataFrame]:
    """A view over topic `t`, made by SQL."""
    options = f"`kafka.bootstrap.servers` '{root}', topic 't', maxRecordsPerPartition '2'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW viewed USING kafkalike OPTIONS ({options})")
    yield spark.table("viewed")
    spark.catalog.dropTempView("viewed")


@pytest.mark.usefixtures("view")
@pytest.mark.parametrize(("condition", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_view_made_by_sql_gives_the_rows_of_load(
    spark: SparkSession, root: str, condition: str, expected: list[tuple[int, int, str]]
) -> None:
    asked = f"SELECT partition, offset, CAST(value AS STRING) FROM viewed WHERE {condition}"  # noqa: S608
    found = spark.sql(asked)
    assert "kafkalike[Subscribe[t]]" in plan_of(found)
    spark.conf.set(SWITCH, "false")
    others = spark.sql(asked)
    assert "kafkalike[Subscribe[t]]" not in plan_of(others)

    assert [tuple(row) for row in found.collect()] == [tuple(row) for row in others.collect()] == expected


def test_query_of_a_view_reads_the_files_and_columns_that_it_needs(spark: SparkSession, view: DataFrame) -> None:
    counted = spark.sql("SELECT partition, count(*) FROM viewed GROUP BY partition")

    assert opened(view) == 3
    assert opened(spark.sql("SELECT value FROM viewed WHERE partition = 1")) == 1
    assert opened(spark.sql("SELECT value FROM viewed WHERE offset >= 3")) == 1
    assert "value" not in plan_of(counted)
    assert sorted(map(tuple, counted.collect())) == [(0, 4), (1, 2)]
    assert "value" not in plan_of(spark.sql("SELECT count(*) FROM viewed"))
    assert spark.sql("SELECT count(*) FROM viewed").collect()[0][0] == view.count() == 6


@pytest.mark.usefixtures("view")
def test_each_query_of_a_view_sees_the_newest_records(spark: SparkSession, topics: Cluster) -> None:
    assert spark.sql("SELECT max(offset) FROM viewed").collect()[0][0] == 4
    fill(topics, "t", "f")

    assert spark.sql("SELECT max(offset) FROM viewed").collect()[0][0] == 5
    spark.sql("INSERT INTO viewed (key, value) SELECT key, CAST('g' AS BINARY) FROM viewed WHERE offset = 5")
    joined = "SELECT count(*) FROM viewed a JOIN viewed b USING (partition, offset)"
    assert spark.sql(joined).collect()[0][0] == 8
    assert spark.sql("SELECT * FROM viewed WHERE offset > (SELECT max(offset) - 1 FROM viewed)").count() == 1


def test_view_with_columns_of_its_own_is_refused_by_the_format(spark: SparkSession, root: str, topics: Cluster) -> None:
    options = f"`kafka.bootstrap.servers` '{root}', topic 't'"
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW texts (key STRING, value STRING) USING kafkalike OPTIONS ({options})")

    with pytest.raises(PySparkException, match="fixed schema"):
        spark.sql("SELECT value FROM texts").collect()
    spark.catalog.dropTempView("texts")


def test_file_that_lacks_a_record_fails_a_query_that_reads_all_of_it(
    spark: SparkSession, root: str, topics: Cluster
) -> None:
    frame = load(spark, root).select("value")
    (path,) = Path(root).glob("t*/partition=1/*.parquet")
    rewrite(path, pq.read_table(path, partitioning=None).slice(1))

    with pytest.raises(Py4JJavaError, match=r"CorruptRecordError: .* has 1 records of the offsets \[0, 2\)"):
        frame.collect()


def test_files_with_the_offsets_of_one_another_fail_each_query(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    cluster.create_topic("t", 1, {})
    fill(cluster, "t", *"abc")
    fill(cluster, "t", *"def")
    one, other = sorted(Path(root).glob("t*/partition=0/*.parquet"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)

    for condition in ("true", "value IS NOT NULL", "timestamp > timestamp_millis(0)"):
        with pytest.raises(Py4JJavaError, match="CorruptRecordError"):
            load(spark, root).where(condition).collect()


def test_condition_on_partitions_leaves_records_counted(spark: SparkSession, root: str, topics: Cluster) -> None:
    (path,) = Path(root).glob("t*/partition=1/*.parquet")
    rewrite(path, pq.read_table(path, partitioning=None).slice(1))

    for condition in ("partition = 1", "partition IN (1, 2) AND topic = 't'"):
        with pytest.raises(Py4JJavaError, match=r"CorruptRecordError: .* has 1 records of the offsets \[0, 2\)"):
            load(spark, root).where(condition).collect()


def test_file_cut_short_fails_a_query_whose_records_cannot_be_counted(
    spark: SparkSession, root: str, topics: Cluster
) -> None:
    (path,) = Path(root).glob("t*/partition=1/*.parquet")
    pq.write_table(pq.read_table(path, partitioning=None).slice(0, 1), path)

    with pytest.raises(IllegalArgumentException, match=r"CorruptRecordError: .* has \d+ bytes instead of \d+"):
        load(spark, root).where("value IS NOT NULL").collect()


def test_compacted_topic_is_read_in_batches_of_columns(spark: SparkSession, root: str, cluster: Cluster) -> None:
    cluster.create_topic("t", 1, EAGER)
    for nth, value in enumerate("abc"):
        fill(cluster, "t", value, key=b"key", at_ms=1_000 * (nth + 1))
    fill(cluster, "t", "d", key=b"other", at_ms=5_000)
    assert upkeep(root, "t").compacted_records > 0

    assert rows(load(spark, root))[-2:] == [(0, 2, "c"), (0, 3, "d")]


def test_option_to_skip_losses_leaves_the_batch_to_the_format(spark: SparkSession, root: str, topics: Cluster) -> None:
    assert "Subscribe" not in plan_of(load(spark, root, failOnDataLoss="false"))


@pytest.mark.usefixtures("foreign_writes")
def test_topic_open_to_foreign_writers_is_read_by_the_format(spark: SparkSession, root: str, topics: Cluster) -> None:
    """It reports what they break."""
    assert "Subscribe" not in plan_of(load(spark, root))


@pytest.mark.usefixtures("foreign_writes")
def test_files_that_another_writer_sorted_are_read_by_the_format(
    spark: SparkSession, root: str, topics: Cluster
) -> None:
    """Although the topic is closed again."""
    topics.set_configs("t", {"kafkalike.foreign.writes": "reject"})
    before = load(spark, root)
    topics.set_configs("t", {"kafkalike.foreign.writes": "allow"})
    DeltaTable(str(next(Path(root).glob("t*")))).optimize.z_order(["value"])
    topics.set_configs("t", {"kafkalike.foreign.writes": "reject"})

    with pytest.raises(IllegalArgumentException, match="another writer has rewritten"):
        before.collect()
    frame = load(spark, root)
    assert "Subscribe" not in plan_of(frame)
    assert [row.offset for row in frame.select("offset").collect()] == [1, 2, 3, 4, 0, 1]
