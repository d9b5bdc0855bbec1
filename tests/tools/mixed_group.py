"""Members of one group that count what they own and read: native ones, and those of librdkafka through a gateway."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place

from kafkalike import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster

DEADLINE_SECONDS = 40.0


class Owners:
    """Who owns which partition, as the rebalance callbacks say, and which records were read."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_partition: dict[int, str] = {}
        self.clashes: list[str] = []
        self.read: Counter[tuple[int, int]] = Counter()

    def gain(self, name: str, partitions: list[int]) -> None:
        with self.lock:
            for p in partitions:
                owner = self.by_partition.setdefault(p, name)
                if owner != name:
                    self.clashes.append(f"{p}: {owner} and {name}")

    def lose(self, name: str, partitions: list[int]) -> None:
        with self.lock:
            for p in partitions:
                if self.by_partition.get(p) == name:
                    del self.by_partition[p]

    def count(self, partition: int, offset: int) -> None:
        with self.lock:
            self.read[partition, offset] += 1

    def wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while True:
            with self.lock:
                if done():
                    return
            assert time.monotonic() < end, (self.by_partition, self.clashes, len(self.read))
            time.sleep(0.02)

    def wait_for_owners(self, names: set[str], partitions: int) -> None:
        self.wait(lambda: len(self.by_partition) == partitions and set(self.by_partition.values()) == names)


def librdkafka(owners: Owners, name: str, address: str, topic: str, settings: dict[str, Any]) -> Callable[[Any], None]:
    incremental = settings.get("partition.assignment.strategy") != "range"

    def run(leave: threading.Event) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": topic,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **settings,
            }
        )

        def assigned(_: Consumer, places: list[Place]) -> None:
            owners.gain(name, [p.partition for p in places])
            (consumer.incremental_assign if incremental else consumer.assign)(places)

        def revoked(_: Consumer, places: list[Place]) -> None:
            with contextlib.suppress(KafkaException):  # nothing was read
                consumer.commit(asynchronous=False)
            owners.lose(name, [p.partition for p in places])
            if incremental:
                consumer.incremental_unassign(places)
            else:
                consumer.unassign()

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked)
        while not leave.is_set():
            for message in consumer.consume(100, 0.1):
                owners.count(message.partition() or 0, message.offset() or 0)
        consumer.close()

    return run


def native(owners: Owners, name: str, cluster: Cluster, topic: str, strategy: str) -> Callable[[Any], None]:
    def run(leave: threading.Event) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=cluster,
            group_id=topic,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
            partition_assignment_strategy=[strategy],
        )

        class Listener(ConsumerRebalanceListener):
            def on_partitions_assigned(self, assigned: Any) -> None:
                owners.gain(name, [tp.partition for tp in assigned])

            def on_partitions_revoked(self, revoked: Any) -> None:
                consumer.commit()
                owners.lose(name, [tp.partition for tp in revoked])

        consumer.subscribe([topic], listener=Listener())
        while not leave.is_set():
            for records in consumer.poll(100).values():
                for record in records:
                    owners.count(record.partition, record.offset)
        consumer.close()

    return run


@contextlib.contextmanager
def running(run: Callable[[threading.Event], None]) -> Iterator[threading.Event]:
    leave = threading.Event()
    thread = threading.Thread(target=run, args=(leave,))
    thread.start()
    try:
        yield leave
    finally:
        leave.set()
        thread.join(DEADLINE_SECONDS)


CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
