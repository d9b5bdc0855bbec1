"""`kafkalike delete-records`: a JSON file of offsets in, records below them deleted, as kafka-delete-records does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import (
    bootstrap_option,
    command_config_option,
    version_option,
)
from kafkalike.errors import BrokerResponseError, IllegalArgumentError
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.admin import KafkaAdminClient


@click.command(epilog="Example: kafkalike delete-records --offset-json-file offsets.json")
@bootstrap_option()
@command_config_option()
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help='File: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}. Offset -1 is the end.',
)
@version_option
@pass_environment
def delete_records(
    environment: Environment, /, bootstrap_server: str | None, command_config: str | None, offset_json_file: str
) -> None:
    """Delete the records of partitions below given offsets. Partitions that fail do not keep others back."""
    wanted = parse_offsets(Path(offset_json_file).read_bytes())
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        click.echo("Executing records delete operation")
        click.echo("Records delete operation completed:")
        failed = [where for where, offset in wanted.items() if not _delete(admin, where, offset)]
    if failed:
        click.get_current_context().exit(1)


def _delete(admin: KafkaAdminClient, where: TopicPartition, offset: int) -> bool:
    place = f"partition: {where.topic}-{where.partition}"
    try:
        done = admin.delete_records({where: offset})[where]
    except (BrokerResponseError, IllegalArgumentError) as error:
        click.echo(f"{place}\terror: {error}")
        return False
    click.echo(f"{place}\tlow_watermark: {done['low_watermark']}")
    return True


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """The JSON form of Kafka's `--offset-json-file`.

    Raises:
        IllegalArgumentError: it is malformed, of another version, or names a partition twice.
    """
    try:
        data: Any = json.loads(content)
        version = data.get("version", 1)
        entries = [(TopicPartition(e["topic"], e["partition"]), e["offset"]) for e in data["partitions"]]
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        raise IllegalArgumentError(f"The offset json file is malformed: {cause!r}") from cause
    if version != 1:
        raise IllegalArgumentError(f"Not supported version field value {version}")
    wanted = dict(entries)
    if len(wanted) != len(entries):
        names = [where for where, _ in entries]
        doubled = sorted({f"{w.topic}-{w.partition}" for w in names if names.count(w) > 1})
        raise IllegalArgumentError(f"Offset json file contains duplicate topic partitions: {','.join(doubled)}")
    return wanted
