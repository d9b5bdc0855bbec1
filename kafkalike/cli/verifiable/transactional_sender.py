"""Transactional sender: keys and values in, transactions of them out, and a line for each record that says its offset.

Offsets are given by the commit, so a record's line comes after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kafkalike.cli.verifiable.json_lines import JsonLines, as_text
from kafkalike.errors import (
    InvalidProducerEpochError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    ProducerFencedError,
    UnknownOutcomeError,
)
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.producer import FutureRecordMetadata, KafkaProducer

COMMIT_TRIES: Final = 10
"""How often a commit without an answer is asked for; each call waits for `max_block_ms`."""

Sent = tuple[bytes | None, bytes, "FutureRecordMetadata"]
"""Key, value and future of a record."""


class TransactionalSender:
    """Sends records in transactions, counts and prints what became of them. Has the methods of `Sender`.

    Args:
        producer: an open producer with a transactional id.
        lines: where its events go.
        topic: where the records go.
        size: records of a transaction.

    Raises:
        KafkaError: see `KafkaProducer.init_transactions`.
    """

    def __init__(self, producer: KafkaProducer, lines: JsonLines, topic: str, size: int) -> None:
        self.sent = 0
        self.acked = 0
        self._producer = producer
        self._lines = lines
        self._topic = topic
        self._size = size
        self._open: list[Sent] = []
        producer.init_transactions()

    def send(self, key: bytes | None, value: bytes, timestamp_ms: int | None) -> None:
        """Send one record, and end the transaction when it has so many.

        Raises:
            ProducerFencedError, InvalidProducerEpochError: the transactional id is another producer's.
        """
        self.sent += 1
        if not self._open:
            self._producer.begin_transaction()
        try:
            future = self._producer.send(self._topic, value=value, key=key, timestamp_ms=timestamp_ms)
        except KafkaError as error:
            self._lines.emit("producer_send_error", **self._error(key, value, error))
            self._abort(error)
            return
        self._open.append((key, value, future))
        if len(self._open) >= self._size:
            self.finish()

    def finish(self) -> None:
        """Commit what is open, if anything is."""
        if not self._open:
            return
        try:
            ranges = self._commit()
        except KafkaError as error:
            self._abort(error)
            return
        runs = {tp.partition: iter(run) for tp, run in ranges.items()}
        counts: Counter[int] = Counter()
        for key, value, future in self._open:
            partition = future.get(0).partition
            counts[partition] += 1
            # Empty where the topic's log has forgotten the run: Kafka's -1 stands for no offset.
            offset = next(runs.get(partition, iter(())), -1)
            what = {"key": as_text(key), "value": as_text(value), "topic": self._topic}
            self._lines.emit("producer_send_success", **what, partition=partition, offset=offset)
        self.acked += len(self._open)
        by_partition = {str(p): count for p, count in sorted(counts.items())}
        self._lines.emit("transaction_committed", topic=self._topic, partitions=by_partition)
        self._open = []

    def _commit(self) -> Mapping[TopicPartition, range]:
        for _ in range(COMMIT_TRIES - 1):
            try:
                return self._producer.commit_transaction()
            except (KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError):
                continue
        return self._producer.commit_transaction()

    def _abort(self, error: KafkaError) -> None:
        """Print what every record of the transaction has come to, and abort it."""
        for key, value, _ in self._open:
            self._lines.emit("producer_send_error", **self._error(key, value, error))
        self._open = []
        if isinstance(error, (ProducerFencedError, InvalidProducerEpochError)):
            raise error
        self._producer.abort_transaction()
        self._lines.emit("transaction_aborted", topic=self._topic, exception=type(error).__name__)

    def _error(self, key: bytes | None, value: bytes, error: KafkaError) -> dict[str, object]:
        said = {"exception": type(error).__name__, "message": str(error)}
        return {**said, "topic": self._topic, "key": as_text(key), "value": as_text(value)}
