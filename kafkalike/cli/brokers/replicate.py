"""`kafkalike replicate`: bring replicas in sync, once or again and again; say how far they are."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import click

from kafkalike.cli.brokers.brokers import table_lines
from kafkalike.cli.environment import Environment, pass_environment
from kafkalike.cli.options import bootstrap_option, command_config_option, topic_filter, version_option
from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

HEADS: Final = ("TABLE", "BROKER", "ROLE", "VERSION", "LAG-VERSIONS", "LAG-BYTES", "LAG-S")


@click.command(epilog="Example: kafkalike replicate --every 30s")
@bootstrap_option()
@command_config_option()
@click.option("--topic", metavar="REGEX", help="Topics; default all, and the control tables.")
@click.option("--every", metavar="DURATION", help="Again and again, such as every 30s, until SIGTERM or Ctrl-C.")
@click.option("--max-minutes", type=click.FloatRange(min=0, min_open=True), help="Begin nothing new after so long.")
@click.option("--describe", is_flag=True, help="Say how far each replica is, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each run, or for each replica.")
@version_option
@pass_environment
def replicate(
    environment: Environment,
    /,
    *,
    bootstrap_server: str | None,
    command_config: str | None,
    topic: str | None,
    every: str | None,
    max_minutes: float | None,
    describe: bool,
    as_json: bool,
) -> None:
    """Copy what replicas lack, let them in, move those that were reassigned, give preferred leaders their topics back.

    Producers do what they need themselves; this is for what was away, and for topics that nobody writes to. Safe at any
    time and twice at once.

    Exit code 0: done, 1: something could not be done.
    """
    cluster = environment.existing(bootstrap_server, command_config)
    if describe:
        _describe(cluster, topic, as_json=as_json)
        return
    timeout_ms = None if max_minutes is None else max_minutes * 60_000
    if every is None:
        sound = _once(cluster, topic, timeout_ms, as_json=as_json)
        click.get_current_context().exit(0 if sound else 1)
    from kafkalike.maintenance.retention.schedule import every as repeat
    from kafkalike.maintenance.retention.schedule import parse_duration_ms

    def again() -> None:
        try:
            _once(cluster, topic, timeout_ms, as_json=as_json)
        except (KafkaError, OSError) as error:
            click.echo(f"Error: {error}", err=True)

    repeat(parse_duration_ms(every), again)


def _names(cluster: Cluster, topic: str | None) -> list[str]:
    wanted = topic_filter(topic)
    names = [name for name in cluster.replication.tables() if wanted(name)]
    if topic is not None and not names:
        raise UnknownTopicOrPartitionError(f"Topic '{topic}' does not exist as expected")
    return names


def _once(cluster: Cluster, topic: str | None, timeout_ms: float | None, *, as_json: bool) -> bool:
    report = cluster.replication.replicate(_names(cluster, topic), timeout_ms=timeout_ms)
    if as_json:
        click.echo(json.dumps(asdict(report), default=list))
        return not report.failed
    for name, brokers in report.joined.items():
        click.echo(f"{name}: in sync on {', '.join(map(str, brokers))}")
    for name, brokers in report.left.items():
        click.echo(f"{name}: no longer on {', '.join(map(str, brokers))}")
    for name, leader in report.led.items():
        click.echo(f"{name}: led by {leader}")
    for problem in report.failed:
        click.echo(f"Error: {problem}", err=True)
    return not report.failed


def _describe(cluster: Cluster, topic: str | None, *, as_json: bool) -> None:
    rows = []
    for name in _names(cluster, topic):
        replicas = cluster.replication.replicas(name, ends=True)
        lags = replicas.lags()
        for end in replicas.ends:
            lag = lags[end.broker]
            role = "leader" if end.broker == replicas.leader else "in sync" if end.in_sync else "out of sync"
            rows.append(
                {
                    "table": name,
                    "broker": end.broker,
                    "role": role if end.version is not None else f"{role}, gives no answer",
                    "version": end.version,
                    "lag_versions": lag.versions,
                    "lag_bytes": lag.bytes,
                    "lag_seconds": lag.seconds,
                }
            )
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    texts = [tuple("-" if value is None else str(value) for value in row.values()) for row in rows]
    for line in table_lines([HEADS, *texts]):
        click.echo(line)
