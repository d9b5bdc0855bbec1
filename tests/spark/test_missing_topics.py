"""Missing topics that a write creates get as many partitions as the column `partition` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.murmur2 import partition_for_key
from tests.tools.clusters import on_disk
from tests.tools.lines import Lines
from tests.tools.records import all_records, fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    Write = Callable[[DataFrame, str | None, str], object]

pytestmark = pytest.mark.timeout(300)


def by_format(frame: DataFrame, topic: str | None, root: str) -> None:
    options = {"kafka.bootstrap.servers": root} | ({} if topic is None else {"topic": topic})
    frame.write.format("kafkalike").options(**options).mode("append").save()


def by_transaction(frame: DataFrame, topic: str | None, root: str) -> None:
    with ks.transaction("copy", root) as txn:
        txn.write(frame, topic)


WAYS = [
    pytest.param(ks.write, id="ks.write"),
    pytest.param(by_format, id="format"),
    pytest.param(by_transaction, id="ks.transaction"),
]


def stream_by_format(frame: DataFrame, topic: str | None, root: str, checkpoint: str) -> None:
    options = {"kafka.bootstrap.servers": root, "checkpointLocation": checkpoint}
    options |= {} if topic is None else {"topic": topic}
    writer = frame.writeStream.format("kafkalike").options(**options)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)


def stream_by_function(frame: DataFrame, topic: str | None, root: str, checkpoint: str) -> None:
    ks.write_stream(frame, topic, root, checkpoint=checkpoint, available_now=True).awaitTermination()


STREAMS = [pytest.param(stream_by_function, id="ks.write_stream"), pytest.param(stream_by_format, id="format")]


@pytest.mark.parametrize("way", WAYS)
def test_missing_topic_gets_the_partitions_that_rows_of_all_tasks_name(
    spark: SparkSession, root: str, way: Write
) -> None:
    frame = spark.range(0, 4, numPartitions=2).selectExpr("CAST(id AS STRING) AS value", "CAST(id AS INT) AS partition")

    way(frame, "copy", root)

    assert all_records(root, "copy") == {0: [(0, "0")], 1: [(0, "1")], 2: [(0, "2")], 3: [(0, "3")]}


@pytest.mark.parametrize("way", WAYS)
def test_each_missing_topic_of_the_column_gets_its_own_partitions(spark: SparkSession, root: str, way: Write) -> None:
    """One that exists keeps its own."""
    on_disk(root).create_topic("old", 3, {})
    rows = [("a", 2, "1"), ("b", 1, "2"), ("old", 2, "3"), ("a", 0, "4"), ("c", 0, "5")]
    frame = spark.createDataFrame(rows, "topic STRING, partition INT, value STRING").repartition(2)

    way(frame, None, root)

    assert all_records(root, "a") == {0: [(0, "4")], 1: [], 2: [(0, "1")]}
    assert all_records(root, "b") == {0: [], 1: [(0, "2")]}
    assert all_records(root, "c") == {0: [(0, "5")]}
    assert all_records(root, "old") == {0: [], 1: [], 2: [(0, "3")]}


@pytest.mark.parametrize(
    ("way", "topic"),
    [pytest.param(ks.write, "t", id="ks.write"), pytest.param(by_format, None, id="format with a column topic")],
)
def test_rows_without_partition_are_placed_among_all_that_the_topic_gets(
    spark: SparkSession, root: str, way: Write, topic: str | None
) -> None:
    """By the hash of their keys, and in the order of the rows."""
    rows = [("k", None, "1"), ("k", 2, "2"), ("k", None, "3"), (None, 2, "4"), ("k", 4, "5")]
    frame = spark.createDataFrame(rows, "key STRING, partition INT, value STRING").coalesce(1)

    way(frame.selectExpr("'t' AS topic", "*"), topic, root)

    assert partition_for_key(b"k", 5) == 2
    placed = [(0, "1"), (1, "2"), (2, "3"), (3, "4")]
    assert all_records(root, "t") == {0: [], 1: [], 2: placed, 3: [], 4: [(0, "5")]}


def test_partition_that_no_topic_can_have_is_refused_and_creates_nothing(spark: SparkSession, root: str) -> None:
    frame = spark.sql("SELECT 'v' AS value, explode(array(0, 10000)) AS partition")

    with pytest.raises(PySparkException, match=r"t: partition 10000 .* at most 10000"):
        by_format(frame, "t", root)

    assert on_disk(root).topics() == {}


@pytest.mark.parametrize("way", WAYS[:2])
def test_partition_beyond_those_of_a_topic_that_exists_keeps_all_rows_out(
    spark: SparkSession, root: str, way: Write
) -> None:
    """And the topics that are missing are not created."""
    cluster = on_disk(root)
    cluster.create_topic("old", 2, {})
    frame = spark.sql("SELECT * FROM VALUES ('new', 1, '1'), ('old', 2, '2') AS t(topic, partition, value)")

    with pytest.raises((UnknownTopicOrPartitionError, PySparkException), match=r"old: partition 2 .*partitions 0 to 1"):
        way(frame, None, root)

    assert set(on_disk(root).topics()) == {"old"}
    assert all_records(root, "old") == {0: [], 1: []}


@pytest.mark.parametrize("way", WAYS[:2])
def test_frame_with_a_partition_column_and_no_rows_creates_the_topic_by_default(
    spark: SparkSession, root: str, way: Write
) -> None:
    way(spark.sql("SELECT 'v' AS value, 3 AS partition WHERE false"), "t", root)

    assert all_records(root, "t") == {0: []}


def test_partitioner_is_told_as_many_partitions_as_the_topic_gets(spark: SparkSession, root: str) -> None:
    frame = spark.sql("SELECT * FROM VALUES ('k', 3, '1'), ('k', NULL, '2') AS t(key, partition, value)")

    ks.write(frame, "t", root, producer_options=ks.ProducerOptions(partitioner=lambda _, total: F.lit(total - 2)))

    assert all_records(root, "t") == {0: [], 1: [], 2: [(0, "2")], 3: [(0, "1")]}


# --- streams -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", STREAMS)
def test_stream_creates_a_topic_with_the_partitions_that_it_reads(
    spark: SparkSession, root: str, checkpoint: str, stream: Callable[..., None]
) -> None:
    """Also those that have no record in its first batch."""
    cluster = on_disk(root)
    cluster.create_topic("late", 5, {})
    fill(cluster, "late", "a")
    frame = ks.read_stream(spark, "late", root, starting_offsets="earliest")
    stream(frame, "copy", root, checkpoint)
    fill(cluster, "late", "b", partition=4)

    stream(frame, "copy", root, checkpoint)

    assert all_records(root, "copy") == {0: [(0, "a")], 1: [], 2: [], 3: [], 4: [(0, "b")]}


@pytest.mark.parametrize("stream", STREAMS)
def test_stream_of_several_topics_creates_each_with_the_partitions_of_its_source(
    spark: SparkSession,
    root: str,
    checkpoint: str,
    stream: Callable[..., None],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    cluster, other = on_disk(root), str(tmp_path_factory.mktemp("other"))
    for topic, total in (("four", 4), ("two", 2)):
        cluster.create_topic(topic, total, {})
        fill(cluster, topic, "a")
    frame = ks.read_stream(spark, ["four", "two"], root, starting_offsets="earliest")
    stream(frame, None, other, checkpoint)
    fill(cluster, "four", "b", partition=3)
    fill(cluster, "two", "c", partition=1)

    stream(frame, None, other, checkpoint)

    assert all_records(other, "four") == {0: [(0, "a")], 1: [], 2: [], 3: [(0, "b")]}
    assert all_records(other, "two") == {0: [(0, "a")], 1: [(0, "c")]}


def test_stream_of_several_topics_to_one_of_their_names_creates_it_with_the_most_partitions(
    spark: SparkSession, root: str, checkpoint: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The records of the other topics need theirs in later batches."""
    cluster, other = on_disk(root), str(tmp_path_factory.mktemp("other"))
    for topic, total in (("four", 4), ("two", 2)):
        cluster.create_topic(topic, total, {})
    fill(cluster, "two", "a")
    frame = ks.read_stream(spark, ["four", "two"], root, starting_offsets="earliest")
    stream_by_format(frame, "two", other, checkpoint)
    fill(cluster, "four", "b", partition=3)

    stream_by_format(frame, "two", other, checkpoint)

    assert all_records(other, "two") == {0: [(0, "a")], 1: [], 2: [], 3: [(0, "b")]}


