"""Transaction methods of `KafkaProducer`, with kafka-python's names."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalike.errors import IllegalStateError
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from kafkalike.producer.record_accumulator import RecordAccumulator
from kafkalike.producer.transaction_state import NOT_TRANSACTIONAL, Ranges

if TYPE_CHECKING:
    from kafkalike.producer.transaction_manager import TransactionManager


class TransactionMethods:
    """What a producer with a `transactional_id` can do besides sending.

    The order is `init_transactions` once, then for each transaction `begin_transaction`, `send` and
    `send_offsets_to_transaction`, and `commit_transaction` or `abort_transaction`. Another order is an
    `IllegalStateError`, and so is any of these calls without a `transactional_id`, after `close`, after a fork, and in
    a callback. Each call waits for `max_block_ms` at most. Threads may share the producer: calls take turns, and
    `send` may come from any thread while the transaction is open.

    After `ProducerFencedError` and `InvalidProducerEpochError` only `close` is of use. After any other error of a
    record or a call, abort the transaction and go on; where a call's own documentation says so, call it again.
    """

    _transactions: TransactionManager | None
    _buffer: RecordAccumulator

    def init_transactions(self) -> None:
        """Get the transactional id for this producer, before its first transaction.

        What an older producer of the id has left open is aborted, what it has decided is finished, and the older
        producer is fenced: it can commit nothing any more. Called again after it has succeeded, it does nothing.

        Raises:
            IllegalStateError: there is no `transactional_id`.
            InvalidTransactionTimeoutError: `transaction_timeout_ms` is above the server's
                `transaction.max.timeout.ms`.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
            LogCorruptError: a transaction that the id has decided cannot be brought into its topics.
        """
        self._manager().init()

    def begin_transaction(self) -> None:
        """Begin a transaction. Touches no storage: a transaction without records costs nothing.

        Raises:
            IllegalStateError: `init_transactions` was not called, or a transaction is open.
            ProducerFencedError, InvalidProducerEpochError: as an earlier call has found.
        """
        self._manager().begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Let the transaction commit offsets of a consumer group: they are committed with the records, or not at all.

        The consumer itself must commit nothing (`enable_auto_commit=False`). May be called more than once; a later
        offset of a partition takes the place of an earlier one. Nothing is written before the commit. Whether the group
        has moved on is looked at now (in an object store by a look that may be a second old), and again by the commit.

        Args:
            offsets: by partition, the next offset to read; none are fine.
            group_metadata: what `KafkaConsumer.group_metadata()` says. The id of a group alone is taken, as by
                kafka-python; then nobody looks whether the consumer is still its member, so that a consumer that was
                stopped for long may commit offsets of partitions that are another one's by now, and no dead letters
                are written. Of a consumer with `errors_tolerance='all'` the metadata lead to its dead letters: those
                below the offsets are committed with them.

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: a record of the transaction failed; abort it.
            TypeError: wrong types.
            IllegalArgumentError: an offset that is no int from 0 to 2**63-1 (a ValueError), or metadata of a
                consumer with a generation and without a member.
            InvalidGroupIdError: the consumer has no group.
            OffsetMetadataTooLargeError: metadata above `offset.metadata.max.bytes`.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has moved on; abort, and let
                the consumer poll. `CommitFailedError` has `IllegalGenerationError` as its cause, or is an
                `UnknownMemberIdError`.
            UnknownTopicOrPartitionError: a topic was deleted and created again since earlier offsets of it were given.
            KafkaStorageError: the group or the topics could not be looked at; call again, or abort.
        """
        self._manager().send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> Ranges:
        """Wait for the transaction's records, then commit it: all of its records and offsets at once.

        When it returns, readers of every topic see the records. After `KafkaTimeoutError`, `KafkaStorageError`,
        `UnknownOutcomeError` and an interrupt the transaction may be committed or not: call it again, which finds out
        and does not commit twice, or call `abort_transaction`, which says `InvalidTxnStateError` if it is committed.

        Returns:
            By partition, the offsets that the records got: a run of each partition (Kafka returns nothing).

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: a record failed (the error's cause), or the transaction was open for longer
                than `transaction_timeout_ms`. Nothing was committed; abort.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: a group whose offsets it has, has moved
                on. Nothing was committed; abort, and let the consumer poll.
            UnknownTopicOrPartitionError: a topic is gone, or was deleted and created again since its records or offsets
                were given. Nothing was committed; abort.
            ProducerFencedError: a newer producer has the transactional id; close. Nothing was committed, unless an
                earlier call had no answer and the newer producer has committed since: then it is not known any more
                whether that call committed the transaction, and the message says so. One that is known to be committed
                is returned as such, also to a fenced producer.
            InvalidProducerEpochError: the transaction was aborted by maintenance, after its timeout, or by an
                administrator. Nothing was committed; close.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
            LogCorruptError: it is committed, and one of its topics cannot get it: a staged file is lost, see
                `kafkalike verify`. Or nothing was committed, as `__consumer_offsets` was rewound.
        """
        return self._manager().commit()

    def abort_transaction(self) -> None:
        """End the transaction without effect: nobody sees its records, and its offsets are not committed.

        Records that wait still are not written: their futures fail with `TransactionAbortedError`, or with the error
        that the transaction failed with.

        Raises:
            IllegalStateError: no transaction is open.
            InvalidTxnStateError: an earlier `commit_transaction` without an answer has committed it; call that again.
            ProducerFencedError, InvalidProducerEpochError: see `commit_transaction`; it is aborted all the same.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or not sure; call again.
        """
        self._manager().abort()

    def _manager(self) -> TransactionManager:
        if self._transactions is None:
            raise IllegalStateError(NOT_TRANSACTIONAL)
        return self._transactions

    def _end_transaction(self, timeout: float | None) -> None:
        """Let no transaction be open, for `close`; in a callback it is left to its timeout."""
        if self._transactions is not None and threading.get_ident() != self._buffer.sender:
            self._transactions.end(timeout)
