"""A thread that is interrupted (Ctrl-C) at any line of `send`, `flush` and `close`, over a cluster in memory."""

import threading
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import KafkaError
from kafkalike.producer import KafkaProducer
from kafkalike.producer.future import FutureRecordMetadata
from tests.tools.interrupts import PRODUCER, STEP, interrupted
from tests.tools.partitions import partition_values

SETTINGS: list[dict[str, Any]] = [{}, {"partitioner": lambda _key, parts, _available: parts[0]}, {"batch_size": 1}]


Client = tuple[MemoryCluster, KafkaProducer, list[FutureRecordMetadata]]


def client(records: int = 3, **settings: Any) -> Client:
    """A cluster with a topic, and a producer that has sent records and waits before it writes them."""
    cluster = MemoryCluster()
    cluster.create_topic("orders", 1, {})
    producer = KafkaProducer(bootstrap_servers=cluster, linger_ms=3_600_000, **settings)
    return cluster, producer, [producer.send("orders", b"%d" % n) for n in range(records)]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=["default", "own partitioner", "batches of one byte"])
@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_send_is_whole_or_not_at_all(settings: dict[str, Any], *, first: bool) -> None:
    """The record is there once or not; those before and after it are there once, and no room in the buffer is lost."""

    def new() -> Client:
        return client(0 if first else 1, **settings)

    for (cluster, producer, sent), _ in interrupted(
        new, lambda made: made[1].send("orders", b"interrupted"), PRODUCER, least=10, step=STEP
    ):
        sent.append(producer.send("orders", b"after"))
        producer.flush(60)

        assert all(future.succeeded() for future in sent)
        found = partition_values(cluster.log("orders"))
        assert [v for v in found if v != b"interrupted"] == ([b"after"] if first else [b"0", b"after"])
        assert found.count(b"interrupted") <= 1
        # Whoever waits learns of the end a moment before the batch is forgotten.
        producer.close(60)
        buffer = producer._buffer
        assert (buffer.used, len(buffer._line), len(buffer._unsettled), len(buffer._turns)) == (0, 0, 0, 0)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["flush", "close"])
def test_an_interrupted_flush_or_close_can_be_called_again_and_waits(end: str) -> None:
    """Nothing is lost or doubled, and nobody is told that records are written that are not."""
    for (cluster, producer, sent), _ in interrupted(client, lambda made: getattr(made[1], end)(), PRODUCER, least=5):
        getattr(producer, end)(60)

        assert all(future.succeeded() for future in sent)
        assert partition_values(cluster.log("orders")) == [b"0", b"1", b"2"]
        producer.close(60)
        assert producer._buffer.used == 0


@pytest.mark.slow
def test_one_that_is_interrupted_while_it_waits_for_room_does_not_keep_others_waiting() -> None:
    """At every line of `send` with a full buffer."""

    def full() -> Client:
        cluster = MemoryCluster()
        cluster.create_topic("orders", 1, {})
        begun, go_on = threading.Event(), threading.Event()
        producer = KafkaProducer(bootstrap_servers=cluster, buffer_memory=200, max_block_ms=60_000)
        first = producer.send("orders", b"first")

        def hold(_: object) -> None:
            begun.set()
            go_on.wait(60)

        first.add_both(hold)
        second = producer.send("orders", b"v" * 100)
        # The tracer is the interrupt, and who waits is let go when it has come or gone.
        threading.Timer(0.005, go_on.set).start()
        return cluster, producer, [first, second]

    for (_, producer, (first, second)), _ in interrupted(
        full, lambda made: made[1].send("orders", b"w" * 100), PRODUCER, least=10
    ):
        third = producer.send("orders", b"x" * 100)
        producer.close(60)

        assert all(future.succeeded() for future in (first, second, third))
        assert (producer._buffer.used, len(producer._buffer._line)) == (0, 0)


@pytest.mark.slow
def test_an_interrupted_forced_close_settles_every_future() -> None:
    """At every line of `close(0)`, and then at another `close`."""
    for (cluster, producer, sent), _ in interrupted(client, lambda made: made[1].close(0), PRODUCER, least=5):
        producer.close()

        told = []
        for future in sent:
            try:
                told.append(b"%d" % future.get(0).offset)
            except KafkaError:
                continue
        assert partition_values(cluster.log("orders")) == told
