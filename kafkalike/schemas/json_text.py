"""JSON text of a schema → Python values, within limits."""

from __future__ import annotations

import json
from typing import Any

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.limits import MAX_SCHEMA_BYTES, MAX_SCHEMA_DEPTH


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
