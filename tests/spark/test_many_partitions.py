"""Topics of many partitions: conditions on offsets stay small, and small partitions share tasks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import read, register_sql
from kafkalike.spark.reads.conditions import MOST_SINGLE, within
from tests.tools.records import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster

MANY = 600


def plan_of(frame: DataFrame) -> str:
    """The analyzed plan without the numbers of its columns."""
    return re.sub(r"#\d+L?", "", str(frame._jdf.queryExecution().analyzed().toString()))


def offsets(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row["partition"], row["offset"]) for row in frame.select("partition", "offset").collect())


def fill_all(cluster: Cluster, topic: str, count: int) -> None:
    """So many records in each partition, in one append."""
    batch = RecordBatch()
    for partition in cluster.topic(topic).partitions:
        for number in range(count):
            batch.add(partition, None, b"%d" % number, 1_000)
    cluster.log(topic).append(batch)


@pytest.fixture
def many(cluster: Cluster) -> str:
    """A topic of many partitions, each with a log start of its own; four records in three of them."""
    cluster.create_topic("many", MANY, {})
    for partition in (0, 7, MANY - 1):
        fill(cluster, "many", "0", "1", "2", "3", partition=partition)
    cluster.move_log_start("many", {0: 1, 7: 4, MANY - 1: 2}, "retention", "r")
    return "many"


EXPECTED = [(0, 1), (0, 2), (0, 3), (MANY - 1, 2), (MANY - 1, 3)]


def test_read_with_log_starts_in_many_partitions_leaves_out_what_is_below(
    spark: SparkSession, root: str, many: str
) -> None:
    assert offsets(read(spark, many, root)) == EXPECTED
    assert offsets(read(spark, many, root, starting_offsets="earliest")) == EXPECTED


def test_read_of_many_log_starts_has_one_condition(spark: SparkSession, root: str, cluster: Cluster) -> None:
    cluster.create_topic("all", MANY, {})
    fill_all(cluster, "all", 2)
    cluster.move_log_start("all", dict.fromkeys(range(MANY), 1), "retention", "r")

    frame = read(spark, "all", root)

    plan = plan_of(frame)
    assert plan.count("Filter") == 1
    assert plan.count("offset >=") == 2
    assert offsets(frame) == [(partition, 1) for partition in range(MANY)]


def test_view_of_many_log_starts_leaves_out_what_is_below(spark: SparkSession, root: str, many: str) -> None:
    """In the session and in a database, whose views are SQL text."""
    register_sql(spark, root, database="many_starts")
    try:
        assert offsets(spark.table("many_starts.many")) == EXPECTED
    finally:
        spark.sql("DROP DATABASE many_starts CASCADE")


@pytest.mark.parametrize("count", [0, 1, MOST_SINGLE, MOST_SINGLE + 1, 100], ids="partitions={}".format)
def test_within_takes_exactly_the_given_ranges(spark: SparkSession, count: int) -> None:
    """Also partitions with an empty range, and those that are not named."""
    rows = (
        spark.range(120)
        .select((F.col("id") % 120).cast("int").alias("partition"))
        .crossJoin(spark.range(5).withColumnRenamed("id", "offset"))
    )
    ranges = {partition: range(partition % 3, 2 + partition % 4) for partition in range(count)} | {110: range(3, 3)}

    found = offsets(rows.where(within(ranges)))

    assert found == [(p, o) for p in range(count) for o in range(p % 3, 2 + p % 4)]


def test_within_of_many_partitions_prunes_files_by_the_bounds(spark: SparkSession, cluster: Cluster) -> None:
    cluster.create_topic("pruned", 20, {})
    for _ in range(3):
        fill(cluster, "pruned", "a", "b")
    frame = spark.read.format("delta").load(cluster.table_uri(cluster.topic("pruned")))

    found = frame.where(within(dict.fromkeys(range(20), range(4, 6))))

    plan = str(found._jdf.queryExecution().executedPlan().toString())
    assert "GreaterThanOrEqual(offset,4), LessThan(offset,6)" in plan
    assert offsets(found) == [(0, 4), (0, 5)]


def test_batch_of_small_partitions_is_one_task(spark: SparkSession, root: str, cluster: Cluster) -> None:
    cluster.create_topic("small", 200, {})
    for partition in (0, 5, 199):
        fill(cluster, "small", "a", "b", partition=partition)
    options = {"kafka.bootstrap.servers": root, "subscribe": "small"}

    frame = spark.read.format("kafkalike").options(**options).load()

    assert frame.rdd.getNumPartitions() == 1
    assert offsets(frame) == [(0, 0), (0, 1), (5, 0), (5, 1), (199, 0), (199, 1)]
