"""Batches of the format that scan the topic's table: the same rows, without what the query does not need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.reads.table_scan import SWITCH, as_tables, scan_tables
from tests.tools.records import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture(autouse=True)
def tables_on(spark: SparkSession) -> Iterator[None]:
    """Other tests of the session leave it off."""
    scan_tables()
    spark.conf.set(SWITCH, "true")
    yield
    spark.conf.unset(SWITCH)


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


def plan_of(frame: DataFrame, **given: bool) -> str:
    """The optimized plan of a DataFrame's action."""
    jdf: Any = as_tables(frame, **given)._jdf
    return str(jdf.queryExecution().optimizedPlan().toString())


def rows(frame: DataFrame) -> list[tuple[int, int, str]]:
    found = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value").collect()
    return [(row.partition, row.offset, row.value) for row in found]


CONDITIONS = {
    "offset": ("offset >= 2 AND offset < 4", [(0, 2, "c"), (0, 3, "d")]),
    "time": ("timestamp >= timestamp_millis(5000)", [(0, 3, "d"), (0, 4, "e")]),
    "partition": ("partition = 1", [(1, 0, "x"), (1, 1, "y")]),
}


@pytest.mark.parametrize(("condition", "expected"), CONDITIONS.values(), ids=CONDITIONS)
def test_condition_on_the_place_of_records_is_applied_by_deltas_scan(
    spark: SparkSession, root: str, topics: Cluster, condition: str, expected: list[tuple[int, int, str]]
) -> None:
    """In the order of offsets, as the format reads."""
    frame = load(spark, root).where(condition)

    assert "parquet" in plan_of(frame)
    assert rows(frame) == expected


def test_count_and_offsets_read_no_values(spark: SparkSession, root: str, topics: Cluster) -> None:
    frame = load(spark, root)

    assert frame.count() == 6
    counted = frame.groupBy("partition").count()
    assert "value" not in plan_of(counted).partition("Relation ")[0]
    assert "Sort" not in plan_of(counted)
    assert sorted(map(tuple, counted.collect())) == [(0, 4), (1, 2)]
    assert [row.offset for row in frame.select("offset").collect()] == [1, 2, 3, 4, 0, 1]


def test_range_of_offsets_holds_in_a_count(spark: SparkSession, root: str, topics: Cluster) -> None:
    ends = {"startingOffsets": '{"t":{"0":2,"1":-2}}', "endingOffsets": '{"t":{"0":4,"1":1}}'}

    assert load(spark, root, **ends).count() == 3


def test_view_and_columns_of_the_frame_reach_the_table(spark: SparkSession, root: str, topics: Cluster) -> None:
    frame = load(spark, root)
    frame.createOrReplaceTempView("scanned")

    assert rows(frame.where(frame["offset"] > 3)) == [(0, 4, "e")]
    assert spark.sql("SELECT count(*) FROM scanned WHERE partition = 0").collect()[0][0] == 4
    joined = frame.alias("a").join(frame.alias("b"), "offset").where("a.partition < b.partition")
    assert joined.count() == 1


def _switched_off(frame: DataFrame, spark: SparkSession) -> str:
    spark.conf.unset(SWITCH)
    return plan_of(frame.where("offset > 1"))


WHOLE: dict[str, Callable[[DataFrame, SparkSession], str]] = {
    "whole records": lambda frame, _: plan_of(frame),
    "first records": lambda frame, _: plan_of(frame.limit(2)),
    "switched off": _switched_off,
}


@pytest.mark.parametrize("plan", WHOLE.values(), ids=WHOLE)
def test_query_without_an_advantage_is_read_by_the_format(
    spark: SparkSession, root: str, topics: Cluster, plan: Callable[[DataFrame, SparkSession], str]
) -> None:
    assert "parquet" not in plan(load(spark, root), spark)


def test_cached_frame_is_not_read_again(spark: SparkSession, root: str, topics: Cluster) -> None:
    frame = load(spark, root).cache()
    try:
        assert frame.count() == 6
        fill(topics, "t", "z")
        assert frame.count() == 6
    finally:
        frame.unpersist(blocking=True)


@pytest.mark.parametrize("option", ["minPartitions", "failOnDataLoss"])
def test_option_of_the_formats_own_reader_keeps_it(
    spark: SparkSession, root: str, topics: Cluster, option: str
) -> None:
    given = {"minPartitions": "3", "failOnDataLoss": "false"}

    assert "parquet" not in plan_of(load(spark, root, **{option: given[option]}), counts=True)


@pytest.mark.usefixtures("foreign_writes")
def test_topic_open_to_foreign_writers_is_read_by_the_format(spark: SparkSession, root: str, topics: Cluster) -> None:
    """It reports what they break."""
    assert "parquet" not in plan_of(load(spark, root), counts=True)
