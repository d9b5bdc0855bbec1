"""`kafkalike console-producer`: send lines of standard input to a topic, parsed as by Kafka's line reader.

Lines are not decoded, so bytes that are not UTF-8 are sent unchanged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, pass_options
from kafkalike.errors import KafkaError
from kafkalike.model.config.properties import nearest

if TYPE_CHECKING:
    from kafkalike.producer.kafka_producer import KafkaProducer


NO_NETWORK: Final = "kafkalike clients open no network connection"

LINE_READERS: Final = frozenset(
    {
        "org.apache.kafka.tools.LineMessageReader",
        "kafka.tools.ConsoleProducer$LineMessageReader",
        "org.apache.kafka.tools.ConsoleProducer$LineMessageReader",
    }
)

DEFAULT_LINGER_MS: Final = 1000
"""Kafka's default of `--timeout` (ms): lines that arrive within a second share one table commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleProducerOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str
    sync: bool
    compression_codec: str | None
    batch_size: int | None
    timeout: float | None
    message_send_max_retries: int | None
    retry_backoff_ms: int | None
    request_required_acks: str | None
    request_timeout_ms: int | None
    max_block_ms: float | None
    metadata_expiry_ms: float | None
    line_reader: str | None
    reader_config: str | None
    reader_property: tuple[str, ...]
    command_property: tuple[str, ...]


@click.command(
    epilog="Example: printf 'k1:v1\\nk2:v2\\n' | kafkalike console-producer --topic orders --property parse.key=true "
    "--property key.separator=:"
)
@flags.bootstrap_option("--broker-list")
@flags.command_config_option("--producer.config")
@click.option("--topic", required=True, help="Topic to send to; created if auto.create.topics.enable allows it.")
@click.option("--sync", is_flag=True, help="Wait for each record before the next line is read.")
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip, snappy, lz4 or zstd; without a value gzip.",
)
@click.option("--batch-size", type=int, help="Bytes of a batch.")
@click.option(
    "--timeout", type=float, help=f"How long (ms) a line waits for others to share a commit; {DEFAULT_LINGER_MS}."
)
@click.option("--message-send-max-retries", type=int, help="Retries of a send.")
@click.option("--retry-backoff-ms", type=int, help="Wait (ms) between retries.")
@click.option("--request-required-acks", metavar="ACKS", help="0, 1, -1 or all.")
@click.option("--request-timeout-ms", type=int, help="Setting request.timeout.ms.")
@click.option("--max-block-ms", type=float, help="How long (ms) a send may block.")
@click.option("--metadata-expiry-ms", type=float, help="Setting metadata.max.age.ms.")
@click.option("--line-reader", metavar="CLASS", help="Only Kafka's LineMessageReader, the default.")
@click.option("--reader-config", type=click.Path(exists=True, dir_okay=False), help="File of reader properties.")
@click.option(
    "--reader-property",
    "--property",
    "reader_property",
    multiple=True,
    metavar="NAME=VALUE",
    help="parse.key, key.separator, parse.headers, headers.delimiter, headers.separator, headers.key.separator, "
    "ignore.error, null.marker; may be repeated.",
)
@flags.client_property("producer")
@flags.without_effect("--socket-buffer-size", NO_NETWORK)
@flags.without_effect("--max-memory-bytes", "the producer's memory is bounded by max.block.ms and its batches")
@flags.without_effect("--max-partition-memory-bytes", "use --batch-size")
@flags.refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@flags.version_option
@pass_options(ConsoleProducerOptions)
def console_producer(environment: Environment, options: ConsoleProducerOptions) -> None:
    """Send each line of standard input as a record, until the input ends."""
    if options.line_reader is not None and options.line_reader not in LINE_READERS:
        raise click.UsageError(f"--line-reader {options.line_reader} is not supported: Java classes cannot be loaded")
    properties = {
        **flags.read_properties(options.reader_config),
        **flags.key_values(options.reader_property, "--reader-property"),
    }
    reader = LineReader.from_properties(properties)
    from kafkalike.producer.kafka_producer import KafkaProducer

    flags.failures_are_printed()
    settings = producer_settings(options)
    producer = KafkaProducer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    failures = _send(producer, reader, environment, options)
    if failures:
        click.get_current_context().exit(1)


def producer_settings(options: ConsoleProducerOptions) -> dict[str, Any]:
    """Return the producer's settings: from the file, overridden by `--command-property`, then by flags."""
    settings = flags.settings_of(options.command_config, options.command_property)
    settings.setdefault("linger_ms", DEFAULT_LINGER_MS)
    settings.update({name: value for name, value in _flags(options).items() if value is not None})
    if isinstance(settings.get("acks"), str) and settings["acks"].lstrip("-").isdigit():
        settings["acks"] = int(settings["acks"])
    if settings.get("compression_type") == "none":
        settings["compression_type"] = None
    return settings


