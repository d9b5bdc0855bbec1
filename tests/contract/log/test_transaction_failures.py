"""Transactions that fail: refused records, fenced producers, timeouts, the end of a producer, and threads."""

import threading
from collections.abc import Callable

import pytest

import kafkalike
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.errors import (
    IllegalStateError,
    InvalidProducerEpochError,
    InvalidTransactionTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.structs import OffsetAndMetadata
from kafkalike.producer import KafkaProducer
from tests.tools.transactional import T0, U0, committed, values

# --- failures -------------------------------------------------------------------------------------


def test_a_record_that_the_topic_refuses_makes_the_transaction_one_to_be_aborted(
    log_cluster: Cluster, producer: KafkaProducer
) -> None:
    """Its future says why, the calls say to abort, and the producer goes on."""
    log_cluster.create_topic("small", 1, {"max.message.bytes": "500"})
    producer.begin_transaction()
    good = producer.send("t", b"good", partition=0)
    bad = producer.send("small", b"x" * 1000)
    producer.flush()
    with pytest.raises(TransactionAbortableError) as refused:
        producer.send("t", b"more")
    with pytest.raises(TransactionAbortableError):
        producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    with pytest.raises(TransactionAbortableError):
        producer.commit_transaction()
    with pytest.raises(TransactionAbortableError):
        producer.begin_transaction()
    producer.abort_transaction()
    producer.begin_transaction()
    producer.send("t", b"next", partition=0)
    producer.commit_transaction()

    assert good.succeeded()
    assert type(bad.exception) is MessageSizeTooLargeError
    assert type(refused.value.__cause__) is MessageSizeTooLargeError
    assert values(log_cluster, "t") == [b"next"]


def test_a_commit_finds_the_record_that_failed_while_it_waited(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]
) -> None:
    """Nothing of the transaction is written."""
    log_cluster.create_topic("small", 1, {"max.message.bytes": "500"})
    producer = producer_of(linger_ms=5_000)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"good", partition=0)
    producer.send("small", b"x" * 1000)

    with pytest.raises(TransactionAbortableError, match="500"):
        producer.commit_transaction()
    producer.abort_transaction()

    assert (values(log_cluster, "t"), values(log_cluster, "small")) == ([], [])


def test_records_that_wait_are_aborted_with_their_transaction(producer_of: Callable[..., KafkaProducer]) -> None:
    """KIP-654: they fail by a name of their own; what was staged has its outcome already."""
    producer = producer_of(linger_ms=60_000, delivery_timeout_ms=120_000)
    producer.init_transactions()
    producer.begin_transaction()
    staged = producer.send("t", b"staged")
    producer.flush()
    waiting = producer.send("t", b"waiting")
    producer.abort_transaction()

    assert staged.succeeded()
    with pytest.raises(TransactionAbortedError):
        waiting.get(60)


def test_a_topic_that_is_deleted_before_the_commit(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Nothing of the transaction is committed, in no topic."""
    producer.begin_transaction()
    producer.send("t", b"v", partition=0)
    producer.send("u", b"v")
    producer.flush()
    log_cluster.delete_topic("u")

    with pytest.raises(UnknownTopicOrPartitionError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert values(log_cluster, "t") == []


def test_a_timeout_above_the_servers_is_refused(producer_of: Callable[..., KafkaProducer]) -> None:
    """15 minutes, unless the server says otherwise."""
    with pytest.raises(InvalidTransactionTimeoutError, match="900000"):
        producer_of(transaction_timeout_ms=900_001).init_transactions()
    producer_of(transaction_timeout_ms=900_000).init_transactions()


def test_the_servers_own_limit_counts() -> None:
    """`transaction.max.timeout.ms` of its properties."""
    server = ServerProperties.from_properties({"transaction.max.timeout.ms": "1000"})
    cluster = MemoryCluster(server=server)
    with (
        KafkaProducer(bootstrap_servers=cluster, transactional_id="x") as producer,
        pytest.raises(InvalidTransactionTimeoutError, match="1000"),
    ):
        producer.init_transactions()


def test_a_transaction_past_its_timeout_is_to_be_aborted(clock: ManualClock) -> None:
    """By the producer's own clock, before maintenance has looked; the time counts from its first record."""
    cluster = MemoryCluster(clock=clock)
    cluster.create_topic("t", 1, {})
    with KafkaProducer(
        bootstrap_servers=cluster, clock=clock, transactional_id="x", transaction_timeout_ms=1000
    ) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        clock.sleep(10)
        producer.send("t", b"in time").get(60)
        clock.sleep(0.9)
        producer.commit_transaction()
        producer.begin_transaction()
        producer.send("t", b"late").get(60)
        clock.sleep(1.1)
        with pytest.raises(TransactionAbortableError, match="transaction_timeout_ms=1000"):
            producer.commit_transaction()
        producer.abort_transaction()
        with kafkalike.transaction(producer):
            producer.send("t", b"next")

    assert values(cluster, "t") == [b"in time", b"next"]


# --- several producers of one id ------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "abort", "later"])
def test_a_newer_producer_of_the_id_fences_the_older_one(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer], producer: KafkaProducer, end: str
) -> None:
    """Whatever the older one does next, nothing of it is committed, and it is told so for good."""
    producer.begin_transaction()
    producer.send("t", b"old", partition=0).get(60)
    newer = producer_of()
    newer.init_transactions()
    newer.begin_transaction()
    newer.send("t", b"new", partition=0)
    if end == "later":
        newer.commit_transaction()

    with pytest.raises(ProducerFencedError):
        producer.abort_transaction() if end == "abort" else producer.commit_transaction()
    calls: list[Callable[[], object]] = [
        producer.begin_transaction,
        producer.commit_transaction,
        producer.abort_transaction,
        producer.init_transactions,
        lambda: producer.send("t", b"more"),
        lambda: producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g"),
    ]
    for call in calls:
        with pytest.raises(ProducerFencedError):
            call()
    producer.close()
    if end != "later":
        newer.commit_transaction()

    assert values(log_cluster, "t") == [b"new"]


