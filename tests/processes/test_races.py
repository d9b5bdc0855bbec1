"""Several producers on one topic while a consumer polls: the histories of all of them must be one Kafka log."""

import os
import signal
import socket
from pathlib import Path

import pytest

from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.record_batch import RecordBatch
from tests.tools.children import Child, started
from tests.tools.partitions import partition_values
from tests.tools.race import PRODUCE, Race, assert_sound
from tests.tools.shim import fault, preloaded


@pytest.fixture
def race(root: str, tmp_path: Path) -> Race:
    return Race(root, tmp_path, 3)


def test_three_producers_that_queue_lose_double_and_reorder_nothing(race: Race) -> None:
    """All of them into the same partitions."""
    report = race.run([{"batches": 30}] * 3)

    assert_sound(report, at_least=200)


def test_producers_of_different_partitions_do_not_disturb_each_other(race: Race) -> None:
    """A partition each."""
    report = race.run([{"batches": 25, "partitions": [p]} for p in range(3)])

    assert_sound(report, at_least=120)


def test_without_a_queue_creating_the_commit_file_keeps_producers_apart(race: Race) -> None:
    """Put-if-absent of the log file is the compare-and-set on which offsets rest; the lock is only a queue."""
    report = race.run([{"batches": 15, "queue": False}] * 3)

    assert_sound(report, at_least=80)


@pytest.mark.parametrize("queue", [True, False])
def test_a_slow_disk_between_look_and_commit_opens_no_gap(race: Race, faultshim: Path, *, queue: bool) -> None:
    """Each commit's hard link takes 40 ms, so that rivals always meet there."""
    slow = preloaded(faultshim, fault("link", "delay:40", "/t/_delta_log/0"))

    report = race.run([{"batches": 8, "queue": queue}] * 3, slow)

    assert_sound(report, at_least=40)


def test_kafka_producers_of_three_processes_share_a_topic(race: Race) -> None:
    """The client people use: futures, linger and batches on top of the append."""
    report = race.run([{"batches": 25, "through": "producer"}] * 3)

    assert_sound(report, at_least=120)


@pytest.mark.parametrize("point", ["append.before_files", "append.before_commit", "append.after_commit"])
def test_a_producer_killed_among_others_loses_nothing_that_it_was_told_is_there(race: Race, point: str) -> None:
    """Without a stable id: what was in doubt is there once or not at all, and the lock does not die with its holder."""
    killed = {"batches": 30, "through": "producer", "fault": f"{point}:kill@4"}

    report = race.run([killed, {"batches": 20}])

    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] + report["counts"]["unknown"] == report["counts"]["attempted"]
    assert 0 < report["counts"]["unknown"] <= 5
    if point == "append.after_commit":
        assert report["counts"]["recovered"] > 0


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "queue", [pytest.param(True, marks=pytest.mark.soak), pytest.param(False, marks=pytest.mark.full)]
)
def test_a_spark_writer_and_two_in_process_producers_share_a_topic(race: Race, *, queue: bool) -> None:
    """DataFrames, and two producers without a JVM."""
    spark = {"batches": 4, "through": "write", "queue": queue}
    fast = {"batches": 40, "pause_ms": 50, "queue": queue}

    report = race.run([spark, fast, fast])

    assert_sound(report, at_least=200)


def test_a_producer_stopped_inside_an_append_is_named_to_those_who_wait_and_its_end_frees_the_topic(
    race: Race, root: str
) -> None:
    """With its number, its host and what to do; a killed one has written nothing."""
    orders = {"partitions": [0], "batches": 1, "root": root, "topic": "t", "name": "held"}
    env = {"KAFKALIKE_FAULT": "append.before_commit:stop"}
    history = str(Path(root).parent / "held.jsonl")
    log = connect(root).log("t")
    record = RecordBatch()
    record.add(0, None, b"mine", 1)

    with started(Child(PRODUCE, {**orders, "history": history}, env)) as (child,):
        child.go()
        os.waitpid(child.pid, os.WUNTRACED)
        with KafkaProducer(bootstrap_servers=root, delivery_timeout_ms=300, request_timeout_ms=200) as producer:
            future = producer.send("t", b"refused", partition=0)
            with pytest.raises(KafkaTimeoutError) as refused:
                future.get(timeout=60)
        child.kill()
    log.append(record)

    assert f"process {child.pid} on {socket.gethostname()} holds it" in str(refused.value)
    assert f"kill -CONT {child.pid}" in str(refused.value)
    assert log.log_end(0) == 1


@pytest.mark.timeout(120)
def test_others_go_on_beside_a_producer_that_was_stopped_inside_an_append(race: Race, root: str) -> None:
    """After a wait; when it is resumed it writes its records behind theirs, once."""
    orders = {"partitions": [0], "batches": 1, "root": root, "topic": "t", "name": "held"}
    env = {"KAFKALIKE_FAULT": "append.before_commit:stop@1"}
    history = str(Path(root).parent / "held.jsonl")

    with started(Child(PRODUCE, {**orders, "history": history}, env)) as (child,):
        child.go()
        os.waitpid(child.pid, os.WUNTRACED)
        with KafkaProducer(bootstrap_servers=root) as producer:
            sent = [producer.send("t", value, partition=0).get(timeout=60).offset for value in (b"a", b"b")]
        assert sent == [0, 1]
        os.kill(child.pid, signal.SIGCONT)
        child.finish()

    values = partition_values(connect(root).log("t"), 0)
    assert values[:2] == [b"a", b"b"]
    assert len(values) > 2
    assert len(set(values)) == len(values)
