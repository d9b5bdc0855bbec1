"""A job over a queue stops at any step, and another run of it takes over; the first one may come back later.

The output of each record is in the topic and in the Delta table exactly once, and its acknowledgement agrees with it.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import TopicPartition
from kafkalike.errors import InvalidRecordStateError, KafkaError, KafkaStorageError, ProducerFencedError
from kafkalike.model import faults
from kafkalike.spark.queue_batch import QueueBatch
from tests.spark.workers.queue_job import LETTERS, RECORDS, RESULTS, work
from tests.tools.children import run
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

WORKER = "tests.spark.workers.queue_job"
BEFORE = ["queue.acquired", "together.staged", "tables.stored", "tables.staged"]
AFTER = ["transaction.committed", "tables.before_append", "tables.appended"]
STEPS = BEFORE + AFTER


@pytest.fixture
def orders(root: str, tmp_path: Path) -> dict[str, str]:
    make_topic(root, *[(0, value) for value in RECORDS], partitions=1, topic="jobs")
    for topic in ("results", "jobs.dlq"):
        make_topic(root, partitions=1, topic=topic)
    return {"root": root, "table": str(tmp_path / "table")}


def check(spark: SparkSession, orders: dict[str, str]) -> None:
    """Each record has one outcome, everywhere."""
    root = orders["root"]
    assert sorted(value for _, value in all_records(root, "results")[0]) == RESULTS
    assert sorted(value for _, value in all_records(root, "jobs.dlq")[0]) == LETTERS
    rows = spark.read.format("delta").load(orders["table"]).collect()
    assert sorted(row.value for row in rows) == RESULTS
    share = on_disk(root).groups.refresh().shares["workers"][TopicPartition("jobs", 0)]
    assert (share.start, share.runs) == (len(RECORDS), ())
    assert not [*Path(root, "__tables").rglob("*.*")]
    assert errors_of(root) == []


class Halt:
    """Lets one thread stop at a step until it may go on."""

    def __init__(self, patch: pytest.MonkeyPatch, step: str) -> None:
        self.reached, self.resumed = threading.Event(), threading.Event()
        self.error: BaseException | None = None
        self._step = step
        self._thread = threading.get_ident()
        self._real = faults.point
        patch.setattr(faults, "point", self._point)

    def _point(self, name: str) -> None:
        self._real(name)
        if threading.get_ident() == self._thread and name == self._step and not self.reached.is_set():
            self.reached.set()
            assert self.resumed.wait(300)

    def work(self, spark: SparkSession, orders: dict[str, str]) -> None:
        self._thread = threading.get_ident()
        try:
            work(spark, orders)
        except KafkaError as error:
            self.error = error


@pytest.mark.parametrize(
    "step",
    [s if s in {"tables.staged", "tables.before_append"} else pytest.param(s, marks=pytest.mark.soak) for s in STEPS],
)
def test_a_job_that_stands_still_at_a_step_is_replaced_and_changes_nothing_later(
    spark: SparkSession, orders: dict[str, str], monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    # Both runs are slower than their locks; the second one finds the records of the first one free.
    monkeypatch.setattr(QueueBatch, "renew_locks", lambda _: None)
    halt = Halt(monkeypatch, step)
    first = threading.Thread(target=halt.work, args=(spark, orders))
    first.start()
    try:
        assert halt.reached.wait(300)

        work(spark, orders)
        check(spark, orders)
    finally:
        halt.resumed.set()
        first.join()

    # The next run has removed the rows that it had stored.
    refusals = KafkaStorageError if step == "tables.stored" else (InvalidRecordStateError, ProducerFencedError)
    assert isinstance(halt.error, refusals) is (step in BEFORE)
    check(spark, orders)


@pytest.mark.slow
@pytest.mark.parametrize(
    "step", [s if s == "transaction.committed" else pytest.param(s, marks=pytest.mark.soak) for s in STEPS]
)
def test_a_killed_job_that_runs_again_has_each_output_once(
    spark: SparkSession, orders: dict[str, str], step: str
) -> None:
    run(WORKER, orders, {"KAFKALIKE_FAULT": f"{step}:kill@1"}, expected=-9)

    work(spark, orders)

    check(spark, orders)
