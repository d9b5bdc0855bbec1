"""Foreign producers and consumers exchange records with native ones through a gateway."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from crc32c import crc32c
from kafka import KafkaAdminClient as ForeignAdminClient
from kafka import KafkaConsumer as ForeignConsumer
from kafka import KafkaProducer as ForeignProducer
from kafka import TopicPartition as Tp
from kafka.record.default_records import DefaultRecordBatchBuilder
from prometheus_client import CollectorRegistry

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.consumer import read_to_end
from tests.tools.wire_client import WireClient
from tests.tools.wire_transcript import batch

Served = tuple[Cluster, str]
Create = Callable[[int], str]


@contextmanager
def foreign_admin(address: str) -> Iterator[ForeignAdminClient]:
    client = ForeignAdminClient(bootstrap_servers=address)
    yield client
    client.close()


def code_of(error: KafkaError | None) -> int:
    return 0 if error is None else error.code()


def native_records(cluster: Cluster, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return all records as (offset, key, value), partition by partition."""
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        partitions = sorted(cluster.topic(topic).partitions)
        consumer.assign([TopicPartition(topic, p) for p in partitions])
        found = [(r.partition, r.offset, r.key, r.value) for r in read_to_end(consumer)]
    return [(offset, key, value) for _, offset, key, value in sorted(found, key=lambda r: r[:2])]


def consumed(address: str, topic: str, count: int) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the first records of partition 0, read by librdkafka."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([Place(topic, 0, OFFSET_BEGINNING)])
        found = consumer.consume(count, timeout=20)
        assert [m.error() for m in found] == [None] * count
        return [(m.offset() or 0, m.key(), m.value()) for m in found]
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_librdkafka_are_read_natively(served: Served, topic: Create, codec: str) -> None:
    cluster, address = served
    name = topic(1)
    reports: list[KafkaError | None] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "compression.type": codec,
            "enable.idempotence": codec == "none",
            "linger.ms": 20,
        }
    )
    for number in range(50):
        producer.produce(name, key=f"k{number}", value=b"v" * number, on_delivery=lambda e, _: reports.append(e))
    assert producer.flush(20) == 0

    assert reports == [None] * 50
    assert native_records(cluster, name) == [(n, f"k{n}".encode(), b"v" * n) for n in range(50)]


def test_nulls_headers_and_times_pass_in_both_directions(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    headers: list[tuple[str, bytes | None]] = [("trace", b"1"), ("trace", b"2"), ("größe", b"")]
    with KafkaProducer(bootstrap_servers=cluster) as native:
        native.send(name, key=b"k", value=None, headers=headers, timestamp_ms=1_700_000_000_001)
    foreign = ForeignProducer(bootstrap_servers=address)
    sent = foreign.send(name, key=None, value=b"v", headers=headers, timestamp_ms=1_700_000_000_002).get(20)
    foreign.close()

    assert (sent.partition, sent.offset, sent.timestamp) == (0, 1, 1_700_000_000_002)
    reader = ForeignConsumer(bootstrap_servers=address)
    reader.assign([Tp(name, 0)])
    reader.seek(Tp(name, 0), 0)
    by_foreign = [r for batch in [reader.poll(20_000, max_records=2)] for rs in batch.values() for r in rs]
    reader.close()
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 0)])
        by_native = read_to_end(consumer)
    expected = [
        (0, b"k", None, headers, 1_700_000_000_001),
        (1, None, b"v", headers, 1_700_000_000_002),
    ]
    assert [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in by_native] == expected
    assert [(r.offset, r.key, r.value, list(r.headers), r.timestamp) for r in by_foreign] == expected


