"""`kafkalike history` and `fork`: what happened to a topic, and a new topic that begins with one of its versions."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option, whole_or_time
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
    from kafkalike.maintenance.verify.topic_history import topic_history

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
    from kafkalike.maintenance.restore import restore_as

    if new is None or version is None:
        raise click.UsageError("--restore-as and --table-version belong together")
    made = restore_as(cluster, topic, version, new, uuid.uuid4().hex)
    click.echo(f"Created topic {made.name} with what {topic} held at version {version}.")


@click.command(epilog="Example: kafkalike fork orders orders-trial --as-of 2026-01-01T00:00:00Z")
@click.argument("topic")
@click.argument("new")
@bootstrap_option()
@command_config_option()
@click.option(
    "--as-of",
    metavar="VERSION|TIME",
    help="A version as 'kafkalike history' lists them, or a time in ISO 8601 (without a zone: local time). "
    "Default: now.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="ID",
    help="A group that shall stand in NEW where it stands in TOPIC; repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@version_option
@pass_environment
def fork(
    environment: Environment,
    /,
    *,
    topic: str,
    new: str,
    bootstrap_server: str | None,
    command_config: str | None,
    as_of: str | None,
    groups: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make topic NEW with what TOPIC holds, or held, at the same offsets; no record is read.

    On a disk the files are shared by hard links and take no room; an object store copies them by itself. From then on
    the two have nothing in common: neither's maintenance or deletion touches the other.
    """
    from kafkalike.maintenance.fork import fork as fork_topic

    moment = None if as_of is None else whole_or_time(as_of, "--as-of", "a version")
    cluster = environment.cluster_of(bootstrap_server, command_config)
    made = fork_topic(
        topic,
        new,
        cluster,
        as_of=moment,
        groups=groups,
        clock=environment.clock,
    )
    if as_json:
        click.echo(json.dumps(made.as_dict()))
        return
    room = "which take no room" if made.shared == made.files else f"{made.shared} of which take no room"
    click.echo(f"Created topic {new} with what {topic} held at version {made.version}: {made.files} files, {room}.")
    for group in made.groups:
        click.echo(f"Group {group} stands where it stands in {topic}.")
