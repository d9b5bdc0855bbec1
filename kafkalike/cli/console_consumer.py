"""`kafkalike console-consumer`: print records of topics as lines, in the formats of Kafka's message formatters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from kafkalike.cli import options as flags
from kafkalike.cli.environment import Environment, Interrupt, pass_options
from kafkalike.cli.output import content_text, json_lines, output_option
from kafkalike.errors import KafkaError
from kafkalike.model.config.properties import nearest
from kafkalike.model.structs import ConsumerRecord, TimestampType, TopicPartition
from kafkalike.schemas.serialization import deserializer_for

if TYPE_CHECKING:
    from kafkalike.consumer.kafka_consumer import KafkaConsumer


POLL_MS: Final = 200
"""Timeout of one poll (ms), and so the longest delay of Ctrl-C and --timeout-ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConsumerOptions:
    """The command line, as click has read it."""

    bootstrap_server: str | None
    command_config: str | None
    topic: str | None
    include: str | None
    group: str | None
    partition: int | None
    offset: str | None
    from_beginning: bool
    max_messages: int | None
    timeout_ms: int | None
    isolation_level: str | None
    skip_message_on_error: bool
    formatter: str | None
    formatter_config: str | None
    formatter_property: tuple[str, ...]
    key_deserializer: str | None
    value_deserializer: str | None
    command_property: tuple[str, ...]
    as_json: bool


@click.command(epilog="Example: kafkalike console-consumer --topic orders --from-beginning --max-messages 10")
@flags.bootstrap_option()
@flags.command_config_option("--consumer.config")
@click.option("--topic", help="Topic to read.")
@click.option("--include", "--whitelist", "include", metavar="REGEX", help="Topics to read, as a regular expression.")
@click.option("--group", help="Consumer group; without it, offsets are not committed.")
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition only.")
@click.option("--offset", help="Where to begin, with --partition: a number, earliest or latest (the default).")
@click.option("--from-beginning", is_flag=True, help="Begin at the earliest record where no offset is committed.")
@click.option("--max-messages", type=click.IntRange(min=0), help="End after this many records.")
@click.option("--timeout-ms", type=click.IntRange(min=0), help="End if no record arrives for this time (ms).")
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Accepted for Kafka's scripts. Both read the same: topics do not contain records of open transactions.",
)
@click.option("--skip-message-on-error", is_flag=True, help="Skip records that cannot be printed.")
@click.option("--formatter", metavar="CLASS", help="DefaultMessageFormatter or NoOpMessageFormatter.")
@click.option("--formatter-config", type=click.Path(exists=True, dir_okay=False), help="File of formatter properties.")
@click.option(
    "--formatter-property",
    "--property",
    "formatter_property",
    multiple=True,
    metavar="NAME=VALUE",
    help="print.timestamp, print.partition, print.offset, print.delivery, print.epoch, print.headers, print.key "
    "(default false), print.value (true), key.separator, line.separator, headers.separator, null.literal, "
    "key.deserializer, value.deserializer, headers.deserializer; may be repeated.",
)
@click.option(
    "--key-deserializer", metavar="CLASS", help="Such as LongDeserializer; default: print the bytes unchanged."
)
@click.option("--value-deserializer", metavar="CLASS", help="As --key-deserializer.")
@output_option("record")
@flags.client_property("consumer")
@flags.refused("--enable-systest-events", "it belongs to Kafka's own system tests", is_flag=True)
@flags.refused("--zookeeper", "there is no ZooKeeper; --bootstrap-server names the storage root")
@flags.version_option
@pass_options(ConsoleConsumerOptions)
def console_consumer(environment: Environment, options: ConsoleConsumerOptions) -> None:
    """Print records as lines until Ctrl-C or SIGTERM, then commit positions and leave the group."""
    _check(options)
    formatter = _formatter(options)
    settings = consumer_settings(options)
    from kafkalike.consumer.kafka_consumer import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=environment.connect(options.bootstrap_server, settings), **settings)
    printer = Printer(formatter, environment, skip=options.skip_message_on_error)
    interruption: BaseException | None = None
    try:
        with Interrupt() as interrupt, consumer:
            _begin(consumer, options)
            try:
                for batches in _batches(consumer, environment, options, interrupt):
                    printer.print(batches)
            except (KeyboardInterrupt, BrokenPipeError, UnprintableError) as error:
                # `close` commits the positions, so they must stand after the last printed record.
                interruption = error
                for where, offset in printer.pending.items():
                    consumer.seek(where, offset)
    finally:
        click.echo(f"Processed a total of {printer.count} messages", err=True)
    interrupt.again()
    if interruption is not None:
        raise interruption


