"""`kafkalike brokers`: list, add, drain and remove the storage roots of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Final

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import cluster_options, version_option
from kafkalike.cli.suggesting import SuggestingGroup

HEADS: Final = ("ID", "RACK", "STATE", "LEADS", "REPLICAS", "OUT-OF-SYNC", "ROOT")


@click.group(
    cls=SuggestingGroup,
    epilog="Example: kafkalike brokers add /mnt/d/log --rack east --bootstrap-server /mnt/a/log",
    context_settings={"help_option_names": ["--help"]},
)
@version_option
def brokers() -> None:
    """List, add, drain and remove brokers. A broker is a storage root; nothing runs there."""


@brokers.command("list")
@cluster_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object per broker.")
@pass_environment
def list_(
    environment: Environment, /, *, bootstrap_server: str | None, command_config: str | None, as_json: bool
) -> None:
    """Print brokers with the tables that they lead, and have replicas of."""
    replication = environment.existing(bootstrap_server, command_config).replication
    tables = [replication.replicas(name) for name in replication.tables()]
    found = []
    for broker in replication.brokers():
        held = [table for table in tables if broker.id in {*table.replicas, *table.isr}]
        found.append(
            {
                "id": broker.id,
                "rack": broker.rack,
                "state": _state(draining=broker.draining, alive=replication.alive(broker.id)),
                "leads": sum(table.leader == broker.id for table in tables),
                "replicas": len(held),
                "out_of_sync": sum(broker.id not in table.isr for table in held),
                "root": broker.uri,
            }
        )
    if as_json:
        for entry in found:
            click.echo(json.dumps(entry))
        return
    for line in table_lines([HEADS, *(tuple(_text(value) for value in entry.values()) for entry in found)]):
        click.echo(line)


def _state(*, draining: bool, alive: bool) -> str:
    if not alive:
        return "gives no answer"
    return "draining" if draining else "there"


@brokers.command()
@cluster_options
@click.argument("root")
@click.option("--rack", help="Kafka's broker.rack: readers with this client.rack read from it.")
@click.option("--id", "broker", type=click.IntRange(min=1), help="Its id; default the next one.")
@pass_environment
def add(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    root: str,
    rack: str | None,
    broker: int | None,
) -> None:
    """Add a storage root. It gets replicas of new topics, and of those that are reassigned to it."""
    replication = environment.existing(bootstrap_server, command_config).replication
    made = replication.add_broker(root, rack=rack, id=broker)
    click.echo(f"Added broker {made.id} at {made.uri}.")


@brokers.command()
@cluster_options
@click.argument("broker", type=int)
@pass_environment
def drain(
    environment: Environment, /, *, bootstrap_server: str | None, command_config: str | None, broker: int
) -> None:
    """Put no new replicas on a broker, and assign those that it has to others; `kafkalike replicate` moves them."""
    replication = environment.existing(bootstrap_server, command_config).replication
    left = replication.drain(broker)
    if left:
        click.echo(f"Broker {broker} is being drained; it still has {', '.join(left)}: run kafkalike replicate.")
    else:
        click.echo(f"Broker {broker} is drained: kafkalike brokers remove {broker}.")


@brokers.command()
@cluster_options
@click.argument("broker", type=int)
@click.option("--lost", is_flag=True, help="Also with replicas there: it never comes back.")
@pass_environment
def remove(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    broker: int,
    lost: bool,
) -> None:
    """Take a broker out of the cluster. Nothing on it is deleted."""
    environment.existing(bootstrap_server, command_config).replication.remove_broker(broker, lost=lost)
    click.echo(f"Removed broker {broker}.")


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield " ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
