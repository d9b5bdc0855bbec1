"""Several producers on one topic while a consumer polls: the histories of all of them must be one Kafka log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kafkalike.log.connect import connect
from tests.tools.children import Child, started
from tests.tools.findings import errors_of
from tests.tools.history import judge
from tests.tools.shim import fault, preloaded

PRODUCE = "tests.processes.workers.produce"
CONSUME = "tests.processes.workers.consume"


class Race:
    """Producers and one consumer on a new topic."""

    def __init__(self, root: str, folder: Path, partitions: int) -> None:
        self.root = root
        self.partitions = partitions
        self._histories = folder / "histories"
        self._histories.mkdir()
        connect(root).create_topic("t", partitions, {})

    def _orders(self, name: str, more: Mapping[str, Any]) -> dict[str, Any]:
        history = str(self._histories / f"{name}.jsonl")
        return {"root": self.root, "topic": "t", "name": name, "history": history, **more}

    def run(self, producers: Sequence[Mapping[str, Any]], env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Let them run and judge what they saw.

        Args:
            producers: orders of each producer.
            env: environment of the producers.

        Returns:
            The checker's report.
        """
        shared = {"locking": producers[0].get("locking", True)}
        reading = Child(CONSUME, self._orders("reader", {"partitions": self.partitions, **shared}), {})
        writing = [
            Child(
                PRODUCE,
                self._orders(f"writer{number}", {"partitions": list(range(self.partitions)), **more}),
                env or {},
            )
            for number, more in enumerate(producers)
        ]
        with started(reading, *writing):
            for child in (reading, *writing):
                child.go()
            for child in writing:
                child.finish()
            reading.go()
            reading.finish()
        report = judge(self._histories)
        assert errors_of(self.root) == []
        return report


@pytest.fixture
def race(root: str, tmp_path: Path) -> Race:
    return Race(root, tmp_path, 3)


def assert_sound(report: Mapping[str, Any], at_least: int) -> None:
    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] >= at_least
    assert report["counts"]["acked"] == report["counts"]["attempted"] == report["counts"]["read"]


def test_three_producers_under_the_lock_lose_double_and_reorder_nothing(race: Race) -> None:
    """Three in-process engines, the same partitions."""
    report = race.run([{"batches": 30}] * 3)

    assert_sound(report, at_least=200)


def test_producers_of_different_partitions_do_not_disturb_each_other(race: Race) -> None:
    """Three in-process engines, a partition each."""
    report = race.run([{"batches": 25, "partitions": [p]} for p in range(3)])

    assert_sound(report, at_least=120)


def test_without_locks_creating_the_commit_file_keeps_producers_apart(race: Race) -> None:
    """Put-if-absent of the log file is the compare-and-set on which offsets rest; the lock only orders the queue."""
    report = race.run([{"batches": 15, "locking": False}] * 3)

    assert_sound(report, at_least=80)


@pytest.mark.parametrize("locking", [True, False])
def test_a_slow_disk_between_look_and_commit_opens_no_gap(race: Race, faultshim: Path, *, locking: bool) -> None:
    """Each commit's hard link takes 40 ms, so that rivals always meet there."""
    slow = preloaded(faultshim, fault("link", "delay:40", "/t/_delta_log/0"))

    report = race.run([{"batches": 8, "locking": locking}] * 3, slow)

    assert_sound(report, at_least=40)


def test_kafka_producers_of_three_processes_share_a_topic(race: Race) -> None:
    """The client people use: futures, linger and batches on top of the append."""
    report = race.run([{"batches": 25, "through": "producer"}] * 3)

    assert_sound(report, at_least=120)
