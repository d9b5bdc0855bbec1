"""`kafkalike leader-election`: let preferred replicas lead, or elect unclean leaders, as kafka-leader-election does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, version_option
from kafkalike.errors import ElectionNotNeededError, IllegalArgumentError


@click.command(
    "leader-election", epilog="Example: kafkalike leader-election --election-type preferred --all-topic-partitions"
)
@bootstrap_option()
@command_config_option("--admin.config")
@click.option(
    "--election-type",
    required=True,
    type=click.Choice(("preferred", "unclean"), case_sensitive=False),
    help="preferred: the first replica leads again. unclean: one out of sync leads where none in sync answers.",
)
@click.option("--topic", help="With --partition: a topic.")
@click.option("--partition", type=int, help="A partition of it; all of a topic have one leader.")
@click.option("--all-topic-partitions", is_flag=True, help="All topics.")
@click.option(
    "--path-to-json-file",
    type=click.Path(exists=True, dir_okay=False),
    help='File: {"partitions": [{"topic": "foo", "partition": 1}]}.',
)
@version_option
@pass_environment
def leader_election(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    election_type: str,
    topic: str | None,
    partition: int | None,
    all_topic_partitions: bool,
    path_to_json_file: str | None,
) -> None:
    """Elect leaders. All partitions of a topic have one leader, so an election of one of them is one of all."""
    given = [topic is not None, all_topic_partitions, path_to_json_file is not None]
    if sum(given) != 1:
        raise click.UsageError("Exactly one of --topic, --all-topic-partitions and --path-to-json-file is needed")
    if (topic is None) is not (partition is None):
        raise click.UsageError("--topic and --partition belong together")
    wanted: Mapping[str, Sequence[int]] | None = None
    if topic is not None and partition is not None:
        wanted = {topic: [partition]}
    elif path_to_json_file is not None:
        wanted = parse_partitions(Path(path_to_json_file).read_bytes())
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        found = admin.elect_leaders(election_type, wanted, raise_errors=False)
    code = 0
    for result in found["replica_election_results"]:
        done = [(entry["partition_id"], entry) for entry in result["partition_result"]]
        for p, entry in done:
            where = f"{result['topic']}-{p}"
            if entry["error_code"] == 0:
                click.echo(f"Successfully completed leader election ({election_type.upper()}) for partition {where}")
            elif entry["error_code"] == ElectionNotNeededError.errno:
                click.echo(f"Valid replica already elected for partition {where}")
            else:
                click.echo(
                    f"Error completing leader election for partition {where}: {entry['error_message']}", err=True
                )
                code = 1
    click.get_current_context().exit(code)


def parse_partitions(content: bytes) -> dict[str, list[int]]:
    """Partitions by topic of Kafka's JSON file.

    Raises:
        IllegalArgumentError: it is malformed, empty, or names a partition twice.
    """
    try:
        data: Any = json.loads(content)
        pairs = [(str(entry["topic"]), int(entry["partition"])) for entry in data["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise IllegalArgumentError(f"The partitions json file is malformed: {cause!r}") from cause
    if len(set(pairs)) < len(pairs) or not pairs:
        raise IllegalArgumentError("The partitions json file names no partition, or one twice")
    found: dict[str, list[int]] = {}
    for name, p in pairs:
        found.setdefault(name, []).append(p)
    return found
