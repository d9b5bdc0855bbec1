"""Slow, silent and hostile clients take neither memory nor answers from the others."""

from __future__ import annotations

import asyncio
import gzip
import socket
import struct
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from crc32c import crc32c
from prometheus_client import CollectorRegistry

from kafkalike.gateway import api_versions as keys
from kafkalike.gateway import client_connection, gateway_server
from kafkalike.gateway.authentication import UserFile
from kafkalike.gateway.byte_budget import ByteBudget, RequestMemory
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster
from kafkalike.gateway.gateway_metrics import GatewayMetrics
from kafkalike.gateway.handlers import record_appender
from kafkalike.gateway.handlers.record_fetcher import RecordFetcher
from kafkalike.gateway.handlers.topic_tails import TopicTails
from kafkalike.gateway.live_gateways import LiveGateways
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.producer_append import append_batches
from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.certificates import certificate
from tests.tools.upkeep import keyed
from tests.tools.wire_client import WireClient

Served = tuple[Cluster, str]
Create = Callable[[int], str]


def connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=20)


def closed_by_the_gateway(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


def test_budget_lets_the_next_request_in_when_bytes_are_returned() -> None:
    async def both() -> list[str]:
        budget, seen = ByteBudget(100), []
        await budget.reserve(150)  # one request may take more than are left

        async def later() -> None:
            await budget.reserve(10)
            seen.append("reserved")

        waiting = asyncio.create_task(later())
        await asyncio.sleep(0)
        seen.append("waits")
        await budget.reserve(0)
        budget.release(150)
        await waiting
        return seen

    assert asyncio.run(both()) == ["waits", "reserved"]


def test_budget_lets_all_in_that_fit_and_passes_on_what_a_cancelled_request_was_given() -> None:
    async def queue() -> list[str]:
        budget, seen = ByteBudget(100), list[str]()

        async def later(name: str) -> None:
            await budget.reserve(60)
            seen.append(name)

        await budget.reserve(100)
        waiting = [asyncio.create_task(later(name)) for name in "abcd"]
        await asyncio.sleep(0)
        budget.release(100)
        waiting[0].cancel()
        await asyncio.wait(waiting[:3], timeout=5)
        seen.append(f"{waiting[3].done()}")
        budget.release(60)
        await asyncio.wait(waiting[3:], timeout=5)
        return seen

    assert asyncio.run(queue()) == ["b", "c", "False", "d"]


def test_errors_are_counted_by_request_and_code() -> None:
    registry = CollectorRegistry()
    metrics = GatewayMetrics(registry)
    part = {"index": 0, "error_code": 3}
    metrics.count_errors(keys.PRODUCE, {"responses": [{"partition_responses": [part, part, {"error_code": 0}]}]})
    metrics.count_errors(keys.FETCH, {"error_code": 0, "responses": [{"partitions": [{"error_code": 1}]}]})
    metrics.count_errors(keys.HEARTBEAT, {"error_code": 27})

    found = {
        (one.labels["request"], one.labels["code"]): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "kafkalike_gateway_errors_total"
    }
    assert found == {("produce", "3"): 2, ("fetch", "1"): 1, ("heartbeat", "27"): 1}


def test_requests_are_counted_by_version(served: Served) -> None:
    registry = CollectorRegistry()
    server = gateway_server.GatewayServer(served[0], registry=registry)
    server.start()
    with WireClient(server.bootstrap_servers) as client:
        for version in (9, 12, 12):
            client.ask(keys.METADATA, version, {"topics": ()})
    server.stop()

    def count(version: int) -> float | None:
        labels = {"request": "metadata", "version": str(version)}
        return registry.get_sample_value("kafkalike_gateway_requests_total", labels)

    assert [count(version) for version in (9, 11, 12)] == [1, None, 2]


def test_refused_records_without_an_answer_end_the_connection(served: Served) -> None:
    """As in Kafka, a producer with acks=0 learns this way that its topic is gone."""
    partition = {"index": 0, "records": b"no batch"}
    body = {"acks": 0, "timeout": 1000, "topic_data": [{"name": "t", "partition_data": [partition]}]}
    with WireClient(served[1]) as client:
        client.send(keys.PRODUCE, 8, body)
        assert closed_by_the_gateway(client.socket)


def test_hostile_pattern_of_transactions_does_not_hold_up_others(served: Served) -> None:
    with WireClient(served[1]) as client:
        client.ask(keys.INIT_PRODUCER_ID, 4, {"transactional_id": "a" * 40 + "!", "transaction_timeout": 60_000})
        found = [
            client.ask(keys.LIST_TRANSACTIONS, 2, {"state_filters": [], "transactional_id_pattern": pattern})
            for pattern in ("(a+)+", "(a|b)+!", "(a")
        ]

    assert [(int(one.error_code), len(one.transaction_states)) for one in found] == [(0, 0), (0, 1), (42, 0)]


def zeros(size: int) -> bytes:
    """A batch of one record with a value of zeros, compressed."""
    value = varint(size) + bytes(size)
    record = b"\0\0\0\1" + value + b"\0"
    body = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1) + gzip.compress(varint(len(record)) + record)
    return struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body


