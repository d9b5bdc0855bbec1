"""`kafkalike consumer-perf-test`: measure how fast records are read, with Kafka's columns."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.tools.workload import MEGABYTE, print_metrics
from kafkalike.consumer import ConsumerRebalanceListener, KafkaConsumer
from kafkalike.model.clock import WallClock
from kafkalike.model.structs import ConsumerRecord, TopicPartition

POLL_MS: Final = 100
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_MORE: Final = "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
HEADER: Final = f"start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_MORE}"
DETAILED_HEADER: Final = f"time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, {_MORE}"

JAVA_DATE: Final = {
    "yyyy": "%Y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",
}
"""Field of strftime by field of Java's SimpleDateFormat; `%f` is replaced by milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPerfOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str | None
    include: str | None
    num_records: int
    group: str | None
    fetch_size: int
    from_latest: bool
    timeout: int
    reporting_interval: int
    show_detailed_stats: bool
    hide_header: bool
    date_format: str
    print_metrics: bool
    command_property: tuple[str, ...]


@click.command(epilog="Example: kafkalike consumer-perf-test --topic perf --messages 100000")
@flags.bootstrap_option("--broker-list")
@flags.command_config_option("--consumer.config")
@click.option("--topic", help="Topic to read.")
@click.option("--include", metavar="REGEX", help="Topics to read, as a regular expression.")
@click.option(
    "--num-records", "--messages", "num_records", required=True, type=click.IntRange(min=1), help="Records to read."
)
@click.option("--group", help="Consumer group; default perf-consumer- and a random number.")
@click.option(
    "--fetch-size", type=click.IntRange(min=1), default=1_048_576, show_default=True, help="Bytes of a fetch."
)
@click.option("--from-latest", is_flag=True, help="Begin at the log end where no offset is committed.")
@click.option("--timeout", type=click.IntRange(min=0), default=10_000, show_default=True, help="Longest wait (ms).")
@click.option(
    "--reporting-interval", type=click.IntRange(min=1), default=5000, show_default=True, help="Interval (ms)."
)
@click.option("--show-detailed-stats", is_flag=True, help="Print a line per reporting interval.")
@click.option("--hide-header", is_flag=True, help="Do not print the names of the columns.")
@click.option("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", show_default=True, help="As Java's SimpleDateFormat.")
@click.option("--print-metrics", is_flag=True, help="Print the consumer's metrics at the end.")
@click.option(
    "--command-property",
    multiple=True,
    metavar="NAME=VALUE",
    help="Setting of the consumer; may be repeated.",
)
@flags.without_effect("--socket-buffer-size", "kafkalike clients open no network connection")
@flags.refused("--threads", "Kafka dropped it; run several processes")
@flags.version_option
@pass_options(ConsumerPerfOptions)
def consumer_perf_test(environment: Environment, options: ConsumerPerfOptions) -> None:
    """Measure how fast records are read. A signal ends the test and prints the figures so far."""
    if (options.topic is None) == (options.include is None):
        raise click.UsageError("Give either --topic or --include")
    date_format = java_date_format(options.date_format)
    if not options.hide_header:
        click.echo(DETAILED_HEADER if options.show_detailed_stats else HEADER)
    settings = _settings(options)
    consumer = KafkaConsumer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    with Interrupt() as interrupt, consumer:
        test = PerfTest(consumer, environment, options, date_format, interrupt)
        test.run()
        metrics = consumer.metrics() if options.print_metrics else None
    if metrics is not None:
        print_metrics(metrics)
    interrupt.again()


def _settings(options: ConsumerPerfOptions) -> dict[str, Any]:
    settings = flags.settings_of(options.command_config, options.command_property)
    number = random.randrange(100_000)  # noqa: S311 - a name
    settings["group_id"] = options.group or settings.get("group_id") or f"perf-consumer-{number}"
    settings["max_partition_fetch_bytes"] = options.fetch_size
    settings["auto_offset_reset"] = "latest" if options.from_latest else "earliest"
    return settings


