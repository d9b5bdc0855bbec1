"""`kafkalike producer-perf-test`: measure how fast records are sent, with Kafka's output."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.tools.workload import RateLimit, SendStats, print_metrics
from kafkalike.model.clock import MonotonicClock

if TYPE_CHECKING:
    from kafkalike.producer.kafka_producer import KafkaProducer

Payload = Callable[[int], bytes]
"""From the number of a record to its value."""

DURATION_MS: Final = 3000
"""Default duration of a transaction (ms)."""


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
    transactional_id: str | None
    transaction_duration_ms: int | None
    more_props: tuple[str, ...]


@click.command(
    epilog="Example: kafkalike producer-perf-test --topic perf --num-records 100000 --record-size 100 --throughput -1"
)
@flags.bootstrap_option()
@flags.command_config_option("--producer.config")
@click.option("--topic", required=True, help="Topic to send to.")
@click.option("--num-records", required=True, type=click.IntRange(min=1), help="Records to send.")
@click.option("--record-size", type=click.IntRange(min=1), help="Bytes of a record of random letters.")
@click.option("--payload-file", type=click.Path(exists=True, dir_okay=False), help="File of values to choose from.")
@click.option(
    "--payload-delimiter", default="\\n", show_default=True, help="Delimiter of the values in --payload-file."
)
@click.option("--payload-monotonic", is_flag=True, help="Values are 0, 1, 2 …")
@click.option("--throughput", type=float, default=-1, show_default=True, help="Records per second; -1: unlimited.")
@click.option(
    "--command-property",
    "--producer-props",
    "command_property",
    multiple=True,
    metavar="NAME=VALUE...",
    help="Settings of the producer; may be repeated, and several may follow.",
)
@click.option("--print-metrics", is_flag=True, help="Print the producer's metrics at the end.")
@click.option(
    "--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True, help="Interval (ms)."
)
@click.option(
    "--warmup-records",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="First records that the second summary leaves out.",
)
@click.argument("more_props", nargs=-1, metavar="[NAME=VALUE]...")
@click.option(
    "--transactional-id", help="Send in transactions of this id; default with --transaction-duration-ms: random."
)
@click.option(
    "--transaction-duration-ms",
    type=click.IntRange(min=1),
    help=f"Duration of a transaction (ms); default with --transactional-id: {DURATION_MS}.",
)
@flags.version_option
@pass_options(ProducerPerfOptions)
def producer_perf_test(environment: Environment, options: ProducerPerfOptions) -> None:
    """Measure how fast records are sent. A signal ends the test and prints the figures so far."""
    _check(options)
    payload = _payload(options)
    from kafkalike.producer.kafka_producer import KafkaProducer

    flags.failures_are_printed()
    settings = _settings(options)
    settings.setdefault("client_id", "perf-producer-client")
    spans = Spans(environment.clock, _duration_ms(options, settings))
    producer = KafkaProducer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    stats = SendStats(environment.clock, options.reporting_interval, click.echo, warmup=options.warmup_records)
    errors: list[BaseException] = []
    with Interrupt() as interrupt, producer:
        spans.open_with(producer)
        pace = RateLimit(environment.clock, options.throughput)
        for number in range(options.num_records):
            value = payload(number)
            spans.before(producer)
            sent_at = environment.clock.monotonic()
            future = producer.send(options.topic, value=value)
            future.add_callback(partial(_sent, stats, sent_at, len(value)))
            future.add_errback(errors.append)
            spans.after(producer, sent_at)
            if interrupt.is_requested:
                break
            pace.wait(number + 1)
        spans.end(producer)
        producer.flush()
        metrics = producer.metrics() if options.print_metrics else None
    for line in stats.total():
        click.echo(line)
    if metrics is not None:
        print_metrics(metrics)
    interrupt.again()
    if errors:
        raise click.ClickException(
            f"{len(errors)} of {options.num_records} records were not sent, the first because: {errors[0]}"
        )


class Spans:
    """Sends in consecutive transactions of a duration.

    Args:
        clock: measures the duration.
        duration_ms: duration of a transaction; None: send without transactions.
    """

    def __init__(self, clock: MonotonicClock, duration_ms: int | None) -> None:
        self._clock = clock
        self._duration_ms = duration_ms
        self._began: float | None = None

    def open_with(self, producer: KafkaProducer) -> None:
        """Initialize transactions of the producer."""
        if self._duration_ms is not None:
            producer.init_transactions()

    def before(self, producer: KafkaProducer) -> None:
        """Begin a transaction before a send, unless one is open."""
        if self._duration_ms is not None and self._began is None:
            producer.begin_transaction()
            self._began = self._clock.monotonic()

    def after(self, producer: KafkaProducer, sent_at: float) -> None:
        """Commit after a send, if the duration has passed."""
        if self._began is not None and (sent_at - self._began) * 1000 >= (self._duration_ms or 0):
            self.end(producer)

    def end(self, producer: KafkaProducer) -> None:
        """Commit the open transaction, if any."""
        if self._began is not None:
            producer.commit_transaction()
            self._began = None


def _duration_ms(options: ProducerPerfOptions, settings: dict[str, Any]) -> int | None:
    """Return the duration of transactions (ms), or None; set the transactional id in the settings."""
    if options.transactional_id is not None:
        settings["transactional_id"] = options.transactional_id
    elif options.transaction_duration_ms is not None:
        settings.setdefault("transactional_id", f"performance-producer-{uuid.uuid4()}")
    if settings.get("transactional_id") is None:
        return None
    return options.transaction_duration_ms or DURATION_MS


def _sent(stats: SendStats, sent_at: float, size: int, metadata: object) -> None:
    del metadata
    stats.record(sent_at, size)


def _check(options: ProducerPerfOptions) -> None:
    ways = [options.record_size is not None, options.payload_file is not None, options.payload_monotonic]
    if sum(ways) != 1:
        raise click.UsageError("Give either --record-size, --payload-file or --payload-monotonic")
    if options.warmup_records >= options.num_records:
        raise click.UsageError(
            "The value for --warmup-records must be strictly fewer than the number of records in the test, "
            "--num-records."
        )
    if options.more_props and not options.command_property:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(options.more_props)})")


def _settings(options: ProducerPerfOptions) -> dict[str, Any]:
    pairs = (*options.command_property, *options.more_props)
    return flags.settings_of(options.command_config, pairs, "--producer-props")


def _payload(options: ProducerPerfOptions) -> Payload:
    if options.payload_monotonic:
        return lambda number: str(number).encode()
    # Seed 0, as in Kafka's tool: two runs send the same bytes.
    chance = random.Random(0)  # noqa: S311 - test data
    if options.payload_file is not None:
        values = _payloads(options.payload_file, options.payload_delimiter)
        return lambda number: chance.choice(values)  # noqa: ARG005
    size = options.record_size
    assert size is not None, "checked before: --record-size is given"
    letters = bytes(range(ord("A"), ord("Z") + 1))
    return lambda number: bytes(chance.choices(letters, k=size))  # noqa: ARG005


def _payloads(path: str, delimiter: str) -> Sequence[bytes]:
    between = b"\n" if delimiter == "\\n" else delimiter.encode()
    click.echo(f"Reading payloads from: {Path(path).absolute()}")
    content = Path(path).read_bytes().removesuffix(between)
    if not content:
        raise click.UsageError("File does not exist or empty file provided.")
    values = content.split(between)
    click.echo(f"Number of messages read: {len(values)}")
    return values
