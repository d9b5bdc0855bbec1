"""Consumer: polled records in, their values out; and a listener that keeps what it is told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from kafkalike.admin.testing import ManualClock
from kafkalike.consumer import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import Headers
from kafkalike.model.structs import ConsumerRecord, TopicPartition
from tests.tools.records import fill

T0 = TopicPartition("orders", 0)
T1 = TopicPartition("orders", 1)

Make = Callable[..., KafkaConsumer]
"""The fixture `consumer_of`: topics and settings in, a consumer out that is closed after the test."""


class Diary(ConsumerRebalanceListener):
    """Keeps what it is told, and calls a function that a test gives it."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, set[TopicPartition]]] = []
        self.on_revoked: Callable[[], object] = lambda: None
        self.on_assigned: Callable[[], object] = lambda: None

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("revoked", set(revoked)))
        self.on_revoked()

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("assigned", set(assigned)))
        self.on_assigned()

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        self.entries.append(("lost", set(lost)))


def write(
    cluster: Cluster, *values: bytes | None, topic: str = "orders", partition: int = 0, headers: Headers | None = None
) -> None:
    """One append of values to one partition; the key is `key` and the first time 1000 ms."""
    fill(cluster, topic, *values, partition=partition, key=b"key", headers=headers)


def values(polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> list[Any]:
    """The values of one poll, partition by partition."""
    return [record.value for records in polled.values() for record in records]


def drain(consumer: KafkaConsumer) -> list[Any]:
    """The values of all polls up to the first empty one."""
    found: list[Any] = []
    while polled := consumer.poll():
        found += values(polled)
    return found


def poll_often(consumer: KafkaConsumer, found: list[Any]) -> None:
    """Poll five times; the values go to `found`, also those of the polls before one that fails."""
    for _ in range(5):
        found += values(consumer.poll())


def turns(consumers: Iterable[KafkaConsumer], rounds: int = 4) -> dict[TopicPartition, list[int]]:
    """Let every consumer poll once per round; returns the offsets that were handed out, by partition."""
    found: dict[TopicPartition, list[int]] = {}
    for _ in range(rounds):
        for consumer in consumers:
            for where, records in consumer.poll().items():
                found.setdefault(where, []).extend(record.offset for record in records)
    return found


def outlive(consumers: Iterable[KafkaConsumer], clock: ManualClock) -> list[Any]:
    """Let these consumers poll until the sessions of all others have expired; returns the values they got."""
    found: list[Any] = []
    for _ in range(20):
        clock.sleep(3)
        for consumer in consumers:
            found += values(consumer.poll())
    return found


def texts(bootstrap_servers: Any, topic: str = "t") -> list[str]:
    """Values of a topic from its beginning to its end, read by a consumer without a group."""
    with KafkaConsumer(
        topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        return [record.value.decode() for record in read_to_end(consumer)]


def read_to_end(consumer: KafkaConsumer) -> list[ConsumerRecord]:
    """All records up to the ends that the topics have when a poll finds nothing.

    Raises:
        AssertionError: the consumer has not come there within a minute.
    """
    found: list[ConsumerRecord] = []
    until = SYSTEM_CLOCK.monotonic() + 60
    while True:
        polled = consumer.poll()
        found += [record for records in polled.values() for record in records]
        if not polled:
            assert SYSTEM_CLOCK.monotonic() < until, f"nothing comes after {found}"
            ends = consumer.end_offsets(consumer.assignment())
            if ends and all(consumer.position(where) >= end for where, end in ends.items()):
                return found
