"""`kafkalike history`: a topic in; what happened to it, oldest first, out."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option
from kafkalike.model.clock import utc_text

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


@click.command(epilog="Example: kafkalike history orders --kind retention --kind 'log start'")
@click.argument("topic")
@bootstrap_option()
@command_config_option()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show these kinds of events only; repeatable.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show the newest N events only.")
@click.option(
    "--restore-as",
    metavar="NEW",
    help="Make topic NEW with what TOPIC held at --table-version, at the same offsets. In place it is refused: offsets "
    "would be given out twice.",
)
@click.option("--table-version", type=click.IntRange(min=0), metavar="N", help="For --restore-as.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each event.")
@version_option
@pass_environment
def history(
    environment: Environment,
    /,
    *,
    topic: str,
    bootstrap_server: str | None,
    command_config: str | None,
    kinds: tuple[str, ...],
    last: int | None,
    restore_as: str | None,
    table_version: int | None,
    as_json: bool,
) -> None:
    """Show who appended, retained, compacted, merged and configured what in TOPIC.

    Read from the table's own history, as far as its log reaches back (delta.logRetentionDuration), and from the
    cluster's metadata.
    """
    from kafkalike.maintenance.verify.history import topic_history

    cluster = environment.existing(bootstrap_server, command_config)
    if restore_as is not None or table_version is not None:
        _restore(cluster, topic, restore_as, table_version)
        return
    events = topic_history(cluster, topic)
    shown = [event for event in events if not kinds or event.kind in kinds]
    for event in shown[-last:] if last else shown:
        if as_json:
            click.echo(json.dumps(event.as_dict()))
            continue
        at = utc_text(event.time_ms)
        version = "-" if event.version is None else str(event.version)
        ids = f"append {', '.join(event.appends)}" if event.appends else ""
        by = ", ".join(part for part in (event.by, event.who, ids) if part)
        click.echo(f"{at}  {version:>6}  {event.kind:<10}  {event.what}  ({by})")


def _restore(cluster: Cluster, topic: str, new: str | None, version: int | None) -> None:
    from kafkalike.maintenance.upkeep.restore import restore_as

    if new is None or version is None:
        raise click.UsageError("--restore-as and --table-version belong together")
    made = restore_as(cluster, topic, version, new, uuid.uuid4().hex)
    click.echo(f"Created topic {made.name} with what {topic} held at version {version}.")
