"""Line reader: a line in, key, headers and value out; Kafka's LineMessageReader on bytes.

Lines are never decoded, so that bytes that are not UTF-8 arrive as they were typed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from kafkalike.errors import KafkaError
from kafkalike.model.config.properties import nearest

BOOLEANS: Final = {"parse.key": "parse_key", "parse.headers": "parse_headers", "ignore.error": "ignore_error"}
TEXTS: Final = {
    "key.separator": "key_separator",
    "headers.delimiter": "headers_delimiter",
    "headers.separator": "headers_separator",
    "headers.key.separator": "headers_key_separator",
    "null.marker": "null_marker",
}


class LineError(KafkaError):
    """A line that cannot be taken apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """The parts of a line."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@dataclass(slots=True, kw_only=True)
class LineReader:
    """Takes lines apart: `headers<delimiter>key<separator>value`."""

    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    """Take a line without separator as a value, instead of refusing it."""
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    """Between headers and the rest."""
    headers_separator: bytes = b","
    """Between two headers."""
    headers_key_separator: bytes = b":"
    """Between a header's key and its value."""
    null_marker: bytes | None = None
    """A key, value or header value that is exactly this is null."""
    line_number: int = 0

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> LineReader:
        """Read Kafka's reader properties.

        Raises:
            click.UsageError: an unknown one, or an empty separator.
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

    def parse(self, line: bytes) -> Line:
        """Take one line apart, with or without its line end.

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
        return Line(key=self._null(key), value=self._null(rest), headers=self._headers(headers))

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
