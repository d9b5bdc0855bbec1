"""Everyday habits of Spark: a topic is copied as it is, lists are read, texts are times; what cannot be is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike.errors import IllegalArgumentError, KafkaConnectionError
from kafkalike.model.record_batch import RecordBatch
from tests.tools.clusters import on_disk
from tests.tools.records import all_records, fill

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster


@pytest.fixture
def cluster(root: str) -> Cluster:
    """A topic of four partitions, the last of which has a record with a header."""
    made = on_disk(root)
    made.create_topic("four", 4, {})
    batch = RecordBatch()
    batch.add(0, b"k", b"a", 1_000)
    batch.add(3, b"k", b"b", 2_000, [("h", b"x")])
    made.log("four").append(batch)
    return made


COPY = {0: [(0, "a")], 1: [], 2: [], 3: [(0, "b")]}


def run(frame: DataFrame, topic: str, root: str, checkpoint: str, **given: Any) -> None:
    ks.write_stream(frame, topic, root, checkpoint=checkpoint, available_now=True, **given).awaitTermination()


def test_copy_of_a_topic_gets_its_partitions(spark: SparkSession, root: str, cluster: Cluster) -> None:
    ks.write(ks.read(spark, "four", root), "copy", root)

    assert all_records(root, "copy") == COPY


def test_copy_by_a_stream_gets_the_partitions_of_what_it_reads(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str
) -> None:
    """Also those that have no record in the first batch."""
    cluster.create_topic("late", 5, {})
    fill(cluster, "late", "a")
    frame = ks.read_stream(spark, "late", root, starting_offsets="earliest")
    run(frame, "copy", root, checkpoint)
    fill(cluster, "late", "b", partition=4)

    run(frame, "copy", root, checkpoint)

    assert all_records(root, "copy") == {0: [(0, "a")], 1: [], 2: [], 3: [], 4: [(0, "b")]}


def test_copy_with_a_partitioner_gets_the_partitions_of_the_topic_of_its_name(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str, tmp_path: Path
) -> None:
    """Not as many as the largest topic that the query reads."""
    cluster.create_topic("two", 2, {})
    fill(cluster, "two", "c")
    other = str(tmp_path / "other")
    frame = ks.read_stream(spark, ["four", "two"], root, starting_offsets="earliest").where("topic = 'two'")
    chosen = ks.ProducerOptions(partitioner=ks.partition_column)

    run(frame, "two", other, checkpoint, producer_options=chosen)

    assert all_records(other, "two") == {0: [(0, "c")], 1: []}


def test_stream_of_several_topics_keeps_headers(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str
) -> None:
    cluster.create_topic("more", 1, {})
    fill(cluster, "more", "c")
    frame = ks.read_stream(spark, ["four", "more"], root, starting_offsets="earliest")

    run(frame.drop("partition"), "copy", root, checkpoint)

    copied = ks.read(spark, "copy", root).select("value", F.to_json("headers")).collect()
    assert {(bytes(value), headers) for value, headers in copied} == {
        (b"a", None),
        (b"b", '[{"key":"h","value":"eA=="}]'),
        (b"c", None),
    }
    assert "headers" not in ks.read_stream(spark, "four", root, include_headers=False).columns
    both = ks.read_stream(spark, ["four", "more"], root, engine="delta", starting_offsets="earliest")
    assert both.columns == frame.columns
    for topics in ([], ["four", "more"]):
        with pytest.raises(IllegalArgumentError, match="topic"):
            ks.read_stream(spark, topics, root, format="json-schema")


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_text_timestamp_is_the_time_of_the_record(spark: SparkSession, root: str, cluster: Cluster, ansi: str) -> None:
    """One that is no time ends the job, whatever the session's mode of SQL; nothing is written then."""
    rows = spark.createDataFrame([("v", "2026-01-02T09:30:00+02:00"), ("w", None)], "value STRING, timestamp STRING")
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        ks.write(rows, "times", root)
        with pytest.raises(Exception, match="timestamp is no time: yesterday at noon"):
            ks.write(rows.withColumn("timestamp", F.lit("yesterday at noon")), "times", root)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))

    (found,) = ks.read(spark, "times", root).where("value = CAST('v' AS BINARY)").select("timestamp").collect()
    assert found[0].replace(tzinfo=UTC) == datetime(2026, 1, 2, 7, 30, tzinfo=UTC)
    assert len(all_records(root, "times")[0]) == 2


@pytest.mark.parametrize(
    "write",
    [
        lambda frame: frame.write.format("kafkalike").mode("append").saveAsTable("a_table"),
        lambda frame: frame.writeTo("a_table").using("kafkalike").create(),
        lambda frame: frame.writeTo("a_table").using("kafkalike").createOrReplace(),
    ],
    ids=["saveAsTable", "create", "createOrReplace"],
)
def test_write_to_a_catalog_table_says_what_writes_to_a_topic(
    spark: SparkSession, write: Callable[[DataFrame], None]
) -> None:
    frame = spark.createDataFrame([("v",)], "value STRING")

    with pytest.raises(AnalysisException, match="a topic is not a table of a catalog"):
        write(frame)

    assert not spark.catalog.tableExists("a_table")


@pytest.mark.parametrize(
    "read",
    [
        lambda spark, root: ks.read(spark, "four", root),
        lambda spark, root: ks.read_stream(spark, "four", root, engine="delta"),
        lambda spark, root: (
            spark.read.format("kafkalike")
            .options(**{"kafka.bootstrap.servers": root, "subscribe": "four"})
            .load()
            .collect()
        ),
        lambda spark, root: (
            spark.read.format("kafkalike")
            .options(**{"kafka.bootstrap.servers": root, "subscribePattern": "f.*"})
            .load()
            .collect()
        ),
    ],
    ids=["read", "read_stream of the table", "format", "format with a pattern"],
)
def test_misspelt_root_is_named_instead_of_a_topic(
    spark: SparkSession, tmp_path: Path, read: Callable[[SparkSession, str], object]
) -> None:
    with pytest.raises((KafkaConnectionError, PySparkException), match=f"the root {tmp_path}/nowhere does not exist"):
        read(spark, f"{tmp_path}/nowhere")

    assert not (tmp_path / "nowhere").exists()


def test_topic_that_the_options_no_longer_name_is_not_called_lost(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str
) -> None:
    cluster.create_topic("more", 1, {})
    run(ks.read_stream(spark, ["four", "more"], root).drop("partition"), "copy", root, checkpoint)

    with pytest.raises(PySparkException, match=r"options do not name more-0 at offset 0.*Name them again"):
        run(ks.read_stream(spark, "four", root).drop("partition"), "copy", root, checkpoint)


def test_history_of_a_topic_has_metrics(spark: SparkSession, root: str, cluster: Cluster) -> None:
    fill(cluster, "four", "c", "d")

    newest = spark.sql(f"DESCRIBE HISTORY delta.`{root}/four` LIMIT 1").collect()[0]

    assert newest["operationMetrics"]["numOutputRows"] == "2"
    assert newest["operationMetrics"]["numFiles"] == "1"
    assert json.loads(newest["userMetadata"])
    assert int(newest["operationMetrics"]["numOutputBytes"]) > 0