def _flags(options: ConsoleProducerOptions) -> dict[str, object]:
    """Return the settings that have a flag; None for flags that are not given."""
    return {
        "batch_size": options.batch_size,
        "linger_ms": options.timeout,
        "retries": options.message_send_max_retries,
        "retry_backoff_ms": options.retry_backoff_ms,
        "acks": options.request_required_acks,
        "request_timeout_ms": options.request_timeout_ms,
        "max_block_ms": options.max_block_ms,
        "metadata_max_age_ms": options.metadata_expiry_ms,
        "compression_type": options.compression_codec,
    }


def _send(
    producer: KafkaProducer, reader: LineReader, environment: Environment, options: ConsoleProducerOptions
) -> int:
    """Send every line and return the number of failed records."""
    failures: list[BaseException] = []

    def failed(error: BaseException) -> None:
        failures.append(error)
        click.echo(f"Error: when sending to topic {options.topic}: {error}", err=True)

    prompt = sys.stdin.isatty() and sys.stdout.isatty()
    with producer:
        _prompt(prompt)
        for line in environment.stdin:
            record = reader.parse(line)
            future = producer.send(options.topic, value=record.value, key=record.key, headers=record.headers)
            if options.sync:
                future.get()
            else:
                future.add_errback(failed)
            _prompt(prompt)
        producer.flush()
    return len(failures)


def _prompt(wanted: bool) -> None:  # noqa: FBT001 - one switch
    if wanted:
        click.echo(">", nl=False)


BOOLEANS: Final = {"parse.key": "parse_key", "parse.headers": "parse_headers", "ignore.error": "ignore_error"}
TEXTS: Final = {
    "key.separator": "key_separator",
    "headers.delimiter": "headers_delimiter",
    "headers.separator": "headers_separator",
    "headers.key.separator": "headers_key_separator",
    "null.marker": "null_marker",
}


class LineError(KafkaError):
    """A line of standard input cannot be parsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputLine:
    """The parts of a line."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass(slots=True, kw_only=True)
class LineReader:
    """Parses lines: `headers<delimiter>key<separator>value`."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    """Send a line without separator as a value, instead of rejecting it."""
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    """Text between the headers and the rest of the line."""
    headers_separator: bytes = b","
    """Text between two headers."""
    headers_key_separator: bytes = b":"
    """Text between a header's key and its value."""
    null_marker: bytes | None = None
    """Text that stands for null as a key, value or header value."""
    line_number: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LineReader:
        """Read Kafka's reader properties.

        Raises:
            click.UsageError: a property is unknown, or a separator is empty.
        """
        reader = cls()
        for name, text in properties.items():
            if name in BOOLEANS:
                setattr(reader, BOOLEANS[name], text.strip().lower() == "true")
            elif name not in TEXTS:
                raise click.UsageError(f"unknown reader property {name!r}{nearest(name, [*BOOLEANS, *TEXTS])}")
            elif not text and name != "null.marker":
                raise click.UsageError(f"reader property {name!r} must not be empty")
            else:
                setattr(reader, TEXTS[name], text.encode())
        return reader

    def parse(self, line: bytes) -> InputLine:
        """Parse one line, with or without its line end.

        Raises:
            LineError: a separator is missing.
        """
        self.line_number += 1
        rest = line.removesuffix(b"\n").removesuffix(b"\r")
        whole = rest
        headers = key = None
        if self.parse_headers:
            headers, rest = self._cut(rest, self.headers_delimiter, "headers delimiter", whole)
        if self.parse_key:
            key, rest = self._cut(rest, self.key_separator, "key separator", whole)
        return InputLine(key=self._null(key), value=self._null(rest), headers=self._headers(headers))

    def _cut(self, text: bytes, separator: bytes, name: str, line: bytes) -> tuple[bytes | None, bytes]:
        part, found, rest = text.partition(separator)
        if found:
            return part, rest
        if self.ignore_error:
            return None, text
        raise LineError(f"No {name} found on line number {self.line_number}: '{line.decode(errors='replace')}'")

    def _null(self, part: bytes | None) -> bytes | None:
        return None if part == self.null_marker else part

    def _headers(self, part: bytes | None) -> list[tuple[str, bytes | None]] | None:
        if self._null(part) is None or not part:
            return None
        return [self._header(pair) for pair in part.split(self.headers_separator)]

    def _header(self, pair: bytes) -> tuple[str, bytes | None]:
        key, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            shown = pair.decode(errors="replace")
            raise LineError(f"No header key separator found in pair '{shown}' on line number {self.line_number}")
        if key == self.null_marker:
            raise LineError(f"Header keys should not be equal to the null marker, on line number {self.line_number}")
        return key.decode(), self._null(value) if found else None