def test_an_administrator_may_end_a_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """The producer hears another error than that of a newer producer."""
    producer.begin_transaction()
    producer.send("t", b"v", partition=0).get(60)
    log_cluster.transactions.fence("copier", Deadline(SYSTEM_CLOCK, 60_000))

    with pytest.raises(InvalidProducerEpochError):
        producer.commit_transaction()
    with pytest.raises(InvalidProducerEpochError):
        producer.begin_transaction()
    assert values(log_cluster, "t") == []


def test_producers_of_different_ids_do_not_meet(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]
) -> None:
    """Each has its own transactions, open at the same time."""
    producers = [producer_of(transactional_id=f"id-{number}") for number in range(3)]
    for number, one in enumerate(producers):
        one.init_transactions()
        one.begin_transaction()
        one.send("u", str(number).encode())
    for one in reversed(producers):
        one.commit_transaction()

    assert values(log_cluster, "u") == [b"2", b"1", b"0"]


def test_the_next_producer_of_an_id_goes_on_after_the_one_before(
    log_cluster: Cluster, producer_of: Callable[..., KafkaProducer]
) -> None:
    """Closed or not; what was open is nowhere."""
    for number in range(4):
        one = producer_of()
        one.init_transactions()
        one.begin_transaction()
        one.send("u", f"kept-{number}".encode())
        one.commit_transaction()
        one.begin_transaction()
        one.send("u", f"lost-{number}".encode()).get(60)
        if number % 2:
            one.close()

    assert values(log_cluster, "u") == [f"kept-{number}".encode() for number in range(4)]


# --- close, threads -------------------------------------------------------------------------------


def test_close_aborts_the_open_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """As Kafka's producer does; nothing is left open for its timeout."""
    producer.begin_transaction()
    future = producer.send("t", b"v", partition=0)
    producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g")
    producer.close()

    assert future.is_done
    assert (values(log_cluster, "t"), committed(log_cluster)) == ([], {})
    assert log_cluster.transactions.open_for() == []


def test_threads_send_into_one_transaction(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """All of theirs is in it, each thread's in its order."""
    producer.begin_transaction()

    def send(name: int) -> None:
        for number in range(200):
            producer.send("t", f"{name}-{number}".encode(), partition=0)

    threads = [threading.Thread(target=send, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ranges = producer.commit_transaction()

    found = [value.decode() for value in values(log_cluster, "t") if value is not None]
    assert ranges == {T0: range(800)}
    for name in range(4):
        mine = [value for value in found if value.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(200)]


def test_a_send_beside_a_commit_is_in_the_transaction_or_refused(log_cluster: Cluster, producer: KafkaProducer) -> None:
    """Never in the next one, never lost after its future was given."""
    taken: list[bytes] = []
    refused = 0
    stop = threading.Event()

    def send() -> None:
        nonlocal refused
        number = 0
        while not stop.is_set():
            value = str(number).encode()
            try:
                producer.send("u", value)
            except IllegalStateError:
                refused += 1
            else:
                taken.append(value)
                number += 1

    thread = threading.Thread(target=send)
    thread.start()
    total = 0
    try:
        for _ in range(10):
            producer.begin_transaction()
            total += len(producer.commit_transaction().get(U0, ()))
    finally:
        stop.set()
        thread.join()

    assert values(log_cluster, "u") == taken
    assert total == len(taken)
