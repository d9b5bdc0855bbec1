"""An interrupt on any line of a poll or a commit with dead letters: the next call goes on, each letter is once."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.consumer import drain, write
from tests.tools.effort import examples
from tests.tools.interrupts import interrupted
from tests.tools.letters import lettered, number

CODE = ("kafkalike/consumer/", "kafkalike/log/dead_letter", "kafkalike/model/dead_letter")
"""Not what holds locks: an exception of a trace function may come where none of a signal can, before `__exit__`."""
TP = TopicPartition("orders", 0)
BAD = [(0, 0), (0, 2), (0, 3)]


class World:
    """A topic whose first and last records are bad, and a consumer of it."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        for topic in ("orders", "orders.dlq", "bills"):
            self.cluster.create_topic(topic, 1, {})
        write(self.cluster, b"one", b"2", b"three", b"four")
        self.consumer = self.reader()
        self.got: list[Any] = []

    def reader(self) -> KafkaConsumer:
        consumer = KafkaConsumer(
            bootstrap_servers=self.cluster,
            clock=ManualClock(),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            errors_tolerance="all",
            value_deserializer=number,
        )
        consumer.assign([TP])
        return consumer

    def poll(self) -> None:
        self.got += [record.value for records in self.consumer.poll().values() for record in records]

    def commit(self) -> None:
        self.consumer.commit()

    def commit_some(self) -> None:
        self.consumer.commit({TP: OffsetAndMetadata(3)})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["poll", "commit", "commit_some"])
def test_what_is_interrupted_is_made_again(name: str) -> None:

    def new() -> World:
        world = World()
        if name != "poll":
            world.poll()
        return world

    step = examples(5, 29) if name == "poll" else examples(1, 7)
    for world, _ in interrupted(new, lambda world: getattr(world, name)(), CODE, least=40, step=step):
        passed = world.cluster.groups.refresh().group("g").offsets.get(TP)
        assert lettered(world.cluster) == [bad for bad in BAD if passed and bad[1] < passed.position.offset]

        world.poll()
        world.consumer.commit()
        world.consumer.commit()

        assert world.got == [2]
        assert lettered(world.cluster) == BAD


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_a_producers_commit_that_is_interrupted_is_made_again_or_aborted(again: bool) -> None:  # noqa: FBT001

    def new() -> tuple[World, KafkaProducer]:
        world = World()
        producer = KafkaProducer(bootstrap_servers=world.cluster, transactional_id="t", linger_ms=0)
        producer.init_transactions()
        producer.begin_transaction()
        world.poll()
        producer.send("bills", b"2").get(60)
        producer.send_offsets_to_transaction({TP: OffsetAndMetadata(4)}, world.consumer.group_metadata())
        return world, producer

    for (world, producer), hit in interrupted(
        new, lambda made: made[1].commit_transaction(), CODE, least=40, step=examples(3, 13)
    ):
        with producer:
            if hit and again:
                producer.commit_transaction()
        passed = world.cluster.groups.refresh().group("g").offsets.get(TP)
        if again or not hit:
            assert passed is not None
        assert lettered(world.cluster) == (BAD if passed else [])

        # Whoever comes next does what is left.
        world.consumer.close(autocommit=False)
        rest = world.reader()
        drain(rest)
        rest.commit()
        assert lettered(world.cluster) == BAD
