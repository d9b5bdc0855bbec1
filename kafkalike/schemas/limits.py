"""Limits on the memory and time that a schema or a record can demand, and a JSON parser within these limits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafkalike.errors import InvalidSchemaError

MAX_SCHEMA_BYTES: Final = 1 << 20
"""Maximum size of a schema, 1 MiB: Kafka's default limit for a record, in which Confluent's registry stores it, is
lower.
"""
MAX_SCHEMA_DEPTH: Final = 200
"""Maximum nesting of braces and brackets in a schema, because parsers are recursive."""
MAX_TYPE_DEPTH: Final = 200
"""Maximum nesting of records, arrays, maps and unions, including types nested by name."""
MAX_VALUE_DEPTH: Final = 400
"""Maximum nesting of records, arrays, maps and unions in a value of a recursive schema. fastavro recurses in C and
kills the process on a stack overflow, at about 8,000 levels on Linux and earlier in a thread.
"""
MAX_EMPTY_ITEMS: Final = 100_000
"""Maximum items without bytes in one record: an array of a million nulls takes four bytes."""
MAX_DECIMAL_BYTES: Final = 4_096
"""Maximum size of an Avro decimal, 9,860 digits. Python converts it to digits in quadratic time: minutes for a
megabyte.
"""
MAX_COMPARISONS: Final = 20_000
"""Maximum pairs of JSON Schemas that one compatibility check compares."""

MAX_REFERENCES_FOLLOWED: Final = 1_000_000
"""Maximum references and `unevaluated…` keywords that a JSON Schema validator follows for one value."""


@contextmanager
def no_deeper_than_the_stack() -> Iterator[None]:
    """Run recursive work on a schema; types nested by name can be nested deeper than the schema's text.

    Raises:
        InvalidSchemaError: Python's recursion limit was reached.
    """
    try:
        yield
    except RecursionError as cause:
        raise InvalidSchemaError("the schema's types are nested too deeply") from cause


def load_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """Parse JSON.

    Raises:
        InvalidSchemaError: the text is not valid JSON, too long, or nested too deeply.
    """
    check_length(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise InvalidSchemaError(f"the schema is not valid JSON: {type(cause).__name__}: {cause}") from cause
    level, depth = [value], 0
    while level:
        if depth > MAX_SCHEMA_DEPTH:
            raise InvalidSchemaError(f"the schema has more than {MAX_SCHEMA_DEPTH} levels")
        level = [
            below
            for item in level
            if isinstance(item, dict | list)
            for below in (item.values() if isinstance(item, dict) else item)
        ]
        depth += 1
    return value


def check_length(text: str) -> None:
    """Raise an error if a schema is too long.

    Raises:
        InvalidSchemaError: the text is longer than `MAX_SCHEMA_BYTES`.
    """
    if len(text) > MAX_SCHEMA_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"the schema is longer than {MAX_SCHEMA_BYTES:,} bytes")
