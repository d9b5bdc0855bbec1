"""A Spark job over a share group: its slice, its verdicts, and its output, which is committed with them or not."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import kafkalike.spark as ks
from kafkalike import KafkaProducer, KafkaShareConsumer, TopicPartition
from kafkalike.errors import (
    IllegalArgumentError,
    IllegalStateError,
    InvalidRecordStateError,
    KafkaConfigurationError,
    UnknownTopicOrPartitionError,
)
from kafkalike.maintenance.forget import forget
from kafkalike.model.shares.share_partition import RecordState, SharePartition
from kafkalike.spark.queue_batch import QueueBatch
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import all_records, fill, make_topic
from tests.tools.upkeep import EAGER, upkeep

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

JOBS = TopicPartition("jobs", 0)


@pytest.fixture
def jobs(root: str) -> str:
    """A queue of ten records in one partition, and empty topics for its results and dead letters."""
    make_topic(root, *[(0, str(n)) for n in range(10)], partitions=1, topic="jobs")
    make_topic(root, partitions=1, topic="results")
    make_topic(root, partitions=1, topic="jobs.dlq")
    return root


def taken(spark: SparkSession, root: str, **settings: object) -> QueueBatch:
    defaults = {"group_id": "workers", "share_auto_offset_reset": "earliest"}
    return ks.read_queue(spark, "jobs", root, **{**defaults, **settings})  # type: ignore[arg-type]


def values(frame: DataFrame) -> list[str]:
    return sorted(row[0] for row in frame.selectExpr("CAST(value AS STRING)").collect())


def results(batch: QueueBatch) -> DataFrame:
    return batch.frame.selectExpr("concat('done ', CAST(value AS STRING)) AS value")


def written(root: str, topic: str = "results") -> list[str]:
    return sorted(value for _, value in all_records(root, topic)[0])


def state(root: str) -> SharePartition:
    return on_disk(root).groups.refresh().shares["workers"][JOBS]


def lost(root: str) -> None:
    """Let the locks of all jobs end, and another worker take their records."""
    cluster = on_disk(root)
    with KafkaShareConsumer("jobs", bootstrap_servers=cluster, group_id="workers") as other:
        assert other.poll(timeout_ms=20_000)


# --- the slice -----------------------------------------------------------------------------------


def test_two_jobs_of_a_group_have_disjoint_slices(spark: SparkSession, jobs: str) -> None:
    with taken(spark, jobs, max_records=4) as one, taken(spark, jobs) as other, taken(spark, jobs) as none:
        assert one.offsets == {JOBS: [range(4)]}
        assert other.offsets == {JOBS: [range(4, 10)]}
        assert (len(one), len(other), len(none)) == (4, 6, 0)
        assert values(one.frame) == ["0", "1", "2", "3"]
        assert values(other.frame) == ["4", "5", "6", "7", "8", "9"]
        assert values(none.frame) == []
        other.acknowledge()

    assert [(run.first, run.last, run.state) for run in state(jobs).runs] == [
        (0, 3, RecordState.AVAILABLE),
        (4, 9, RecordState.ACKNOWLEDGED),
    ]


def test_a_slice_of_many_runs_has_each_record_with_its_delivery_count(spark: SparkSession, root: str) -> None:
    """Forty records, of which every second one was released: more runs than comparisons."""
    make_topic(root, *[(n % 2, str(n)) for n in range(80)], partitions=2, topic="jobs")
    with taken(spark, root) as first:
        released = first.frame.where("offset % 2 = 0").withColumn("verdict", F.lit("release"))
        first.acknowledge(released)

    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("jobs", b"new", partition=1)
    with taken(spark, root) as second:
        found = second.frame.selectExpr("CAST(value AS STRING)", "delivery_count").collect()

    assert sorted(map(tuple, found)) == sorted([(str(n), 2) for n in range(80) if n // 2 % 2 == 0] + [("new", 1)])


def test_a_record_that_is_not_due_is_not_in_the_slice(spark: SparkSession, jobs: str) -> None:
    with KafkaProducer(bootstrap_servers=jobs) as producer:
        producer.send("jobs", b"later", partition=0, headers=[("deliver_at", b"4102444800000")])
        producer.send("jobs", b"now", partition=0, headers=[("deliver_at", b"1"), ("other", None)])

    with taken(spark, jobs) as batch:
        assert batch.offsets == {JOBS: [range(10), range(11, 12)]}
        assert values(batch.frame) == [*map(str, range(10)), "now"]
        batch.acknowledge()

    (left,) = [run for run in state(jobs).runs if not run.is_final]
    assert (left.first, left.last, left.deliveries, left.until_ms) == (10, 10, 0, 4102444800000)


def test_files_of_scheduled_records_name_their_earliest_time(spark: SparkSession, root: str) -> None:
    """Of a write, of a transaction of Spark, and of a producer's transaction. So no job reads them before."""
    make_topic(root, partitions=1, topic="jobs")
    header = "struct('deliver_at' AS key, CAST(string(4102444800000 + id) AS BINARY) AS value)"
    later = spark.range(2).selectExpr("'later' AS value", f"array({header}) AS headers")
    ks.write(later, "jobs", root)
    with ks.transaction("job", root) as t:
        t.write(later, "jobs")
    with KafkaProducer(bootstrap_servers=root, transactional_id="producer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("jobs", b"later", deliver_at_ms=4_102_444_800_000)
        producer.commit_transaction()

    assert [(s.num_records, s.due_ms) for s in on_disk(root).log("jobs").segments(0)] == [
        (2, 4_102_444_800_000),
        (2, 4_102_444_800_000),
        (1, 4_102_444_800_000),
    ]
    assert len(taken(spark, root)) == 0


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"max_poll_records": 5}, KafkaConfigurationError),
        ({"value_deserializer": str}, KafkaConfigurationError),
        ({"share_record_lock_duration_ms": 0}, KafkaConfigurationError),
        ({"max_records": 0}, IllegalArgumentError),
        ({"timeout_ms": -1}, IllegalArgumentError),
    ],
    ids=["fixed", "deserializer", "value", "no-records", "timeout"],
)
def test_a_bad_argument_is_refused_before_anything_is_locked(
    spark: SparkSession, jobs: str, settings: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        taken(spark, jobs, **settings)
    assert on_disk(jobs).groups.refresh().shares == {}


def test_a_missing_topic_is_refused(spark: SparkSession, jobs: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError):
        ks.read_queue(spark, ["jobs", "missing"], jobs, group_id="workers")


# --- verdicts ------------------------------------------------------------------------------------


def test_each_record_gets_its_verdict(spark: SparkSession, jobs: str) -> None:
    with taken(spark, jobs, errors_deadletterqueue_topic_name="jobs.dlq") as batch:
        said = F.expr("CASE WHEN offset < 2 THEN 'reject' WHEN offset = 5 THEN 'RELEASE' ELSE 'accept' END")
        batch.acknowledge(batch.frame.select("partition", "offset", said.alias("verdict")).where("offset != 9"))
        with pytest.raises(IllegalStateError, match="acknowledged"):
            batch.acknowledge()

    assert [(run.first, run.last, run.state) for run in state(jobs).runs] == [
        (5, 5, RecordState.AVAILABLE),
        (6, 9, RecordState.ACKNOWLEDGED),
    ]
    assert written(jobs, "jobs.dlq") == ["0", "1"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("(0, 1L, 'done')", "must be accept, release, reject"),
        ("(0, 1L, null)", "must be accept, release, reject"),
        ("(0, 1L, 'accept'), (0, 1L, 'reject')", "two verdicts"),
        ("(0, 10L, 'reject')", "not in the batch"),
        ("(1, 0L, 'accept')", "not in the batch"),
    ],
    ids=["unknown", "null", "two", "offset", "partition"],
)
def test_bad_verdicts_acknowledge_nothing(spark: SparkSession, jobs: str, rows: str, message: str) -> None:
    verdicts = spark.sql(f"SELECT * FROM VALUES {rows} AS t(partition, offset, verdict)")  # noqa: S608 - the test's own
    with taken(spark, jobs) as batch:
        with pytest.raises(IllegalArgumentError, match=message):
            batch.acknowledge(verdicts)
        with pytest.raises(IllegalArgumentError, match="no column offset, verdict"):
            batch.acknowledge(verdicts.select("partition"))
        batch.acknowledge()

    assert state(jobs).start == 10


