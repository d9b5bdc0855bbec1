"""`kafkalike producer-perf-test`: sends records as fast as asked and says how fast that was, in Kafka's words."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import (
    bootstrap_option,
    client_settings,
    command_config_option,
    failures_are_printed,
    key_values,
    read_properties,
    refused,
    version_option,
)
from kafkalike.cli.pace import Pace
from kafkalike.cli.perf.client_metrics import print_metrics
from kafkalike.cli.perf.perf_stats import SendStats

Payload = Callable[[int], bytes]
"""Number of the record in, its value out."""

_NO_TRANSACTIONS: Final = "transactions do not exist yet"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerPerfOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    num_records: int
    record_size: int | None
    payload_file: str | None
    payload_delimiter: str
    payload_monotonic: bool
    throughput: float
    command_property: tuple[str, ...]
    print_metrics: bool
    reporting_interval: int
    warmup_records: int
    more_props: tuple[str, ...]


@click.command(
    epilog="Example: kafkalike producer-perf-test --topic perf --num-records 100000 --record-size 100 --throughput -1"
)
@bootstrap_option()
@command_config_option("--producer.config")
@click.option("--topic", required=True, help="Topic to send to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="Records to send.")
@click.option("--record-size", type=click.IntRange(min=1), help="Bytes of a record, random letters.")
@click.option("--payload-file", type=click.Path(exists=True, dir_okay=False), help="File of values to choose from.")
@click.option("--payload-delimiter", default="\\n", show_default=True, help="Between two values of --payload-file.")
@click.option("--payload-monotonic", is_flag=True, help="Values are 0, 1, 2 …")
@click.option("--throughput", type=float, default=-1, show_default=True, help="Records per second; -1 is no limit.")
@click.option(
    "--command-property",
    "--producer-props",
    "command_property",
    multiple=True,
    metavar="NAME=VALUE...",
    help="Settings of the producer; may be repeated, and several may follow.",
)
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
@click.option("--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True, help="ms.")
@click.option("--warmup-records", type=click.IntRange(min=0), default=0, show_default=True, help="Not measured twice.")
@click.argument("more_props", nargs=-1, metavar="[NAME=VALUE]...")
@refused("--transactional-id", _NO_TRANSACTIONS)
@refused("--transaction-duration-ms", _NO_TRANSACTIONS)
@version_option
@pass_options(ProducerPerfOptions)
def producer_perf_test(environment: Environment, options: ProducerPerfOptions) -> None:
    """Measure how fast records are sent."""
    _check(options)
    payload = _payload(options)
    from kafkalike.producer import KafkaProducer

    failures_are_printed()
    settings = _settings(options)
    settings.setdefault("client_id", "perf-producer-client")
    producer = KafkaProducer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    stats = SendStats(environment.clock, options.reporting_interval, click.echo, warmup=options.warmup_records)
    errors: list[BaseException] = []
    with producer:
        pace = Pace(environment.clock, options.throughput)
        for number in range(options.num_records):
            value = payload(number)
            sent_at = environment.clock.monotonic()
            future = producer.send(options.topic, value=value)
            future.add_callback(partial(_sent, stats, sent_at, len(value)))
            future.add_errback(errors.append)
            pace.wait(number + 1)
        producer.flush()
        metrics = producer.metrics() if options.print_metrics else None
    for line in stats.total():
        click.echo(line)
    if metrics is not None:
        print_metrics(metrics)
    if errors:
        message = f"{len(errors)} of {options.num_records} records were not sent, the first because: {errors[0]}"
        raise click.ClickException(message)


def _sent(stats: SendStats, sent_at: float, size: int, metadata: object) -> None:
    del metadata
    stats.record(sent_at, size)


def _check(options: ProducerPerfOptions) -> None:
    ways = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(ways) != 1:
        message = "Exactly one of --record-size, --payload-file and --payload-monotonic is needed"
        raise click.UsageError(message)
    if options.warmup_records >= options.num_records:
        message = (
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
        raise click.UsageError(message)
    if options.more_props and not options.command_property:
        message = f"Got unexpected extra arguments ({' '.join(options.more_props)})"
        raise click.UsageError(message)


def _settings(options: ProducerPerfOptions) -> dict[str, Any]:
    pairs = (*options.command_property, *options.more_props)
    return client_settings({**read_properties(options.command_config), **key_values(pairs, "--producer-props")})


def _payload(options: ProducerPerfOptions) -> Payload:
    if options.payload_monotonic:
        return lambda number: str(number).encode()
    # Kafka's tool seeds its generator with 0 too: two runs send the same bytes.
    chance = random.Random(0)  # noqa: S311 - test data
    if options.payload_file is not None:
        values = _payloads(options.payload_file, options.payload_delimiter)
        return lambda number: chance.choice(values)  # noqa: ARG005
    size = options.record_size
    assert size is not None, "checked before: it is one of the three"
    letters = bytes(range(ord("A"), ord("Z") + 1))
    return lambda number: bytes(chance.choices(letters, k=size))  # noqa: ARG005


def _payloads(path: str, delimiter: str) -> Sequence[bytes]:
    between = b"\n" if delimiter == "\\n" else delimiter.encode()
    click.echo(f"Reading payloads from: {Path(path).absolute()}")
    content = Path(path).read_bytes().removesuffix(between)
    if not content:
        message = "File does not exist or empty file provided."
        raise click.UsageError(message)
    values = content.split(between)
    click.echo(f"Number of messages read: {len(values)}")
    return values
