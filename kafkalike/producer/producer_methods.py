"""Methods of `KafkaProducer` beside `send`: tables of records, transactions, and questions to the producer."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kafkalike import errors
from kafkalike.errors import IllegalStateError
from kafkalike.model.clock import Clock
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import DELIVER_AT, Headers
from kafkalike.model.structs import ConsumerGroupMetadata, OffsetAndMetadata, ShareGroupMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.future import BatchResult, FutureBatchMetadata
from kafkalike.producer.producer_batch import PartitionRouter, TopicQueue
from kafkalike.producer.record_accumulator import RecordAccumulator
from kafkalike.producer.sender import Sender
from kafkalike.producer.transaction_state import NOT_TRANSACTIONAL, Ranges

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.shares.share_partition import Acknowledgements
    from kafkalike.producer.transaction_manager import TransactionManager


class ProducerMetadata:
    """Questions to a producer."""

    config: ProducerConfig
    _cluster: Cluster
    _buffer: RecordAccumulator
    _sender: Sender

    def partitions_for(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic, fresh; create a missing topic if that is allowed.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist, and may not be created.
            InvalidTopicError: an invalid topic name.
            IllegalStateError: closed, or used after a fork.
        """
        if self._buffer.refusal is not None:
            raise errors.IllegalStateError(self._buffer.refusal)
        return set(self._look_up(topic).partitions)

    def bootstrap_connected(self) -> bool:
        """True if the storage root can be read now."""
        try:
            self._cluster.metadata.refresh()
        except (errors.KafkaConnectionError, errors.KafkaStorageError):
            return False
        return True

    def metrics(self, raw: bool = False) -> dict[Any, Any] | None:  # noqa: FBT001, FBT002 - kafka-python's
        """Totals since the producer was made, `{group: {name: number}}` with Kafka's names; times in ms.

        With a root in an object store, `object-store-metrics` counts the requests of this process to the root, by kind,
        of all its clients.

        Args:
            raw: return `{(group, name): number}` instead.

        Returns:
            None with `metrics_enabled=False`.
        """
        if not self.config.metrics_enabled:
            return None
        from kafkalike.log.cluster.cluster import request_metrics

        groups = self._sender.metrics.by_group(limit=self._buffer.limit, used=self._buffer.used) | request_metrics(
            self._cluster.requests
        )
        if not raw:
            return groups
        return {(group, name): number for group, names in groups.items() for name, number in names.items()}

    def _look_up(self, topic: str) -> TopicInfo:
        create = self.config.allow_auto_create_topics
        return self._cluster.ensure_topic(topic) if create else self._cluster.topic(topic)