def test_long_poll_is_answered_by_the_record_of_a_native_producer(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    found: list[list[tuple[int, bytes | None, bytes | None]]] = []
    waiting = threading.Thread(target=lambda: found.append(consumed(address, name, 1)))
    waiting.start()
    with KafkaProducer(bootstrap_servers=cluster) as native:
        native.send(name, b"news").get(10)
    waiting.join(30)

    assert found == [[(0, None, b"news")]]


@pytest.mark.slow
def test_requests_in_flight_keep_their_order(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    producer = Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "batch.num.messages": 1, "enable.idempotence": True}
    )
    for number in range(200):
        producer.produce(name, str(number).encode(), partition=number % 2)
    assert producer.flush(30) == 0

    values = [value for _, _, value in native_records(cluster, name)]
    assert values == [str(n).encode() for start in (0, 1) for n in range(start, 200, 2)]


@pytest.mark.parametrize(
    ("partition", "value", "code"),
    [
        pytest.param(0, b"x" * 2_000_000, KafkaError.MSG_SIZE_TOO_LARGE, id="record-too-large"),
        pytest.param(7, b"x", KafkaError._UNKNOWN_PARTITION, id="unknown-partition"),
    ],
)
def test_refused_record_has_kafkas_code(served: Served, topic: Create, partition: int, value: bytes, code: int) -> None:
    reports: list[int] = []
    producer = Producer({"bootstrap.servers": served[1], "message.max.bytes": 5_000_000})
    name = topic(1)
    try:
        producer.produce(name, value, partition=partition, on_delivery=lambda e, _: reports.append(code_of(e)))
        producer.flush(20)
    except KafkaException as refused:
        reports.append(code_of(refused.args[0]))

    assert reports == [code]
    assert native_records(served[0], name) == []


def test_bad_batch_does_not_fail_the_batches_beside_it(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    reports: dict[int, int] = {}
    producer = Producer({"bootstrap.servers": address, "message.max.bytes": 5_000_000, "linger.ms": 200})
    for partition, value in ((0, b"x" * 2_000_000), (1, b"good")):
        producer.produce(
            name, value, partition=partition, on_delivery=lambda e, m: reports.update({m.partition() or 0: code_of(e)})
        )
    producer.flush(20)

    assert reports == {0: KafkaError.MSG_SIZE_TOO_LARGE, 1: 0}
    assert native_records(cluster, name) == [(0, None, b"good")]


def test_batches_in_any_order_of_partitions_are_answered_in_the_order_of_the_request(
    served: Served, topic: Create
) -> None:
    name = topic(3)
    with KafkaProducer(bootstrap_servers=served[0]) as producer:
        producer.send(name, b"first", partition=1)
        producer.flush()
    parts = [{"index": p, "records": batch(*values)} for p, values in ((2, [b"a", b"b"]), (0, [b"c"]), (1, [b"d"]))]
    with WireClient(served[1]) as client:
        body = {"acks": -1, "timeout": 5000, "topic_data": [{"name": name, "partition_data": parts}]}
        answer = client.ask(keys.PRODUCE, 8, body)

    found = [(int(one.index), int(one.base_offset)) for one in answer.responses[0].partition_responses]
    assert found == [(2, 0), (0, 0), (1, 1)]
    values = [(offset, value) for offset, _, value in native_records(served[0], name)]
    assert values == [(0, b"c"), (0, b"first"), (1, b"d"), (0, b"a"), (1, b"b")]


def test_batch_with_gaps_does_not_fail_the_batches_that_are_decoded_with_it(served: Served, topic: Create) -> None:
    """All batches of an append are decoded at once."""
    name = topic(3)
    good = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1000)
    good.append(0, 1_700_000_000_000, b"k", b"v", [])
    gap = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1000)
    gap.append(0, 1_700_000_000_000, b"k", b"v", [])
    gap.append(2, 1_700_000_000_000, b"k", b"v", [])
    sent = bytearray(gap.build())
    struct.pack_into(">i", sent, 23, 1)  # the last offset delta agrees with the number of records
    struct.pack_into(">I", sent, 17, crc32c(bytes(sent[21:])))
    whole = bytes(good.build())
    parts = [{"index": p, "records": one} for p, one in enumerate([whole, bytes(sent), whole + whole])]
    with WireClient(served[1]) as client:
        body = {"acks": -1, "timeout": 5000, "topic_data": [{"name": name, "partition_data": parts}]}
        answer = client.ask(keys.PRODUCE, 8, body)

    assert [int(one.error_code) for one in answer.responses[0].partition_responses] == [0, 87, 87]
    assert native_records(served[0], name) == [(0, b"k", b"v")]


