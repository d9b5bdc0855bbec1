"""Idempotent producers of other clients write each record once, though the gateway's answers get lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer as ForeignProducer

from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
from tests.contract.gateway.test_gateway_records import native_records
from tests.tools.dropping_proxy import DroppingProxy

PRODUCE = 0


@pytest.mark.slow
def test_idempotent_librdkafka_with_lost_answers_writes_each_record_once_in_order(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 2, {})
    reports: list[KafkaError | None] = []
    with DroppingProxy({PRODUCE}, 0.2).running() as proxy:
        server = GatewayServer(cluster, advertised=("127.0.0.1", proxy.port))
        proxy.server = server.address
        server.start()
        producer = Producer(
            {
                "bootstrap.servers": server.bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 5,
                "retry.backoff.ms": 10,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 50,
            }
        )
        for number in range(300):
            producer.produce(
                "t", str(number).encode(), partition=number % 2, on_delivery=lambda e, _: reports.append(e)
            )
            producer.poll(0)
        assert producer.flush(60) == 0
        server.stop()

    assert reports == [None] * 300
    assert proxy.lost > 3
    values = [int(value or b"") for _, _, value in native_records(cluster, "t")]
    assert values == [*range(0, 300, 2), *range(1, 300, 2)]


@pytest.mark.slow
def test_idempotent_kafka_python_with_lost_answers_writes_each_record_once(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 1, {})
    with DroppingProxy({PRODUCE}, 0.3, seed=1).running() as proxy:
        server = GatewayServer(cluster, advertised=("127.0.0.1", proxy.port))
        proxy.server = server.address
        server.start()
        producer = ForeignProducer(
            bootstrap_servers=server.bootstrap_servers, enable_idempotence=True, retry_backoff_ms=10, linger_ms=2
        )
        sent = [producer.send("t", str(number).encode()) for number in range(60)]
        offsets = [one.get(60).offset for one in sent]
        producer.close()
        server.stop()

    assert proxy.lost > 0
    assert offsets == list(range(60))
    assert [value for _, _, value in native_records(cluster, "t")] == [str(n).encode() for n in range(60)]
