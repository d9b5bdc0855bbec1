"""A producer that is killed -9 in a transaction: all of it is committed or nothing, and whoever comes finishes it."""

import signal
from collections.abc import Callable

import pytest

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.record_batch import RecordBatch
from tests.tools.children import run
from tests.tools.findings import errors_of

TRANSACT = "tests.processes.workers.transaction_of_producer"
TOPICS = ["a", "b"]
PARTITIONS = [TopicPartition(topic, p) for topic in TOPICS for p in range(2)]
PATIENCE_MS = 60_000


@pytest.fixture
def cluster(root: str) -> Cluster:
    """Two topics of two partitions, and an input with a record."""
    made = connect(root)
    for topic in ("in", *TOPICS):
        made.create_topic(topic, 2, {})
    batch = RecordBatch()
    batch.add(0, None, b"in", 1_700_000_000_000)
    made.log("in").append(batch)
    return made


def transact(root: str, fault: str, end: str = "commit") -> None:
    """Let a process be killed at a fault point; `@2` at its second visit."""
    orders = {"root": root, "topics": TOPICS, "end": end}
    point, _, nth = fault.partition("@")
    order = f"{point}:kill@{nth}" if nth else f"{point}:kill"
    run(TRANSACT, orders, {"KAFKALIKE_FAULT": order}, expected=-signal.SIGKILL)


def ends(cluster: Cluster) -> list[int]:
    """How many records each partition of the outputs has."""
    logs = {topic: cluster.log(topic) for topic in TOPICS}
    return [logs[tp.topic].log_end(tp.partition) for tp in PARTITIONS]


def committed(cluster: Cluster) -> bool:
    """Whether the group has the transaction's offset."""
    ids = {"in": cluster.topic("in").topic_id}
    return bool(GroupOffsets.of(cluster, SYSTEM_CLOCK).committed("g", [TopicPartition("in", 0)], ids))


def next_producer(cluster: Cluster) -> None:
    """Somebody who takes the transactional id over."""
    with KafkaProducer(bootstrap_servers=cluster, transactional_id="x") as producer:
        producer.init_transactions()


def consumer(cluster: Cluster) -> None:
    """Somebody who only reads; it has what is there in the end."""
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as reader:
        reader.assign(PARTITIONS)
        found = 0
        limit = Deadline(SYSTEM_CLOCK, PATIENCE_MS)
        while found < len(PARTITIONS):
            assert not limit.expired(), f"{found} records came"
            found += sum(map(len, reader.poll(timeout_ms=200).values()))


def maintenance(cluster: Cluster) -> None:
    """Somebody who looks after the root."""
    assert cluster.transactions.maintain(Deadline(SYSTEM_CLOCK, PATIENCE_MS)) == []


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("transaction.before_begin", "commit"),
        ("transaction.after_begin", "commit"),
        ("transaction.staged", "commit"),
        ("transaction.staged@2", "commit"),
        ("transaction.before_commit", "commit"),
        ("transaction.before_abort", "abort"),
        ("transaction.after_abort", "abort"),
        ("transaction.before_remove", "abort"),
        ("transaction.after_remove", "abort"),
    ],
)
def test_one_that_is_killed_before_the_decision_has_written_nothing(
    root: str, cluster: Cluster, fault: str, end: str
) -> None:
    """Nor does it after somebody else has cleared it away; what it had staged is gone by then."""
    transact(root, fault, end)
    before = (ends(cluster), committed(cluster))
    next_producer(cluster)

    assert before == (ends(cluster), committed(cluster)) == ([0, 0, 0, 0], False)
    assert cluster.transactions.open_for() == []
    assert errors_of(root) == []


@pytest.mark.parametrize("helper", [next_producer, consumer, maintenance])
@pytest.mark.parametrize(
    ("fault", "seen"),
    [
        ("transaction.after_commit", [0, 0, 0, 0]),
        ("transaction.before_apply", [0, 0, 0, 0]),
        ("transaction.after_apply", [1, 1, 0, 0]),
        ("transaction.before_remove", [1, 1, 1, 1]),
        ("transaction.after_remove", [1, 1, 1, 1]),
    ],
)
def test_one_that_is_killed_after_the_decision_is_finished_by_whoever_comes(
    root: str, cluster: Cluster, fault: str, seen: list[int], helper: Callable[[Cluster], None]
) -> None:
    """Once, however many come; the offset was there with the decision."""
    transact(root, fault)
    before = (ends(cluster), committed(cluster))
    helper(cluster)
    after = ends(cluster)
    for other in (consumer, next_producer, maintenance):
        other(connect(root))

    assert before == (seen, True)
    assert after == ends(cluster) == [1, 1, 1, 1]
    assert errors_of(root) == []