def varint(number: int) -> bytes:
    out, left = bytearray(), 2 * number
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    return bytes(out) + bytes([left])


def test_batches_of_one_request_inflate_to_no_more_than_a_request_may_hold(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_appender, "MAX_REQUEST_BYTES", 1024 * 1024)
    name = topic(4)
    parts = [{"index": number, "records": zeros(400 * 1024)} for number in range(4)]
    body = {"acks": -1, "timeout": 5000, "topic_data": [{"name": name, "partition_data": parts}]}
    with WireClient(served[1]) as client:
        answer = client.ask(keys.PRODUCE, 8, body)

    assert [int(one.error_code) for one in answer.responses[0].partition_responses] == [0, 0, 10, 10]


def test_answers_are_small_while_slow_clients_fill_the_memory(served: Served, topic: Create) -> None:
    cluster, _ = served
    name = topic(1)
    log = cluster.log(name)
    for number in range(4):
        log.append(keyed(("k", "v" * 100_000), at_ms=1_700_000_000_000 + number))
    home = GatewayCluster(cluster, LiveGateways(cluster, ("127.0.0.1", 1), SYSTEM_CLOCK), SYSTEM_CLOCK)
    handler = RecordFetcher(home, TopicTails(home, "none")).handlers[keys.FETCH]
    parts = (SimpleNamespace(partition=0, fetch_offset=0, partition_max_bytes=10**7),)
    topics = (SimpleNamespace(topic=name, partitions=parts),)
    body = SimpleNamespace(max_wait=timedelta(seconds=1), min_bytes=1, max_bytes=10**7, topics=topics)

    async def two() -> list[int]:
        budget, sizes = ByteBudget(1000), []
        for _ in range(2):
            memory = RequestMemory(budget)
            reply = await handler(Call(12, body, "", "", memory=memory))
            found = await reply if isinstance(reply, asyncio.Task) else reply
            assert found is not None
            sizes.append(len(found["responses"][0]["partitions"][0]["records"]) // 100_000)
            assert memory.held // 100_000 == sizes[-1]
        return sizes

    assert asyncio.run(two()) == [4, 1]
    home.close()


def test_topic_that_metadata_names_often_is_described_once(served: Served, topic: Create) -> None:
    name = topic(50)
    with WireClient(served[1]) as client:
        found = client.ask(keys.METADATA, 8, {"topics": [{"name": name}] * 10_000})

    assert [len(one.partitions) for one in found.topics] == [50]


def test_clients_of_one_address_that_do_not_authenticate_keep_no_other_out(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_server, "MAX_UNAUTHENTICATED_PER_HOST", 2)
    users = UserFile(tmp_path / "users.toml")
    users.add("someone", "password", [])
    server = gateway_server.GatewayServer(served[0], users=users)
    server.start()
    strangers = [connected(server.bootstrap_servers) for _ in range(3)]
    assert closed_by_the_gateway(strangers[2])
    with socket.create_connection(server.address, timeout=20, source_address=("127.0.0.2", 0)) as other:
        request = struct.pack(">hhih", keys.API_VERSIONS, 0, 7, -1)
        other.sendall(struct.pack(">i", len(request)) + request)
        assert struct.unpack_from(">i", other.recv(8, socket.MSG_WAITALL), 4) == (7,)
    for stranger in strangers:
        stranger.close()
    server.stop()


def test_connections_without_a_tls_handshake_are_counted(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_server, "MAX_UNAUTHENTICATED_PER_HOST", 2)
    server = gateway_server.GatewayServer(served[0], certificate=(certificate(tmp_path), None))
    server.start()
    silent = [connected(server.bootstrap_servers) for _ in range(3)]

    assert closed_by_the_gateway(silent[2])
    for client in silent:
        client.close()
    server.stop()


def test_records_that_are_being_written_are_answered_when_the_gateway_stops(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer without idempotence would write them again elsewhere."""
    begun, stops = threading.Event(), threading.Event()

    def late(*args: Any, **options: Any) -> Any:
        begun.set()
        stops.wait(20)
        return append_batches(*args, **options)

    monkeypatch.setattr(record_appender, "append_batches", late)
    name = topic(1)
    server = gateway_server.GatewayServer(served[0])
    server.start()
    poll = {"topic": name, "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]}
    with WireClient(server.bootstrap_servers) as client:
        parts = [{"index": 0, "records": zeros(10)}]
        client.send(keys.PRODUCE, 8, {"acks": -1, "topic_data": [{"name": name, "partition_data": parts}]})
        assert begun.wait(20)
        client.send(keys.FETCH, 12, {"max_wait": 60_000, "min_bytes": 10**6, "topics": [poll]})
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        while server.running and not stops.is_set():
            try:
                socket.create_connection(server.address, timeout=20).close()
            except (ConnectionRefusedError, ConnectionResetError):
                stops.set()
        found = client.receive(keys.PRODUCE, 8)
        stopping.join(20)

    assert int(found.responses[0].partition_responses[0].error_code) == 0
    assert not server.running


def test_memory_of_records_is_returned_after_their_append_although_the_client_is_gone(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise clients that connect again and again would fill the memory with records that wait."""
    begun, goes_on = threading.Event(), threading.Event()

    def late(*args: Any, **options: Any) -> Any:
        begun.set()
        goes_on.wait(20)
        return append_batches(*args, **options)

    monkeypatch.setattr(record_appender, "append_batches", late)
    name, registry = topic(1), CollectorRegistry()
    server = gateway_server.GatewayServer(served[0], registry=registry)
    server.start()

    def value(of: str) -> float | None:
        return registry.get_sample_value("kafkalike_gateway_memory_bytes", {"of": of})

    with WireClient(server.bootstrap_servers) as client:
        parts = [{"index": 0, "records": zeros(100_000)}]
        client.send(keys.PRODUCE, 8, {"acks": -1, "topic_data": [{"name": name, "partition_data": parts}]})
        assert begun.wait(20)
    while registry.get_sample_value("kafkalike_gateway_connections") != 0:  # the time limit of tests ends it
        time.sleep(0.02)
    held = value("appends")
    goes_on.set()
    while value("appends") != 0:
        time.sleep(0.02)
    server.stop()

    assert held is not None
    assert 100_000 <= held < 101_000
    assert [value(of) for of in ("requests", "appends", "answers")] == [0, 0, 0]
    assert served[0].log(name).log_end(0) == 1


@pytest.mark.slow
@pytest.mark.parametrize("key", [keys.FETCH, keys.METADATA], ids=["long-poll", "answered-at-once"])
def test_client_that_takes_no_answers_is_disconnected(
    served: Served, topic: Create, monkeypatch: pytest.MonkeyPatch, key: int
) -> None:
    monkeypatch.setattr(client_connection, "WRITE_SECONDS", 0.2)
    name, registry = topic(5_000), CollectorRegistry()
    log = served[0].log(name)
    for _ in range(8):
        log.append(keyed(("k", "v" * 1_000_000), at_ms=1_700_000_000_000))
    server = gateway_server.GatewayServer(served[0], registry=registry)
    server.start()
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    poll = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 24, "topics": [{"topic": name, "partitions": [part]}]}
    body = poll if key == keys.FETCH else {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    with WireClient(server.bootstrap_servers) as client:
        for _ in range(2 * client_connection.MAX_REQUESTS):
            client.send(key, 12, body)
        while registry.get_sample_value("kafkalike_gateway_connections") != 0:  # the time limit of tests ends it
            time.sleep(0.02)
    server.stop()


def test_request_that_never_arrives_ends_its_connection_alone(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "FRAME_SECONDS", 0.2)
    silent = [connected(served[1]) for _ in range(4)]
    for client in silent:
        client.sendall(struct.pack(">i", client_connection.MAX_FRAME) + b"\0\3")

    assert AdminClient({"bootstrap.servers": served[1]}).list_topics(timeout=10).brokers
    assert [closed_by_the_gateway(client) for client in silent] == [True] * 4


@pytest.mark.slow
def test_bomb_of_a_compressed_batch_is_refused(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    records = gzip.compress(bytes(64 * 1024 * 1024))
    body = struct.pack(">hiqqqhii", 1, 0, 0, 0, -1, -1, -1, 1) + records
    batch = struct.pack(">qiibI", 0, 9 + len(body), 0, 2, crc32c(body)) + body
    request = bytearray()
    text = name.encode()
    request += struct.pack(">hhih", 0, 8, 1, -1) + struct.pack(">hhi", -1, -1, 5000)
    request += struct.pack(">i", 1) + struct.pack(">h", len(text)) + text
    request += struct.pack(">iii", 1, 0, len(batch)) + batch
    with connected(address) as client:
        client.sendall(struct.pack(">i", len(request)) + request)
        (size,) = struct.unpack(">i", client.recv(4, socket.MSG_WAITALL))
        answer = client.recv(size, socket.MSG_WAITALL)

    at = 4 + 4 + 2 + len(text) + 4 + 4
    assert struct.unpack_from(">h", answer, at) == (10,)
    assert cluster.log(name).log_end(0) == 0


@pytest.mark.slow
def test_join_of_a_client_that_disconnects_does_not_stay_in_the_group(served: Served, topic: Create) -> None:
    """A waiting JoinGroup ends with its connection, so nobody sends heartbeats for a client that is gone."""
    cluster, address = served
    name = topic(2)
    text = name.encode()
    subscription = struct.pack(">hih", 0, 1, len(text)) + text + struct.pack(">i", -1)

    def join(client: socket.socket) -> None:
        request = struct.pack(">hhih", 11, 1, 1, -1) + struct.pack(">h", len(text)) + text
        request += struct.pack(">iih", 1000, 60_000, 0) + struct.pack(">h", 8) + b"consumer"
        request += struct.pack(">ih", 1, 5) + b"range" + struct.pack(">i", len(subscription)) + subscription
        client.sendall(struct.pack(">i", len(request)) + request)

    holder, waiting = connected(address), connected(address)
    join(holder)
    (size,) = struct.unpack(">i", holder.recv(4, socket.MSG_WAITALL))
    holder.recv(size, socket.MSG_WAITALL)
    join(waiting)  # waits for the holder, which never gives up its partitions
    end = time.monotonic() + 20
    while len(cluster.groups.refresh().group(name).members) < 2:
        assert time.monotonic() < end
        time.sleep(0.02)
    waiting.close()

    with connected(address) as third:
        join(third)
        (size,) = struct.unpack(">i", third.recv(4, socket.MSG_WAITALL))
        assert struct.unpack_from(">h", third.recv(size, socket.MSG_WAITALL), 4) == (0,)
        assert len(cluster.groups.refresh().group(name).members) == 1
    holder.close()
