"""Group member worker: polls as a member of a group until it is told to leave; records what it owned, read, committed.

Offsets are committed after each poll and when partitions are revoked, by hand, so that the history has every commit.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from kafkalike import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.errors import CommitFailedError, KafkaError, RebalanceInProgressError
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.jepsen.history import Recorder
from tests.processes.workers.common import cluster, orders, told_to_stop, wait_for_go

REFUSED = (CommitFailedError, RebalanceInProgressError)


class Worker(ConsumerRebalanceListener):
    """One member."""

    def __init__(self, consumer: KafkaConsumer, group: str, recorder: Recorder) -> None:
        self.consumer = consumer
        self.group = group
        self.recorder = recorder
        self.owned: set[TopicPartition] = set()

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        self.commit()
        self._owns(self.owned - revoked, "revoked", revoked)

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        self._owns(self.owned | assigned, "assigned", assigned)
        known = self.consumer.group_metadata()
        if known.group_instance_id is None:  # a static member's successor owns the same in the same generation
            extra = {"group": self.group, "generation": known.generation_id}
            self.recorder.event("invoke", "assignment", _names(self.owned), **extra)
            self.recorder.event("ok", "assignment", _names(self.owned), **extra)

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        self._owns(self.owned - lost, "lost", lost)

    def _owns(self, owned: Iterable[TopicPartition], how: str, which: AbstractSet[TopicPartition]) -> None:
        """Positions of what is given up are forgotten; `how` is for `tests.jepsen.ownership`."""
        self.owned = set(owned)
        extra = {"how": how, "which": _names(which), "group": self.group}
        self.recorder.event("invoke", "assign", _names(self.owned), **extra)
        self.recorder.event("ok", "assign", _names(self.owned), **extra)

    def poll(self) -> None:
        def do() -> dict[int, list[tuple[int, str]]]:
            got = self.consumer.poll(timeout_ms=100)
            return {tp.partition: [(r.offset, r.value.decode()) for r in records] for tp, records in got.items()}

        if self.recorder.poll(do):
            self.commit()

    def commit(self) -> None:
        offsets = {tp: OffsetAndMetadata(self.consumer.position(tp)) for tp in self.consumer.assignment()}
        value = {f"{tp.topic}-{tp.partition}": at.offset for tp, at in offsets.items()}
        extra: dict[str, object] = {"group": self.group, "generation": self.consumer.group_metadata().generation_id}
        self.recorder.event("invoke", "commit", value, **extra)
        try:
            self.consumer.commit(offsets)
        except REFUSED as error:
            self.recorder.event("fail", "commit", value, error=repr(error), **extra)
        except KafkaError as error:
            self.recorder.event("info", "commit", value, error=repr(error), **extra)
        else:
            extra["generation"] = self.consumer.group_metadata().generation_id
            self.recorder.event("ok", "commit", value, **extra)


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    return sorted(f"{tp.topic}-{tp.partition}" for tp in partitions)


def main() -> None:
    asked = orders()
    consumer = KafkaConsumer(
        bootstrap_servers=cluster(asked["root"]),
        group_id=asked["group"],
        client_id=asked["name"],
        group_instance_id=asked.get("instance"),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=asked["session_ms"],
        heartbeat_interval_ms=asked["session_ms"] / 5,
        partition_assignment_strategy=[asked["strategy"]],
        max_poll_records=asked.get("most", 50),
        fetch_min_bytes=asked.get("fetch_min_bytes", 1),
        fetch_max_wait_ms=asked.get("fetch_max_wait_ms", 500),
        default_api_timeout_ms=asked.get("default_api_timeout_ms", 60_000),
    )
    wait_for_go()
    stop = told_to_stop()
    with Recorder(asked["history"], asked["name"], asked["topic"]) as recorder, consumer:
        worker = Worker(consumer, asked["group"], recorder)
        consumer.subscribe([asked["topic"]], listener=worker)
        while not stop.is_set():
            worker.poll()


if __name__ == "__main__":
    main()
