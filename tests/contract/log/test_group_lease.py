"""Members that were stopped, for their session or longer, wherever in their work: who reads on, and who does not."""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock
from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import TopicPartition
from tests.contract.log.test_group_contract import tps, write
from tests.tools.consumer import Diary, Make, outlive

STOP = 60
"""Seconds, above the session."""
Read = Callable[[KafkaConsumer], list[int]]


def by_poll(consumer: KafkaConsumer) -> list[int]:
    return [record.offset for records in consumer.poll(max_records=4).values() for record in records]


def by_poll_arrow(consumer: KafkaConsumer) -> list[int]:
    table = consumer.poll_arrow(max_records=4)
    return [] if table is None else table["offset"].to_pylist()


def by_iteration(consumer: KafkaConsumer) -> list[int]:
    return [record.offset for _, record in zip(range(4), consumer, strict=False)]


class Sleeper(Diary):
    """A member that can be stopped while it is told of its partitions, and while it makes its records."""

    def __init__(self, consumer_of: Make, **settings: Any) -> None:
        super().__init__()
        self.when_assigned: list[Callable[[], object]] = []
        self.when_made: list[Callable[[], object]] = []
        settings = {"enable_auto_commit": False, "consumer_timeout_ms": 1, **settings}
        self.consumer = consumer_of(group_id="g", value_deserializer=self.deserialize, **settings)
        self.consumer.subscribe(["t"], listener=self)

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        super().on_partitions_assigned(assigned)
        if self.when_assigned:
            self.when_assigned.pop()()

    def deserialize(self, value: bytes) -> bytes:
        if self.when_made:
            self.when_made.pop()()
        return value


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
@pytest.mark.parametrize("read", [by_poll, by_poll_arrow, by_iteration])
def test_one_that_is_stopped_between_its_look_and_its_records_hands_out_nothing(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, read: Read, strategy: str
) -> None:
    """Its successor has read them by then. It hears that they are lost, and goes on as a new member."""
    cluster.create_topic("t", 1, {})
    write(cluster, each=8)
    sleeper = Sleeper(consumer_of, partition_assignment_strategy=[strategy])
    successor = consumer_of("t", group_id="g", enable_auto_commit=False, partition_assignment_strategy=[strategy])
    sleeper.when_assigned = [lambda: outlive([successor], clock)]

    found = read(sleeper.consumer)

    assert found == []
    assert ("lost", tps(0)) in sleeper.entries
    assert successor.assignment() == tps(0)
    assert successor.position(TopicPartition("t", 0)) == 8


@pytest.mark.parametrize("read", [by_poll, by_iteration])
def test_one_that_is_stopped_while_it_makes_its_records_hands_out_none(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, read: Read
) -> None:
    """A deserialiser runs between the look at the group and the hand-out."""
    cluster.create_topic("t", 1, {})
    write(cluster, each=8)
    sleeper, successor = Sleeper(consumer_of), consumer_of("t", group_id="g", enable_auto_commit=False)
    sleeper.when_made = [lambda: outlive([successor], clock)]

    found = read(sleeper.consumer)

    assert found == []
    assert ("lost", tps(0)) in sleeper.entries


def test_one_that_is_stopped_between_two_records_goes_on_with_none(
    cluster: Cluster, consumer_of: Make, clock: ManualClock
) -> None:
    """Iteration hands out what a poll found one by one, without a look in between."""
    cluster.create_topic("t", 1, {})
    write(cluster, each=8)
    sleeper, successor = Sleeper(consumer_of), consumer_of("t", group_id="g", enable_auto_commit=False)
    first = next(sleeper.consumer).offset

    outlive([successor], clock)
    rest = [record.offset for record in sleeper.consumer]

    assert (first, rest) == (0, [])
    assert ("lost", tps(0)) in sleeper.entries


@pytest.mark.parametrize("read", [by_poll, by_poll_arrow, by_iteration])
def test_one_that_was_stopped_without_a_rival_goes_on_where_it_was(
    cluster: Cluster, consumer_of: Make, clock: ManualClock, read: Read
) -> None:
    """Nobody has taken it out, so nothing is lost, read twice or shared anew, and its commits count."""
    cluster.create_topic("t", 1, {})
    write(cluster, each=12)
    sleeper = Sleeper(consumer_of)
    sleeper.when_assigned = [lambda: clock.sleep(STOP)]
    sleeper.when_made = [lambda: clock.sleep(STOP)]
    first = read(sleeper.consumer)
    before = sleeper.consumer.group_metadata()

    clock.sleep(STOP)
    second = read(sleeper.consumer)
    sleeper.consumer.commit()

    assert first + second == list(range(8))
    assert sleeper.consumer.group_metadata() == before
    assert [how for how, _ in sleeper.entries] == ["revoked", "assigned"]
    assert sleeper.consumer.committed(TopicPartition("t", 0)) == 8
