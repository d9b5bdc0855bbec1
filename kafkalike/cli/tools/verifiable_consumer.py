"""`kafkalike verifiable-consumer`: read as a member of a group, and print each event as a line of JSON.

Flags and output are the same as of Kafka's VerifiableConsumer (org.apache.kafka.tools), for its system tests, with an
additional field: `lost` in `partitions_revoked`, if other members own the partitions already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Final

import click

from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.options import bootstrap_option, client_property, command_config_option, settings_of, version_option
from kafkalike.cli.tools.workload import JsonEvents, as_text
from kafkalike.consumer import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.errors import FencedInstanceIdError, KafkaError
from kafkalike.model.structs import ConsumerRecord, OffsetAndMetadata, TopicPartition

POLL_MS: Final = 100
"""Timeout of one poll (ms), and so the longest delay of a signal."""

ASSIGNORS: Final[Mapping[str, str]] = {
    "RangeAssignor": "range",
    "RoundRobinAssignor": "roundrobin",
    "StickyAssignor": "sticky",
    "CooperativeStickyAssignor": "cooperative-sticky",
}
"""Name in kafka-python by the simple name of Java's class."""

Records = Mapping[TopicPartition, Sequence[ConsumerRecord]]
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiableConsumerOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    group_id: str
    group_instance_id: str | None
    max_messages: int
    session_timeout: int | None
    verbose: bool
    enable_autocommit: bool
    reset_policy: str
    assignment_strategy: str | None
    command_property: tuple[str, ...]


@click.command(epilog="Example: kafkalike verifiable-consumer --topic orders --group-id billing --max-messages 100")
@bootstrap_option("--broker-list")
@command_config_option("--consumer.config")
@click.option("--topic", required=True, help="Topics to read, separated by commas.")
@click.option("--group-id", required=True, help="Consumer group.")
@click.option("--group-instance-id", help="Name of a static member.")
@click.option("--max-messages", type=int, default=-1, show_default=True, help="Records to read; -1: unlimited.")
@click.option("--session-timeout", type=click.IntRange(min=1), help="Setting session.timeout.ms; default 45000.")
@click.option("--verbose", is_flag=True, help="Print a line for each record.")
@click.option(
    "--enable-autocommit", is_flag=True, help="Let the consumer commit in the background, instead of after each poll."
)
@click.option(
    "--reset-policy", type=click.Choice(["earliest", "latest", "none"]), default="earliest", show_default=True,
    help="Start without a committed offset.",
)  # fmt: skip
@click.option(
    "--assignment-strategy",
    metavar="NAME",
    help="range, roundrobin, sticky, cooperative-sticky, or Java's class names; several separated by commas.",
)
@client_property("consumer")
@version_option
@pass_options(VerifiableConsumerOptions)
def verifiable_consumer(environment: Environment, options: VerifiableConsumerOptions) -> None:
    """Read as a member of a group and print events, until SIGTERM or Ctrl-C."""
    settings = _settings(options)
    lines = JsonEvents(environment.stdout, environment.clock)
    with Interrupt() as interrupt:
        consumer = KafkaConsumer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
        reader = VerifiableReader(consumer, lines, verbose=options.verbose, commits=not options.enable_autocommit)
        try:
            lines.emit("startup_complete")
            consumer.subscribe([name.strip() for name in options.topic.split(",")], listener=reader)
            left = options.max_messages
            while not interrupt.is_requested and left != 0:
                left = reader.step(left)
        finally:
            consumer.close()
            lines.emit("shutdown_complete")


def _settings(options: VerifiableConsumerOptions) -> dict[str, Any]:
    settings = settings_of(options.command_config, options.command_property)
    settings["group_id"] = options.group_id
    settings["enable_auto_commit"] = options.enable_autocommit
    settings["auto_offset_reset"] = options.reset_policy
    if options.group_instance_id is not None:
        settings["group_instance_id"] = options.group_instance_id
    if options.session_timeout is not None:
        settings["session_timeout_ms"] = options.session_timeout
    if options.assignment_strategy is not None:
        named = [name.strip().rpartition(".")[2] for name in options.assignment_strategy.split(",")]
        settings["partition_assignment_strategy"] = [ASSIGNORS.get(name, name) for name in named]
    return settings


class VerifiableReader(ConsumerRebalanceListener):
    """Polls, commits and prints; also the rebalance listener.

    Args:
        consumer: an open consumer.
        lines: prints the events.
        verbose: print a line for each record.
        commits: commit offsets after each poll.
    """

    def __init__(self, consumer: KafkaConsumer, lines: JsonEvents, *, verbose: bool, commits: bool) -> None:
        self._consumer = consumer
        self._lines = lines
        self._verbose = verbose
        self._commits = commits

    def step(self, left: int) -> int:
        """Poll once, print and commit the records.

        Args:
            left: remaining records; negative: unlimited.

        Returns:
            The remaining records after this poll.

        Raises:
            FencedInstanceIdError: another instance has taken the group.instance.id.
        """
        batches = self._consumer.poll(POLL_MS, max_records=left if left > 0 else None)
        if not batches:
            return left
        count = sum(map(len, batches.values()))
        self._print(batches, count)
        if self._commits:
            self._commit({tp: OffsetAndMetadata(records[-1].offset + 1) for tp, records in batches.items()})
        return left - count if left > 0 else left

    def _print(self, batches: Records, count: int) -> None:
        if self._verbose:
            self._lines.emit_all("record_data", [_data(r) for records in batches.values() for r in records])
        runs = [
            {**_where(tp), "count": len(records), "minOffset": records[0].offset, "maxOffset": records[-1].offset}
            for tp, records in batches.items()
        ]
        self._lines.emit("records_consumed", count=count, partitions=runs)

    def _commit(self, offsets: Offsets) -> None:
        printed = [{**_where(tp), "offset": at.offset} for tp, at in offsets.items()]
        try:
            self._consumer.commit(dict(offsets))
        except FencedInstanceIdError:
            raise
        except KafkaError as error:
            self._lines.emit("offsets_committed", offsets=printed, success=False, error=str(error))
        else:
            self._lines.emit("offsets_committed", offsets=printed, success=True)

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Print the assigned partitions."""
        self._lines.emit("partitions_assigned", partitions=_sorted(assigned))

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Print the revoked partitions."""
        self._lines.emit("partitions_revoked", partitions=_sorted(revoked))

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        """Print the partitions as revoked and lost: a commit would fail."""
        self._lines.emit("partitions_revoked", partitions=_sorted(lost), lost=True)


def _data(record: ConsumerRecord) -> dict[str, object]:
    where = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    return {"key": as_text(record.key), "value": as_text(record.value), **where}


def _where(tp: TopicPartition) -> dict[str, object]:
    return {"topic": tp.topic, "partition": tp.partition}


def _sorted(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    return [_where(tp) for tp in sorted(partitions)]
