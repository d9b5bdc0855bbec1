"""Transactions over a log that gives no answer, refuses, or waits: what a program can do then, and what it may not."""

import logging
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

import kafkalike
from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import (
    IllegalStateError,
    InvalidTxnStateError,
    KafkaStorageError,
    KafkaTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    UnknownOutcomeError,
)
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.log.transactions.session import TransactionSession
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.record_batch import Appended
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.partitions import partition_values
from tests.tools.producers import producers, raiser

T0 = TopicPartition("t", 0)
LOST = UnknownOutcomeError("commit of a transaction", "1-1")
BUSY = KafkaStorageError("the disk is full")

Fault = tuple[str, Callable[[], object]]
"""`before` or `after` the call, and what happens."""


class FaultyCluster:
    """A cluster in memory whose transactions do what a test says before or after each call."""

    def __init__(self) -> None:
        self.inner = MemoryCluster()
        self.faults: dict[str, deque[Fault]] = {}
        """By call: `begin_session`, `stage`, `commit`, `abort`."""
        self.asked: list[str] = []
        """The calls that were made."""
        self.transactions = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def fail(self, call: str, when: str, *errors: Exception) -> None:
        """Let the next calls raise, before or after they are made."""
        self.faults.setdefault(call, deque()).extend((when, raiser(error)) for error in errors)

    def run(self, call: str, do: Callable[[], Any]) -> Any:
        """Make a call as the test says."""
        self.asked.append(call)
        waiting = self.faults.get(call)
        when, fault = waiting.popleft() if waiting else ("", lambda: None)
        if when == "before":
            fault()
        done = do()
        if when == "after":
            fault()
        return done

    def begin_session(self, transactional_id: str, timeout_ms: int, client_id: str, deadline: Deadline) -> Any:
        """Open a session."""
        real = self.inner.transactions
        inner = self.run("begin_session", lambda: real.begin_session(transactional_id, timeout_ms, client_id, deadline))
        return FaultySession(self, inner)


class FaultySession:
    """A session of a `FaultyCluster`."""

    def __init__(self, cluster: FaultyCluster, inner: TransactionSession) -> None:
        self.cluster = cluster
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def stage(self, number: int, log: TopicLog, batch: Any, **options: Any) -> None:
        """Stage as the test says."""
        self.cluster.run("stage", lambda: self.inner.stage(number, log, batch, **options))

    def commit(self, number: int, offsets: Any, deadline: Deadline, **options: Any) -> Mapping[str, Appended]:
        """Commit as the test says."""
        done: Mapping[str, Appended] = self.cluster.run(
            "commit", lambda: self.inner.commit(number, offsets, deadline, **options)
        )
        return done

    def abort(self, number: int, deadline: Deadline) -> None:
        """Abort as the test says."""
        self.cluster.run("abort", lambda: self.inner.abort(number, deadline))


@pytest.fixture
def cluster() -> FaultyCluster:
    """A cluster with a topic `t` of one partition."""
    made = FaultyCluster()
    made.create_topic("t", 1, {})
    return made


@pytest.fixture
def make(cluster: FaultyCluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers that are closed after the test."""
    with producers(cluster, transactional_id="x", retry_backoff_ms=0) as make:
        yield make


@pytest.fixture
def producer(make: Callable[..., KafkaProducer]) -> KafkaProducer:
    """A producer that has begun a transaction with a record and an offset."""
    one = make()
    one.init_transactions()
    one.begin_transaction()
    one.send("t", b"v")
    one.send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")
    return one


def committed(cluster: FaultyCluster) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the group has committed."""
    offsets = GroupOffsets.of(cluster.inner, SYSTEM_CLOCK)
    return offsets.committed("g", [T0], {"t": cluster.topic("t").topic_id})


def done(cluster: FaultyCluster) -> bool:
    """Whether the transaction is committed: all of it or nothing."""
    found = (partition_values(cluster.inner.log("t")), committed(cluster))
    assert found in [([], {}), ([b"v"], {T0: OffsetAndMetadata(7)})], found
    return found[0] == [b"v"]


def next_one(producer: KafkaProducer) -> None:
    """Another transaction works."""
    producer.begin_transaction()
    producer.abort_transaction()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [LOST, BUSY, KafkaTimeoutError("late")], ids=lambda error: type(error).__name__)
