"""`kafkalike transactions`: transactional ids and their transactions, with the actions of kafka-transactions.sh."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kafkalike.cli import transaction_report
from kafkalike.cli.environment import Environment, SuggestingGroup, keep_where, where
from kafkalike.cli.options import cluster_options, refused, version_option

if TYPE_CHECKING:
    from kafkalike.admin import KafkaAdminClient

MINUTE_MS = 60_000
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
    """List, describe and abort transactions, and find those that hang.

    No reader ever waits for a transaction: a hanging one only keeps its own files.
    """
    keep_where(context, bootstrap_server, command_config)


def _admin(context: click.Context, bootstrap_server: str | None, command_config: str | None) -> KafkaAdminClient:
    """A client of the cluster that the options after the action name, or else those before it."""
    environment = context.find_object(Environment) or Environment()
    return environment.admin(*where(context, bootstrap_server, command_config), existing=True)


@transactions.command("list")
@cluster_options
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only ids in this state; repeatable.")
@click.option("--producer-id", "producer_ids", multiple=True, type=int, help="Only ids of this producer; repeatable.")
@click.option(
    "--duration-filter", type=int, metavar="MS", help="Only transactions under way for longer than this (ms)."
)
@click.option(
    "--transactional-id-pattern",
    "--id-pattern",
    "pattern",
    metavar="REGEX",
    help="Only ids that it matches as a whole.",
)
@refused("--broker-id", ONE_BROKER)
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
) -> None:
    """List transactional ids and the state of their last transaction."""
    found = _admin(context, bootstrap_server, command_config).list_transactions(
        producer_id_filters=producer_ids,
        state_filters=states,
        duration_filter_ms=duration_filter,
        transactional_id_pattern=pattern,
    )
    _print(transaction_report.LIST_HEADS, transaction_report.listed(found))


@transactions.command()
@cluster_options
@click.option("--transactional-id", "ids", multiple=True, required=True, help="The id; repeatable.")
@click.pass_context
def describe(
    context: click.Context, /, *, bootstrap_server: str | None, command_config: str | None, ids: tuple[str, ...]
) -> None:
    """Describe a transactional id, its last transaction, and the partitions that it still has to come into."""
    found = _admin(context, bootstrap_server, command_config).describe_transactions(list(dict.fromkeys(ids)))
    _print(transaction_report.DESCRIBE_HEADS, transaction_report.described(found, _now_ms(context)))


@transactions.command("describe-producers")
@cluster_options
@click.option("--topic", required=True, help="Topic.")
@click.option("--partition", type=int, required=True, help="Partition.")
@refused("--broker-id", ONE_BROKER)
@click.pass_context
def describe_producers(
    context: click.Context,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str,
    partition: int,
) -> None:
    """Describe the producers whose transaction still has to come into a partition."""
    from kafkalike.model.structs import TopicPartition

    where = TopicPartition(topic, partition)
    found = _admin(context, bootstrap_server, command_config).describe_producers([where])
    _print(transaction_report.PRODUCER_HEADS, transaction_report.producers(found[where]))


@transactions.command()
@cluster_options
@click.option("--transactional-id", help="Whose transaction, whatever it is by now.")
@click.option("--producer-id", type=int, help="Or whose, by its producer, as it was seen; with --producer-epoch.")
@click.option("--producer-epoch", type=int, help="Refused if the producer has another one by now.")
@click.option("--topic", help="Not looked at: a transaction is aborted as a whole.")
@click.option("--partition", type=int, help="Not looked at.")
@click.option("--coordinator-epoch", type=int, help="Not looked at: there is no coordinator.")
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
    """Abort what is open of a transactional id, and shut its producer out; what is committed is finished."""
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
@click.option("--topic", help="Only those that concern this topic.")
@click.option("--partition", type=int, help="And this partition of it.")
@click.option(
    "--max-transaction-timeout",
    type=click.IntRange(min=0),
    default=15,
    show_default=True,
    help="Under way for longer than this and five minutes more (minutes).",
)
@click.option("--broker-id", type=int, help="Not needed: there is one storage root.")
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
) -> None:
    """Find transactions that are under way for too long, by topic and partition; abort them by transactional id."""
    if partition is not None and topic is None:
        raise click.UsageError("The --partition argument requires --topic to be provided")
    admin = _admin(context, bootstrap_server, command_config)
    found = admin.find_hanging_transactions(
        broker_ids=None if broker_id is None else [broker_id],
        max_transaction_timeout_ms=max_transaction_timeout * MINUTE_MS,
    )
    rows = transaction_report.hanging(found, _now_ms(context), topic=topic, partition=partition)
    _print(transaction_report.HANGING_HEADS, rows)


def _now_ms(context: click.Context) -> int:
    return (context.find_object(Environment) or Environment()).clock.now_ms()


def _print(heads: transaction_report.Row, rows: list[transaction_report.Row]) -> None:
    for line in transaction_report.table(heads, rows):
        click.echo(line)
