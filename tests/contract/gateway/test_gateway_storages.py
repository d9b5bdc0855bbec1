"""A gateway serves clusters in memory, in a folder, in several roots and in object stores."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, Producer

from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster


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