class ArrowMethods(ProducerMetadata):
    """Methods that send Arrow tables."""

    _clock: Clock
    _router: PartitionRouter
    _unacknowledged: bool

    def send_arrow(self, topic: str, data: Any) -> FutureBatchMetadata:  # noqa: ANN401 - any source of Arrow data
        """Queue the records of a table as one batch: all of them are written, in one table commit, or none.

        No Python objects are made of the records, so this is several times as fast as `send`. Serializers are not
        called. Records stand in their partition in the order of the table, behind earlier sends.

        Columns:
            `value`: bytes, or text, which is written in UTF-8; null is a tombstone and needs a key.
            `key` (may be missing): as `value`.
            `headers` (may be missing): lists of structs `key` text, `value` bytes, or maps of them.
            `partition` (may be missing): null lets the partitioner choose. The default one takes murmur2 of the key;
                records without key take turns in runs. A custom partitioner is called for each record.
            `timestamp` (may be missing): times with a time zone, or whole numbers of ms since the epoch, cut to ms;
                null takes the time of this call.
            `topic`, `offset` and `timestampType`, as in tables of `poll_arrow`, are ignored.

        Each column may have any of Arrow's layouts: views, large and fixed sizes, dictionaries, runs, extension types.

        Args:
            topic: name of the topic; created if it is missing and that is allowed.
            data: a pyarrow Table or RecordBatch, or any object with Arrow's PyCapsule interface or the dataframe
                interchange protocol: polars, pandas and others. It must not be changed before the future is done.

        Returns:
            A future of the batch's `BatchMetadata`: offsets by partition. With `acks=0` it is done, and has none. In a
                transaction it is done when the records are staged; the commit returns their offsets. If the topic
                rejects a record, the future fails with that record's error and number, and no record is written.

        Raises:
            TypeError: not a table, or a column of a wrong type.
            IllegalArgumentError: no rows, no column `value`, an unknown column, a row with neither key nor value, a
                partition that does not exist, or more than 1 GiB (a ValueError).
            InvalidTopicError: an invalid topic name.
            InvalidTimestampError: a negative time, or one after the year 9999.
            InvalidRecordError: a header without key, or with a key that is not UTF-8.
            UnknownTopicOrPartitionError: the topic does not exist, and may not be created.
            MessageSizeTooLargeError: a record has more than `max_request_size` or `buffer_memory` bytes.
            KafkaTimeoutError: the buffer stayed full for `max_block_ms`. A batch with more than `buffer_memory` bytes
                waits until the buffer is empty.
            IllegalStateError: closed, used after a fork, or outside a transaction with a `transactional_id`.
            TransactionAbortableError: an earlier record of the transaction failed; abort it.
            ProducerFencedError, InvalidProducerEpochError: see `commit_transaction`.
        """
        from kafkalike.log.topic.column_batch import column_batch

        buffer = self._buffer
        if buffer.refusal is not None:
            raise errors.IllegalStateError(buffer.refusal)
        if buffer.gate is not None:
            buffer.gate()
        check_topic_name(topic)
        columns = column_batch(data, self._clock.now_ms())
        self._check_largest(topic, int(columns.sizes.max()))
        added: BatchResult | None = None
        while added is None:
            queue = self._fitting(buffer.queues.get(topic) or self._open_queue(topic), int(columns.partitions.max()))
            if not self._router.in_bulk:
                self._router.choose_all(queue, columns)
            added = buffer.add_columns(queue, columns)
        return FutureBatchMetadata(self._unawaited(topic) if self._unacknowledged else added, len(columns))

    def _check_largest(self, topic: str, size: int) -> None:
        config = self.config
        for name in ("max_request_size", "buffer_memory"):
            if size > getattr(config, name):
                raise errors.MessageSizeTooLargeError(
                    f"{topic}: a record has {size} bytes; {name}={getattr(config, name)}"
                )

    def _fitting(self, queue: TopicQueue, highest: int) -> TopicQueue:
        """Return the topic's queue, after another look at the topic if a record needs a higher partition."""
        found = queue if highest < queue.num_partitions else self._open_queue(queue.name)
        if highest >= found.num_partitions:
            raise errors.IllegalArgumentError(
                f"{found.name}-{highest} does not exist: the topic has partitions 0 to {found.num_partitions - 1}"
            )
        return found

    def _unawaited(self, topic: str) -> BatchResult:
        outcome = BatchResult(topic, 0)
        outcome.succeed((), None)
        return outcome

    def _open_queue(self, topic: str) -> TopicQueue:
        return self._buffer.queue(self._look_up(topic))


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

    def send_share_acknowledgements_to_transaction(
        self, acknowledgements: Acknowledgements, share_group_metadata: ShareGroupMetadata
    ) -> None:
        """Add acknowledgements of a share consumer to the transaction: they count with its records, or not at all.

        So a record of the queue, its results and its dead letter have one outcome. Nothing is written before the
        commit. This call checks whether the consumer still has the locks, and the commit checks again.

        Args:
            acknowledgements: the result of `KafkaShareConsumer.take_acknowledgements()`; may be empty.
            share_group_metadata: the result of `KafkaShareConsumer.share_group_metadata()`.

        Raises:
            IllegalStateError: no transaction is open.
            TransactionAbortableError: a record of the transaction failed; abort it.
            TypeError: wrong types.
            InvalidRecordStateError: another member has acquired a record; abort.
            KafkaStorageError: the group could not be read; call again, or abort.
        """
        self._manager().send_acknowledgements(acknowledgements, share_group_metadata)

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
            InvalidRecordStateError: a share consumer has lost the lock of an acknowledged record. Nothing was
                committed; abort.
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


def scheduled(headers: Headers | None, at_ms: int) -> list[tuple[str, bytes | None]]:
    """Return headers with a time of delivery, ms since the epoch.

    Raises:
        TypeError: the time is not a whole number.
        IllegalArgumentError: it is out of range, or the headers have one.
    """
    if type(at_ms) is not int:
        raise TypeError(f"deliver_at_ms must be a whole number of ms since the epoch, not {at_ms!r}")
    if not 0 <= at_ms < 10**15:
        raise errors.IllegalArgumentError(f"deliver_at_ms must be from 0 to 10^15 - 1, not {at_ms}")
    given = list(headers or ())
    if any(name == DELIVER_AT for name, _ in given):
        raise errors.IllegalArgumentError("give either deliver_at_ms or the header 'deliver_at'")
    return [*given, (DELIVER_AT, str(at_ms).encode())]
