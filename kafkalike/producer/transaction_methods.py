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
    """Transaction methods of a producer with a `transactional_id`.

    The order is `init_transactions` once, then for each transaction `begin_transaction`, `send` and
    `send_offsets_to_transaction`, and `commit_transaction` or `abort_transaction`. Another order raises
    `IllegalStateError`, and so does any of these calls without a `transactional_id`, after `close`, after a fork, and
    in a callback. Each call waits for at most `max_block_ms`. Threads may share the producer: calls take turns, and
    `send` may come from any thread while the transaction is open.

    After `ProducerFencedError` and `InvalidProducerEpochError`, only `close` is useful. After any other error of a
    record or a call, abort the transaction and continue; if a call's own documentation asks for it, repeat the call.
    """

    _transactions: TransactionManager | None
    _buffer: RecordAccumulator

    def init_transactions(self) -> None:
        """Acquire the transactional id for this producer, before its first transaction.

        Aborts an open transaction of an older producer with the id, finishes a decided one, and fences that producer:
        it cannot commit anything. After success, another call does nothing.

        Raises:
            IllegalStateError: there is no `transactional_id`.
            InvalidTransactionTimeoutError: `transaction_timeout_ms` is above the server's `transaction.max.timeout.ms`.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or unknown; call again.
            LogCorruptError: a decided transaction of the id cannot be applied to its topics.
        """
        self._manager().init()

    def begin_transaction(self) -> None:
        """Begin a transaction. Touches no storage: a transaction without records costs nothing.

        Raises:
            IllegalStateError: `init_transactions` was not called, or a transaction is open.
            ProducerFencedError, InvalidProducerEpochError: found by an earlier call.
        """
        self._manager().begin()

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Add offsets of a consumer group to the transaction: they are committed with the records, or not at all.

        The consumer itself must not commit (`enable_auto_commit=False`). May be called more than once; a later offset
        of a partition replaces an earlier one. Nothing is written before the commit. This call checks whether the group
        has moved on (in an object store by a look that may be a second old), and the commit checks again.

        Args:
            offsets: by partition, the next offset to read; may be empty.
            group_metadata: the result of `KafkaConsumer.group_metadata()`. The id of a group alone is accepted, as by
                kafka-python. Then the membership is not checked, so a consumer that was stopped for long may commit
                offsets of partitions that now belong to another member, and no dead letters are written. With metadata
                of a consumer with `errors_tolerance='all'`, its dead letters below the offsets are committed with them.

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: a record of the transaction failed; abort it.
            TypeError: wrong types.
            IllegalArgumentError: an offset that is not an int from 0 to 2**63-1 (a ValueError), or metadata of a
                consumer with a generation and without a member.
            InvalidGroupIdError: the consumer has no group.
            OffsetMetadataTooLargeError: metadata above `offset.metadata.max.bytes`.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: the group has moved on; abort, and let
                the consumer poll. `CommitFailedError` has `IllegalGenerationError` as its cause, or is an
                `UnknownMemberIdError`.
            UnknownTopicOrPartitionError: a topic was deleted and created again since earlier offsets of it were given.
            KafkaStorageError: the group or the topics could not be read; call again, or abort.
        """
        self._manager().send_offsets(offsets, group_metadata)

    def commit_transaction(self) -> Ranges:
        """Wait for the transaction's records, then commit it: all of its records and offsets at once.

        When it returns, readers of every topic see the records. After `KafkaTimeoutError`, `KafkaStorageError`,
        `UnknownOutcomeError` and an interrupt, the outcome is unknown. Then call `commit_transaction` again, which
        finds out and does not commit twice, or call `abort_transaction`, which raises `InvalidTxnStateError` if it is
        committed.

        Returns:
            By partition, the offset range of the records (Kafka returns nothing).

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: a record failed (the error's cause), or the transaction was open for longer than
                `transaction_timeout_ms`. Nothing was committed; abort.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: a group of its offsets has moved on.
                Nothing was committed; abort, and let the consumer poll.
            UnknownTopicOrPartitionError: a topic was deleted, or deleted and created again, since its records or
                offsets were given. Nothing was committed; abort.
            ProducerFencedError: a newer producer has the transactional id; close. Nothing was committed, unless an
                earlier call had no answer and the newer producer has committed since: then the outcome of that call can
                no longer be found out, as the message explains. A commit that is known to have succeeded returns
                normally, even for a fenced producer.
            InvalidProducerEpochError: the transaction was aborted by maintenance, after its timeout, or by an
                administrator. Nothing was committed; close.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or unknown; call again.
            LogCorruptError: it is committed, but a staged file is lost, so a topic cannot get its records: see
                `kafkalike verify`. Or nothing was committed, because `__consumer_offsets` was rewound.
        """
        return self._manager().commit()

    def abort_transaction(self) -> None:
        """End the transaction without effect: its records stay invisible, and its offsets are not committed.

        Queued records are not written: their futures fail with `TransactionAbortedError`, or with the error that failed
        the transaction.

        Raises:
            IllegalStateError: no transaction is open.
            InvalidTxnStateError: an earlier `commit_transaction` without an answer has committed it; call that again.
            ProducerFencedError, InvalidProducerEpochError: see `commit_transaction`; it is aborted all the same.
            KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError: not done, or unknown; call again.
        """
        self._manager().abort()

    def _manager(self) -> TransactionManager:
        if self._transactions is None:
            raise IllegalStateError(NOT_TRANSACTIONAL)
        return self._transactions

    def _end_transaction(self, timeout: float | None) -> None:
        """Close the open transaction, for `close`; in a callback, leave it to its timeout."""
        if self._transactions is not None and threading.get_ident() != self._buffer.sender:
            self._transactions.end(timeout)
