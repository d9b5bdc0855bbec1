"""Tasks fail, snapshots are stale, frames are cached, topics are made anew: a Spark append stays one append."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.errors import KafkaError, TopicDeletedError
from kafkalike.spark import read, write
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, make_topic, open_log

ROWS = StructType([StructField("partition", IntegerType()), StructField("value", StringType())])


@pytest.mark.spark
@pytest.mark.parametrize("queue", [True, False])
def test_a_task_that_fails_once_writes_its_records_once(
    spark: SparkSession, root: str, tmp_path: Path, *, queue: bool
) -> None:
    """Row 13: the source dies in the middle of its first attempt; `local[2,2]` tries again."""
    make_topic(root)
    marker = str(tmp_path / "died")

    def rows(_: object, frames: Iterator[object]) -> Iterator[object]:
        import os

        for frame in frames:
            if not os.path.exists(marker):  # noqa: PTH110 - runs in Spark's Python
                open(marker, "w").close()  # noqa: PTH123
                message = "the first attempt fails"
                raise ValueError(message)
            yield frame

    source = spark.range(0, 40, 1, 2).selectExpr("CAST(id % 2 AS INT) AS partition", "CAST(id AS STRING) AS value")
    frame = source.mapInArrow(lambda batches: rows(None, batches), ROWS)

    done = write(frame, "t", on_disk(root, queue=queue))

    found = all_records(root)
    assert Path(marker).exists()
    assert done == {TopicPartition("t", p): range(20) for p in (0, 1)}
    assert {p: sorted(int(v) for _, v in records) for p, records in found.items()} == {
        p: list(range(p, 40, 2)) for p in (0, 1)
    }
    assert errors_of(root) == []


@pytest.mark.spark
@pytest.mark.parametrize("queue", [True, False])
def test_a_stale_snapshot_gives_no_offset_twice(spark: SparkSession, root: str, *, queue: bool) -> None:
    """Row 21: Spark may use a snapshot an hour old, a frame of the topic is cached, and others append meanwhile."""
    make_topic(root, (0, "a"))
    cluster = on_disk(root, queue=queue)
    frame = spark.createDataFrame([(0, "c")], ROWS)
    spark.conf.set("spark.databricks.delta.stalenessLimit", "1h")
    cached = read(spark, "t", root).cache()
    try:
        assert cached.count() == 1
        connect(root).log("t").append(batch((0, "b"), (1, "b")))

        written = write(frame, "t", cluster)
        appended = cluster.log("t").append(batch((0, "d")))
    finally:
        cached.unpersist()
        spark.conf.unset("spark.databricks.delta.stalenessLimit")

    assert written == {TopicPartition("t", 0): range(2, 3)}
    assert appended.ranges == {0: range(3, 4)}
    assert [v for _, v in all_records(root)[0]] == ["a", "b", "c", "d"]


@pytest.mark.spark
def test_a_topic_made_anew_never_gets_records_meant_for_the_old_one(spark: SparkSession, root: str) -> None:
    """Row 31: each client has the old topic open; each is told, and the new topic has what was sent to it only."""
    make_topic(root, (0, "old-0"), (0, "old-1"))
    cluster = on_disk(root)
    log = cluster.log("t")
    log.append(batch((0, "old-2")))
    connect(root).delete_topic("t")
    make_topic(root, (0, "new-0"))

    with pytest.raises(TopicDeletedError):
        log.append(batch((0, "late")))
    done = write(spark.createDataFrame([(0, "new-1")], ROWS), "t", root)

    assert done == {TopicPartition("t", 0): range(1, 2)}
    assert all_records(root)[0] == [(0, "new-0"), (1, "new-1")]
    assert errors_of(root) == []


def test_a_producer_and_a_consumer_are_told_that_their_topic_was_made_anew(root: str) -> None:
    """Row 31: positions of the old topic are not used in the new one, and no record of the old one turns up."""
    make_topic(root, (0, "old-0"), (0, "old-1"))
    tp = TopicPartition("t", 0)
    with (
        KafkaProducer(bootstrap_servers=root) as producer,
        KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest", enable_auto_commit=False) as consumer,
    ):
        consumer.assign([tp])
        assert [r.offset for r in consumer.poll(5_000)[tp]] == [0, 1]
        assert producer.send("t", b"old-2", partition=0).get(timeout=60).offset == 2
        connect(root).delete_topic("t")
        make_topic(root, (0, "new-0"))

        with pytest.raises(TopicDeletedError):
            consumer.poll(10_000)
        again = consumer.poll(5_000)
        try:
            offset = producer.send("t", b"new-1", partition=0).get(timeout=60).offset
        except KafkaError:
            offset = producer.send("t", b"new-1", partition=0).get(timeout=60).offset

    assert [r.value for r in again[tp]] == [b"new-0"]
    assert offset == 1
    assert all_records(root)[0] == [(0, "new-0"), (1, "new-1")]


def test_times_that_stand_still_or_go_back_are_looked_up_in_offset_order(root: str) -> None:
    """Row 22: the answer is the first offset, in offset order, whose time is at or after the time asked for."""
    times = [50, 40, 40, 90, 10, 90, 0, 253_402_214_399_999]
    make_topic(root, partitions=1)
    connect(root).set_configs("t", {"message.timestamp.after.max.ms": str(2**63 - 1)})
    log = open_log(connect(root))
    for at, time in enumerate(times):
        log.append(batch((0, f"v{at}"), at_ms=time))
    fresh = connect(root).log("t")

    for asked in (0, 1, 40, 41, 50, 51, 90, 91, 253_402_214_399_999):
        first = next(o for o, time in enumerate(times) if time >= asked)
        for seen in (log, fresh):
            found = seen.offset_for_time(0, asked)
            assert found is not None
            assert (found.offset, found.timestamp) == (first, times[first])
    assert log.offset_for_time(0, 253_402_215_000_000) is None