class JoinTime(ConsumerRebalanceListener):
    """Rebalance listener that sums the time without partitions."""

    def __init__(self, clock: WallClock) -> None:
        self.total_ms = 0
        self._clock = clock
        self._since = clock.now_ms()
        self._assigned: set[TopicPartition] = set()

    def on_partitions_revoked(self, revoked: AbstractSet[TopicPartition]) -> None:
        """Start the clock if no partition is left."""
        self._assigned -= revoked
        if not self._assigned:
            self._since = self._clock.now_ms()

    def on_partitions_assigned(self, assigned: AbstractSet[TopicPartition]) -> None:
        """Stop the clock and add the time."""
        if not self._assigned:
            self.total_ms += self._clock.now_ms() - self._since
        self._assigned |= assigned

    def on_partitions_lost(self, lost: AbstractSet[TopicPartition]) -> None:
        """Treat lost partitions like revoked ones."""
        self.on_partitions_revoked(lost)


@dataclass(slots=True)
class _Progress:
    records: int = 0
    bytes: int = 0


class PerfTest:
    """Reads records, and prints rates as it goes."""

    def __init__(
        self,
        consumer: KafkaConsumer,
        environment: Environment,
        options: ConsumerPerfOptions,
        date_format: str,
        interrupt: Interrupt,
    ) -> None:
        self._consumer = consumer
        self._interrupt = interrupt
        self._clock = environment.clock
        self._options = options
        self._date_format = date_format
        self._done = _Progress()
        self._reported = _Progress()
        self._joined = JoinTime(environment.clock)

    def run(self) -> None:
        """Read all records and print the report."""
        options = self._options
        start = self._clock.now_ms()
        if options.topic is not None:
            self._consumer.subscribe([options.topic], listener=self._joined)
        else:
            self._consumer.subscribe(pattern=options.include, listener=self._joined)
        self._read(start)
        end = self._clock.now_ms()
        if self._done.records < options.num_records and not self._interrupt.is_requested:
            click.echo(
                "WARNING: Exiting before consuming the expected number of messages: timeout "
                f"({options.timeout} ms) exceeded. You can use the --timeout option to increase the timeout."
            )
        if not options.show_detailed_stats:
            times = f"{self._date(start)}, {self._date(end)}"
            click.echo(f"{times}, {self._numbers(_Progress(), end - start, self._joined.total_ms)}")

    def _read(self, start: int) -> None:
        last_record = last_report = start
        while self._done.records < self._options.num_records and not self._interrupt.is_requested:
            batches = self._consumer.poll(POLL_MS, max_records=self._options.num_records - self._done.records)
            now = self._clock.now_ms()
            for records in batches.values():
                self._count(records)
            if batches:
                last_record = now
            elif now - last_record > self._options.timeout:
                return
            if now - last_report >= self._options.reporting_interval:
                if self._options.show_detailed_stats:
                    click.echo(f"{self._date(now)}, 0, {self._numbers(self._reported, now - last_report, 0)}")
                last_report = now
                self._reported = _Progress(self._done.records, self._done.bytes)

    def _count(self, records: Sequence[ConsumerRecord]) -> None:
        self._done.records += len(records)
        self._done.bytes += sum(max(r.serialized_key_size, 0) + max(r.serialized_value_size, 0) for r in records)

    def _numbers(self, since: _Progress, elapsed_ms: int, joined_ms: int) -> str:
        total = self._done.bytes / MEGABYTE
        megabytes = total - since.bytes / MEGABYTE
        records = self._done.records - since.records
        seconds = max(elapsed_ms, 1) / 1000
        fetch_ms = elapsed_ms - joined_ms
        fetch_seconds = max(fetch_ms, 1) / 1000
        return (
            f"{total:.4f}, {megabytes / seconds:.4f}, {self._done.records}, {records / seconds:.4f}, "
            f"{joined_ms}, {fetch_ms}, {megabytes / fetch_seconds:.4f}, {records / fetch_seconds:.4f}"
        )

    def _date(self, at_ms: int) -> str:
        moment = EPOCH + timedelta(milliseconds=at_ms)
        return moment.astimezone().strftime(self._date_format.replace("%f", f"{at_ms % 1000:03d}"))


def java_date_format(pattern: str) -> str:
    """Convert a pattern of Java's SimpleDateFormat to a strftime format, for fields of date and time.

    Raises:
        click.UsageError: the pattern has another field.

    >>> java_date_format("yyyy-MM-dd HH:mm:ss:SSS")
    '%Y-%m-%d %H:%M:%S:%f'
    """

    def field(match: re.Match[str]) -> str:
        if match[0] not in JAVA_DATE:
            raise click.UsageError(f"--date-format: unknown field {match[0]!r}; use {', '.join(JAVA_DATE)}")
        return JAVA_DATE[match[0]]

    return re.sub(r"([A-Za-z])\1*", field, pattern.replace("%", "%%"))
