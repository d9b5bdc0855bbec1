"""`kafkalike transactions`: list, describe and abort transactions, with the actions of kafka-transactions.sh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli.environment import Environment, SuggestingGroup, keep_where, where
from kafkalike.cli.options import cluster_options, refused, version_option
from kafkalike.cli.output import Row, json_lines, output_option, text

if TYPE_CHECKING:
    from kafkalike.admin import KafkaAdminClient, PartitionProducerState, TransactionDescription, TransactionListing


NONE: Final = "None"
"""Kafka's placeholder of a missing value."""

ONE_BROKER = "there is one storage root, and no brokers"


@click.group(
    cls=SuggestingGroup,
    epilog="Example: kafkalike transactions list --state Ongoing",
    context_settings={"help_option_names": ["--help"]},
)
@cluster_options
@version_option
@click.pass_context
def transactions(context: click.Context, /, *, bootstrap_server: str | None, command_config: str | None) -> None:
    """List, describe and abort transactions, and find hanging ones.

    Readers never wait for a transaction. A hanging transaction only keeps its own files.
    """
    keep_where(context, bootstrap_server, command_config)


def _admin(context: click.Context, bootstrap_server: str | None, command_config: str | None) -> KafkaAdminClient:
    """Open a client of the cluster; options after the action override options before it."""
    environment = context.find_object(Environment) or Environment()
    return environment.admin(*where(context, bootstrap_server, command_config), existing=True)


@transactions.command("list")
@cluster_options
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only ids in this state; repeatable.")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only ids of this producer; repeatable.")
@click.option("--duration-filter", type=int, metavar="MS", help="Only transactions open for longer than this (ms).")
@click.option(
    "--transactional-id-pattern",
    "--id-pattern",
    "pattern",
    metavar="REGEX",
    help="Only ids that match as a whole.",
)
@refused("--broker-id", ONE_BROKER)
@output_option("transactional id")
@click.pass_context
def list_(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    states: tuple[str, ...],
    producer_ids: tuple[int, ...],
    duration_filter: int | None,
    pattern: str | None,
    as_json: bool,
) -> None:
    """List transactional ids and the state of their last transaction."""
    found = _admin(context, bootstrap_server, command_config).list_transactions(
        producer_id_filters=producer_ids,
        state_filters=states,
        duration_filter_ms=duration_filter,
        transactional_id_pattern=pattern,
    )
    _print(LIST_HEADS, listed(found), as_json=as_json)


@transactions.command()
@cluster_options
@click.option("--transactional-id", "ids", multiple=True, required=True, help="The id; repeatable.")
@output_option("transactional id")
@click.pass_context
def describe(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    ids: tuple[str, ...],
    as_json: bool,
) -> None:
    """Describe a transactional id, its last transaction, and the partitions that still lack its records."""
    found = _admin(context, bootstrap_server, command_config).describe_transactions(list(dict.fromkeys(ids)))
    _print(DESCRIBE_HEADS, described(found, _now_ms(context)), as_json=as_json)


@transactions.command("describe-producers")
@cluster_options
@click.option("--topic", required=True, help="Topic.")
@click.option("--partition", type=int, required=True, help="Partition.")
@refused("--broker-id", ONE_BROKER)
@output_option("producer")
@click.pass_context
def describe_producers(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    partition: int,
    as_json: bool,
) -> None:
    """Describe the producers with a transaction whose records a partition still lacks."""
    from kafkalike.model.structs import TopicPartition

    where = TopicPartition(topic, partition)
    found = _admin(context, bootstrap_server, command_config).describe_producers([where])
    _print(PRODUCER_HEADS, producers(found[where]), as_json=as_json)


@transactions.command()
@cluster_options
@click.option("--transactional-id", help="Transactional id whose current transaction is aborted.")
@click.option("--producer-id", type=int, help="Producer of the transaction, with --producer-epoch.")
@click.option("--producer-epoch", type=int, help="Epoch of the producer; another current epoch is an error.")
@click.option("--topic", help="Ignored: a transaction is aborted as a whole.")
@click.option("--partition", type=int, help="Ignored.")
@click.option("--coordinator-epoch", type=int, help="Ignored: kafkalike has no coordinator.")
@refused("--start-offset", "records of an open transaction have no offsets; give --transactional-id")
@click.pass_context
def abort(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    transactional_id: str | None,
    producer_id: int | None,
    producer_epoch: int | None,
    **not_looked_at: object,
) -> None:
    """Abort the open transaction of an id and fence its producer; a committed transaction is completed instead."""
    from kafkalike.admin import AbortTransactionSpec

    del not_looked_at
    spec: AbortTransactionSpec | str
    if transactional_id is not None and producer_id is None:
        spec = transactional_id
    elif transactional_id is None and producer_id is not None and producer_epoch is not None:
        spec = AbortTransactionSpec(None, producer_id, producer_epoch)
    else:
        raise click.UsageError(
            "The transaction to abort must be identified either with --transactional-id or with --producer-id and "
            "--producer-epoch"
        )
    _admin(context, bootstrap_server, command_config).abort_transaction(spec)