def test_a_commit_without_an_answer_is_made_again_and_counts_once(
    cluster: FaultyCluster, producer: KafkaProducer, when: str, error: Exception
) -> None:
    """Nothing else may be done until then but an abort."""
    cluster.fail("commit", when, error, error)
    for _ in range(2):
        with pytest.raises(type(error)):
            producer.commit_transaction()
    calls: list[Callable[[], object]] = [
        producer.begin_transaction,
        lambda: producer.send("t", b"more"),
        lambda: producer.send_offsets_to_transaction({T0: OffsetAndMetadata(1)}, "g"),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="commit_transaction"):
            call()
    producer.init_transactions()

    assert producer.commit_transaction() == {T0: range(1)}
    assert done(cluster)
    next_one(producer)


def test_an_abort_after_a_commit_without_an_answer_that_was_not_made(
    cluster: FaultyCluster, producer: KafkaProducer
) -> None:
    """Then the transaction is aborted."""
    cluster.fail("commit", "before", LOST)
    with pytest.raises(UnknownOutcomeError):
        producer.commit_transaction()
    producer.abort_transaction()

    assert not done(cluster)
    next_one(producer)


def test_an_abort_after_a_commit_without_an_answer_that_was_made(
    cluster: FaultyCluster, producer: KafkaProducer
) -> None:
    """It is refused, and the commit is finished."""
    cluster.fail("commit", "after", LOST)
    with pytest.raises(UnknownOutcomeError):
        producer.commit_transaction()
    for _ in range(2):
        with pytest.raises(InvalidTxnStateError):
            producer.abort_transaction()

    assert producer.commit_transaction() == {T0: range(1)}
    assert done(cluster)
    next_one(producer)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_abort_without_an_answer_is_made_again(cluster: FaultyCluster, producer: KafkaProducer, when: str) -> None:
    """A commit is out of order by then."""
    cluster.fail("abort", when, LOST)
    with pytest.raises(UnknownOutcomeError):
        producer.abort_transaction()
    for call in (producer.commit_transaction, producer.begin_transaction):
        with pytest.raises(IllegalStateError, match="abort_transaction"):
            call()
    producer.abort_transaction()

    assert not done(cluster)
    next_one(producer)


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_initialisation_without_an_answer_is_made_again(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer], when: str
) -> None:
    """What the first one may have done is fenced by the second one."""
    cluster.fail("begin_session", when, LOST)
    producer = make()
    with pytest.raises(UnknownOutcomeError):
        producer.init_transactions()
    with pytest.raises(IllegalStateError, match="init_transactions"):
        producer.begin_transaction()
    producer.init_transactions()
    producer.init_transactions()

    next_one(producer)
    assert cluster.asked.count("begin_session") == 2


@pytest.mark.parametrize(("when", "expected"), [("before", False), ("after", True)])
def test_close_settles_a_commit_without_an_answer(
    cluster: FaultyCluster, producer: KafkaProducer, when: str, *, expected: bool
) -> None:
    """What was made is finished; what was not is aborted, since nobody asks for it any more."""
    cluster.fail("commit", when, LOST)
    with pytest.raises(UnknownOutcomeError):
        producer.commit_transaction()
    producer.close()

    assert done(cluster) is expected
    assert cluster.asked.count("abort") == 1