# --- output --------------------------------------------------------------------------------------


@pytest.mark.parametrize("inner", ["transaction", "batch"])
def test_results_letters_rows_and_acknowledgements_are_one_transaction(
    spark: SparkSession, jobs: str, tmp_path: Path, inner: str
) -> None:
    """Whichever of the two blocks ends first."""
    table = str(tmp_path / "table")
    batch = taken(spark, jobs, errors_deadletterqueue_topic_name="jobs.dlq")
    t = ks.transaction("job", jobs)
    with ExitStack() as stack:
        for entered in (batch, t) if inner == "transaction" else (t, batch):
            stack.enter_context(entered)
        t.write(results(batch).where("value != 'done 3'"), "results")
        t.write_table(batch.frame.selectExpr("offset", "CAST(value AS STRING) AS value"), table)
        t.acknowledge(batch, batch.frame.where("offset = 3").withColumn("verdict", F.lit("reject")))
        assert written(jobs) == []
        assert spark.read.format("delta").load(table).count() == 0

    assert written(jobs) == [f"done {n}" for n in range(10) if n != 3]
    assert written(jobs, "jobs.dlq") == ["3"]
    assert values(spark.read.format("delta").load(table)) == [*map(str, range(10))]
    assert state(jobs).start == 10
    assert not [*Path(jobs, "__tables").rglob("*.*")]
    assert on_disk(jobs).groups.refresh().group("workers").roster.members == {}
    assert errors_of(jobs) == []


