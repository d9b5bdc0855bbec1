"""A thread that is interrupted (Ctrl-C) at any line of a transaction's calls, over a cluster in memory."""

import pytest

import kafkalike
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import IllegalStateError, InvalidTxnStateError
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.producer.future import FutureRecordMetadata
from tests.tools.interrupts import PRODUCER, STEP, interrupted
from tests.tools.partitions import partition_values

T0 = TopicPartition("t", 0)


Client = tuple[MemoryCluster, KafkaProducer]


def uninitialized() -> Client:
    """A cluster with a topic `t`, and a producer."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    return cluster, KafkaProducer(bootstrap_servers=cluster, transactional_id="x")


def new() -> Client:
    """The producer is initialized."""
    cluster, producer = uninitialized()
    producer.init_transactions()
    return cluster, producer


def begun() -> Client:
    """The producer has begun a transaction."""
    cluster, producer = new()
    producer.begin_transaction()
    return cluster, producer


def with_record() -> Client:
    """The transaction has a record."""
    cluster, producer = begun()
    producer.send("t", b"v")
    return cluster, producer


def with_offsets() -> Client:
    """The transaction has a record and offsets."""
    cluster, producer = with_record()
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")
    return cluster, producer


def committed(cluster: MemoryCluster) -> int | None:
    """What the group has committed."""
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    found = offsets.committed("g", [T0], {"t": cluster.topic("t").topic_id}).get(T0)
    return None if found is None else found.offset


def one_more(cluster: MemoryCluster, producer: KafkaProducer, expected: list[bytes]) -> None:
    """The producer can do another transaction, and nothing else is in the topic."""
    producer.begin_transaction()
    producer.send("t", b"next")
    producer.commit_transaction()

    assert partition_values(cluster.log("t")) == [*expected, b"next"]
    producer.close(60)
    assert producer._buffer.used == 0


@pytest.mark.slow
def test_an_interrupted_initialisation_is_made_again() -> None:
    """A second one always does."""
    for (cluster, producer), _ in interrupted(
        uninitialized, lambda client: client[1].init_transactions(), PRODUCER, least=5
    ):
        producer.init_transactions()

        one_more(cluster, producer, [])


@pytest.mark.slow
def test_an_interrupted_begin_has_begun_or_not() -> None:
    """In both cases the program can go on: it aborts, or begins."""
    for (cluster, producer), hit in interrupted(new, lambda client: client[1].begin_transaction(), PRODUCER, least=3):
        try:
            producer.abort_transaction()
        except IllegalStateError:
            assert hit

        one_more(cluster, producer, [])


@pytest.mark.slow
def test_interrupted_offsets_are_all_there_or_none() -> None:
    """And the transaction goes on."""
    offsets = {T0: OffsetAndMetadata(7)}
    for (cluster, producer), hit in interrupted(
        begun, lambda client: client[1].send_offsets_to_transaction(offsets, "g"), PRODUCER, least=5, step=STEP
    ):
        producer.send("t", b"v")
        producer.commit_transaction()

        assert committed(cluster) in ({7, None} if hit else {7})
        one_more(cluster, producer, [b"v"])


@pytest.mark.slow
@pytest.mark.parametrize("then", ["commit", "abort", "close"])
def test_an_interrupted_commit_has_one_outcome(then: str) -> None:
    """Asked for again it is made once; an abort finds out; close settles it."""
    for (cluster, producer), _ in interrupted(
        with_offsets, lambda client: client[1].commit_transaction(), PRODUCER, least=10, step=STEP
    ):
        kept = _settled(producer, then)

        assert partition_values(cluster.log("t")) == ([b"v"] if kept in {True, None} and committed(cluster) else [])
        if kept is not None:
            assert (partition_values(cluster.log("t")), committed(cluster)) == (([b"v"], 7) if kept else ([], None))
        following = KafkaProducer(bootstrap_servers=cluster, transactional_id="x") if then == "close" else producer
        if then == "close":
            following.init_transactions()
        one_more(cluster, following, [b"v"] if committed(cluster) else [])


def _settled(producer: KafkaProducer, then: str) -> bool | None:
    """Ask again; whether it must be committed, None where that depends on where it was cut off."""
    if then == "close":
        producer.close(60)
        return None
    try:
        if then == "commit":
            producer.commit_transaction()
            return True
        producer.abort_transaction()
    except InvalidTxnStateError:
        producer.commit_transaction()
        return True
    except IllegalStateError:  # it was cut off before its first step, or after its last one
        if producer._transactions.phase == "ready":  # type: ignore[union-attr]
            return True
        raise
    return False


@pytest.mark.slow
def test_an_interrupted_abort_is_made_again() -> None:
    """Nothing of the transaction is there."""
    for (cluster, producer), _ in interrupted(
        with_record, lambda client: client[1].abort_transaction(), PRODUCER, least=10
    ):
        try:
            producer.abort_transaction()
        except IllegalStateError:
            assert producer._transactions.phase == "ready"  # type: ignore[union-attr]

        one_more(cluster, producer, [])


@pytest.mark.slow
def test_an_interrupted_block_is_one_outcome_and_leaves_nothing_open() -> None:
    """At each line of the block, its begin and its end; the next block works at once."""

    def run(client: Client) -> None:
        with kafkalike.transaction(client[1]):
            client[1].send("t", b"v")
            client[1].send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")

    for (cluster, producer), hit in interrupted(new, run, PRODUCER, least=20, step=STEP):
        kept = committed(cluster) == 7
        assert kept or hit
        assert partition_values(cluster.log("t")) == ([b"v"] if kept else [])
        one_more(cluster, producer, [b"v"] if kept else [])


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_close_leaves_the_transaction_to_the_next_one(times: int) -> None:
    """Which aborts it in the end, whoever it is: the same producer's next close, or the next producer of the id."""

    def sent() -> tuple[MemoryCluster, KafkaProducer, FutureRecordMetadata]:
        cluster, producer = begun()
        return cluster, producer, producer.send("t", b"v")

    for (cluster, producer, future), _ in interrupted(sent, lambda client: client[1].close(), PRODUCER, least=10):
        for _time in range(times):
            producer.close()

        assert future.is_done
        assert partition_values(cluster.log("t")) == []
