"""Records of other clients are written once, though answers get lost, and into the topic that is there."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kafka import KafkaProducer as ForeignProducer

from kafkalike import errors
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.gateway.handlers import record_appender
from tests.contract.gateway.test_gateway_records import Create, Served, native_records
from tests.tools.dropping_proxy import DroppingProxy
from tests.tools.wire_client import WireClient
from tests.tools.wire_transcript import batch, produced


@pytest.mark.slow
def test_idempotent_librdkafka_with_lost_answers_writes_each_record_once_in_order(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 2, {})
    reports: list[KafkaError | None] = []
    with DroppingProxy({keys.PRODUCE}, 0.2).running() as proxy:
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
    with DroppingProxy({keys.PRODUCE}, 0.3, seed=1).running() as proxy:
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


def written(client: WireClient, version: int, topic: dict[str, Any], partition: int = 0) -> tuple[int, int]:
    """Return the error and the offset of a batch."""
    return outcome(client.ask(keys.PRODUCE, version, produce(topic, partition)))


def produce(topic: dict[str, Any], partition: int = 0, value: bytes = b"v") -> dict[str, Any]:
    data = {**topic, "partition_data": [{"index": partition, "records": batch(value)}]}
    return {"acks": -1, "timeout": 5000, "topic_data": [data]}


def outcome(answer: Any) -> tuple[int, int]:
    found = answer.responses[0].partition_responses[0]
    return int(found.error_code), int(found.base_offset)


def test_topic_that_another_client_has_created_again_gets_the_records(served: Served, topic: Create) -> None:
    other, name = connect(served[0].root), topic(1)
    named, old = {"name": name}, {"topic_id": uuid.UUID(other.topics()[name].topic_id)}
    with WireClient(served[1]) as client:
        before = written(client, 8, named), written(client, 13, old)
        other.delete_topic(name)
        gone = written(client, 8, named)
        other.create_topic(name, 1, {})
        new = {"topic_id": uuid.UUID(other.topics()[name].topic_id)}
        after = written(client, 8, named), written(client, 13, old), written(client, 13, new)
        other.delete_topic(name)
        other.create_topic(name, 1, {})
        again = written(client, 8, named)

    assert before == ((0, 0), (0, 1))
    assert gone == (errors.UnknownTopicOrPartitionError.errno, -1)
    assert after == ((0, 0), (errors.UnknownTopicIdError.errno, -1), (0, 1))
    assert again == (0, 0)


def test_batch_for_the_former_topic_leaves_the_others_of_its_append_written_once(served: Served, topic: Create) -> None:
    other, name = connect(served[0].root), topic(1)
    old = {"topic_id": uuid.UUID(other.topics()[name].topic_id)}
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(served[1])) for _ in range(20)]
        first = written(clients[0], 8, {"name": name})
        other.delete_topic(name)
        other.create_topic(name, 1, {})
        new = {"topic_id": uuid.UUID(other.topics()[name].topic_id)}
        # Those that come while a large one is appended go into one append.
        stack.enter_context(WireClient(served[1])).send(keys.PRODUCE, 8, produce({"name": name}, value=bytes(900_000)))
        for client, of in zip(clients, [new, old] * 10, strict=True):
            client.send(keys.PRODUCE, 13, produce(of))
        after = [outcome(client.receive(keys.PRODUCE, 13)) for client in clients]

    assert first == (0, 0)
    assert [error for error, _ in after[::2]] == [0] * 10
    assert set(after[1::2]) == {(errors.UnknownTopicIdError.errno, -1)}
    assert [offset for offset, _, _ in native_records(other, name)] == list(range(11))


def test_lowered_number_of_replicas_in_sync_applies_to_the_next_batch(served: Served, topic: Create) -> None:
    other, name = connect(served[0].root), topic(1)
    with WireClient(served[1]) as client:
        before = written(client, 8, {"name": name})
        other.edit_configs(name, lambda configs: {**configs, "min.insync.replicas": "2"})
        assert served[0].log(name).config.min_isr == 2
        written(client, 8, {"name": name})
        refused = written(client, 8, {"name": name})
        other.edit_configs(name, lambda configs: {**configs, "min.insync.replicas": "1"})
        after, _ = written(client, 8, {"name": name})

    assert before == (0, 0)
    assert refused == (errors.NotEnoughReplicasError.errno, -1)
    assert after == 0


def test_partition_that_another_client_has_added_gets_the_records(served: Served, topic: Create) -> None:
    other, name = connect(served[0].root), topic(1)
    with WireClient(served[1]) as client:
        before = written(client, 8, {"name": name}), written(client, 8, {"name": name}, 1)
        other.add_partitions(name, 2)
        after = written(client, 8, {"name": name}, 1)

    assert before == ((0, 0), (errors.UnknownTopicOrPartitionError.errno, -1))
    assert after == (0, 0)


def test_unexpected_error_of_an_append_closes_the_connections_of_its_requests_and_is_logged(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No error code says that the outcome is unknown. Clients connect again and retry."""

    def fails(*args: Any, **options: Any) -> Any:
        raise LookupError(args, options)

    request = keys.PRODUCE, 9, produced(topic(1), 0, batch(b"v"))
    with WireClient(served[1]) as one, WireClient(served[1]) as other, monkeypatch.context() as patch:
        patch.setattr(record_appender, "append_batches", fails)
        for client in (one, other):
            client.send(*request)
        for client in (one, other):
            with pytest.raises(ConnectionError):
                client.receive(keys.PRODUCE, 9)
    with WireClient(served[1]) as again:
        answer = again.ask(*request)

    assert len([record for record in caplog.records if record.exc_info]) == 2
    assert int(answer.responses[0].partition_responses[0].error_code) == 0
