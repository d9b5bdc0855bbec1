"""Many topics in an object store: they are opened and looked at side by side, and each of them fails on its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pytest

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.errors import LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.topic_log import TopicLog
from tests.tools.fault_proxy import FaultProxy, fault_proxy
from tests.tools.interrupts import sweep
from tests.tools.object_servers import S3, ObjectServer
from tests.tools.records import batch

TOPICS = [f"t{number}" for number in range(8)]
PARTITIONS = [TopicPartition(topic, 0) for topic in TOPICS]
SLOW = {"GET": 0.2}
"""Seconds: long enough that requests that are made side by side meet, if there are threads for them at all."""


@pytest.fixture
def near(server: ObjectServer) -> Cluster:
    """A cluster with eight topics of one record."""
    cluster = connect(server.new_root(), server.options)
    for topic in TOPICS:
        cluster.create_topic(topic, 1, {})
        cluster.log(topic).append(batch(f"{topic} first"))
    return cluster


@pytest.fixture
def proxy(server: ObjectServer) -> Iterator[FaultProxy]:
    """What the consumer's requests go through."""
    with fault_proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def consumer(server: ObjectServer, near: Cluster, proxy: FaultProxy) -> Iterator[KafkaConsumer]:
    """A consumer behind the proxy, which shares no looks with anybody."""
    behind = server.behind(proxy.port)
    with KafkaConsumer(
        bootstrap_servers=near.root, storage_options=behind.options, auto_offset_reset="earliest"
    ) as consumer:
        yield consumer


def drained(consumer: KafkaConsumer) -> list[bytes]:
    """Values until nothing comes for a while: longer than the longest pause between two looks."""
    found: list[bytes] = []
    while polled := consumer.poll(timeout_ms=1500):
        found += [record.value for records in polled.values() for record in records]
    return found


def test_topics_are_opened_side_by_side(consumer: KafkaConsumer, proxy: FaultProxy) -> None:
    consumer.topics()
    consumer.assign(PARTITIONS)
    proxy.plan.seconds, proxy.most["GET"] = SLOW, 0

    consumer.position(PARTITIONS[0])

    assert proxy.most["GET"] > 2


def test_an_idle_poll_looks_at_all_topics_side_by_side(consumer: KafkaConsumer, proxy: FaultProxy) -> None:
    """As often as one of them would be looked at, and no more often."""
    consumer.assign(PARTITIONS)
    assert sorted(drained(consumer)) == sorted(f"{topic} first".encode() for topic in TOPICS)
    proxy.plan.seconds, proxy.most["GET"] = SLOW, 0

    assert consumer.poll(timeout_ms=3000) == {}

    assert proxy.most["GET"] > 2


def test_ends_of_many_topics_are_asked_for_side_by_side(
    consumer: KafkaConsumer, near: Cluster, proxy: FaultProxy
) -> None:
    """And they are what they are now."""
    assert set(consumer.end_offsets(PARTITIONS).values()) == {1}
    for topic in TOPICS:
        near.log(topic).append(batch("more", "and more"))
    proxy.plan.seconds, proxy.most["GET"] = SLOW, 0

    assert consumer.end_offsets(PARTITIONS) == dict.fromkeys(PARTITIONS, 3)
    assert proxy.most["GET"] > 2


def test_records_of_all_topics_come_after_looks_side_by_side(consumer: KafkaConsumer, near: Cluster) -> None:
    consumer.assign(PARTITIONS)
    drained(consumer)
    for nth in range(3):
        for topic in TOPICS[nth:]:
            near.log(topic).append(batch(f"{topic} {nth}"))

        assert sorted(drained(consumer)) == sorted(f"{topic} {nth}".encode() for topic in TOPICS[nth:])


def test_a_topic_that_is_gone_or_damaged_says_so_and_the_others_are_read(
    consumer: KafkaConsumer, near: Cluster
) -> None:
    consumer.assign(PARTITIONS)
    gone, damaged = near.log("t1"), near.log("t2")
    assert isinstance(gone, TopicLog)
    assert isinstance(damaged, TopicLog)
    near.delete_topic("t1")
    damaged.files.remove(log_name(0))

    with pytest.raises(UnknownTopicOrPartitionError, match="t1"):
        consumer.end_offsets(PARTITIONS)
    with pytest.raises(LogCorruptError, match="t2"):
        consumer.end_offsets(PARTITIONS[2:])
    assert consumer.end_offsets(PARTITIONS[3:]) == dict.fromkeys(PARTITIONS[3:], 1)


class FirstAndNextPoll:
    """A consumer opens three topics, and looks at them."""

    def __init__(self, cluster: Cluster) -> None:
        self._consumer = KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest")
        self._partitions = PARTITIONS[:3]
        self._consumer.assign(self._partitions)
        self._found: list[bytes] = []

    def operate(self) -> None:
        for _ in range(2):
            for records in self._consumer.poll().values():
                self._found += [record.value for record in records]

    def judge(self) -> Iterable[str]:
        """An interrupt may come when the positions have moved already: no record comes twice, or out of its turn."""
        self._found += self._rest()
        if len(set(self._found)) < len(self._found):
            yield f"twice: {self._found}"
        self._consumer.seek_to_beginning()
        if sorted(self._rest()) != sorted(f"{tp.topic} first".encode() for tp in self._partitions):
            yield "not the records that there are"

    def _rest(self) -> list[bytes]:
        """Records up to the ends."""
        found = []
        while any(self._consumer.position(tp) < 1 for tp in self._partitions):
            polled = self._consumer.poll(timeout_ms=5000)
            found += [record.value for records in polled.values() for record in records]
        return found

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.objects
@pytest.mark.slow
def test_an_interrupt_at_any_line_leaves_the_next_poll_right(object_server: Callable[[str], ObjectServer]) -> None:
    server = object_server(S3)
    cluster = connect(server.new_root(), server.options)
    for topic in TOPICS[:3]:
        cluster.create_topic(topic, 1, {})
        cluster.log(topic).append(batch(f"{topic} first"))

    found = sweep(lambda: FirstAndNextPoll(cluster), most=40)

    assert not found.wrong, str(found)
    assert found.raised > 0