def test_close_that_cannot_abort_says_so_and_ends(
    cluster: FaultyCluster, producer: KafkaProducer, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody waits for an open transaction, so that is no error."""
    cluster.fail("abort", "before", BUSY)
    caplog.set_level(logging.WARNING, logger="kafkalike.producer")  # commands of other tests have made it quiet
    producer.close()

    assert "left to the next init_transactions" in caplog.text
    assert not done(cluster)


def test_a_batch_that_could_not_be_staged_is_staged_again(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """For `delivery_timeout_ms`, as an append without a transaction."""
    cluster.fail("stage", "before", BUSY, BUSY)
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"v")
    producer.commit_transaction()

    assert (future.succeeded(), partition_values(cluster.inner.log("t"))) == (True, [b"v"])
    assert cluster.asked.count("stage") == 3


def test_a_batch_that_may_be_staged_is_not_staged_again(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Its transaction is aborted."""
    cluster.fail("stage", "after", LOST)
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    future = producer.send("t", b"v")
    with pytest.raises(TransactionAbortableError) as refused:
        producer.commit_transaction()
    producer.abort_transaction()

    assert future.exception is LOST
    assert refused.value.__cause__ is LOST
    assert partition_values(cluster.inner.log("t")) == []
    assert cluster.asked.count("stage") == 1


def test_an_abort_waits_for_the_batch_that_is_being_staged_and_for_no_other(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """The others fail as aborted."""
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(60)

    cluster.faults["stage"] = deque([("before", wait)])
    producer = make()
    producer.init_transactions()
    producer.begin_transaction()
    first = producer.send("t", b"first")
    assert begun.wait(60)
    second = producer.send("t", b"second")
    thread = threading.Thread(target=producer.abort_transaction)
    thread.start()
    while str(producer._transactions.phase) != "aborting":  # type: ignore[union-attr]
        threading.Event().wait(0.001)
    go_on.set()
    thread.join(60)

    assert first.succeeded()
    assert type(second.exception) is TransactionAbortedError
    assert cluster.asked.count("stage") == 1
    next_one(producer)


def test_a_commit_that_waits_too_long_for_its_records_may_be_asked_for_again(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """`max_block_ms` counts for the whole call; nothing was decided."""
    go_on = threading.Event()
    cluster.faults["stage"] = deque([("before", lambda: go_on.wait(60))])
    producer = make(max_block_ms=50)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("t", b"v")
    with pytest.raises(KafkaTimeoutError):
        producer.commit_transaction()
    go_on.set()
    producer.flush()

    assert "commit" not in cluster.asked
    assert producer.commit_transaction() == {T0: range(1)}


def test_a_block_asks_again_for_a_commit_without_an_answer(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """Until it has one."""
    cluster.fail("commit", "after", LOST, BUSY)
    producer = make()
    with kafkalike.transaction(producer) as t:
        producer.send("t", b"v")

    assert t.ranges == {T0: range(1)}
    assert cluster.asked.count("commit") == 3
    assert partition_values(cluster.inner.log("t")) == [b"v"]


@pytest.mark.slow
def test_a_block_whose_commit_gets_no_answer_in_time_leaves_it_to_be_asked_for_again(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer]
) -> None:
    """It must not say that nothing was committed."""
    producer = make(delivery_timeout_ms=2, request_timeout_ms=1)
    producer.init_transactions()
    cluster.fail("commit", "after", *[LOST] * 100_000)

    def run() -> None:
        with kafkalike.transaction(producer):
            producer.send_offsets_to_transaction({T0: OffsetAndMetadata(7)}, "g")

    with pytest.raises(UnknownOutcomeError):
        run()
    cluster.faults.clear()

    assert producer.commit_transaction() == {}
    assert committed(cluster) == {T0: OffsetAndMetadata(7)}


@pytest.mark.parametrize(("when", "expected"), [("before", False), ("after", True)])
def test_a_block_whose_commit_is_interrupted_is_settled(
    cluster: FaultyCluster, make: Callable[..., KafkaProducer], when: str, *, expected: bool
) -> None:
    """Ctrl-C goes on its way, and the producer is ready for another transaction."""
    producer = make()
    cluster.faults["commit"] = deque([(when, raiser(KeyboardInterrupt()))])

    def run() -> None:
        with kafkalike.transaction(producer):
            producer.send("t", b"v")

    with pytest.raises(KeyboardInterrupt):
        run()

    assert (partition_values(cluster.inner.log("t")) == [b"v"]) is expected
    next_one(producer)


def test_a_fenced_producer_stages_nothing_more(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """What waits fails with the error that the calls raise."""
    producer = make(linger_ms=60_000)
    producer.init_transactions()
    producer.begin_transaction()
    cluster.fail("abort", "before", ProducerFencedError("a newer one is there"))
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction()
    producer.close()

    assert "stage" not in cluster.asked


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_fork_leaves_it_to_the_parent(cluster: FaultyCluster, make: Callable[..., KafkaProducer]) -> None:
    """The child can neither end it nor add to it, and leaving the block there does nothing."""
    producer = make()
    parent = os.getpid()
    try:
        with kafkalike.transaction(producer):
            producer.send("t", b"v")
            producer.flush()
            child = os.fork()
            if child == 0:
                refused = 0
                calls: list[Callable[[], object]] = [
                    producer.commit_transaction,
                    producer.abort_transaction,
                    lambda: producer.send("t", b"w"),
                ]
                for call in calls:
                    try:
                        call()
                    except IllegalStateError as error:
                        refused += "fork" in str(error)
                producer.close()
                assert refused == len(calls)
            else:
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    except BaseException as error:
        if os.getpid() == parent:
            raise
        asked = {"commit", "abort"} & set(cluster.asked)
        os._exit(0 if type(error) is IllegalStateError and not asked else 1)

    assert partition_values(cluster.inner.log("t")) == [b"v"]