class UnprintableError(KafkaError):
    """A record that the formatter cannot turn into text."""


class Printer:
    """Writes records to standard output, and tracks which records of a batch are not written yet."""

    def __init__(self, formatter: Formatter, environment: Environment, *, skip: bool) -> None:
        self.count = 0
        self.pending: dict[TopicPartition, int] = {}
        """Next offset by partition, if a batch was written only in part."""
        self._formatter = formatter
        self._out = environment.stdout
        self._skip = skip

    def print(self, batches: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Write the records of one poll with one call.

        Raises:
            BrokenPipeError: the reader closed the pipe; the whole batch counts as not written.
            UnprintableError: the first record that cannot be printed; earlier records are written.
        """
        done = {where: records[0].offset for where, records in batches.items() if records}
        self.pending = dict(done)
        lines: list[bytes] = []
        try:
            for where, records in batches.items():
                for record in records:
                    lines += self._lines(record)
                    done[where] = record.offset + 1
        finally:
            self._out.write(b"".join(lines))
            self._out.flush()
            self.count += len(lines)
            self.pending = done
        self.pending = {}

    def _lines(self, record: ConsumerRecord) -> list[bytes]:
        """Return the line of a record; nothing for a skipped record."""
        try:
            return [self._formatter.line(record)]
        except (KafkaError, ValueError) as error:
            place = f"{record.topic}-{record.partition} at offset {record.offset}"
            if not self._skip:
                raise UnprintableError(f"{place} cannot be printed: {error}") from error
            click.echo(f"Error processing message of {place}, skipping this message: {error}", err=True)
            return []


def _check(options: ConsoleConsumerOptions) -> None:
    if (options.topic is None) == (options.include is None):
        raise click.UsageError("Exactly one of --topic and --include is required.")
    if options.partition is None and options.offset is not None:
        raise click.UsageError("The partition is required when offset is specified.")
    if options.partition is not None and options.topic is None:
        raise click.UsageError("The topic is required when partition is specified.")
    if options.partition is not None and options.group is not None:
        raise click.UsageError("Options group and partition cannot be specified together.")
    if options.from_beginning and options.offset is not None:
        raise click.UsageError("Options from-beginning and offset cannot be specified together.")
    offset = options.offset
    if offset is not None and not offset.isdigit() and offset not in {"earliest", "latest"}:
        raise click.UsageError(
            f"The provided offset value '{offset}' is incorrect. Valid values are 'earliest', 'latest', or a "
            "non-negative long."
        )


def _formatter(options: ConsoleConsumerOptions) -> Formatter:
    name = (options.formatter or "DefaultMessageFormatter").rpartition(".")[2]
    if name not in FORMATTERS:
        raise click.UsageError(f"--formatter {options.formatter} is not supported: use {', '.join(FORMATTERS)}")
    if options.as_json and (options.formatter or options.formatter_config or options.formatter_property):
        raise click.UsageError("--output json prints whole records; leave --formatter and its properties out")
    properties = {
        **flags.read_properties(options.formatter_config),
        **flags.key_values(options.formatter_property, "--formatter-property"),
    }
    if options.key_deserializer:
        properties["key.deserializer"] = options.key_deserializer
    if options.value_deserializer:
        properties["value.deserializer"] = options.value_deserializer
    return (JsonFormatter if options.as_json else FORMATTERS[name]).from_properties(properties)


def consumer_settings(options: ConsoleConsumerOptions) -> dict[str, Any]:
    """Return the consumer's settings: from the file, overridden by `--command-property`, then by flags."""
    settings = flags.settings_of(options.command_config, options.command_property)
    reset = settings.get("auto_offset_reset")
    if options.from_beginning and reset not in {None, "earliest"}:
        raise click.UsageError(
            f"Can't simultaneously specify --from-beginning and 'auto.offset.reset={reset}', please remove one option"
        )
    settings.setdefault("auto_offset_reset", "earliest" if options.from_beginning else "latest")
    if options.isolation_level is not None:
        settings.setdefault("isolation_level", options.isolation_level)
    if options.group is not None:
        if settings.get("group_id", options.group) != options.group:
            raise click.UsageError("The group ids provided in different places do not match: --group and group.id")
        settings["group_id"] = options.group
    if settings.get("group_id") is None or options.partition is not None:
        # Kafka invents a group id; here a reader without a group writes nothing to the offsets table.
        settings.pop("group_id", None)
        settings["enable_auto_commit"] = False
    return settings


def _begin(consumer: KafkaConsumer, options: ConsoleConsumerOptions) -> None:
    if options.include is not None:
        flags.topic_filter(options.include)
        consumer.subscribe(pattern=f"^(?:{options.include.replace(',', '|').replace(' ', '')})$")
        return
    assert options.topic is not None, "checked before: --topic or --include is given"
    if options.partition is not None:
        where = TopicPartition(options.topic, options.partition)
        consumer.assign([where])
        offset = options.offset or ("earliest" if options.from_beginning else "latest")
        if offset == "earliest":
            consumer.seek_to_beginning(where)
        elif offset == "latest":
            consumer.seek_to_end(where)
        else:
            consumer.seek(where, int(offset))
    else:
        consumer.subscribe([options.topic])


def _batches(
    consumer: KafkaConsumer, environment: Environment, options: ConsoleConsumerOptions, interrupt: Interrupt
) -> Iterator[Mapping[TopicPartition, Sequence[ConsumerRecord]]]:
    """Yield the records of each poll, until --max-messages, --timeout-ms or a signal ends the loop."""
    left = options.max_messages
    timeout_ms = options.timeout_ms
    last = environment.clock.monotonic()
    while not interrupt.is_requested and (left is None or left > 0):
        batches = consumer.poll(POLL_MS if timeout_ms is None else min(POLL_MS, timeout_ms), max_records=left)
        if batches:
            yield batches
            left = None if left is None else left - sum(map(len, batches.values()))
            last = environment.clock.monotonic()
        elif timeout_ms is not None and (environment.clock.monotonic() - last) * 1000 >= timeout_ms:
            return


TIMESTAMP_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

PRINTS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
TEXTS: Final = ("key.separator", "line.separator", "headers.separator", "null.literal")
DESERIALIZERS: Final = ("key.deserializer", "value.deserializer", "headers.deserializer")

ToText = Callable[[str, bytes], bytes]
"""From topic and content to the text to print."""


def _as_it_is(topic: str, content: bytes) -> bytes:
    del topic
    return content


@dataclass(slots=True, kw_only=True)
class Formatter:
    """Prints records column by column, in Kafka's order."""

    columns: tuple[str, ...] = ("value",)
    """Columns to print, from `PRINTS` and in its order."""
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"
    key: ToText = _as_it_is
    value: ToText = _as_it_is
    header: ToText = _as_it_is

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Formatter:
        """Read Kafka's formatter properties.

        Raises:
            click.UsageError: a property or deserializer is unknown.
        """
        known = [*(f"print.{column}" for column in PRINTS), *TEXTS, *DESERIALIZERS]
        unknown = next((name for name in properties if name not in known), None)
        if unknown is not None:
            raise click.UsageError(f"unknown formatter property {unknown!r}{nearest(unknown, known)}")
        wanted = {column: properties.get(f"print.{column}", str(column == "value")) for column in PRINTS}
        formatter = cls(columns=tuple(column for column, text in wanted.items() if text.strip().lower() == "true"))
        for name in TEXTS:
            if name in properties:
                setattr(formatter, name.replace(".", "_"), properties[name].encode())
        for name in DESERIALIZERS:
            if name in properties:
                setattr(formatter, name.partition(".")[0].removesuffix("s"), _to_text(properties[name]))
        return formatter

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the line of a record with its line separator."""
        parts = [getattr(self, f"_{column}_column")(record) for column in self.columns]
        return self.key_separator.join(parts) + self.line_separator if parts else b""

    def _timestamp_column(self, record: ConsumerRecord) -> bytes:
        if record.timestamp_type not in set(TimestampType):
            return b"NO_TIMESTAMP"
        return f"{TIMESTAMP_NAMES[TimestampType(record.timestamp_type)]}:{record.timestamp}".encode()

    def _partition_column(self, record: ConsumerRecord) -> bytes:
        return f"Partition:{record.partition}".encode()

    def _offset_column(self, record: ConsumerRecord) -> bytes:
        return f"Offset:{record.offset}".encode()

    def _delivery_column(self, record: ConsumerRecord) -> bytes:
        # Kafka counts deliveries for share groups only.
        del record
        return b"Delivery:NOT_PRESENT"

    def _epoch_column(self, record: ConsumerRecord) -> bytes:
        return f"Epoch:{record.leader_epoch}".encode() if record.leader_epoch >= 0 else b"Epoch:NOT_PRESENT"

    def _headers_column(self, record: ConsumerRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        pairs = [key.encode() + b":" + self._content(record, self.header, value) for key, value in record.headers]
        return self.headers_separator.join(pairs)

    def _key_column(self, record: ConsumerRecord) -> bytes:
        return self._content(record, self.key, record.key)

    def _value_column(self, record: ConsumerRecord) -> bytes:
        return self._content(record, self.value, record.value)

    def _content(self, record: ConsumerRecord, to_text: ToText, content: bytes | None) -> bytes:
        return self.null_literal if content is None else to_text(record.topic, content)


class JsonFormatter(Formatter):
    """Prints each record as a line of JSON. Bytes are text in UTF-8; other bytes are escaped."""

    def line(self, record: ConsumerRecord) -> bytes:
        """Return the line of a record."""
        known = (record.topic, record.partition, record.offset, record.timestamp)
        headers = [[name, self._text(record, self.header, content)] for name, content in record.headers]
        key, value = self._text(record, self.key, record.key), self._text(record, self.value, record.value)
        (line,) = json_lines(JSON_FIELDS, [(*known, key, value, headers)])
        return f"{line}\n".encode()

    def _text(self, record: ConsumerRecord, to_text: ToText, content: bytes | None) -> str | None:
        return content_text(None if content is None else to_text(record.topic, content))


JSON_FIELDS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")


class NoOpFormatter(Formatter):
    """Formatter that prints nothing, for measurements."""

    def line(self, record: ConsumerRecord) -> bytes:
        """Return no bytes for any record."""
        del record
        return b""


def _to_text(name: str) -> ToText:
    try:
        found = deserializer_for(name)
    except ValueError as cause:
        raise click.UsageError(str(cause)) from cause

    def to_text(topic: str, content: bytes) -> bytes:
        value: Any = found.deserialize(topic, [], content)
        return value if isinstance(value, bytes) else str(value).encode()

    return to_text


FORMATTERS: Final[Mapping[str, type[Formatter]]] = {
    "DefaultMessageFormatter": Formatter,
    "NoOpMessageFormatter": NoOpFormatter,
}