def test_rows_that_cannot_be_computed_leave_the_transaction_usable(
    spark: SparkSession, jobs: str, tmp_path: Path
) -> None:
    """And it may write to a table twice."""
    table = str(tmp_path / "table")
    with taken(spark, jobs) as batch, ks.transaction("job", jobs) as t:
        with pytest.raises(Exception, match="no number"):
            t.write_table(batch.frame.selectExpr("CAST(raise_error('no number') AS STRING) AS value"), table)
        for part in ("offset < 5", "offset >= 5"):
            t.write_table(batch.frame.where(part).selectExpr("CAST(value AS STRING) AS value"), table)
        t.acknowledge(batch)

    assert values(spark.read.format("delta").load(table)) == [*map(str, range(10))]


def test_rows_for_the_table_of_a_topic_are_refused(spark: SparkSession, jobs: str) -> None:
    """Before the decision, after which the job would stop at them."""
    with taken(spark, jobs) as batch, ks.transaction("job", jobs) as t:
        with pytest.raises(Exception, match="writer table feature"):
            t.write_table(batch.frame.select("value"), f"{jobs}/results")
        t.acknowledge(batch)
    assert state(jobs).start == 10


def test_a_failed_job_releases_its_records_and_leaves_nothing(spark: SparkSession, jobs: str, tmp_path: Path) -> None:
    def fails() -> None:
        with ks.transaction("job", jobs) as t, taken(spark, jobs) as batch:
            t.write(results(batch), "results")
            t.write_table(batch.frame.select("offset"), str(tmp_path / "table"))
            t.acknowledge(batch)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()

    assert written(jobs) == []
    assert not [*Path(jobs, "__tables").rglob("*.*")]
    with taken(spark, jobs) as batch:
        assert {row.delivery_count for row in batch.frame.collect()} == {2}
    assert len(taken(spark, jobs)) == 10


def test_a_job_that_lost_a_lock_commits_nothing(
    spark: SparkSession, jobs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueueBatch, "renew_locks", lambda _: None)  # as a driver that stands still

    def slow() -> None:
        with taken(spark, jobs, share_record_lock_duration_ms=100) as batch, ks.transaction("job", jobs) as t:
            t.write(results(batch), "results")
            t.write_table(batch.frame.select("offset"), str(tmp_path / "table"))
            t.acknowledge(batch)
            lost(jobs)

    with pytest.raises(InvalidRecordStateError, match="another member"):
        slow()

    assert written(jobs) == []
    assert spark.read.format("delta").load(str(tmp_path / "table")).count() == 0
    assert not [*Path(jobs, "__tables").rglob("*.*")]
    with taken(spark, jobs, share_record_lock_duration_ms=100) as batch:
        lost(jobs)
        with pytest.raises(InvalidRecordStateError):
            batch.acknowledge()


def test_locks_are_renewed_while_the_job_runs(spark: SparkSession, jobs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    renewed, renew = threading.Semaphore(0), QueueBatch.renew_locks

    def counted(self: QueueBatch) -> None:
        renew(self)
        renewed.release()

    monkeypatch.setattr(QueueBatch, "renew_locks", counted)
    with taken(spark, jobs, share_record_lock_duration_ms=6000) as batch:
        (before,) = state(jobs).runs
        for _ in range(2):
            assert renewed.acquire(timeout=60)
        (after,) = state(jobs).runs
        assert after.until_ms >= before.until_ms + 2000
        assert after.deliveries == 1
        batch.acknowledge()
    assert state(jobs).start == 10


# --- upkeep while a job runs -----------------------------------------------------------------------


def compacted(root: str) -> None:
    assert upkeep(root, "jobs").compacted_records > 0


def expired(root: str) -> None:
    cluster = on_disk(root)
    cluster.move_log_start("jobs", {0: 2}, "retention", "r")
    upkeep(root, "jobs")


def forgotten(root: str) -> None:
    forget("jobs", root, keys="a", dry_run=False)


@pytest.mark.parametrize(
    ("happen", "left"),
    [(compacted, ["1", "2", "3"]), (expired, ["2", "3"]), (forgotten, ["1", "3"])],
    ids=["compaction", "retention", "forget"],
)
def test_records_that_are_removed_while_a_job_runs_are_finished_without_a_result(
    spark: SparkSession, root: str, happen: Callable[[str], None], left: list[str]
) -> None:
    cluster = on_disk(root)
    cluster.create_topic("jobs", 1, EAGER)
    make_topic(root, partitions=1, topic="results")
    for nth, key in enumerate((b"a", b"b", b"a", b"c")):
        fill(cluster, "jobs", str(nth), key=key, at_ms=1_000 * (nth + 1))

    with taken(spark, root) as batch, ks.transaction("job", root) as t:
        happen(root)
        t.write(results(batch), "results")
        t.acknowledge(batch)

    assert len(batch) == 4
    assert written(root) == [f"done {value}" for value in left]
    assert (state(root).start, state(root).runs) == (4, ())
    assert len(taken(spark, root)) == 0
    assert errors_of(root) == []
