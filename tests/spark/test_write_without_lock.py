"""Appends through Spark where no lock keeps writers apart: the write reads what a rival may have added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.errors import KafkaTimeoutError, MessageSizeTooLargeError
from kafkalike.log.delta_cluster import DeltaCluster
from kafkalike.log.port import TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.spark import read, write
from tests.tools.records import batch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession


class Meddling:
    """A clock that lets a rival act at the moment an append has read the log end and asks for the time."""

    def __init__(self) -> None:
        self.rivals: list[Callable[[], object]] = []
        self.waits: list[float] = []

    def now_ms(self) -> int:
        if self.rivals:
            self.rivals.pop()()
        return SYSTEM_CLOCK.now_ms()

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)


@pytest.fixture
def clock() -> Meddling:
    return Meddling()


@pytest.fixture
def cluster(root: str, clock: Meddling) -> DeltaCluster:
    """A cluster without locks, with one topic of two partitions."""
    made = DeltaCluster(root, local=True, locking=False, clock=clock)
    made.create_topic("orders", 2, {})
    return made


def rival(root: str, *values: bytes, partition: int = 0) -> Callable[[], object]:
    """Another process's append, in-process."""
    other = DeltaCluster(root, local=True, locking=False)
    return lambda: other.log("orders").append(batch(*values, partition=partition))


def rows(spark: SparkSession, *values: str) -> DataFrame:
    frame = spark.createDataFrame([(value,) for value in values], "value string").coalesce(1)
    return frame.withColumn("partition", F.lit(0))


def content(spark: SparkSession, root: str, partition: int = 0) -> list[tuple[int, bytes]]:
    frame = read(spark, "orders", root).where(F.col("partition") == partition).orderBy("offset")
    return [(row["offset"], bytes(row["value"])) for row in frame.collect()]


def test_writes_go_on_from_the_log_end(spark: SparkSession, root: str, cluster: DeltaCluster) -> None:
    """As with a lock."""
    write(rows(spark, "a", "b"), "orders", cluster)
    written = write(rows(spark, "c"), "orders", cluster)

    assert written == {TopicPartition("orders", 0): range(2, 3)}
    assert content(spark, root) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_stale_log_end_is_found_out_and_read_again(
    spark: SparkSession, root: str, cluster: DeltaCluster, clock: Meddling
) -> None:
    """A rival appends between the look at the log end and the write: no offset is given out twice."""
    clock.rivals = [rival(root, b"r1", b"r2")]

    written = write(rows(spark, "a", "b"), "orders", cluster)

    assert written == {TopicPartition("orders", 0): range(2, 4)}
    assert content(spark, root) == [(0, b"r1"), (1, b"r2"), (2, b"a"), (3, b"b")]
    assert len(clock.waits) == 1


def test_a_rival_that_commits_during_the_write_makes_it_start_again_without_computing_its_source_again(
    spark: SparkSession, root: str, cluster: DeltaCluster, clock: Meddling
) -> None:
    """Delta refuses the commit; the rows are numbered anew and computed once."""
    computed = spark.sparkContext.accumulator(0)

    def meddle(numbers: Iterable[int]) -> Iterator[Any]:
        DeltaCluster(root, local=True, locking=False).log("orders").append(batch(b"rival"))
        for number in numbers:
            computed.add(1)
            yield (str(number),)

    frame = spark.createDataFrame(spark.sparkContext.parallelize(range(5), 1).mapPartitions(meddle), "value string")

    written = write(frame.withColumn("partition", F.lit(0)), "orders", cluster)

    assert computed.value == 5
    assert written == {TopicPartition("orders", 0): range(1, 6)}
    assert content(spark, root) == list(enumerate([b"rival", b"0", b"1", b"2", b"3", b"4"]))
    assert len(clock.waits) == 1