@pytest.mark.parametrize("stream", STREAMS)
def test_partition_that_only_a_later_batch_names_is_refused_by_topic_and_number(
    lines: Lines, root: str, checkpoint: str, stream: Callable[..., None]
) -> None:
    """A source of other kind does not say how many it will name; nothing of the batch is written."""
    lines.add("0", "2")
    lines.add("1", "3")
    frame = lines.frame().selectExpr("value", "CAST(value AS INT) AS partition")

    with pytest.raises(StreamingQueryException, match=r"copy: partition 3 does not exist: .* 0 to 2"):
        stream(frame, "copy", root, checkpoint)

    assert all_records(root, "copy") == {0: [(0, "0")], 1: [], 2: [(0, "2")]}


@pytest.mark.parametrize("stream", STREAMS)
def test_batch_without_rows_does_not_create_the_topic(
    lines: Lines, root: str, checkpoint: str, stream: Callable[..., None]
) -> None:
    """It cannot say with how many partitions."""
    lines.add("none")
    lines.add("2")
    frame = lines.frame().where("value <> 'none'").selectExpr("value", "CAST(value AS INT) AS partition")

    stream(frame, "copy", root, checkpoint)

    assert all_records(root, "copy") == {0: [], 1: [], 2: [(0, "2")]}
