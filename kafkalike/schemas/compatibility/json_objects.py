"""Objects of JSON Schemas: properties, by the content model of the reader and of the writer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

Problems = Callable[[Any, Any, str], list[str]]
"""Compares a reader's schema with a writer's, at a place."""


def object_problems(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    """Objects that the writer accepts and the reader refuses."""
    found = _of_properties(problems, reader, writer, path)
    found += _of_required(reader, writer, path)
    found += _of_further(problems, reader, writer, path)
    found += _of_dependencies(problems, reader, writer, path)
    if "propertyNames" in reader and reader["propertyNames"] != writer.get("propertyNames"):
        found += problems(reader["propertyNames"], writer.get("propertyNames", True), f"{path}, names of properties")
    return found


def _of_properties(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    found = []
    read, wrote = _properties(reader), _properties(writer)
    for name, schema in wrote.items():
        below = f"{path}.{name}"
        if name in read:
            found += problems(read[name], schema, below)
        else:
            found += _removed(problems, _beside(reader, name), schema, below)
    for name, schema in read.items():
        if name not in wrote:
            found += _added(problems, schema, _beside(writer, name), f"{path}.{name}")
    return found


def _removed(problems: Problems, beside: list[Any], schema: Any, path: str) -> list[str]:  # noqa: ANN401
    """A property that only the writer names is for the reader one of the further ones."""
    for further in beside:
        if further is False and schema is not False:
            return [f"{path}: the property was removed from a closed content model"]
        found = problems(further, schema, path)
        if found:
            return [f"{path}: the property was removed, and its values do not fit those that are still open", *found]
    return []


def _added(problems: Problems, schema: Any, beside: list[Any], path: str) -> list[str]:  # noqa: ANN401
    """A property that only the reader names was for the writer one of the further ones."""
    if any(further is False for further in beside):
        return []
    best: list[str] = []
    for further in beside:
        found = problems(schema, further, path)
        if not found:
            return []
        best = best or found
    if all(further is True or further == {} for further in beside):
        return [f"{path}: the property was added to an open content model, where it may have had any value"]
    return [f"{path}: the property was added, and its values were open", *best]


def _of_required(reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    before = _strings(writer.get("required"))
    read = _properties(reader)
    found = []
    for name in _strings(reader.get("required")):
        schema = read.get(name)
        has_default = isinstance(schema, dict) and "default" in schema
        if name not in before and not has_default:
            found.append(f"{path}.{name}: the property is required now, and has no default")
    return found


def _of_further(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    read, wrote = _further(reader), _further(writer)
    read_patterns, wrote_patterns = _patterns(reader), _patterns(writer)
    below = f"{path}, further properties"
    found = []
    if read is False and wrote is not False:
        found.append(f"{path}: further properties are not accepted any more")
    else:
        found += problems(read, wrote, below)
    for pattern, schema in wrote_patterns.items():
        found += problems(read_patterns.get(pattern, read), schema, f"{path}, properties like {pattern!r}")
    for pattern, schema in read_patterns.items():
        if pattern not in wrote_patterns:
            found += problems(schema, wrote, f"{path}, properties like {pattern!r}")
    return found


def _of_dependencies(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    found = []
    wrote = _dependencies(writer)
    for name, wanted in _dependencies(reader).items():
        before = wrote.get(name)
        where = f"{path}, where {name!r} is set"
        if isinstance(wanted, list):
            more = [other for other in wanted if not isinstance(before, list) or other not in before]
            if more:
                found.append(f"{where}: {', '.join(map(str, more))} must be set too")
        elif before is None or isinstance(before, list):
            if wanted is not True and wanted != {}:
                found.append(f"{where}: a schema is new")
        else:
            found += problems(wanted, before, where)
    return found


def _properties(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("properties")
    return found if isinstance(found, dict) else {}


def _patterns(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    found = schema.get("patternProperties")
    return found if isinstance(found, dict) else {}


def _further(schema: Mapping[str, Any]) -> Any:  # noqa: ANN401 - a JSON Schema
    return schema.get("additionalProperties", schema.get("unevaluatedProperties", True))


def _beside(schema: Mapping[str, Any], name: str) -> list[Any]:
    """What a schema says of a property that it does not name: its patterns, or its further properties."""
    matching = [found for pattern, found in _patterns(schema).items() if _matches(pattern, name)]
    return matching or [_further(schema)]


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # another language's pattern; nothing is known of it
        return False


def _dependencies(schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keyword in ("dependentSchemas", "dependentRequired", "dependencies"):
        if isinstance(schema.get(keyword), dict):
            found |= schema[keyword]
    return found


def _strings(value: Any) -> list[str]:  # noqa: ANN401
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []
