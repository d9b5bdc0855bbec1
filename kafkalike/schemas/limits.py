"""Limits of what a schema or a record may ask of memory and time, and JSON text that is parsed within them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from kafkalike.errors import InvalidSchemaError

MAX_SCHEMA_BYTES: Final = 1 << 20
"""Length of a schema's text, 1 MiB: more than Kafka's default for a record, which Confluent's registry stores it in."""
MAX_SCHEMA_DEPTH: Final = 200
"""Levels of braces and brackets in a schema's text; parsers work by recursion."""
MAX_TYPE_DEPTH: Final = 200
"""Types in each other: records, arrays, maps and unions, where they are nested by their names too."""
MAX_VALUE_DEPTH: Final = 400
"""Records, arrays, maps and unions in each other in one value, where the schema is recursive. fastavro works by
recursion in C and kills the process when its stack ends, at about 8,000 levels on Linux and earlier in a thread."""
MAX_EMPTY_ITEMS: Final = 100_000
"""Items that one record may claim without having bytes for them, such as an array of a million nulls in four bytes."""
MAX_DECIMAL_BYTES: Final = 4_096
"""Bytes of one Avro decimal, 9,860 digits. Python makes digits of them in a time that grows with their square: of a
megabyte in minutes."""
MAX_COMPARISONS: Final = 20_000
"""Pairs of JSON Schemas that one check of compatibility looks at."""

MAX_REFERENCES_FOLLOWED: Final = 1_000_000
"""References, and parts that nothing else has looked at, that a JSON Schema has one value checked by."""


@contextmanager
def no_deeper_than_the_stack() -> Iterator[None]:
    """Work by recursion along a schema; types can be nested by their names, deeper than the schema's text is.

    Raises:
        InvalidSchemaError: Python's stack ended.
    """
    try:
        yield
    except RecursionError as cause:
        raise InvalidSchemaError("the schema's types are nested too deeply") from cause


def load_json(text: str) -> Any:  # noqa: ANN401 - any JSON value
    """The value of a JSON text.

    Raises:
        InvalidSchemaError: it is no JSON, too long or too deep.
    """
    check_length(text)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as cause:
        raise InvalidSchemaError(f"the schema is no JSON: {type(cause).__name__}: {cause}") from cause
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
    """Refuse a text that is too long.

    Raises:
        InvalidSchemaError: it is longer than `MAX_SCHEMA_BYTES`.
    """
    if len(text) > MAX_SCHEMA_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_SCHEMA_BYTES:
        raise InvalidSchemaError(f"the schema is longer than {MAX_SCHEMA_BYTES:,} bytes")
