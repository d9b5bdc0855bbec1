"""Arrow and metadata methods of `KafkaProducer`: tables of records in, futures out; questions to the producer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalike import errors
from kafkalike.model.clock import Clock
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.names import check_topic_name
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.future import BatchResult, FutureBatchMetadata
from kafkalike.producer.producer_batch import PartitionRouter, TopicQueue
from kafkalike.producer.record_accumulator import RecordAccumulator
from kafkalike.producer.sender import Sender

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


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
