"""Formatter: a record in, the bytes of its line out; Kafka's DefaultMessageFormatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from kafkalike.model.config.properties import nearest
from kafkalike.model.structs import ConsumerRecord, TimestampType
from kafkalike.schemas.serialization import deserializer_for

TIMESTAMP_NAMES: Final = {
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}

PRINTS: Final = ("timestamp", "partition", "offset", "delivery", "epoch", "headers", "key", "value")
TEXTS: Final = ("key.separator", "line.separator", "headers.separator", "null.literal")
DESERIALIZERS: Final = ("key.deserializer", "value.deserializer", "headers.deserializer")

ToText = Callable[[str, bytes], bytes]
"""Topic and content in, what to print out."""


def _as_it_is(topic: str, content: bytes) -> bytes:
    del topic
    return content


@dataclass(slots=True, kw_only=True)
class Formatter:
    """Prints records column by column, in Kafka's order."""

    columns: tuple[str, ...] = ("value",)
    """What to print, out of `PRINTS` and in that order."""
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
            click.UsageError: an unknown one, or an unknown deserialiser.
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
        """The line of a record, with its end."""
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
        # Counted for share groups only.
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


class NoOpFormatter(Formatter):
    """Prints nothing."""

    def line(self, record: ConsumerRecord) -> bytes:
        """Nothing."""
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
