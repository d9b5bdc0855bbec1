"""A thread that is interrupted (Ctrl-C) at any line of `send`, `flush` and `close`, over a cluster in memory."""

import threading
from typing import Any

import pytest

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import KafkaError
from kafkalike.producer import KafkaProducer
from tests.tools.interrupted_lines import interrupted_at, lines
from tests.tools.partitions import partition_values

SETTINGS: list[dict[str, Any]] = [{}, {"partitioner": lambda _key, parts, _available: parts[0]}, {"batch_size": 1}]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("first", [True, False])
def test_an_interrupted_send_is_whole_or_not_at_all(settings: dict[str, Any], *, first: bool) -> None:
    """The record is there once or not; those before and after it are there once, and no room in the buffer is lost."""
    for line in lines():
        cluster = MemoryCluster()
        cluster.create_topic("orders", 1, {})
        producer = KafkaProducer(bootstrap_servers=cluster, linger_ms=3_600_000, **settings)
        sent = [] if first else [producer.send("orders", b"before")]

        hit = interrupted_at(line, lambda p=producer: p.send("orders", b"interrupted"))  # type: ignore[misc]
        sent.append(producer.send("orders", b"after"))
        producer.flush(60)

        assert all(future.succeeded() for future in sent)
        found = partition_values(cluster.log("orders"))
        assert [v for v in found if v != b"interrupted"] == ([b"after"] if first else [b"before", b"after"])
        assert found.count(b"interrupted") <= 1
        # Whoever waits learns of the end a moment before the batch is forgotten.
        producer.close(60)
        buffer = producer._buffer
        assert (buffer.used, len(buffer._line), len(buffer._unsettled), len(buffer._turns)) == (0, 0, 0, 0)
        if not hit:
            assert line > 10
            return


@pytest.mark.slow
@pytest.mark.parametrize("end", ["flush", "close"])
def test_an_interrupted_flush_or_close_can_be_called_again_and_waits(end: str) -> None:
    """Nothing is lost or doubled, and nobody is told that records are written that are not."""
    for line in lines():
        cluster = MemoryCluster()
        cluster.create_topic("orders", 1, {})
        producer = KafkaProducer(bootstrap_servers=cluster, linger_ms=3_600_000)
        sent = [producer.send("orders", b"%d" % n) for n in range(3)]
        call = getattr(producer, end)

        hit = interrupted_at(line, call)
        call(60)

        assert all(future.succeeded() for future in sent)
        assert partition_values(cluster.log("orders")) == [b"0", b"1", b"2"]
        producer.close(60)
        assert producer._buffer.used == 0
        if not hit:
            assert line > 5
            return


@pytest.mark.slow
def test_one_that_is_interrupted_while_it_waits_for_room_does_not_keep_others_waiting() -> None:
    """At every line of `send` with a full buffer."""
    for line in lines():
        cluster = MemoryCluster()
        cluster.create_topic("orders", 1, {})
        begun, go_on = threading.Event(), threading.Event()
        producer = KafkaProducer(bootstrap_servers=cluster, buffer_memory=200, max_block_ms=60_000)
        first = producer.send("orders", b"first")

        def hold(_: object, begun: threading.Event = begun, go_on: threading.Event = go_on) -> None:
            begun.set()
            go_on.wait(60)

        first.add_both(hold)
        second = producer.send("orders", b"v" * 100)
        # The tracer is the interrupt, and who waits is let go when it has come or gone.
        threading.Timer(0.005, go_on.set).start()

        hit = interrupted_at(line, lambda p=producer: p.send("orders", b"w" * 100))  # type: ignore[misc]
        third = producer.send("orders", b"x" * 100)
        producer.close(60)

        assert all(future.succeeded() for future in (first, second, third))
        assert (producer._buffer.used, len(producer._buffer._line)) == (0, 0)
        if not hit:
            assert line > 10
            return


@pytest.mark.slow
def test_an_interrupted_forced_close_settles_every_future() -> None:
    """At every line of `close(0)`, and then at another `close`."""
    for line in lines():
        cluster = MemoryCluster()
        cluster.create_topic("orders", 1, {})
        producer = KafkaProducer(bootstrap_servers=cluster, linger_ms=3_600_000)
        sent = [producer.send("orders", b"%d" % n) for n in range(3)]

        hit = interrupted_at(line, lambda p=producer: p.close(0))  # type: ignore[misc]
        producer.close()

        told = []
        for future in sent:
            try:
                told.append(b"%d" % future.get(0).offset)
            except KafkaError:
                continue
        assert partition_values(cluster.log("orders")) == told
        if not hit:
            assert line > 5
            return
