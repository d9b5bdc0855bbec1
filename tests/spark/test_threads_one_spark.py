"""Threads that share one SparkSession, or one log: every record once, offsets dense, no leaks."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kafkalike import TopicPartition
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import TxnId
from kafkalike.spark import write
from tests.jepsen.history import Recorder, judge
from tests.tools.clusters import on_disk
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch, make_topic, open_log

Work = Callable[[int], object]


def together(work: Work, threads: int) -> None:
    """Run the work in threads that begin at the same moment; any error fails the test."""
    gate = threading.Barrier(threads)

    def begin(number: int) -> None:
        gate.wait(timeout=60)
        work(number)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(begin, range(threads)))


def assert_log_of(root: str, values: Sequence[str]) -> None:
    """Each value once, offsets dense from 0 in every partition, `verify` clean."""
    found = all_records(root)
    assert sorted(v for records in found.values() for _, v in records) == sorted(values)
    assert all([o for o, _ in records] == list(range(len(records))) for records in found.values())
    assert errors_of(root) == []


@pytest.mark.parametrize("queue", [True, False])
def test_threads_that_share_one_log_give_no_offset_twice(root: str, *, queue: bool) -> None:
    """One open log for all, as in a producer that also asks for partitions: plan and commit rest on one version."""
    make_topic(root)
    log = open_log(on_disk(root, queue=queue))

    def work(number: int) -> None:
        for turn in range(5):
            log.append(batch((turn % 2, f"{number}-{turn}"), (0, f"{number}-{turn}-b")))
            log.refresh()

    together(work, 8)

    assert_log_of(root, [f"{n}-{t}{end}" for n in range(8) for t in range(5) for end in ("", "-b")])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("threads", [6, pytest.param(16, marks=pytest.mark.soak)])
def test_threads_append_through_one_spark_session(spark: SparkSession, root: str, threads: int) -> None:
    """Row 12: each write carries its own id and version as options; a setting of the session would mix them up."""
    make_topic(root)
    cluster = on_disk(root)
    outcomes: dict[int, bool] = {}

    def work(number: int) -> None:
        if number % 2:
            frame = spark.createDataFrame([(number % 2, f"v{number}")], "partition INT, value STRING")
            outcomes[number] = write(frame, "t", cluster, txn_id=f"app-{number}", txn_version=number).duplicate
        else:
            log = cluster.log("t")
            outcomes[number] = log.append(batch((0, f"v{number}")), txn=TxnId(f"app-{number}", number)).duplicate

    together(work, threads)

    assert outcomes == dict.fromkeys(range(threads), False)
    assert_log_of(root, [f"v{n}" for n in range(threads)])


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_racing_writes_of_one_session_make_one_log(spark: SparkSession, root: str, tmp_path: Path) -> None:
    """Without a queue, as in object stores: four threads, of which three meet in the same partitions."""
    make_topic(root, partitions=3)
    cluster = on_disk(root, queue=False)
    shared = open_log(cluster)

    def work(number: int) -> None:
        with Recorder(str(tmp_path / f"{number}.jsonl"), f"w{number}", "t") as recorder:
            for turn in range(3):
                partition = 2 if number == 3 else turn % 2
                record = (partition, f"{number}-{turn}")
                recorder.send([record], partial(send, spark, cluster, *record))
                shared.refresh()

    together(work, 4)

    report = judge(tmp_path, drained=False)
    assert report["valid"], report["anomalies"]
    assert report["counts"]["acked"] == 12
    assert_log_of(root, [f"{n}-{t}" for n in range(4) for t in range(3)])


def send(spark: SparkSession, cluster: Cluster, partition: int, value: str) -> Sequence[int]:
    frame = spark.createDataFrame([(partition, value)], "partition INT, value STRING")
    return write(frame, "t", cluster)[TopicPartition("t", partition)]