@transactions.command("force-terminate")
@cluster_options
@click.option("--transactional-id", required=True, help="The id.")
@click.pass_context
def force_terminate(
    context: click.Context, /, *, bootstrap_server: str | None, command_config: str | None, transactional_id: str
) -> None:
    """Do the same as abort --transactional-id."""
    _admin(context, bootstrap_server, command_config).abort_transaction(transactional_id)


@transactions.command("find-hanging")
@cluster_options
@click.option("--topic", help="Only transactions in this topic.")
@click.option("--partition", type=int, help="Only transactions in this partition of the topic.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    help="Only transactions open for longer than this plus five minutes (minutes).",
)
@click.option("--broker-id", type=int, help="Not needed: there is one storage root.")
@output_option("partition of a transaction")
@click.pass_context
def find_hanging(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str | None,
    partition: int | None,
    max_transaction_timeout: int,
    broker_id: int | None,
    as_json: bool,
) -> None:
    """Find transactions that are open for too long, by topic and partition. Abort them by transactional id."""
    if partition is not None and topic is None:
        raise click.UsageError("The --partition argument requires --topic to be provided")
    admin = _admin(context, bootstrap_server, command_config)
    found = admin.find_hanging_transactions(
        broker_ids=None if broker_id is None else [broker_id],
        max_transaction_timeout_ms=max_transaction_timeout * MINUTE_MS,
    )
    rows = hanging(found, _now_ms(context), topic=topic, partition=partition)
    _print(HANGING_HEADS, rows, as_json=as_json, missing="-")


def _now_ms(context: click.Context) -> int:
    return (context.find_object(Environment) or Environment()).clock.now_ms()


def _print(heads: Sequence[str], rows: Sequence[Row], *, as_json: bool, missing: str = NONE) -> None:
    for line in json_lines(heads, rows) if as_json else table(heads, rows, missing):
        click.echo(line)


MINUTE_MS: Final = 60_000

LIST_HEADS: Final = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
DESCRIBE_HEADS: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)
PRODUCER_HEADS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)
HANGING_HEADS: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
    "TransactionalId",
    "TransactionState",
)
"""Kafka's columns, and the arguments of `abort`."""


def listed(found: Mapping[int, Sequence[TransactionListing]]) -> list[Row]:
    """Return the rows of `list`."""
    return [
        (one.transactional_id, broker, one.producer_id, one.state.value)
        for broker, listings in found.items()
        for one in listings
    ]


def described(found: Mapping[str, TransactionDescription], now_ms: int) -> list[Row]:
    """Return the rows of `describe`."""
    rows: list[Row] = []
    for name, one in found.items():
        began_ms = one.transaction_start_time_ms
        rows.append(
            (
                one.coordinator_id,
                name,
                one.producer_id,
                one.producer_epoch,
                one.state.value,
                one.transaction_timeout_ms,
                None if began_ms < 0 else began_ms,
                None if began_ms < 0 else now_ms - began_ms,
                [f"{tp.topic}-{tp.partition}" for tp in sorted(one.topic_partitions)],
            )
        )
    return rows


def producers(found: PartitionProducerState) -> list[Row]:
    """Return the rows of `describe-producers`."""
    return [
        (
            one.producer_id,
            one.producer_epoch,
            one.coordinator_epoch,
            one.last_sequence,
            one.last_timestamp,
            None if one.current_transaction_start_offset < 0 else one.current_transaction_start_offset,
        )
        for one in found.active_producers
    ]


def hanging(
    found: Sequence[Mapping[str, Any]], now_ms: int, *, topic: str | None = None, partition: int | None = None
) -> list[Row]:
    """Return the rows of `find-hanging`, one per partition; None if the topics of a transaction are deleted."""
    rows: list[Row] = []
    for one in found:
        where = [(tp.topic, tp.partition) for tp in one["topic_partitions"]] or [(None, None)]
        for name, number in where:
            if topic not in {None, name} or (partition is not None and number != partition):
                continue
            rows.append(
                (
                    name,
                    number,
                    one["producer_id"],
                    one["producer_epoch"],
                    -1,
                    -1,
                    now_ms - one["age_ms"],
                    one["age_ms"] // MINUTE_MS,
                    one["transactional_id"],
                    one["state"],
                )
            )
    return rows


def table(heads: Sequence[str], rows: Sequence[Row], missing: str) -> Iterator[str]:
    """Yield the lines of a table in Kafka's form: aligned columns, a tab after each."""
    texts = [list(heads), *([text(cell, missing) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for row in texts:
        yield "".join(f"{cell.ljust(width)}\t" for cell, width in zip(row, widths, strict=True))
