"""A gateway serves clusters in memory, in a folder, in several roots and in object stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.away import away, back
from tests.tools.clusters import on_three_disks
from tests.tools.wire_client import WireClient


@pytest.mark.slow
def test_records_pass_through_a_gateway_over_each_storage(cluster: Cluster) -> None:
    cluster.create_topic("t", 2, {})
    server = GatewayServer(cluster)
    server.start()
    reports: list[KafkaError | None] = []
    try:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        for number in range(20):
            producer.produce("t", str(number), partition=number % 2, on_delivery=lambda e, _: reports.append(e))
        assert producer.flush(30) == 0
        consumer = Consumer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "group.id": "g",
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["t"])
        found = consumer.consume(20, timeout=30)
        consumer.close()
    finally:
        server.stop()

    assert reports == [None] * 20
    assert sorted(int(m.value() or b"") for m in found) == list(range(20))
    committed = cluster.groups.refresh().group("g").offsets
    assert sorted((tp.partition, at.position.offset) for tp, at in committed.items()) == [(0, 10), (1, 10)]


@pytest.mark.slow
@pytest.mark.parametrize("leads", [True, False], ids=["the leader", "a follower"])
def test_gateway_serves_while_one_of_three_roots_is_away_and_after_its_return(tmp_path: Path, *, leads: bool) -> None:
    # A root that is gone is waited for so long.
    cluster = on_three_disks(tmp_path, **{"replica.lag.time.max.ms": "2000"})
    cluster.create_topic("t", 2, {})
    known = cluster.replication.replicas("t")
    broker = next(one for one in known.replicas if (one == known.leader) is leads)
    root = tmp_path / str(broker)
    server = GatewayServer(cluster)
    server.start()
    reports: list[KafkaError | None] = []
    in_sync = []
    try:
        producer = Producer({"bootstrap.servers": server.bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
        for change in (None, away, back):
            if change is not None:
                change(root)
            for number in range(10):
                producer.produce("t", str(number), partition=number % 2, on_delivery=lambda e, _: reports.append(e))
            assert producer.flush(60) == 0
            cluster.replication.replicate(["t"])
            in_sync.append(broker in cluster.replication.replicas("t").isr)
        consumer = Consumer(
            {"bootstrap.servers": server.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["t"])
        found = consumer.consume(30, timeout=60)
        consumer.close()
    finally:
        server.stop()

    assert reports == [None] * 30
    assert sorted(int(m.value() or b"") for m in found) == sorted([*range(10)] * 3)
    assert in_sync == [True, False, True]


def test_replicas_are_reassigned_through_a_gateway_over_several_roots(tmp_path: Path) -> None:
    """Brokers of the request are roots; `replicate` carries the reassignment out."""
    cluster = on_three_disks(tmp_path)
    cluster.create_topic("t", 2, {})
    before = cluster.replication.replicas("t").replicas
    wanted = [before[1], before[0]]
    every = [{"partition_index": number, "replicas": wanted} for number in (0, 1)]
    server = GatewayServer(cluster)
    server.start()
    try:
        with WireClient(server.bootstrap_servers) as client:
            one = {"timeout": 5000, "topics": [{"name": "t", "partitions": every[:1]}]}
            alone = client.ask(keys.ALTER_PARTITION_REASSIGNMENTS, 1, one)
            both = {"timeout": 5000, "topics": [{"name": "t", "partitions": every}]}
            changed = client.ask(keys.ALTER_PARTITION_REASSIGNMENTS, 1, both)
            asked = {"timeout": 5000, "topics": [{"name": "t", "partition_indexes": [1]}]}
            moving = client.ask(keys.LIST_PARTITION_REASSIGNMENTS, 0, asked)
            cluster.replication.replicate(["t"])
            still = client.ask(keys.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": 5000, "topics": None})
            election = {"election_type": 0, "topic_partitions": [{"topic": "t", "partitions": [0]}], "timeout": 5000}
            elected = client.ask(keys.ELECT_LEADERS, 2, election)
    finally:
        server.stop()

    assert [int(one.error_code) for one in alone.responses[0].partitions] == [39]
    assert [int(one.error_code) for one in changed.responses[0].partitions] == [0, 0]
    (topic,) = moving.topics
    (partition,) = topic.partitions
    assert (int(partition.partition_index), list(map(int, partition.removing_replicas))) == (1, [before[2]])
    assert still.topics == ()
    assert list(cluster.replication.replicas("t").replicas) == wanted
    assert int(elected.replica_election_results[0].partition_result[0].error_code) == 84
