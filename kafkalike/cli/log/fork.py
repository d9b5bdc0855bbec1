"""`kafkalike fork`: a topic in, a new one that begins with its records out."""

from __future__ import annotations

import json

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option, whole_or_time


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
    from kafkalike.maintenance.corrections.fork import fork as run

    moment = None if as_of is None else whole_or_time(as_of, "--as-of", "a version")
    cluster = environment.cluster_of(bootstrap_server, command_config)
    made = run(topic, new, cluster, as_of=moment, groups=groups, clock=environment.clock)
    if as_json:
        click.echo(json.dumps(made.as_dict()))
        return
    room = "which take no room" if made.shared == made.files else f"{made.shared} of which take no room"
    click.echo(f"Created topic {new} with what {topic} held at version {made.version}: {made.files} files, {room}.")
    for group in made.groups:
        click.echo(f"Group {group} stands where it stands in {topic}.")
