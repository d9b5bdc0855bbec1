"""startingOffsets="committed": streams and batches of real Spark that begin where a consumer group stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from kafkalike import KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafkalike.errors import NoOffsetForPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark import read, read_stream, write_stream
from tests.tools.records import all_records, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def commit(root: str, topic: str, offset: int) -> None:
    """What a consumer of the group `g` leaves."""
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(offset)})


def committed(root: str, topic: str) -> int | None:
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        found: int | None = consumer.committed(TopicPartition(topic, 0))
        return found


def values(frame: DataFrame) -> list[str]:
    return [bytes(row.value).decode() for row in frame.orderBy("offset").collect()]


@pytest.fixture
def topic(root: str, cluster: Cluster) -> str:
    """Five records in one partition; the group has read two of them."""
    cluster.create_topic("t", 1, {})
    fill(cluster, "t", *"abcde")
    commit(root, "t", 2)
    return "t"


def drain(spark: SparkSession, root: str, checkpoint: str, **given: Any) -> None:
    frame = read_stream(spark, "t", root, starting_offsets="committed", **given)
    query = write_stream(frame.select("value"), "out", root, checkpoint=checkpoint, available_now=True)
    assert query.awaitTermination(120)


def test_a_stream_goes_on_where_a_group_stands_and_shows_its_progress(
    spark: SparkSession, root: str, cluster: Cluster, topic: str, checkpoint: str
) -> None:
    """A job of a consumer is replaced by a query; the checkpoint counts from then on, and the group follows."""
    cluster.create_topic("out", 1, {})
    drain(spark, root, checkpoint, group_id="g")
    assert committed(root, topic) == 5
    commit(root, topic, 0)
    fill(cluster, topic, "f")
    drain(spark, root, checkpoint, group_id="g")

    assert all_records(root, "out") == {0: list(enumerate("cdef"))}


def test_a_batch_begins_and_ends_where_a_group_stands(spark: SparkSession, root: str, topic: str) -> None:
    """What it has read, and what it has not; through the format and over the table."""
    reader = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", topic)
    reader = reader.option("kafka.group.id", "g")

    assert values(reader.option("startingOffsets", "committed").load()) == list("cde")
    assert values(read(spark, topic, root, starting_offsets="committed", group_id="g")) == list("cde")
    assert values(read(spark, topic, root, ending_offsets="committed", group_id="g")) == list("ab")
    ended = reader.option("startingOffsets", "earliest").option("endingOffsets", "committed")
    assert values(ended.load()) == list("ab")


def test_a_group_that_has_committed_nothing_begins_by_the_reset(spark: SparkSession, root: str, topic: str) -> None:
    """Unsaid, a batch begins at the earliest record."""
    begin: dict[str, Any] = {"starting_offsets": "committed", "group_id": "other"}

    assert values(read(spark, topic, root, **begin)) == list("abcde")
    assert values(read(spark, topic, root, **begin, auto_offset_reset="latest")) == []
    with pytest.raises(NoOffsetForPartitionError, match="'other' has committed nothing for t-0"):
        read(spark, topic, root, **begin, auto_offset_reset="none")
    source = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", topic)
    source = source.option("startingOffsets", "committed").option("group_id", "other")
    with pytest.raises(PySparkException) as raised:
        source.option("kafka.auto.offset.reset", "none").load().collect()
    first = str(raised.value).splitlines()[0]
    assert "NoOffsetForPartitionError" in first
    assert "File" not in str(raised.value).split("JVM stacktrace")[0]
