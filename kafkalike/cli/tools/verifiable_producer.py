"""`kafkalike verifiable-producer`: send rising numbers, optionally in transactions, and print a line of JSON for each.

Flags and output are the same as of Kafka's VerifiableProducer (org.apache.kafka.tools), for its system tests. The flags
of transactions are kafkalike's own.

The commit of a transaction assigns its offsets, so the lines of its records follow the commit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike import errors
from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.tools.workload import JsonEvents, RateLimit, as_text
from kafkalike.model.structs import RecordMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.producer import FutureRecordMetadata, KafkaProducer


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableProducerOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    max_messages: int
    throughput: int
    acks: str
    message_create_time: int
    value_prefix: int | None
    repeating_keys: int | None
    transactional_id: str | None
    transaction_size: int
    transaction_timeout: int | None
    command_property: tuple[str, ...]


@click.command(epilog="Example: kafkalike verifiable-producer --topic orders --max-messages 1000 --throughput 100")
@flags.bootstrap_option("--broker-list")
@flags.command_config_option("--producer.config")
@click.option("--topic", required=True, help="Topic to send to.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="Records to send; -1: unlimited.")
@click.option("--throughput", type=int, default=-1, show_default=True, help="Records per second; -1: unlimited.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "-1", "all"]), default="-1", show_default=True, help="Setting acks."
)
@click.option(
    "--message-create-time",
    type=int,
    default=-1,
    show_default=True,
    help="Timestamp (ms) of the first record; -1: now.",
)
@click.option("--value-prefix", type=int, help="Values are PREFIX.NUMBER instead of NUMBER.")
@click.option("--repeating-keys", type=click.IntRange(min=1), help="Repeat keys from 0 to this number minus 1.")
@click.option("--transactional-id", "--transaction-id", "transactional_id", help="Send in transactions of this id.")
@click.option(
    "--transaction-size", type=click.IntRange(min=1), default=100, show_default=True, help="Records per transaction."
)
@click.option("--transaction-timeout", type=click.IntRange(min=1), help="Timeout of a transaction (ms); default 60000.")
@flags.client_property("producer")
@flags.version_option
@pass_options(VerifiableProducerOptions)
def verifiable_producer(environment: Environment, options: VerifiableProducerOptions) -> None:
    """Send rising numbers and print the outcome of each, until SIGTERM or Ctrl-C."""
    from kafkalike.producer.kafka_producer import KafkaProducer

    flags.failures_are_printed()
    settings = _settings(options)
    lines = JsonEvents(environment.stdout, environment.clock)
    with Interrupt() as interrupt:
        producer = KafkaProducer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
        sender = _sender(producer, lines, options)
        pace = RateLimit(environment.clock, options.throughput)
        start = environment.clock.monotonic()
        with producer:
            lines.emit("startup_complete")
            for key, value, timestamp_ms in _records(options, environment):
                if interrupt.is_requested:
                    break
                sender.send(key, value, timestamp_ms)
                pace.wait(sender.sent)
            sender.finish()
        lines.emit("shutdown_complete")
    taken = max(environment.clock.monotonic() - start, 1e-3)
    lines.emit(
        "tool_data",
        sent=sender.sent,
        acked=sender.acked,
        target_throughput=options.throughput,
        avg_throughput=round(sender.acked / taken, 3),
    )


def _settings(options: VerifiableProducerOptions) -> dict[str, Any]:
    settings = flags.settings_of(options.command_config, options.command_property)
    if options.transactional_id is not None:
        settings["transactional_id"] = options.transactional_id
        if options.transaction_timeout is not None:
            settings["transaction_timeout_ms"] = options.transaction_timeout
    settings["acks"] = options.acks if options.acks == "all" else int(options.acks)
    if options.transactional_id is None and "enable_idempotence" not in settings and "retries" not in settings:
        # As in Kafka's tool: without retries, each line reports one attempt.
        settings.update(retries=0, enable_idempotence=False)
    return settings


def _records(
    options: VerifiableProducerOptions, environment: Environment
) -> Iterator[tuple[bytes | None, bytes, int | None]]:
    """Yield key, value and timestamp (ms) of each record."""
    most, prefix, keys = options.max_messages, options.value_prefix, options.repeating_keys
    first = options.message_create_time
    began = environment.clock.now_ms()
    for number in itertools.count(0) if most < 0 else range(most):
        value = str(number) if prefix is None else f"{prefix}.{number}"
        key = None if keys is None else str(number % keys).encode()
        yield key, value.encode(), None if first < 0 else first + environment.clock.now_ms() - began


def _sender(
    producer: KafkaProducer, lines: JsonEvents, options: VerifiableProducerOptions
) -> NumberSender | TransactionalSender:
    if options.transactional_id is None:
        return NumberSender(producer, lines, options.topic)
    return TransactionalSender(producer, lines, options.topic, options.transaction_size)


class NumberSender:
    """Sends records, and counts and prints their outcome.

    Args:
        producer: an open producer.
        lines: prints the events.
        topic: target of the records.
    """

    def __init__(self, producer: KafkaProducer, lines: JsonEvents, topic: str) -> None:
        self.sent = 0
        self.acked = 0
        self._producer = producer
        self._lines = lines
        self._topic = topic

    def send(self, key: bytes | None, value: bytes, timestamp_ms: int | None) -> None:
        """Send one record; its line follows when it is acknowledged or has failed."""
        self.sent += 1
        try:
            future = self._producer.send(self._topic, value=value, key=key, timestamp_ms=timestamp_ms)
        except errors.KafkaError as error:
            self._failed(key, value, error)
            return
        future.add_callback(self._acked, key, value)
        future.add_errback(self._failed, key, value)

    def finish(self) -> None:
        """Do nothing; `close` of the producer flushes."""

    def _acked(self, key: bytes | None, value: bytes, metadata: RecordMetadata) -> None:
        self.acked += 1
        where = {"topic": metadata.topic, "partition": metadata.partition, "offset": metadata.offset}
        self._lines.emit("producer_send_success", key=as_text(key), value=as_text(value), **where)

    def _failed(self, key: bytes | None, value: bytes, error: BaseException) -> None:
        what = {"topic": self._topic, "key": as_text(key), "value": as_text(value)}
        self._lines.emit("producer_send_error", exception=type(error).__name__, message=str(error), **what)


COMMIT_TRIES: Final = 10
"""Attempts of a commit with an unknown outcome; each waits for `max_block_ms`."""

Sent = tuple[bytes | None, bytes, "FutureRecordMetadata"]
"""Key, value and future of a sent record."""


class TransactionalSender:
    """Sends records in transactions; otherwise like `NumberSender`.

    Args:
        producer: an open producer with a transactional id.
        lines: prints the events.
        topic: target of the records.
        size: records per transaction.

    Raises:
        KafkaError: see `KafkaProducer.init_transactions`.
    """

    def __init__(self, producer: KafkaProducer, lines: JsonEvents, topic: str, size: int) -> None:
        self.sent = 0
        self.acked = 0
        self._producer = producer
        self._lines = lines
        self._topic = topic
        self._size = size
        self._open: list[Sent] = []
        producer.init_transactions()

    def send(self, key: bytes | None, value: bytes, timestamp_ms: int | None) -> None:
        """Send one record, and commit a transaction that is full.

        Raises:
            ProducerFencedError, InvalidProducerEpochError: another producer has taken the transactional id.
        """
        self.sent += 1
        if not self._open:
            self._producer.begin_transaction()
        try:
            future = self._producer.send(self._topic, value=value, key=key, timestamp_ms=timestamp_ms)
        except errors.KafkaError as error:
            self._lines.emit("producer_send_error", **self._error(key, value, error))
            self._abort(error)
            return
        self._open.append((key, value, future))
        if len(self._open) >= self._size:
            self.finish()

    def finish(self) -> None:
        """Commit the open transaction, if any."""
        if not self._open:
            return
        try:
            ranges = self._commit()
        except errors.KafkaError as error:
            self._abort(error)
            return
        runs = {tp.partition: iter(run) for tp, run in ranges.items()}
        counts: Counter[int] = Counter()
        for key, value, future in self._open:
            partition = future.get(0).partition
            counts[partition] += 1
            # The log may no longer know the range; -1 is Kafka's value for an unknown offset.
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
            except (errors.KafkaTimeoutError, errors.KafkaStorageError, errors.UnknownOutcomeError):
                continue
        return self._producer.commit_transaction()

    def _abort(self, error: errors.KafkaError) -> None:
        """Print the error of every record of the transaction, and abort it."""
        for key, value, _ in self._open:
            self._lines.emit("producer_send_error", **self._error(key, value, error))
        self._open = []
        if isinstance(error, (errors.ProducerFencedError, errors.InvalidProducerEpochError)):
            raise error
        self._producer.abort_transaction()
        self._lines.emit("transaction_aborted", topic=self._topic, exception=type(error).__name__)

    def _error(self, key: bytes | None, value: bytes, error: errors.KafkaError) -> dict[str, object]:
        said = {"exception": type(error).__name__, "message": str(error)}
        return {**said, "topic": self._topic, "key": as_text(key), "value": as_text(value)}
