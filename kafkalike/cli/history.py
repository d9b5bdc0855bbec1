"""`kafkalike history`: a topic in; what happened to it, oldest first, out."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Final

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, version_option

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@click.command(epilog="Example: kafkalike history orders --kind retention --kind 'log start'")
@click.argument("topic")
@bootstrap_option()
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Show these kinds of events only; repeatable.")
@click.option("--last", type=click.IntRange(min=1), metavar="N", help="Show the newest N events only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object for each event.")
@version_option
@pass_environment
def history(
    environment: Environment,
    /,
    *,
    topic: str,
    bootstrap_server: str | None,
    kinds: tuple[str, ...],
    last: int | None,
    as_json: bool,
) -> None:
    """Show who appended, retained, compacted, merged and configured what in TOPIC.

    Read from the table's own history, as far as its log reaches back (delta.logRetentionDuration), and from the
    cluster's metadata.
    """
    from kafkalike.log.history import topic_history

    events = topic_history(environment.connect(bootstrap_server), topic)
    shown = [event for event in events if not kinds or event.kind in kinds]
    for event in shown[-last:] if last else shown:
        if as_json:
            click.echo(json.dumps(event.as_dict()))
            continue
        at = (EPOCH + timedelta(milliseconds=event.time_ms)).isoformat(timespec="milliseconds")
        version = "-" if event.version is None else str(event.version)
        click.echo(f"{at}  {version:>6}  {event.kind:<10}  {event.what}  ({event.by})")
