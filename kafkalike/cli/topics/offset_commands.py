"""`kafkalike get-offsets`, `delete-records` and `snapshot`: find offsets, delete records, and print a snapshot."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.output import Row, json_lines, output_option
from kafkalike.errors import BrokerResponseError, IllegalArgumentError
from kafkalike.maintenance.topic_snapshots import snapshot
from kafkalike.model.structs import OffsetSpec, TopicPartition

if TYPE_CHECKING:
    from kafkalike.admin.admin_client import KafkaAdminClient

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


TIMES: Final = {
    "latest": OffsetSpec.LATEST,
    "earliest": OffsetSpec.EARLIEST,
    "max-timestamp": OffsetSpec.MAX_TIMESTAMP,
    "earliest-local": OffsetSpec.EARLIEST_LOCAL,
    "latest-tiered": OffsetSpec.LATEST_TIERED,
}

_PATTERN: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")

Filter = Callable[[str, int], bool]


@click.command(epilog="Example: kafkalike get-offsets --topic orders --time earliest")
@flags.bootstrap_option("--broker-list")
@flags.command_config_option()
@click.option("--topic", metavar="REGEX", help="Topics; default: all.")
@click.option("--partitions", metavar="0,1", help="Partition numbers; default: all.")
@click.option(
    "--topic-partitions",
    metavar="PATTERNS",
    help="Comma-separated patterns topic:partition, partition as N, N-M (without M), N- or -M; each part optional.",
)
@click.option(
    "--time",
    default="latest",
    show_default=True,
    metavar="TIME",
    help="Time in ms, or -1/latest, -2/earliest, -3/max-timestamp, -4/earliest-local, -5/latest-tiered.",
)
@click.option("--exclude-internal-topics", is_flag=True, help="Without effect: kafkalike's own tables are not topics.")
@output_option("partition")
@flags.version_option
@pass_environment
def get_offsets(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    time: str,
    exclude_internal_topics: bool,
    as_json: bool,
) -> None:
    """Print offsets of partitions. Partitions without a matching offset are left out."""
    del exclude_internal_topics
    if topic_partitions is not None and (topic is not None or partitions is not None):
        raise click.UsageError("--topic-partitions cannot be used with --topic or --partitions")
    spec = parse_time(time)
    chosen = _by_topic(topic, partitions) if topic_partitions is None else parse_patterns(topic_partitions)
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        wanted = [
            TopicPartition(described["name"], partition["partition_index"])
            for described in admin.describe_topics()
            for partition in described["partitions"]
            if chosen(described["name"], partition["partition_index"])
        ]
        if not wanted:
            raise IllegalArgumentError("Could not match any topic-partitions with the specified filters")
        found = admin.list_partition_offsets(dict.fromkeys(wanted, spec))
    rows = [(*where, found[where].offset) for where in sorted(found) if found[where].offset >= 0]
    heads = ("TOPIC", "PARTITION", "OFFSET")
    for line in json_lines(heads, rows) if as_json else (":".join(map(str, row)) for row in rows):
        click.echo(line)


def parse_time(text: str) -> int:
    """Parse `--time` to an `OffsetSpec` or ms.

    Raises:
        click.UsageError: the text is neither.
    """
    if text in TIMES:
        return TIMES[text]
    try:
        value = int(text)
    except ValueError:
        value = min(OffsetSpec) - 1
    if value < min(OffsetSpec):
        raise click.UsageError(f"Malformed time argument {text!r}: use ms, -1 to -5, {', '.join(TIMES)}")
    return value


def _by_topic(topic: str | None, partitions: str | None) -> Filter:
    allowed = flags.topic_filter(topic)
    if not partitions:
        return lambda name, partition: allowed(name)  # noqa: ARG005
    try:
        numbers = {int(number) for number in partitions.split(",") if number.strip()}
    except ValueError as cause:
        raise click.UsageError(
            f"--partitions expects a comma separated list of numeric partition ids, but received: {partitions}"
        ) from cause
    return lambda name, partition: partition in numbers and allowed(name)


def parse_patterns(text: str) -> Filter:
    """Parse `--topic-partitions` to a filter that matches any of its comma-separated patterns.

    Raises:
        click.UsageError: a pattern is malformed.

    >>> chosen = parse_patterns("orders:0-2,:5")
    >>> [chosen("orders", 1), chosen("orders", 2), chosen("other", 5)]
    [True, False, True]
    """
    filters = [_pattern(part) for part in text.split(",")]
    return lambda name, partition: _any(filters, name, partition)


def _any(filters: Iterable[Filter], name: str, partition: int) -> bool:
    return any(fits(name, partition) for fits in filters)


def _pattern(text: str) -> Filter:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise click.UsageError(f"Invalid rule specification: {text}")
    name, number, low, high = match.groups()
    allowed = flags.topic_filter(name or None)
    if number:
        return lambda topic, partition: partition == int(number) and allowed(topic)
    first = int(low) if low else 0
    beyond = int(high) if high else None
    return lambda topic, partition: partition >= first and (beyond is None or partition < beyond) and allowed(topic)


@click.command(epilog="Example: kafkalike delete-records --offset-json-file offsets.json")
@flags.cluster_options
@click.option(
    "--offset-json-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help='File: {"partitions": [{"topic": "foo", "partition": 1, "offset": 1}], "version": 1}. Offset -1 is the end.',
)
@output_option("partition")
@flags.version_option
@pass_environment
def delete_records(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    offset_json_file: str,
    as_json: bool,
) -> None:
    """Delete the records of partitions below given offsets. A failed partition does not stop the others."""
    wanted = parse_offsets(Path(offset_json_file).read_bytes())
    with environment.admin(bootstrap_server, command_config, existing=True) as admin:
        if not as_json:
            click.echo("Executing records delete operation")
            click.echo("Records delete operation completed:")
        failed = False
        for where, offset in wanted.items():
            low_watermark, error = _delete(admin, where, offset)
            failed = failed or error is not None
            row = (*where, low_watermark, error)
            (line,) = json_lines(DELETED_HEADS, [row]) if as_json else [_line(row)]
            click.echo(line)
    if failed:
        click.get_current_context().exit(1)


DELETED_HEADS: Final = ("TOPIC", "PARTITION", "LOW-WATERMARK", "ERROR")


def _delete(admin: KafkaAdminClient, where: TopicPartition, offset: int) -> tuple[int | None, str | None]:
    """Delete records, and return the log start or the error."""
    try:
        return admin.delete_records({where: offset})[where]["low_watermark"], None
    except (BrokerResponseError, IllegalArgumentError) as error:
        return None, str(error)


def _line(row: Row) -> str:
    topic, partition, low_watermark, error = row
    outcome = f"low_watermark: {low_watermark}" if error is None else f"error: {error}"
    return f"partition: {topic}-{partition}\t{outcome}"


def parse_offsets(content: bytes) -> dict[TopicPartition, int]:
    """Parse Kafka's `--offset-json-file`.

    Raises:
        IllegalArgumentError: the JSON is malformed, of another version, or repeats a partition.
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


@click.command(
    "snapshot",
    epilog="Example: kafkalike snapshot --topic orders --topic payments > now.json; "
    "spark-submit $(kafkalike job-path export_topic) --topic orders --at now.json exports/orders",
)
@flags.cluster_options
@click.option("--topic", "topics", multiple=True, required=True, metavar="NAME", help="A topic; repeatable.")
@click.option(
    "--group", "groups", multiple=True, metavar="ID", help="Group whose committed offsets are included; repeatable."
)
@click.option(
    "--at",
    metavar="TIME",
    help="Time of the snapshot: ms since 1970, or ISO 8601 (without a zone: local time). Not with --group. "
    "Default: now.",
)
@flags.version_option
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
    """Print versions of topics and committed offsets of groups, with all or nothing of every transaction."""
    moment = None if at is None else flags.whole_or_time(at, "--at", "ms since 1970")
    if isinstance(moment, int):
        try:
            moment = EPOCH + timedelta(milliseconds=moment)
        except OverflowError:
            raise click.BadParameter(f"{at} ms since 1970 is in the future", param_hint="--at") from None
    cluster = environment.existing(bootstrap_server, command_config)
    click.echo(snapshot(topics, cluster, groups=groups, as_of=moment, clock=environment.clock).to_json())
