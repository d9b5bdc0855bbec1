"""`kafkalike snapshot`: names of topics and groups in, what they are as of one moment as a line of JSON out."""

from __future__ import annotations

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option, whole_or_time
from kafkalike.maintenance.take_cut import snapshot


@click.command(
    "snapshot",
    epilog="Example: kafkalike snapshot --topic orders --topic payments > now.json; "
    "spark-submit $(kafkalike job-path export_topic) --topic orders --at now.json exports/orders",
)
@bootstrap_option()
@command_config_option()
@click.option("--topic", "topics", multiple=True, required=True, metavar="NAME", help="A topic; repeatable.")
@click.option("--group", "groups", multiple=True, metavar="ID", help="A group whose offsets are wanted; repeatable.")
@click.option(
    "--at",
    metavar="TIME",
    help="As of a time: ms since 1970, or ISO 8601 (without a zone: local time). Not with --group. Default: now.",
)
@version_option
@pass_environment
def snapshot_command(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    at: str | None,
) -> None:
    """Print versions of topics, and committed offsets of groups, that show all or nothing of every transaction."""
    moment = None if at is None else whole_or_time(at, "--at", "ms since 1970")
    cluster = environment.existing(bootstrap_server, command_config)
    click.echo(snapshot(topics, cluster, groups=groups, at=moment, clock=environment.clock).to_json())
