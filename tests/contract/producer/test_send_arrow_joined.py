"""Batches of columns that wait in a topic's queue, over every kind of cluster: one append of them, a future each."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

from kafkalike.errors import InvalidRecordError, KafkaError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.producer import KafkaProducer
from kafkalike.producer import producer_batch as joined
from tests.contract.producer.test_send_arrow import make as make  # noqa: PLC0414 - a fixture
from tests.contract.producer.test_send_arrow import records, sent_values


@contextmanager
def held(producer: KafkaProducer, topic: str, **columns: Any) -> Iterator[None]:
    """While it lasts nothing is appended: the sender's thread is in a callback."""
    inside, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        inside.set()
        go_on.wait(60)

    producer.send_arrow(topic, records(value=["first"], **columns)).add_callback(wait)
    assert inside.wait(60)
    try:
        yield
    finally:
        go_on.set()


def appends(cluster: Cluster) -> int:
    """Segments of partition 0: one for each append."""
    log = cluster.log("t")
    log.refresh()
    return len(log.segments(0))


def test_what_waits_is_one_append_and_each_future_has_its_own_offsets(
    cluster: Cluster, make: Callable[..., KafkaProducer]
) -> None:
    cluster.create_topic("t", 2, {})
    producer = make()

    with held(producer, "t"):
        before = appends(cluster)
        sent = [
            producer.send_arrow("t", records(value=["a", "b"], partition=pa.array([0, 1], pa.int32()))),
            producer.send_arrow("t", records(value=["c"], partition=pa.array([1], pa.int32()))),
            producer.send_arrow("t", records(value=["d", "e", "f"], partition=pa.array([0, 1, 0], pa.int32()))),
        ]
    producer.flush()

    values = {partition: sent_values(cluster, partition) for partition in (0, 1)}
    got = [future.get(60).offsets for future in sent]
    at = {partition: found.index(b"a" if partition == 0 else b"b") for partition, found in values.items()}
    assert [found[at[p] :] for p, found in values.items()] == [[b"a", b"d", b"f"], [b"b", b"c", b"e"]]
    assert got == [
        {0: range(at[0], at[0] + 1), 1: range(at[1], at[1] + 1)},
        {1: range(at[1] + 1, at[1] + 2)},
        {0: range(at[0] + 1, at[0] + 3), 1: range(at[1] + 2, at[1] + 3)},
    ]
    assert appends(cluster) - before <= 1


def test_records_of_send_between_keep_their_place(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    cluster.create_topic("t", 1, {})
    producer = make()

    with held(producer, "t"):
        for values in (["a"], ["b"]):
            producer.send_arrow("t", records(value=values))
        producer.send("t", b"c")
        producer.send_arrow("t", records(value=["d"]))
    producer.flush()

    assert sent_values(cluster) == [b"first", b"a", b"b", b"c", b"d"]


def test_a_batch_that_is_refused_fails_alone(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    """A compacted topic takes no record without key."""
    cluster.create_topic("t", 1, {"cleanup.policy": "compact"})
    producer = make()

    with held(producer, "t", key=["k"]):
        sent = [
            producer.send_arrow("t", records(key=["k"], value=["a"])),
            producer.send_arrow("t", records(value=["b"])),
            producer.send_arrow("t", records(key=["k"], value=["c"])),
        ]
    producer.flush()

    with pytest.raises(InvalidRecordError):
        sent[1].get(60)
    assert [sent[at].get(60).offsets for at in (0, 2)] == [{0: range(1, 2)}, {0: range(2, 3)}]
    assert sent_values(cluster) == [b"first", b"a", b"c"]


def test_all_fail_when_the_topic_is_gone(cluster: Cluster, make: Callable[..., KafkaProducer]) -> None:
    cluster.create_topic("t", 1, {})
    producer = make()

    with held(producer, "t"):
        sent = [producer.send_arrow("t", records(value=[value])) for value in "ab"]
        cluster.delete_topic("t")

    for future in sent:
        with pytest.raises(KafkaError):
            future.get(60)


def test_no_more_are_joined_than_the_limit(
    cluster: Cluster, make: Callable[..., KafkaProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic("t", 1, {})
    producer = make()
    monkeypatch.setattr(joined, "MOST_BYTES", 0)

    with held(producer, "t"):
        before = appends(cluster)
        sent: list[Any] = [producer.send_arrow("t", records(value=[value])) for value in "abc"]
    producer.flush()

    assert [future.get(60).offsets for future in sent] == [{0: range(at, at + 1)} for at in (1, 2, 3)]
    assert appends(cluster) - before == 3
