"""KafkaProducer: kafka-python's producer over a cluster of Delta tables, and one transaction per `with` block."""

from __future__ import annotations

import math
import operator
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never, NoReturn, Self, Unpack

from kafkalike import errors
from kafkalike.connect import connect
from kafkalike.log.topic.record_rules import RECORD_OVERHEAD, check_headers, check_timestamp, headers_size
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.client_config import refuse_positional, refuse_to_pickle
from kafkalike.model.config.producer_config import ProducerConfig
from kafkalike.model.config.setting_types import ProducerSettings, documented
from kafkalike.model.names import check_topic_name
from kafkalike.model.record_batch import Headers
from kafkalike.producer.future import BatchResult, FutureRecordMetadata
from kafkalike.producer.producer_batch import UNROUTED, PartitionRouter, Row, TopicQueue, check_partitioner
from kafkalike.producer.producer_methods import ArrowMethods, TransactionMethods, scheduled
from kafkalike.producer.record_accumulator import FORKED, RecordAccumulator
from kafkalike.producer.sender import Sender
from kafkalike.producer.transaction_state import NOT_TRANSACTIONAL, Ranges, TransactionGate, TxnPhase
from kafkalike.schemas.serialization import Field, SerializeFunction, as_serializer

if TYPE_CHECKING:
    from kafkalike.producer.transaction_manager import TransactionManager


NO_SIZE: Final = -1
"""Size of missing keys, values or headers in `RecordMetadata`."""


