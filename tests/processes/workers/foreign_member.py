"""Foreign member worker: confluent-kafka's consumer in a group at gateways, until it is told to leave.

It records what `group_member` does: what it owned, read and committed.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as Place

from tests.jepsen.history import Recorder
from tests.processes.workers.common import orders, told_to_stop, wait_for_go

MOST = 50
"""Records between two commits."""


class ForeignWorker:
    """One member. Its settings make assignments incremental."""

    def __init__(self, consumer: Consumer, group: str, recorder: Recorder) -> None:
        self.consumer = consumer
        self.group = group
        self.recorder = recorder
        self.owned: set[int] = set()
        self.read: dict[int, list[tuple[int, str]]] = {}

    def assigned(self, _: Consumer, places: list[Place]) -> None:
        self._owns(self.owned | _numbers(places), "assigned", places)
        self.consumer.incremental_assign(places)

    def revoked(self, _: Consumer, places: list[Place]) -> None:
        self.finish()
        self._owns(self.owned - _numbers(places), "revoked", places)
        self.consumer.incremental_unassign(places)

    def lost(self, _: Consumer, places: list[Place]) -> None:
        self.read = {p: records for p, records in self.read.items() if p not in _numbers(places)}
        self._owns(self.owned - _numbers(places), "lost", places)
        self.consumer.incremental_unassign(places)

    def _owns(self, owned: set[int], how: str, which: list[Place]) -> None:
        self.owned = owned
        names, topic = sorted(_numbers(which)), self.recorder.topic
        extra: dict[str, Any] = {"how": how, "which": [f"{topic}-{p}" for p in names], "group": self.group}
        self.recorder.event("invoke", "assign", [f"{topic}-{p}" for p in sorted(owned)], **extra)
        self.recorder.event("ok", "assign", [f"{topic}-{p}" for p in sorted(owned)], **extra)

    def poll(self) -> None:
        """Read some records, and commit them."""
        for nth in range(MOST):
            message = self.consumer.poll(0 if nth else 0.1)
            if message is None:
                break
            if message.error() is None:
                self._note(message)
        self.finish()

    def _note(self, message: Message) -> None:
        value: Any = message.value()
        self.read.setdefault(message.partition() or 0, []).append((message.offset() or 0, value.decode()))

    def finish(self) -> None:
        """Record what was read, and commit it."""
        read, self.read = self.read, {}
        if not read:
            return
        self.recorder.poll(lambda: read)
        topic = self.recorder.topic
        after = {p: records[-1][0] + 1 for p, records in read.items()}
        value = {f"{topic}-{p}": offset for p, offset in after.items()}
        self.recorder.event("invoke", "commit", value, group=self.group)
        try:
            done = self.consumer.commit(offsets=[Place(topic, p, o) for p, o in after.items()], asynchronous=False)
            failed = [place.error for place in done or () if place.error is not None]
        except KafkaException as error:
            failed = [error.args[0]]
        kind = "info" if failed else "ok"
        self.recorder.event(kind, "commit", value, group=self.group, error=[str(one) for one in failed])


def _numbers(places: list[Place]) -> set[int]:
    return {place.partition for place in places}


def main() -> None:
    asked = orders()
    given = {"group.id": asked["group"], "client.id": asked["name"], "auto.offset.reset": "earliest", "log_level": 0}
    consumer = Consumer({**given, "enable.auto.commit": False, **asked["settings"]})
    wait_for_go()
    stop = told_to_stop()
    with Recorder(asked["history"], asked["name"], asked["topic"]) as recorder:
        worker = ForeignWorker(consumer, asked["group"], recorder)
        consumer.subscribe([asked["topic"]], on_assign=worker.assigned, on_revoke=worker.revoked, on_lost=worker.lost)
        while not stop.is_set():
            worker.poll()
        consumer.close()


if __name__ == "__main__":
    main()
