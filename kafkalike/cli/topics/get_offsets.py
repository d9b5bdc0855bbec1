"""`kafkalike get-offsets`: `topic:partition:offset` lines for a point in time, as kafka-get-offsets prints them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

import click

from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import (
    bootstrap_option,
    command_config_option,
    topic_filter,
    version_option,
)
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.structs import OffsetSpec, TopicPartition

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
@bootstrap_option("--broker-list")
@command_config_option()
@click.option("--topic", metavar="REGEX", help="Topics; default all.")
@click.option("--partitions", metavar="0,1", help="Partition numbers; default all.")
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
@click.option("--exclude-internal-topics", is_flag=True, help="Always so: kafkalike's own tables are no topics.")
@version_option
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
) -> None:
    """Print offsets of partitions; partitions without an answer are left out."""
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
    for where in sorted(found):
        if found[where].offset >= 0:
            click.echo(f"{where.topic}:{where.partition}:{found[where].offset}")


def parse_time(text: str) -> int:
    """A `--time` as an `OffsetSpec` or ms.

    Raises:
        click.UsageError: it is neither.
    """
    if text in TIMES:
        return TIMES[text]
    try:
        value = int(text)
    except ValueError:
        value = min(OffsetSpec) - 1
    if value < min(OffsetSpec):
        raise click.UsageError(
            f"Malformed time argument {text!r}: ms, -1 to -5, or one of {', '.join(TIMES)} is needed"
        )
    return value


def _by_topic(topic: str | None, partitions: str | None) -> Filter:
    allowed = topic_filter(topic)
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
    """`--topic-partitions` as a filter: any of the comma-separated patterns fits.

    Raises:
        click.UsageError: a pattern that is none.

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
    allowed = topic_filter(name or None)
    if number:
        return lambda topic, partition: partition == int(number) and allowed(topic)
    first = int(low) if low else 0
    beyond = int(high) if high else None
    return lambda topic, partition: partition >= first and (beyond is None or partition < beyond) and allowed(topic)
