"""`kafkalike transactional-message-copier`: copy a topic's records to another topic in transactions.

Flags and output are the same as of Kafka's TransactionalMessageCopier (org.apache.kafka.tools), for its system tests.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from kafkalike import errors
from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.options import bootstrap_option, command_config_option, settings_of, version_option
from kafkalike.cli.tools.workload import print_line
from kafkalike.consumer.offset_commits import Polled, offsets_after
from kafkalike.consumer.subscription import ConsumerRebalanceListener
from kafkalike.model.clock import Clock
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.consumer.kafka_consumer import KafkaConsumer
    from kafkalike.producer.kafka_producer import KafkaProducer

POLL_MS: Final = 200
ABORTED_OF: Final = 3
"""With --enable-random-aborts, a transaction is aborted with probability 1 / 3."""
COMMIT_AGAIN: Final = (errors.KafkaTimeoutError, errors.KafkaStorageError, errors.UnknownOutcomeError)
"""Errors after which a commit may be called again, which resolves its outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopierOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    input_topic: str
    input_partition: int | None
    output_topic: str
    max_messages: int
    consumer_group: str
    transaction_size: int
    transaction_timeout: int
    transactional_id: str
    enable_random_aborts: bool
    group_mode: bool
    use_group_metadata: bool
    producer_property: tuple[str, ...]
    consumer_property: tuple[str, ...]


@click.command(
    epilog="Example: kafkalike transactional-message-copier --input-topic in --output-topic out --input-partition 0 "
    "--transactional-id copier-0 --consumer-group copiers --use-group-metadata"
)
@bootstrap_option("--broker-list")
@command_config_option()
@click.option("--input-topic", required=True, help="Topic to copy from.")
@click.option("--input-partition", type=click.IntRange(min=0), help="Partition to copy; ignored with --group-mode.")
@click.option("--output-topic", required=True, help="Topic to copy to, into the partition of the same number.")
@click.option(
    "--max-messages",
    type=int,
    default=-1,
    show_default=True,
    help="Maximum number of records; -1: all records up to the end offset at the start.",
)
@click.option("--consumer-group", default="-1", show_default=True, help="Group of the input's offsets.")
@click.option(
    "--transaction-size", type=click.IntRange(min=1), default=200, show_default=True, help="Records per transaction."
)
@click.option(
    "--transaction-timeout", type=int, default=60_000, show_default=True, help="Timeout of a transaction (ms)."
)
@click.option("--transactional-id", required=True, help="Transactional id of the producer.")
@click.option("--enable-random-aborts", is_flag=True, help="Abort one of three transactions.")
@click.option("--group-mode", is_flag=True, help="Subscribe as a member of the group instead of taking one partition.")
@click.option(
    "--use-group-metadata",
    is_flag=True,
    help="Commit as this member of the group, so that a replaced member cannot commit.",
)
@click.option("--producer-property", multiple=True, metavar="NAME=VALUE", help="Setting of the producer; repeatable.")
@click.option("--consumer-property", multiple=True, metavar="NAME=VALUE", help="Setting of the consumer; repeatable.")
@version_option
@pass_options(CopierOptions)
def transactional_message_copier(environment: Environment, options: CopierOptions) -> None:
    """Copy records from a topic to another one, and commit the offsets with them, until SIGTERM or Ctrl-C.

    Each transaction has the records of one poll. Ends at the end offsets of the start, or, with --group-mode, of the
    last assignment.
    """
    if options.input_partition is None and not options.group_mode:
        raise click.UsageError("--input-partition or --group-mode is needed")
    from kafkalike.consumer.kafka_consumer import KafkaConsumer
    from kafkalike.producer.kafka_producer import KafkaProducer

    common = settings_of(options.command_config)
    cluster = environment.connect(options.bootstrap_server, common)
    producing = {**common, **_producing(options)}
    consuming = {**common, **_consuming(options)}
    with (
        Interrupt() as interrupt,
        KafkaProducer(bootstrap_servers=cluster, **producing) as producer,
        KafkaConsumer(bootstrap_servers=cluster, **consuming) as consumer,
    ):
        progress = Progress(environment.stdout, environment.clock, options.transactional_id)
        copier = Copier(producer, consumer, progress, options, interrupt)
        try:
            copier.begin()
            while not interrupt.is_requested and progress.remaining > 0:
                progress.tell("ProcessLoop")
                copier.step()
        finally:
            progress.tell("ShutdownComplete")


def _producing(options: CopierOptions) -> dict[str, Any]:
    return {
        "transactional_id": options.transactional_id,
        "transaction_timeout_ms": options.transaction_timeout,
        **settings_of(None, options.producer_property, "--producer-property"),
    }