def test_rivals_that_are_always_faster_end_in_a_timeout(
    spark: SparkSession, root: str, cluster: DeltaCluster, clock: Meddling
) -> None:
    """Nothing of the loser was written."""
    clock.rivals = [rival(root, b"r")]

    with pytest.raises(KafkaTimeoutError):
        write(rows(spark, "a"), "orders", cluster, delivery_timeout_ms=1)

    assert content(spark, root) == [(0, b"r")]


def test_no_rows_are_no_rows_also_when_a_rival_was_there(
    spark: SparkSession, root: str, cluster: DeltaCluster, clock: Meddling
) -> None:
    """The outcome is known: there was nothing to write."""
    clock.rivals = [rival(root, b"r")]

    assert write(rows(spark, "a").where("false"), "orders", cluster) == {}


def test_a_rerun_is_recognised(spark: SparkSession, root: str, cluster: DeltaCluster) -> None:
    """With its offsets."""
    first = write(rows(spark, "a"), "orders", cluster, txn_id="job", txn_version=3)
    write(rows(spark, "b"), "orders", cluster)

    again = write(rows(spark, "a"), "orders", cluster, txn_id="job", txn_version=3)

    assert (again, again.duplicate) == (first, True)
    assert len(content(spark, root)) == 2


# --- batches of a producer, through Spark --------------------------------------------------------


def test_a_batch_through_spark_is_the_same_as_in_process(spark: SparkSession, root: str, cluster: DeltaCluster) -> None:
    """Offsets, order, nulls, headers and times."""
    made = RecordBatch()
    for at, partition in enumerate((0, 1, 0, 0, 1)):
        made.add(
            partition, None if at == 0 else b"\xff", None if at == 1 else b"", at, [("h", None)] if at == 2 else None
        )
    cluster.create_topic("local", 2, {})

    by_spark = cluster.log("orders", engine="spark").append(made, codec="lz4")
    in_process = cluster.log("local", engine="deltalake").append(made, codec="lz4")

    assert by_spark.ranges == in_process.ranges == {0: range(3), 1: range(2)}
    for p in range(2):
        chunks = [cluster.log(name).reader(p, 0).read(10_000) for name in ("orders", "local")]
        assert chunks[0] is not None
        assert chunks[1] is not None
        assert chunks[0].columns() == chunks[1].columns()


def test_a_batch_conflicts_with_rivals_of_its_partitions_only(
    spark: SparkSession, root: str, cluster: DeltaCluster, clock: Meddling
) -> None:
    """A rival on another partition costs no second try."""
    log = cluster.log("orders", engine="spark")
    clock.rivals = [rival(root, b"other", partition=1)]

    done = log.append(batch(b"a"))
    alone = len(clock.waits)
    clock.rivals = [rival(root, b"same")]
    again = log.append(batch(b"b"))

    assert (dict(done.ranges), alone) == ({0: range(1)}, 0)
    assert (dict(again.ranges), len(clock.waits)) == ({0: range(2, 3)}, 1)


def test_a_batch_through_spark_is_checked_and_recognised(cluster: DeltaCluster, spark: SparkSession) -> None:
    """Bad records stay out; a rerun adds nothing; the time of the append is the records'."""
    cluster.create_topic("times", 1, {"message.timestamp.type": "LogAppendTime", "max.message.bytes": "100"})
    log = cluster.log("times", engine="spark")

    with pytest.raises(MessageSizeTooLargeError):
        log.append(batch(b"x" * 100))
    done = log.append(batch(b"a"), txn=TxnId("job", 1))
    again = log.append(batch(b"a"), txn=TxnId("job", 1))

    chunk = cluster.log("times").reader(0, 0).read(1_000)
    assert chunk is not None
    assert chunk.columns().timestamps == [done.append_time_ms] == [again.append_time_ms]
    assert again.duplicate


def test_a_producers_append_leaves_the_settings_of_the_running_session_alone(
    spark: SparkSession, cluster: DeltaCluster
) -> None:
    """Whoever shares the JVM keeps their time zone."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        cluster.log("orders", engine="spark").append(batch(b"a"))

        assert spark.conf.get("spark.sql.session.timeZone") == "America/New_York"
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
