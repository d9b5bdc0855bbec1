"""Arrays of JSON Schemas: items, by their places and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafkalike.schemas.compatibility.json_objects import Problems


def array_problems(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    """Arrays that the writer accepts and the reader refuses."""
    read, read_rest = _items(reader)
    wrote, wrote_rest = _items(writer)
    found = []
    for place in range(max(len(read), len(wrote))):
        below = f"{path}[{place}]"
        if place >= len(read) and read_rest is False and not _takes_anything(wrote[place]):
            # As in Confluent's rules a closed array may lose its last places only where nothing stood there.
            found += [] if wrote[place] is False else [f"{below}: the item was removed from a closed content model"]
        else:
            found += problems(
                read[place] if place < len(read) else read_rest,
                wrote[place] if place < len(wrote) else wrote_rest,
                below,
            )
    if read_rest is False and wrote_rest is not False:
        found.append(f"{path}: further items are not accepted any more")
    else:
        found += problems(read_rest, wrote_rest, f"{path}[]")
    if "contains" in reader:
        if "contains" not in writer:
            found.append(f"{path}: 'contains' is new")
        else:
            found += problems(reader["contains"], writer["contains"], f"{path}, the item that it contains")
    return found


def _items(schema: Mapping[str, Any]) -> tuple[list[Any], Any]:
    """Schemas of the first items, and that of all others."""
    items = schema.get("items", schema.get("additionalItems", True))
    if isinstance(schema.get("prefixItems"), list):
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", schema.get("unevaluatedItems", True))
    return [], items


def _takes_anything(schema: Any) -> bool:  # noqa: ANN401 - a JSON Schema
    return schema is True or schema == {}