def _consuming(options: CopierOptions) -> dict[str, Any]:
    return {
        "group_id": options.consumer_group,
        "isolation_level": "read_committed",
        "max_poll_records": options.transaction_size,
        "enable_auto_commit": False,
        "session_timeout_ms": 10_000,
        "max_poll_interval_ms": 180_000,
        "heartbeat_interval_ms": 3_000,
        "auto_offset_reset": "earliest",
        **settings_of(None, options.consumer_property, "--consumer-property"),
    }


@dataclass(slots=True)
class Progress:
    """Counts copied records and prints the status."""

    out: BinaryIO
    clock: Clock
    transactional_id: str
    total: int = 0
    """Number of copied records."""
    consumed: int = 0
    """Records copied since the last assignment."""
    remaining: int = field(default=2**63 - 1)
    """Records left to copy."""

    def copied(self, count: int) -> None:
        """Count the records of a committed transaction."""
        self.total += count
        self.consumed += count
        self.remaining -= count

    def tell(self, stage: str) -> None:
        """Print one line with the fields of Kafka's tool in its order; `time` is UTC."""
        now_ms = self.clock.now_ms()
        at = datetime.fromtimestamp(now_ms // 1000, UTC).strftime("%Y/%m/%d %H:%M:%S")
        status = {
            "transactionalId": self.transactional_id,
            "stage": stage,
            "time": f"{at}:{now_ms % 1000:03d}",
            "totalProcessed": self.total,
            "consumed": self.consumed,
            "remaining": self.remaining,
        }
        print_line(self.out, status)


class Copier(ConsumerRebalanceListener):
    """Polls, sends and commits: one transaction for each poll with records.

    Args:
        producer: with a transactional id.
        consumer: reads the input, without auto-commit.
        progress: counts and prints.
        options: the command line.
        interrupt: the signal that ends the command.
    """

    def __init__(
        self,
        producer: KafkaProducer,
        consumer: KafkaConsumer,
        progress: Progress,
        options: CopierOptions,
        interrupt: Interrupt,
    ) -> None:
        self._producer = producer
        self._consumer = consumer
        self._progress = progress
        self._options = options
        self._interrupt = interrupt
        self._chance = random.Random()  # noqa: S311 - which transactions are aborted

    def begin(self) -> None:
        """Fence older copiers of the transactional id, and assign or subscribe to the input."""
        options = self._options
        if options.max_messages >= 0:
            self._progress.remaining = options.max_messages
        self._producer.init_transactions()
        if options.group_mode:
            self._consumer.subscribe([options.input_topic], listener=self)
            return
        assert options.input_partition is not None, "checked before"
        where = TopicPartition(options.input_topic, options.input_partition)
        self._consumer.assign([where])
        self._progress.remaining = min(self._progress.remaining, self._left([where]))

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Do nothing: positions are committed with the records."""

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Recount the records left to copy."""
        self._progress.remaining = self._left(assigned)
        self._progress.consumed = 0
        self._progress.tell("RebalanceComplete")

    def _left(self, partitions: Iterable[TopicPartition]) -> int:
        ends = self._consumer.end_offsets(list(partitions))
        return sum(end - self._consumer.position(tp) for tp, end in ends.items())

    def step(self) -> None:
        """Copy the records of one poll.

        Raises:
            ProducerFencedError, InvalidProducerEpochError: another producer has taken the transactional id.
        """
        records = self._consumer.poll(POLL_MS)
        if not records:
            return
        self._producer.begin_transaction()
        try:
            self._send(records)
            if self._options.enable_random_aborts and self._chance.randrange(ABORTED_OF) == 0:
                self._abort()
                return
            self._commit()
        except (errors.ProducerFencedError, errors.InvalidProducerEpochError):
            raise
        except errors.KafkaError:
            self._abort()
            return
        self._progress.copied(sum(map(len, records.values())))

    def _send(self, records: Polled) -> None:
        for some in records.values():
            for record in some:
                self._producer.send(
                    self._options.output_topic,
                    value=record.value,
                    key=record.key,
                    headers=record.headers or None,
                    partition=record.partition,
                )
        group = self._consumer.group_metadata() if self._options.use_group_metadata else self._options.consumer_group
        self._producer.send_offsets_to_transaction(offsets_after(records), group)

    def _commit(self) -> None:
        while True:
            try:
                self._producer.commit_transaction()
            except COMMIT_AGAIN:
                if self._interrupt.is_requested:
                    raise
            else:
                return

    def _abort(self) -> None:
        """Abort, and seek to the committed offsets."""
        self._producer.abort_transaction()
        committed: Mapping[TopicPartition, int | None] = {
            tp: self._consumer.committed(tp) for tp in self._consumer.assignment()
        }
        for tp, offset in committed.items():
            if offset is None:
                self._consumer.seek_to_beginning(tp)
            else:
                self._consumer.seek(tp, offset)
