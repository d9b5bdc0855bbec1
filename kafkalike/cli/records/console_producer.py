"""`kafkalike console-producer`: lines of standard input in, records of a topic out, as kafka-console-producer does."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli.environment import Environment, pass_options
from kafkalike.cli.options import (
    bootstrap_option,
    client_property,
    client_settings,
    command_config_option,
    failures_are_printed,
    key_values,
    read_properties,
    refused,
    version_option,
    without_effect,
)
from kafkalike.cli.records.line_reader import LineReader

if TYPE_CHECKING:
    from kafkalike.producer import KafkaProducer

NO_NETWORK: Final = "there is no network connection"

LINE_READERS: Final = frozenset(
    {
        "org.apache.kafka.tools.LineMessageReader",
        "kafka.tools.ConsoleProducer$LineMessageReader",
        "org.apache.kafka.tools.ConsoleProducer$LineMessageReader",
    }
)

DEFAULT_LINGER_MS: Final = 1000
"""Kafka's default of `--timeout`: lines that come within a second make one table commit."""


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
@bootstrap_option("--broker-list")
@command_config_option("--producer.config")
@click.option("--topic", required=True, help="Topic to send to; created if the server allows.")
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
@client_property("producer")
@without_effect("--socket-buffer-size", NO_NETWORK)
@without_effect("--max-memory-bytes", "the producer's memory is bounded by max.block.ms and its batches")
@without_effect("--max-partition-memory-bytes", "use --batch-size")
@refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@version_option
@pass_options(ConsoleProducerOptions)
def console_producer(environment: Environment, options: ConsoleProducerOptions) -> None:
    """Send each line of standard input as a record, until the input ends."""
    if options.line_reader is not None and options.line_reader not in LINE_READERS:
        raise click.UsageError(
            f"--line-reader {options.line_reader} has no meaning here: Java classes cannot be loaded"
        )
    properties = {
        **read_properties(options.reader_config),
        **key_values(options.reader_property, "--reader-property"),
    }
    reader = LineReader.from_properties(properties)
    from kafkalike.producer import KafkaProducer

    failures_are_printed()
    settings = producer_settings(options)
    producer = KafkaProducer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    failures = _send(producer, reader, environment, options)
    if failures:
        click.get_current_context().exit(1)


def producer_settings(options: ConsoleProducerOptions) -> dict[str, Any]:
    """Settings of the producer: a file's, over them `--command-property`, over them flags of their own."""
    settings = client_settings(
        {**read_properties(options.command_config), **key_values(options.command_property, "--command-property")}
    )
    settings.setdefault("linger_ms", DEFAULT_LINGER_MS)
    settings.update({name: value for name, value in _flags(options).items() if value is not None})
    if isinstance(settings.get("acks"), str) and settings["acks"].lstrip("-").isdigit():
        settings["acks"] = int(settings["acks"])
    if settings.get("compression_type") == "none":
        settings["compression_type"] = None
    return settings


def _flags(options: ConsoleProducerOptions) -> dict[str, object]:
    """Settings that have a flag of their own; None for a flag that was not given."""
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
    """Send every line; returns how many records failed."""
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