@documented(ProducerSettings)
class KafkaProducer(TransactionMethods, ArrowMethods):
    """Sends records to topics, in the background and in batches.

    Methods, arguments, defaults and errors are kafka-python 3.x's; `ProducerConfig` has the settings.

    `send` puts a record into a buffer and returns a future. One thread per producer appends all queued records of a
    topic in one table commit. Records sent during an append go with the next one, so batches grow with the load.
    Records that one thread sends to one partition keep their order, even over retries. A record is written once or
    fails; only `UnknownOutcomeError` means that neither is known, and such a batch is never sent again.

    Thread-safe. It must not be used in a child process after a fork (`IllegalStateError`); make it after the fork. The
    interpreter's exit sends the remaining records of a producer that was not closed, for at most 30 s, and waits for
    the end of the running append. Ctrl-C during that exit drops the queued records, but not the running append.

    With a `transactional_id`, records are sent in transactions: all records of a transaction, in all of its topics, and
    the offsets of consumer groups with them, or nothing. docs/exactly-once.md has the guarantees and example programs.

    Args:
        clock: source of time; for tests.
        **configs: settings, see below and docs/reference/settings.md.

    Raises:
        KafkaConfigurationError: an unknown setting, a setting without meaning here, or a bad value.
    """

    DEFAULT_CONFIG: ClassVar[dict[str, Any]] = {f.name: f.default for f in fields(ProducerConfig)}
    """The settings with their defaults, as kafka-python's `KafkaProducer.DEFAULT_CONFIG`; read-only."""

    def __init__(self, *_: Never, clock: Clock = SYSTEM_CLOCK, **configs: Unpack[ProducerSettings]) -> None:
        refuse_positional("KafkaProducer", _)
        self.config = config = ProducerConfig.of(configs)
        self._clock, self._now_ms = clock, clock.now_ms
        self._key = check_serializer(config.key_serializer, "key_serializer")
        self._value = check_serializer(config.value_serializer, "value_serializer")
        self._plain_keys, self._plain_values = config.key_serializer is None, config.value_serializer is None
        self._shows_headers = not (self._plain_keys and self._plain_values)
        self._router = PartitionRouter(check_partitioner(config.partitioner), config.batch_size)
        self._cluster = connect(config.bootstrap_servers, config.storage_options)
        gate = None if config.transactional_id is None else TransactionGate()
        self._buffer = RecordAccumulator(
            limit=config.buffer_memory,
            linger=config.linger_ms / 1000,
            batch_size=config.batch_size,
            max_block_ms=config.max_block_ms,
            gate=None if gate is None else gate.let_in,
            clock=clock,
        )
        self._to_close = [s for s in (config.value_serializer, config.key_serializer) if s is not None]
        """Serializers that `close` must still close, the next one last."""
        self._largest = min(config.max_request_size, config.buffer_memory)
        self._unacknowledged = config.acks == 0
        self._in_bulk = self._router.in_bulk and not self._unacknowledged
        self._transactions: TransactionManager | None = None
        if gate is not None:
            # Most producers have no transactions.
            from kafkalike.producer.transaction_manager import TransactionManager

            self._transactions = TransactionManager(self._cluster, config, self._buffer, gate, clock)
        self._sender = Sender(self._cluster, config, self._buffer, self._router, clock, self._transactions)
        weakref.finalize(self, _close_elsewhere, self._buffer).atexit = False
        self._sender.start()

    # --- sending -------------------------------------------------------------------------------

    def send(  # noqa: PLR0917 - kafka-python's signature
        self,
        topic: str,
        value: Any = None,  # noqa: ANN401 - any input of the serializer
        key: Any = None,  # noqa: ANN401 - any input of the serializer
        headers: list[tuple[str, bytes | None]] | None = None,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        *,
        deliver_at_ms: int | None = None,
    ) -> FutureRecordMetadata:
        """Queue a record.

        Args:
            topic: name of the topic; created if it is missing and that is allowed.
            value: bytes, or an object for `value_serializer`; None is a tombstone and needs a key.
            key: bytes, or an object for `key_serializer`; records with the same key go to the same partition.
            headers: `(name, bytes or None)` tuples; order and repeats are kept.
            partition: None lets the partitioner choose.
            timestamp_ms: time of the record, ms since the epoch; None takes the time of this call.
            deliver_at_ms: time from which on share consumers get the record, ms since the epoch, as its header
                `deliver_at`. Other consumers ignore it.

        Returns:
            A future of the record's `RecordMetadata`. With `acks=0` it is done, and has offset -1. In a transaction it
                is done when the record is staged, with offset -1; the commit returns the offsets.

        Raises:
            IllegalArgumentError: neither key nor value, a partition that does not exist, or a `deliver_at_ms` that is
                negative or given in the headers, too (a ValueError).
            TypeError: headers, partition or timestamp of a wrong type, or a serializer did not return bytes.
            InvalidTopicError: an invalid topic name.
            InvalidTimestampError: a negative time, or one after the year 9999.
            UnknownTopicOrPartitionError: the topic does not exist, and may not be created.
            MessageSizeTooLargeError: the record has more than `max_request_size` or `buffer_memory` bytes.
            KafkaTimeoutError: the buffer stayed full for `max_block_ms`.
            IllegalStateError: closed, used after a fork, or outside a transaction with a `transactional_id`.
            TransactionAbortableError: an earlier record of the transaction failed; abort it.
            ProducerFencedError, InvalidProducerEpochError: see `commit_transaction`.

        Example:
            >>> from kafkalike.testing import MemoryCluster
            >>> producer = KafkaProducer(bootstrap_servers=MemoryCluster())
            >>> sent = producer.send("orders", b"tea", key=b"alice")
            >>> metadata = sent.get(timeout=10)
            >>> metadata.topic, metadata.offset
            ('orders', 0)
            >>> producer.close()
        """
        buffer = self._buffer
        if buffer.refusal is not None:
            raise errors.IllegalStateError(buffer.refusal)
        if buffer.gate is not None:
            buffer.gate()
        if value is None and key is None:
            raise errors.IllegalArgumentError("a record needs a key or a value")
        if type(topic) is not str:
            topic = check_topic_name(topic)
        headers = headers if deliver_at_ms is None else scheduled(headers, deliver_at_ms)
        pairs = None if headers is None else check_headers(headers) or None
        if pairs is None and self._shows_headers:
            # Each record gets its own list: headers that a serializer adds are stored with that record alone.
            pairs = []
        shown: Any = () if pairs is None else pairs
        # Bytes without a serializer save two calls.
        key_bytes = key if self._plain_keys and (key is None or type(key) is bytes) else self._key(topic, shown, key)
        value_bytes = (
            value
            if self._plain_values and (value is None or type(value) is bytes)
            else self._value(topic, shown, value)
        )
        # Branches instead of `max`, because this runs for every record.
        size = RECORD_OVERHEAD
        key_size = value_size = header_size = NO_SIZE
        if key_bytes is not None:
            key_size = len(key_bytes)
            size += key_size
        if value_bytes is not None:
            value_size = len(value_bytes)
            size += value_size
        if pairs:
            # A serializer may have added anything.
            pairs = check_headers(pairs) if self._shows_headers else pairs
            header_size = headers_size(pairs)
            size += header_size
        if size > self._largest:
            self._refuse_size(topic, size)
        timestamp = self._now_ms() if timestamp_ms is None else check_timestamp(timestamp_ms)
        row = UNROUTED, key_bytes, value_bytes, timestamp, pairs or None
        # The common case of `_queue` without the call: 1.22 instead of 1.33 µs for a `send` of a few bytes.
        queue = buffer.queues.get(topic) if partition is None and self._in_bulk else None
        outcome, number = (None if queue is None else buffer.add(queue, row, size)) or self._queue(
            topic, key, value, partition, row, size
        )
        return FutureRecordMetadata(outcome, number, timestamp, (key_size, value_size, header_size))

    def _queue(  # noqa: PLR0917 - called for every record, and names cost time
        self, topic: str, key: object, value: object, partition: int | None, row: Row, size: int
    ) -> tuple[BatchResult, int]:
        """Put a record into its topic's queue, with a partition unless the sender chooses it later."""
        _, key_bytes, value_bytes, timestamp, headers = row
        while True:
            queue = self._buffer.queues.get(topic) or self._open_queue(topic)
            if partition is not None:
                number = self._check_partition(queue, partition)
                row = (number, key_bytes, value_bytes, timestamp, headers)
            elif not self._in_bulk:
                number = self._router.choose(self._aged(queue), key, key_bytes, value, value_bytes, size)
                row = (number, key_bytes, value_bytes, timestamp, headers)
            added = self._buffer.add(queue, row, size)
            if added is not None:
                return _unawaited(topic, row[0]) if self._unacknowledged else added

    def _refuse_size(self, topic: str, size: int) -> NoReturn:
        config = self.config
        name = "max_request_size" if config.max_request_size <= config.buffer_memory else "buffer_memory"
        raise errors.MessageSizeTooLargeError(f"{topic}: the record has {size} bytes; {name}={getattr(config, name)}")

    def _check_partition(self, queue: TopicQueue, partition: object) -> int:
        number = check_partition(partition)
        if number >= queue.num_partitions:
            queue = self._open_queue(queue.name)
        if number >= queue.num_partitions:
            raise errors.IllegalArgumentError(
                f"{queue.name}-{number} does not exist: the topic has partitions 0 to {queue.num_partitions - 1}"
            )
        return number

    def _aged(self, queue: TopicQueue) -> TopicQueue:
        """Return the queue, after another look at the topic if its metadata are too old for a partitioner."""
        if (self._clock.monotonic() - queue.looked_at) * 1000 < self.config.metadata_max_age_ms:
            return queue
        return self._open_queue(queue.name)

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record sent before this call is written or has failed, and its callbacks have run.

        These records do not linger. Errors are reported through the futures. Does nothing if the producer is closed.

        Args:
            timeout: seconds to wait; None waits until every record is written or has exceeded `delivery_timeout_ms`.

        Raises:
            KafkaTimeoutError: records are still in progress.
            IllegalArgumentError: a negative timeout (a ValueError).
            IllegalStateError: called in a callback.
        """
        seconds = check_timeout(timeout)
        if self._buffer.refusal != FORKED:
            self._buffer.flush(seconds)

    def close(self, timeout: float | None = None) -> None:
        """Send the queued records, then end. An open transaction is aborted, as by Kafka's producer.

        A second call waits for records still in progress, or does nothing. After an interrupt (Ctrl-C), the producer
        rejects new records and still sends the queued ones. Call `close` again to wait for them, or wait for their
        futures. The interpreter's exit waits for them, too.

        Args:
            timeout: seconds to wait; None waits until every record is written or has exceeded `delivery_timeout_ms`.
                Records that are not sent in time fail with `KafkaTimeoutError`, and a warning is logged. A call in a
                callback does not wait.

        Raises:
            IllegalArgumentError: a negative timeout (a ValueError).
        """
        seconds = check_timeout(timeout)
        if self._buffer.refusal == FORKED:
            return
        self._buffer.close()  # so that no other thread begins a transaction
        self._end_transaction(seconds)
        self._sender.close(seconds)
        while self._to_close:
            end = getattr(self._to_close[-1], "close", None)
            if callable(end):
                end()
            self._to_close.pop()

    def __reduce__(self) -> NoReturn:
        """Raise `TypeError`: a client belongs to its process."""
        refuse_to_pickle(self)

    def __enter__(self) -> Self:
        """Return the producer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the producer; see `close`."""
        self.close()

    def __repr__(self) -> str:
        """Client id and root."""
        return f"<KafkaProducer client_id={self.config.client_id} root={self._cluster.root}>"


def _unawaited(topic: str, partition: int) -> tuple[BatchResult, int]:
    """Return the outcome of a record with `acks=0`."""
    outcome = BatchResult(topic, 0)
    outcome.succeed((partition,), None)
    return outcome, 0


def _close_elsewhere(buffer: RecordAccumulator) -> None:
    """Let the sender of a garbage-collected producer end by itself.

    In a separate thread, because the garbage collector may run in a thread that holds the buffer's lock.
    """
    if buffer.refusal is None:
        threading.Thread(target=buffer.close, name="kafkalike-producer-closer", daemon=True).start()


def check_partition(partition: Any) -> int:  # noqa: ANN401 - the check is below
    """Return a partition number; accepts NumPy's integers.

    Raises:
        TypeError: not an integer; bool is rejected.
        IllegalArgumentError: negative (a ValueError).
    """
    if isinstance(partition, bool) or not hasattr(partition, "__index__"):
        raise TypeError(f"partition must be an int, not {partition!r}")
    number = operator.index(partition)
    if number < 0:
        raise errors.IllegalArgumentError(f"partition must not be negative, but is {number}")
    return number


def check_timeout(timeout: Any) -> float | None:  # noqa: ANN401 - the check is below
    """Return the seconds to wait; None and infinity wait without end.

    Raises:
        IllegalArgumentError: negative, NaN or not a number (a ValueError).
    """
    if timeout is None or timeout == math.inf:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
        raise errors.IllegalArgumentError(f"timeout must be seconds, 0 or more, not {timeout!r}")
    return timeout


def check_serializer(obj: object, setting: str) -> SerializeFunction:
    """Return a serializer as a function; without one, only bytes are accepted.

    Raises:
        KafkaConfigurationError: not a serializer.
    """
    field: Field = "key" if setting.startswith("key") else "value"
    if obj is None:
        return _only_bytes(field)
    try:
        return as_serializer(obj, field)
    except errors.IllegalArgumentError as cause:
        raise errors.KafkaConfigurationError(f"invalid value for setting {setting!r}: {cause}") from cause


def _only_bytes(field: Field) -> SerializeFunction:
    """Return a function that does what `as_serializer(None, field)` does, faster for bytes."""
    any_bytes = as_serializer(None, field)

    def pass_bytes(topic: str, headers: Headers, data: object) -> bytes | None:
        if data is None or type(data) is bytes:
            return data
        return any_bytes(topic, headers, data)

    return pass_bytes


class Transaction:
    """The transaction of a `with` block; see `transaction`."""

    def __init__(self, producer: KafkaProducer) -> None:
        self.producer = producer
        """The producer for the block's records and offsets."""
        self.ranges: Ranges = {}
        """Offsets of the records after the block, by partition."""


@contextmanager
def transaction(producer: KafkaProducer) -> Iterator[Transaction]:
    """Run one transaction: committed at the end of the block, aborted if an exception leaves it.

        with kafkalike.transaction(producer) as t:
            producer.send("orders", b"...")
            producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        print(t.ranges)

    Calls `init_transactions` first, which does nothing after the first time. A commit without an answer is retried
    until its outcome is known, for at most `delivery_timeout_ms`. A failed abort is logged, and the exception of the
    block is raised: the unfinished transaction has no effect, and is cleaned up by the next `init_transactions` of the
    id, or by its timeout. After the block, the producer is ready for the next transaction, unless it was fenced.

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
        raise errors.IllegalStateError(NOT_TRANSACTIONAL)
    opened, unanswered = Transaction(producer), False
    try:
        manager.init()
        manager.begin(opened)
        yield opened
        if manager.owner is opened:  # else the block has committed or aborted it
            opened.ranges = manager.commit_surely()
    except errors.KafkaError:
        # A commit without an answer may be retried. A commit that Ctrl-C interrupted is settled below.
        unanswered = manager.phase is TxnPhase.COMMITTING
        raise
    finally:
        if manager.owner is opened and not unanswered:
            manager.end()
