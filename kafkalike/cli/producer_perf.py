"""`kafkalike producer-perf-test`: sends records as fast as asked and says how fast that was, in Kafka's words."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from kafkalike.cli.client_metrics import print_metrics
from kafkalike.cli.environment import Environment, pass_environment
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
from kafkalike.cli.perf_stats import SendStats
from kafkalike.clock import Clock

Payload = Callable[[int], bytes]
"""Number of the record in, its value out."""

_NO_TRANSACTIONS: Final = "transactions do not exist yet"


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
@pass_environment
def producer_perf_test(environment: Environment, /, **given: Any) -> None:  # noqa: ANN401 - click's
    """Measure how fast records are sent."""
    _check(given)
    payload = _payload(given)
    from kafkalike.producer import KafkaProducer

    failures_are_printed()
    settings = _settings(given)
    named = given["bootstrap_server"] or settings.pop("bootstrap_servers", None)
    settings.setdefault("client_id", "perf-producer-client")
    producer = KafkaProducer(bootstrap_servers=environment.connect(named), **settings)
    stats = SendStats(environment.clock, given["reporting_interval"], click.echo, warmup=given["warmup_records"])
    errors: list[BaseException] = []
    with producer:
        pace = Pace(environment.clock, given["throughput"])
        for number in range(given["num_records"]):
            value = payload(number)
            sent_at = environment.clock.monotonic()
            future = producer.send(given["topic"], value=value)
            future.add_callback(partial(_sent, stats, sent_at, len(value)))
            future.add_errback(errors.append)
            pace.wait(number + 1)
        producer.flush()
        metrics = producer.metrics() if given["print_metrics"] else None
    for line in stats.total():
        click.echo(line)
    if metrics is not None:
        print_metrics(metrics)
    if errors:
        message = f"{len(errors)} of {given['num_records']} records were not sent, the first because: {errors[0]}"
        raise click.ClickException(message)


def _sent(stats: SendStats, sent_at: float, size: int, metadata: object) -> None:
    del metadata
    stats.record(sent_at, size)


def _check(given: Mapping[str, Any]) -> None:
    ways = [given["record_size"] is not None, given["payload_file"] is not None, given["payload_monotonic"]]
    if sum(ways) != 1:
        message = "Exactly one of --record-size, --payload-file and --payload-monotonic is needed"
        raise click.UsageError(message)
    if given["warmup_records"] >= given["num_records"]:
        message = (
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
        raise click.UsageError(message)
    if given["more_props"] and not given["command_property"]:
        message = f"Got unexpected extra arguments ({' '.join(given['more_props'])})"
        raise click.UsageError(message)


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    pairs = (*given["command_property"], *given["more_props"])
    return client_settings({**read_properties(given["command_config"]), **key_values(pairs, "--producer-props")})


def _payload(given: Mapping[str, Any]) -> Payload:
    if given["payload_monotonic"]:
        return lambda number: str(number).encode()
    # Kafka's tool seeds its generator with 0 too: two runs send the same bytes.
    chance = random.Random(0)  # noqa: S311 - test data
    if given["payload_file"] is not None:
        values = _payloads(given["payload_file"], given["payload_delimiter"])
        return lambda number: chance.choice(values)  # noqa: ARG005
    letters = bytes(range(ord("A"), ord("Z") + 1))
    size: int = given["record_size"]
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


class Pace:
    """Keeps sends at a rate.

    Args:
        clock: time and waiting.
        per_second: records per second; 0 or less is no limit.
    """

    def __init__(self, clock: Clock, per_second: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._start = clock.monotonic()

    def wait(self, sent: int) -> None:
        """Wait until so many records may have been sent."""
        if self._per_second > 0:
            self._clock.sleep(self._start + sent / self._per_second - self._clock.monotonic())
