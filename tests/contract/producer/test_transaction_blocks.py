"""kafkalike.transaction: a block of a program is one transaction, whatever leaves it."""

from collections.abc import Callable

import pytest

import kafkalike
from kafkalike.errors import (
    CommitFailedError,
    IllegalStateError,
    ProducerFencedError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata
from kafkalike.producer import KafkaProducer
from tests.tools.transactional import T0, committed, values


def test_a_block_that_ends_well_is_committed(log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]) -> None:
    """`init_transactions` is done when nobody has done it."""
    producer = producer_of()

    found = []
    for number in range(2):
        with kafkalike.transaction(producer) as t:
            producer.send("t", str(number).encode(), partition=0)
            t.producer.send_offsets_to_transaction({T0: OffsetAndMetadata(number)}, "g")
        found.append(t.ranges)

    assert found == [{T0: range(1)}, {T0: range(1, 2)}]
    assert (values(log_cluster, "t"), committed(log_cluster)) == ([b"0", b"1"], {T0: OffsetAndMetadata(1)})


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_a_block_that_an_exception_leaves_is_aborted(
    log_cluster: Cluster, producer: KafkaProducer, error: type[BaseException]
) -> None:
    """The exception goes on its way, and the producer is ready for the next block."""

    def run() -> None:
        with kafkalike.transaction(producer):
            producer.send("t", b"v", partition=0)
            raise error

    with pytest.raises(error):
        run()
    with kafkalike.transaction(producer):
        producer.send("t", b"next", partition=0)

    assert values(log_cluster, "t") == [b"next"]


def test_a_block_whose_commit_is_refused_is_aborted(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """And says why."""
    stranger = ConsumerGroupMetadata("g", 5, "nobody", None)

    def run() -> None:
        with kafkalike.transaction(producer):
            producer.send("t", b"v", partition=0)
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, stranger)

    with pytest.raises(CommitFailedError):
        run()
    with kafkalike.transaction(producer):
        producer.send("t", b"next", partition=0)

    assert values(log_cluster, "t") == [b"next"]


def test_a_block_of_a_fenced_producer_says_so(
    producer_of: Callable[..., KafkaProducer], producer: KafkaProducer
) -> None:
    """Also when it was fenced within the block, and the block fails for another reason."""

    def run() -> None:
        with kafkalike.transaction(producer):
            producer.send("t", b"v").get(60)
            producer_of().init_transactions()

    for _ in range(2):
        with pytest.raises(ProducerFencedError):
            run()


def test_a_block_may_end_its_transaction_itself(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """An abort on a condition, for example."""
    with kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        producer.abort_transaction()

    assert values(log_cluster, "t") == []


def test_a_block_within_a_transaction_is_refused_and_leaves_it_alone(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Transactions do not nest."""
    with kafkalike.transaction(producer):
        producer.send("t", b"v", partition=0)
        with pytest.raises(IllegalStateError), kafkalike.transaction(producer):
            raise AssertionError

    assert values(log_cluster, "t") == [b"v"]


def test_a_block_needs_a_transactional_producer(producer_of: Callable[..., KafkaProducer]) -> None:
    """Else nothing would be atomic."""
    with (
        pytest.raises(IllegalStateError, match="no transactional_id"),
        kafkalike.transaction(producer_of(transactional_id=None)),
    ):
        raise AssertionError
