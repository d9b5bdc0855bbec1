"""Transaction block: one transaction per `with` block, committed at its end, aborted by an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafkalike.errors import IllegalStateError, KafkaError
from kafkalike.producer.kafka_producer import KafkaProducer
from kafkalike.producer.transaction_state import NOT_TRANSACTIONAL, Ranges, TxnPhase


class Transaction:
    """A transaction of a `with` block; see `transaction`."""

    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer
        """Send with it, and give it offsets."""
        self.ranges: Ranges = {}
        """After the block: offsets of the records, by partition."""


@contextmanager
def transaction(producer: KafkaProducer) -> Iterator[Transaction]:
    """One transaction: committed at the end of the block, aborted when an exception leaves it.

        with kafkalike.transaction(producer) as t:
            producer.send("orders", b"...")
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        print(t.ranges)

    Calls `init_transactions` first; that does nothing when it was called before. A commit without an answer is made
    again until its outcome is known, for `delivery_timeout_ms` at most. An abort that fails is logged, and the
    exception of the block goes on its way: what could not be aborted has no effect, and is cleared by the next
    `init_transactions` of the id, or by its timeout. After the block the producer is ready for the next transaction,
    unless it was fenced.

    Args:
        producer: has a `transactional_id`, and no open transaction.

    Raises:
        IllegalStateError: it has no `transactional_id`, or a transaction is open.
        UnknownOutcomeError, KafkaTimeoutError, KafkaStorageError: the outcome could not be found out in time; call
            `commit_transaction` again.
        CommitFailedError, TransactionAbortableError, ...: as `commit_transaction`; nothing was committed, and the
            transaction is aborted.
        ProducerFencedError, InvalidProducerEpochError: see `commit_transaction`; close the producer.
    """
    manager = producer._transactions  # noqa: SLF001 - a part of the producer
    if manager is None:
        raise IllegalStateError(NOT_TRANSACTIONAL)
    opened = Transaction(producer)
    try:
        manager.init()
        manager.begin(opened)
        yield opened
        if manager.owner is opened:  # else the block has committed or aborted it
            opened.ranges = manager.commit_surely()
    except BaseException as error:
        # A commit without an answer may be asked for again; one that was cut off by Ctrl-C is settled here.
        unanswered = isinstance(error, KafkaError) and manager.phase is TxnPhase.COMMITTING
        if manager.owner is opened and not unanswered:
            manager.end()
        raise
