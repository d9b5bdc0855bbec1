"""A thread that is interrupted (Ctrl-C) at any line of a transaction's calls, over a cluster in memory."""

from collections.abc import Callable

import pytest

import kafkalike
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import IllegalStateError, InvalidTxnStateError
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.interrupted_lines import interrupted_at, lines
from tests.tools.partitions import partition_values

T0 = TopicPartition("t", 0)


def new() -> tuple[MemoryCluster, KafkaProducer]:
    """A cluster with a topic `t`, and an initialised producer."""
    cluster = MemoryCluster()
    cluster.create_topic("t", 1, {})
    producer = KafkaProducer(bootstrap_servers=cluster, transactional_id="x")
    producer.init_transactions()
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
    for line in lines():
        cluster = MemoryCluster()
        cluster.create_topic("t", 1, {})
        producer = KafkaProducer(bootstrap_servers=cluster, transactional_id="x")

        hit = interrupted_at(line, producer.init_transactions)
        producer.init_transactions()

        one_more(cluster, producer, [])
        if not hit:
            assert line > 5
            return


@pytest.mark.slow
def test_an_interrupted_begin_has_begun_or_not() -> None:
    """In both cases the program can go on: it aborts, or begins."""
    for line in lines():
        cluster, producer = new()

        hit = interrupted_at(line, producer.begin_transaction)
        try:
            producer.abort_transaction()
        except IllegalStateError:
            assert hit

        one_more(cluster, producer, [])
        if not hit:
            assert line > 3
            return


@pytest.mark.slow
def test_interrupted_offsets_are_all_there_or_none() -> None:
    """And the transaction goes on."""
    for line in lines():
        cluster, producer = new()
        producer.begin_transaction()
        offsets = {T0: OffsetAndMetadata(7)}

        hit = interrupted_at(line, lambda p=producer, o=offsets: p.send_offsets_to_transaction(o, "g"))  # type: ignore[misc]
        producer.send("t", b"v")
        producer.commit_transaction()

        assert committed(cluster) in ({7, None} if hit else {7})
        one_more(cluster, producer, [b"v"])
        if not hit:
            assert line > 5
            return


@pytest.mark.slow
@pytest.mark.parametrize("then", ["commit", "abort", "close"])
def test_an_interrupted_commit_has_one_outcome(then: str) -> None:
    """Asked for again it is made once; an abort finds out; close settles it."""
    for line in lines():
        cluster, producer = new()
        producer.begin_transaction()
        producer.send("t", b"v")
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")

        hit = interrupted_at(line, producer.commit_transaction)
        kept = _settled(producer, then)

        assert partition_values(cluster.log("t")) == ([b"v"] if kept in {True, None} and committed(cluster) else [])
        if kept is not None:
            assert (partition_values(cluster.log("t")), committed(cluster)) == (([b"v"], 7) if kept else ([], None))
        if then == "close":
            producer = KafkaProducer(bootstrap_servers=cluster, transactional_id="x")
            producer.init_transactions()
        one_more(cluster, producer, [b"v"] if committed(cluster) else [])
        if not hit:
            assert line > 10
            return


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
    for line in lines():
        cluster, producer = new()
        producer.begin_transaction()
        producer.send("t", b"v")

        hit = interrupted_at(line, producer.abort_transaction)
        try:
            producer.abort_transaction()
        except IllegalStateError:
            assert producer._transactions.phase == "ready"  # type: ignore[union-attr]

        one_more(cluster, producer, [])
        if not hit:
            assert line > 10
            return


@pytest.mark.slow
def test_an_interrupted_block_is_one_outcome_and_leaves_nothing_open() -> None:
    """At each line of the block, its begin and its end; the next block works at once."""
    for line in lines():
        cluster, producer = new()

        def run(producer: KafkaProducer = producer) -> None:
            with kafkalike.transaction(producer):
                producer.send("t", b"v")
                producer.send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")

        hit = interrupted_at(line, run)

        kept = committed(cluster) == 7
        assert partition_values(cluster.log("t")) == ([b"v"] if kept else [])
        one_more(cluster, producer, [b"v"] if kept else [])
        if not hit:
            assert kept
            assert line > 20
            return


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_close_leaves_the_transaction_to_the_next_one(times: int) -> None:
    """Which aborts it in the end, whoever it is: the same producer's next close, or the next producer of the id."""
    for line in lines():
        cluster, producer = new()
        producer.begin_transaction()
        future = producer.send("t", b"v")

        hit = interrupted_at(line, producer.close)
        calls: list[Callable[[], None]] = [producer.close] * times
        for call in calls:
            call()

        assert future.is_done
        assert partition_values(cluster.log("t")) == []
        if not hit:
            assert line > 10
            return
