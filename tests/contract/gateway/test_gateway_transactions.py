"""Transactions of other clients: all records and offsets or none, through any gateway, and never by a zombie."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from kafka import KafkaAdminClient as ForeignAdminClient
from kafka import KafkaProducer as ForeignProducer
from kafka import TopicPartition as Tp
from kafka.errors import InvalidTxnStateError
from kafka.errors import TransactionAbortableError as ForeignAbortable
from kafka.structs import OffsetAndMetadata as ForeignOffset

from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafkalike.connect import connect
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.transactions.transaction_views import TransactionState
from tests.contract.gateway.test_gateway_records import code_of, native_records
from tests.tools.dropping_proxy import DroppingProxy
from tests.tools.wire_transactional import WireTransactional

Served = tuple[Cluster, str]
Create = Callable[[int], str]


def transactional(address: str, name: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": address, "transactional.id": name, "linger.ms": 1, **settings})
    producer.init_transactions(20)
    return producer


def values(cluster: Cluster, topic: str) -> list[bytes | None]:
    return [value for _, _, value in native_records(cluster, topic)]


def committed(cluster: Cluster, group: str, topic: str) -> int | None:
    with KafkaConsumer(bootstrap_servers=cluster, group_id=group) as consumer:
        return consumer.committed(TopicPartition(topic, 0))


@pytest.fixture
def other(served: Served) -> Iterator[GatewayServer]:
    """Another gateway of the cluster."""
    server = GatewayServer(connect(served[0].root))
    server.start()
    yield server
    server.stop()


@pytest.mark.slow
def test_librdkafka_commits_all_records_of_a_transaction_or_none(served: Served, topic: Create) -> None:
    cluster, address = served
    name, second = topic(2), topic(1)
    producer = transactional(address, f"id-{name}")
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for number in range(6):
            producer.produce(name, f"{outcome}{number}".encode(), partition=number % 2)
        producer.produce(second, outcome.encode())
        producer.flush(20)
        before = values(cluster, name)
        if outcome == "abort":
            producer.abort_transaction(20)
            assert values(cluster, name) == before
        else:
            producer.commit_transaction(20)

    once = [b"commit0", b"commit2", b"commit4"], [b"commit1", b"commit3", b"commit5"]
    assert values(cluster, name) == once[0] * 2 + once[1] * 2
    assert values(cluster, second) == [b"commit", b"commit"]


@pytest.mark.slow
def test_kafka_python_commits_and_aborts(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    producer = ForeignProducer(bootstrap_servers=address, transactional_id=f"id-{name}", linger_ms=1)
    producer.init_transactions()
    for outcome in ("commit", "abort", "commit"):
        producer.begin_transaction()
        for number in range(3):
            producer.send(name, f"{outcome}{number}".encode(), headers=[("h", b"x")])
        producer.flush(20)
        if outcome == "abort":
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()

    assert values(cluster, name) == [b"commit0", b"commit1", b"commit2"] * 2


def test_aiokafka_commits_and_aborts(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)

    async def run() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=address, transactional_id=f"id-{name}")
        await producer.start()
        for outcome in ("commit", "abort", "commit"):
            with contextlib.suppress(LookupError):
                async with producer.transaction():
                    await producer.send_and_wait(name, outcome.encode())
                    if outcome == "abort":
                        raise LookupError
        await producer.stop()

    asyncio.run(run())
    assert values(cluster, name) == [b"commit", b"commit"]


def test_empty_transactions_end(served: Served, topic: Create) -> None:
    producer = transactional(served[1], f"id-{topic(1)}")
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        end(20)


@pytest.mark.slow
def test_transaction_continues_through_another_gateway(tmp_path: Path) -> None:
    """Half of it is staged when its gateway dies; the client finds the other one and commits all."""
    root = str(tmp_path / "cluster")
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    first, second = GatewayServer(cluster), GatewayServer(connect(root))
    first.start()
    second.start()
    producer = transactional(
        f"{first.bootstrap_servers},{second.bootstrap_servers}", "id", **{"reconnect.backoff.max.ms": 100}
    )
    producer.begin_transaction()
    producer.produce("t", b"before")
    producer.flush(20)
    first.stop()
    producer.produce("t", b"after")
    assert producer.flush(30) == 0
    producer.commit_transaction(30)
    second.stop()

    assert values(cluster, "t") == [b"before", b"after"]


@pytest.mark.slow
def test_zombie_of_an_older_epoch_is_fenced_at_each_gateway(
    served: Served, topic: Create, other: GatewayServer
) -> None:
    cluster, address = served
    name = topic(1)
    zombie = transactional(address, f"id-{name}")
    zombie.begin_transaction()
    zombie.produce(name, b"zombie")
    zombie.flush(20)
    heir = transactional(other.bootstrap_servers, f"id-{name}")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(20)
    heir.begin_transaction()
    heir.produce(name, b"heir")
    heir.commit_transaction(20)

    assert code_of(refused.value.args[0]) in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    assert values(cluster, name) == [b"heir"]


def test_native_producer_takes_over_from_a_client_of_the_gateway(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    foreign = transactional(address, f"id-{name}")
    foreign.begin_transaction()
    foreign.produce(name, b"foreign")
    foreign.flush(20)
    with KafkaProducer(bootstrap_servers=cluster, transactional_id=f"id-{name}") as native:
        native.init_transactions()
        native.begin_transaction()
        native.send(name, b"native")
        native.commit_transaction()
    foreign.produce(name, b"late")
    with pytest.raises(KafkaException):
        foreign.commit_transaction(20)

    assert values(cluster, name) == [b"native"]


@pytest.mark.slow
def test_librdkafka_copies_a_topic_with_its_offsets(served: Served, topic: Create) -> None:
    cluster, address = served
    source, target = topic(1), topic(2)
    with KafkaProducer(bootstrap_servers=cluster) as native:
        for number in range(40):
            native.send(source, str(number).encode())
    producer = transactional(address, f"id-{source}")
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"g-{source}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([source])
    copied, aborted = 0, False
    while copied < 40:
        messages = consumer.consume(7, timeout=5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=0)
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
        )
        if aborted:
            producer.commit_transaction(20)
            copied += len(messages)
        else:
            producer.abort_transaction(20)
            consumer.seek(Place(source, 0, 0))
            aborted = True
    consumer.close()

    assert values(cluster, target) == [str(n).encode() for n in range(40)]
    assert committed(cluster, f"g-{source}", source) == 40


@pytest.mark.slow
def test_kafka_python_commits_offsets_of_a_group_from_outside(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    producer = ForeignProducer(bootstrap_servers=address, transactional_id=f"id-{name}")
    producer.init_transactions()
    for offset in (3, 5):
        producer.begin_transaction()
        producer.send(name, b"v")
        producer.send_offsets_to_transaction({Tp(name, 0): ForeignOffset(offset, "note", -1)}, f"g-{name}")
        producer.commit_transaction()
    producer.begin_transaction()
    producer.send_offsets_to_transaction({Tp(name, 0): ForeignOffset(9, "", -1)}, f"g-{name}")
    producer.abort_transaction()
    producer.close()

    assert committed(cluster, f"g-{name}", name) == 5


def test_transaction_with_offsets_of_a_share_group_can_only_be_aborted(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(1)
    KafkaAdminClient(bootstrap_servers=cluster).alter_share_group_offsets(f"s-{name}", {TopicPartition(name, 0): 0})
    producer = ForeignProducer(bootstrap_servers=address, transactional_id=f"id-{name}")
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"v")
    producer.send_offsets_to_transaction({Tp(name, 0): ForeignOffset(3, "", -1)}, f"s-{name}")
    with pytest.raises((ForeignAbortable, InvalidTxnStateError)):
        producer.commit_transaction()
    producer.close(timeout=5)

    assert values(cluster, name) == []


@pytest.mark.slow
def test_open_transaction_is_described(served: Served, topic: Create) -> None:
    cluster, address = served
    name = topic(2)
    producer = transactional(address, f"id-{name}")
    producer.begin_transaction()
    producer.produce(name, b"v", partition=1)
    producer.flush(20)
    admin = ForeignAdminClient(bootstrap_servers=address)
    try:
        described = admin.describe_transactions([f"id-{name}"])[f"id-{name}"]
        listed = [
            one for group in admin.list_transactions().values() for one in group if one.transactional_id == f"id-{name}"
        ]
        producers = admin.describe_producers([Tp(name, 1)])[Tp(name, 1)]
    finally:
        admin.close()
    producer.abort_transaction(20)

    assert str(described.state.value) == "Ongoing"
    assert set(described.topic_partitions) == {Tp(name, 1)}
    assert [str(one.state.value) for one in listed] == ["Ongoing"]
    assert [one.producer_id for one in producers.active_producers] == [described.producer_id]
    assert cluster.transactions.described([f"id-{name}"])[f"id-{name}"].state is TransactionState.COMPLETE_ABORT


@pytest.mark.slow
def test_transactions_with_lost_answers_are_whole_and_written_once(tmp_path: Path) -> None:
    """A fifth of the answers to all requests of transactions is lost, after the gateway has acted on them."""
    cluster = connect(str(tmp_path))
    cluster.create_topic("t", 2, {})
    requests = {keys.PRODUCE, keys.ADD_PARTITIONS_TO_TXN, keys.ADD_OFFSETS_TO_TXN, keys.TXN_OFFSET_COMMIT, keys.END_TXN}
    with DroppingProxy(requests, 0.2, seed=3).running() as proxy:
        server = GatewayServer(cluster, advertised=("127.0.0.1", proxy.port))
        proxy.server = server.address
        server.start()
        # A new bootstrap, when its only broker is away, lets librdkafka 2.16 hang in `send_offsets_to_transaction`.
        retries = {
            "retry.backoff.ms": 10,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "metadata.recovery.strategy": "none",
        }
        producer = transactional(server.bootstrap_servers, "id", **retries)
        group = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "g"})
        expected: list[list[bytes]] = [[], []]
        for number in range(30):
            producer.begin_transaction()
            sent = [f"{number}.{nth}".encode() for nth in range(4)]
            for nth, value in enumerate(sent):
                producer.produce("t", value, partition=nth % 2)
                producer.flush(30)
            producer.send_offsets_to_transaction([Place("t", 0, number)], group.consumer_group_metadata(), 30)
            if number % 3 == 2:
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)
                expected[0] += sent[::2]
                expected[1] += sent[1::2]
        group.close()
        server.stop()

    assert proxy.lost > 10
    assert values(cluster, "t") == expected[0] + expected[1]
    assert committed(cluster, "g", "t") == 28


OUT_OF_ORDER = errors.OutOfOrderSequenceNumberError.errno


def test_producer_that_reconnects_in_a_transaction_gets_the_answers_of_kafka(served: Served, topic: Create) -> None:
    """A retry is recognized, and a gap refused at once."""
    cluster, address = served
    name = topic(1)
    producer = WireTransactional(address, name)
    codes = [
        producer.send(address, 0, b"a", b"b"),
        producer.send(address, 0, b"a", b"b"),
        producer.send(address, 3, b"d"),
        producer.send(address, 2, b"c"),
        producer.send(address, 3, b"d"),
        producer.send(address, 1, b"b"),
    ]
    ended = producer.end(address, commit=True)

    assert codes == [0, 0, OUT_OF_ORDER, 0, 0, OUT_OF_ORDER]
    assert ended == 0
    assert values(cluster, name) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_late_retry_does_not_become_part_of_the_next_transaction(
    served: Served, topic: Create, *, commit: bool
) -> None:
    cluster, address = served
    name = topic(1)
    producer = WireTransactional(address, name)
    codes = [producer.send(address, 0, b"a"), producer.end(address, commit=commit)]
    codes += [producer.send(address, 1, b"b"), producer.end(address, commit=True)]
    codes += [producer.send(address, 0, b"a"), producer.send(address, 2, b"c"), producer.end(address, commit=True)]

    assert codes == [0] * 7
    assert values(cluster, name) == [b"a", b"b", b"c"][0 if commit else 1 :]


def test_batches_that_another_gateway_has_taken_are_not_missing(
    served: Served, topic: Create, other: GatewayServer
) -> None:
    cluster, address = served
    name, second = topic(1), other.bootstrap_servers
    producer = WireTransactional(address, name)
    codes = [producer.send(address, 0, b"a"), producer.send(second, 1, b"b"), producer.send(address, 2, b"c")]
    codes += [producer.end(second, commit=True)]
    codes += [producer.send(second, 3, b"d"), producer.end(address, commit=True)]
    codes += [producer.send(address, 4, b"e"), producer.end(second, commit=True)]

    assert codes == [0] * 8
    assert values(cluster, name) == [b"a", b"b", b"c", b"d", b"e"]


def test_producer_whose_answer_was_lost_gets_the_same_next_epoch(served: Served, topic: Create) -> None:
    """Producers ask for their next epoch after an abortable error (KIP-360)."""
    address, name = served[1], topic(1)
    producer = WireTransactional(address, name)
    first, again = producer.begin(address), producer.begin(address)
    assert first == again

    producer.producer = first
    assert (producer.send(address, 0, b"a"), producer.end(address, commit=True)) == (0, 0)
    assert values(served[0], name) == [b"a"]
