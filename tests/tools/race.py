"""Race: producers and a consumer as processes on one topic, and the checker's verdict on what they saw."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkalike.connect import connect
from tests.jepsen.history import judge
from tests.tools.children import Child, started
from tests.tools.findings import errors_of

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

    def run(
        self,
        producers: Sequence[Mapping[str, Any]],
        env: Mapping[str, str] | None = None,
        judged: Callable[[], object] = lambda: None,
    ) -> dict[str, Any]:
        """Let them run and judge what they saw.

        Args:
            producers: orders of each producer; one with a `fault` must be killed by it.
            env: environment of the producers.
            judged: called when the producers have ended, before the consumer is told so.

        Returns:
            The checker's report.
        """
        shared = {"queue": producers[0].get("queue", True)}
        reading = Child(CONSUME, self._orders("reader", {"partitions": self.partitions, **shared}), {})
        writing = [
            Child(
                PRODUCE,
                self._orders(f"writer{number}", {"partitions": list(range(self.partitions)), **more}),
                {**(env or {}), "KAFKALIKE_FAULT": more.get("fault", "")},
            )
            for number, more in enumerate(producers)
        ]
        with started(reading, *writing):
            for child in (reading, *writing):
                child.go()
            for child, more in zip(writing, producers, strict=True):
                child.finish(-9 if "fault" in more else 0)
            judged()
            reading.go()
            reading.finish()
        report = judge(self._histories)
        assert errors_of(self.root) == []
        return report


def assert_sound(report: Mapping[str, Any], at_least: int) -> None:
    """Every record was acknowledged and is there once."""
    assert report["valid"], (report["bad"], report["anomalies"])
    assert report["counts"]["acked"] >= at_least
    assert report["counts"]["acked"] == report["counts"]["attempted"] == report["counts"]["read"]
