"""Consumers killed with SIGKILL at every step of a commit with dead letters: each bad record is one, once.

The consumer works in a forked child; the next one, in this process, finishes what it has left.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kafkalike
from kafkalike.connect import open_cluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.consumer import write
from tests.tools.forked import killed
from tests.tools.letters import lettered, number
from tests.tools.partitions import partition_values

BAD = [(0, 1), (0, 3)]
GOOD = [1, 3, 5]
TP = TopicPartition("orders", 0)


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A topic with bad records among good ones. The topics are there: a child must not need deltalake's threads."""
    root = str(tmp_path / "cluster")
    cluster = open_cluster(root)
    for topic in ("orders", "orders.dlq", "bills"):
        cluster.create_topic(topic, 1, {"retention.ms": "-1"})
    write(cluster, b"1", b"two", b"3", b"four", b"5")
    return root


def consumer_of(root: str) -> KafkaConsumer:
    return KafkaConsumer(
        bootstrap_servers=root,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        errors_tolerance="all",
        value_deserializer=number,
    )


def polled(consumer: KafkaConsumer) -> list[Any]:
    consumer.assign([TP])
    return [record.value for records in consumer.poll().values() for record in records]


def consume(root: str) -> None:
    """Read everything, and commit in two steps."""
    with consumer_of(root) as consumer:
        polled(consumer)
        consumer.commit({TP: OffsetAndMetadata(2)})
        consumer.commit()


def transform(root: str) -> None:
    """Read everything, and commit copies, letters and offsets by one transaction of a producer."""
    with consumer_of(root) as consumer, KafkaProducer(bootstrap_servers=root, transactional_id="t") as producer:
        producer.init_transactions()
        with kafkalike.transaction(producer):
            for value in polled(consumer):
                producer.send("bills", str(value).encode())
            offsets = {TP: OffsetAndMetadata(consumer.position(TP))}
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())


def committed(cluster: Cluster) -> int:
    known = cluster.groups.refresh().group("g").offsets.get(TP)
    return 0 if known is None else known.position.offset


def helped(root: str) -> Cluster:
    """The cluster, with all that was decided in the topics."""
    cluster = open_cluster(root)
    cluster.transactions.cut(
        ["orders.dlq", "bills"], kafkalike.model.clock.Deadline(kafkalike.model.clock.SYSTEM_CLOCK, 60_000)
    )
    return cluster


STEPS = [
    *(f"transaction.{step}" for step in ("before_begin", "after_begin", "staged", "before_commit", "after_commit")),
    *(f"transaction.{step}" for step in ("before_apply", "after_apply", "staged@2", "after_commit@2")),
    *(f"dead_letters.{step}" for step in ("staged", "before_commit", "after_commit", "before_commit@2")),
    *("append.before_files", "append.before_commit", "append.after_commit"),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", STEPS)
def test_a_consumer_killed_in_its_commit_loses_and_doubles_no_letter(root: str, place: str) -> None:
    """Also in between: the letters are those of the records that the group's offset has passed."""
    killed(lambda: consume(root), place)

    cluster = helped(root)
    assert lettered(cluster) == [bad for bad in BAD if bad[1] < committed(cluster)]
    consume(root)
    assert (lettered(cluster), committed(cluster)) == (BAD, 5)
    assert verify(cluster, ["orders", "orders.dlq"]).errors() == 0


LOOP_STEPS = [
    *(f"transaction.{step}" for step in ("staged", "staged@2", "before_commit", "after_commit", "after_apply")),
    *("dead_letters.staged", "append.before_commit@2", "append.after_commit@2"),
]


@pytest.mark.slow
@pytest.mark.parametrize("place", LOOP_STEPS)
def test_a_loop_killed_in_its_commit_has_copies_letters_and_offsets_or_nothing(root: str, place: str) -> None:
    killed(lambda: transform(root), place)

    cluster = helped(root)
    done = committed(cluster) == 5
    assert lettered(cluster) == (BAD if done else [])
    assert partition_values(cluster.log("bills")) == ([b"1", b"3", b"5"] if done else [])
    transform(root)
    assert (lettered(cluster), committed(cluster)) == (BAD, 5)
    assert partition_values(cluster.log("bills")) == [b"1", b"3", b"5"]