@pytest.mark.slow
def test_logs_of_deleted_topics_are_closed(tmp_path: Path) -> None:
    cluster = connect(str(tmp_path))
    registry = CollectorRegistry()
    server = GatewayServer(cluster, registry=registry)
    server.start()
    try:
        for name in ("a", "b"):
            cluster.create_topic(name, 1, {})
            with ForeignProducer(bootstrap_servers=server.bootstrap_servers) as producer:
                producer.send(name, b"v").get(20)
            assert consumed(server.bootstrap_servers, name, 1) == [(0, None, b"v")]
        assert registry.get_sample_value("kafkalike_gateway_open_logs") == 4
        cluster.delete_topic("a")

        while registry.get_sample_value("kafkalike_gateway_open_logs") != 2:  # the time limit of tests ends it
            time.sleep(0.02)
    finally:
        server.stop()


def test_offsets_are_found_by_time_and_records_are_deleted(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    with KafkaProducer(bootstrap_servers=cluster) as native:
        for number in range(5):
            native.send(name, b"v", timestamp_ms=1000 + number)
    consumer = Consumer({"bootstrap.servers": address, "group.id": "times", "auto.offset.reset": "error"})

    assert consumer.get_watermark_offsets(Place(name, 0)) == (0, 5)
    assert [p.offset for p in consumer.offsets_for_times([Place(name, 0, 1003)])] == [3]
    assert [p.offset for p in consumer.offsets_for_times([Place(name, 0, 9999)])] == [-1]
    with foreign_admin(address) as admin:
        assert admin.delete_records({Tp(name, 0): 2})[Tp(name, 0)]["low_watermark"] == 2
    assert consumer.get_watermark_offsets(Place(name, 0)) == (2, 5)
    consumer.assign([Place(name, 0, 1)])
    errors = [code_of(m.error()) for m in consumer.consume(1, timeout=20)]
    consumer.close()
    assert errors == [KafkaError._AUTO_OFFSET_RESET]


def test_commit_of_a_foreign_consumer_is_the_natives_position(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    foreign = Consumer({"bootstrap.servers": address, "group.id": "shared", "enable.auto.commit": False})
    foreign.commit(offsets=[Place(name, 1, 42)], asynchronous=False)

    with KafkaConsumer(bootstrap_servers=cluster, group_id="shared", enable_auto_commit=False) as native:
        assert native.committed(TopicPartition(name, 1)) == 42
        assert native.committed(TopicPartition(name, 0)) is None
    assert [p.offset for p in foreign.committed([Place(name, 0), Place(name, 1)])] == [-1001, 42]
    foreign.close()
    with foreign_admin(address) as admin:
        assert "shared" in [group["group_id"] for group in admin.list_groups()]
        admin.delete_groups(["shared"])
        assert "shared" not in cluster.groups.refresh().groups


def test_aiokafka_sends_and_receives(served: Served, topic: Create) -> None:
    name = topic(1)

    async def both() -> list[tuple[int, bytes]]:
        producer = AIOKafkaProducer(bootstrap_servers=served[1], enable_idempotence=True)
        await producer.start()
        for number in range(3):
            await producer.send_and_wait(name, str(number).encode())
        await producer.stop()
        consumer = AIOKafkaConsumer(name, bootstrap_servers=served[1], auto_offset_reset="earliest")
        await consumer.start()
        found = [await consumer.getone() for _ in range(3)]
        await consumer.stop()
        return [(r.offset, r.value) for r in found]

    assert asyncio.run(both()) == [(0, b"0"), (1, b"1"), (2, b"2")]
