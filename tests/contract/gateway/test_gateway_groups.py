"""One group has native members and members of both of Kafka's protocols, and each partition has one owner."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Place
from kafka import KafkaConsumer as ForeignConsumer

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.mixed_group import CLASSIC, Owners, librdkafka, native, running

Served = tuple[Cluster, str]
Create = Callable[[int], str]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["cooperative-sticky", "range"])
def test_members_of_three_kinds_share_a_group_and_read_each_record_once(
    served: Served, topic: Create, strategy: str
) -> None:
    cluster, address = served
    name, owners = topic(6), Owners()
    classic = {**CLASSIC, "partition.assignment.strategy": strategy}
    with KafkaProducer(bootstrap_servers=cluster, linger_ms=5) as producer:

        def send(count: int) -> None:
            for number in range(count):
                producer.send(name, b"v", partition=number % 6)

        with (
            running(librdkafka(owners, "classic", address, name, classic)) as first,
            running(native(owners, "native", cluster, name, strategy)),
        ):
            owners.wait_for_owners({"classic", "native"}, 6)
            send(300)
            with running(librdkafka(owners, "consumer", address, name, {"group.protocol": "consumer"})):
                owners.wait_for_owners({"classic", "native", "consumer"}, 6)
                send(300)
                first.set()
                owners.wait_for_owners({"native", "consumer"}, 6)
                send(300)
                producer.flush()
                owners.wait(lambda: len(owners.read) == 900)

    assert owners.clashes == []
    assert set(owners.read.values()) == {1}


@pytest.mark.slow
def test_members_move_to_another_gateway_and_keep_their_partitions(served: Served, topic: Create) -> None:
    cluster, _ = served
    name, owners = topic(4), Owners()
    first = GatewayServer(cluster)
    first.start()
    second = GatewayServer(cluster)
    second.start()
    addresses = f"{first.bootstrap_servers},{second.bootstrap_servers}"
    try:
        with (
            running(librdkafka(owners, "consumer", addresses, name, {"group.protocol": "consumer"})),
            running(
                librdkafka(
                    owners,
                    "classic",
                    addresses,
                    name,
                    {**CLASSIC, "partition.assignment.strategy": "cooperative-sticky"},
                )
            ),
            KafkaProducer(bootstrap_servers=cluster) as producer,
        ):
            owners.wait_for_owners({"classic", "consumer"}, 4)
            generation = cluster.groups.refresh().group(name).roster.generation
            members = set(cluster.groups.state.group(name).roster.members)
            first.stop()
            for number in range(200):
                producer.send(name, b"v", partition=number % 4)
            producer.flush()
            owners.wait(lambda: len(owners.read) == 200)

            roster = cluster.groups.refresh().group(name).roster
            assert (roster.generation, set(roster.members)) == (generation, members)
    finally:
        first.stop()
        second.stop()
    assert owners.clashes == []
    assert set(owners.read.values()) == {1}


@pytest.mark.slow
def test_consumer_of_kafka_python_joins_commits_and_is_described(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for number in range(10):
            producer.send(name, b"v", partition=number % 2)
    consumer = ForeignConsumer(
        name, bootstrap_servers=address, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found = [next(consumer) for _ in range(10)]
    consumer.commit()
    roster = cluster.groups.refresh().group(name).roster
    (member,) = roster

    assert len({(r.partition, r.offset) for r in found}) == 10
    assert [tp.partition for tp in member.assignment] == [0, 1]
    assert member.client_host == "wire:127.0.0.1"
    consumer.close()
    group = cluster.groups.refresh().group(name)
    assert group.roster.members == {}
    assert sorted((tp.partition, at.position.offset) for tp, at in group.offsets.items()) == [(0, 5), (1, 5)]


@pytest.mark.slow
def test_native_member_cannot_be_taken_over_by_its_id(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    with KafkaConsumer(name, bootstrap_servers=cluster, group_id=name) as member:
        member.poll(1000)
        stranger = Consumer({"bootstrap.servers": address, "group.id": name, "enable.auto.commit": False})
        with pytest.raises(KafkaException) as refused:
            stranger.commit(offsets=[Place(name, 0, 3)], asynchronous=False)
        stranger.close()
    assert refused.value.args[0].name() == "UNKNOWN_MEMBER_ID"
