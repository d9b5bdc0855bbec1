"""Rules for the keywords of JSON Schema: which values the writer's schema accepts and the reader's rejects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Problems = Callable[[Any, Any, str], list[str]]
"""Compares a reader's schema with a writer's at a path; returns the incompatibilities."""


def object_problems(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    """Return the incompatibilities of keywords for objects."""
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
    """Compare a property that only the writer names with the schemas for the reader's other properties."""
    for further in beside:
        if further is False and schema is not False:
            return [f"{path}: the property was removed from a closed content model"]
        found = problems(further, schema, path)
        if found:
            return [f"{path}: the property was removed, and its values do not fit those that are still open", *found]
    return []


def _added(problems: Problems, schema: Any, beside: list[Any], path: str) -> list[str]:  # noqa: ANN401
    """Compare a property that only the reader names with the schemas for the writer's other properties."""
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
    """Return the schemas for an unnamed property: matching patterns, or else the additional properties."""
    matching = [found for pattern, found in _patterns(schema).items() if _matches(pattern, name)]
    return matching or [_further(schema)]


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # a pattern in another dialect, so nothing is known
        return False


def _dependencies(schema: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for keyword in ("dependentSchemas", "dependentRequired", "dependencies"):
        if isinstance(schema.get(keyword), dict):
            found |= schema[keyword]
    return found


def _strings(value: Any) -> list[str]:  # noqa: ANN401
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
_OBJECT: Final = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "required",
    "minProperties",
    "maxProperties",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "propertyNames",
    "unevaluatedProperties",
)
_ARRAY: Final = (
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "minItems",
    "maxItems",
    "uniqueItems",
    "unevaluatedItems",
)
_NUMBER: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_STRING: Final = ("minLength", "maxLength", "pattern")
KEYWORDS: Final = frozenset((*_OBJECT, *_ARRAY, *_NUMBER, *_STRING, "type", "enum", "const", "not", "if", "$ref"))
"""Keywords that restrict values, without keywords that combine schemas."""
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the types that a schema accepts, explicitly or by its keywords, as in Confluent's registry."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind, "integer"}) if kind == "number" else frozenset({kind})
    values = enumerated(schema)
    if values is not None:
        return frozenset(_type_of(value) for value in values)
    shown: set[str] = set()
    for keywords, kinds in (
        (_OBJECT, {"object"}),
        (_ARRAY, {"array"}),
        (_STRING, {"string"}),
        (_NUMBER, {"number", "integer"}),
    ):
        if any(keyword in schema for keyword in keywords):
            shown |= kinds
    return frozenset(shown) or ALL_TYPES


def type_problems(reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    """Return an error if the reader lacks a type of the writer."""
    lacking = types_of(writer) - types_of(reader)
    if not lacking:
        return []
    if types_of(writer) == ALL_TYPES:
        return [f"{path}: any type was accepted, now only {_listed(types_of(reader))}"]
    return [f"{path}: the type {_listed(types_of(writer))} became {_listed(types_of(reader))}"]


def value_problems(  # noqa: C901 - one branch for each keyword
    reader: Mapping[str, Any], writer: Mapping[str, Any], path: str
) -> list[str]:
    """Return the incompatibilities of limits on values."""
    found = _enum_problems(reader, writer, path)
    for keywords, sign, word in ((_UPPER, 1, "smaller"), (_LOWER, -1, "larger")):
        for keyword in keywords:
            limit: Any = reader.get(keyword)
            before: Any = writer.get(keyword)
            if not _is_number(limit):
                continue
            if not _is_number(before):
                found.append(f"{path}: {keyword} {limit} is new")
            elif sign * limit < sign * before:
                found.append(f"{path}: {keyword} became {word}, {limit} instead of {before}")
    # In draft 4 these are booleans that exclude the limit itself.
    for keyword in ("exclusiveMinimum", "exclusiveMaximum"):
        if reader.get(keyword) is True and writer.get(keyword) is not True:
            found.append(f"{path}: {keyword} is new")
    pattern = reader.get("pattern")
    if pattern is not None and pattern != writer.get("pattern") and not _allows_all(pattern):
        found.append(f"{path}: the pattern {pattern!r} is new or another")
    step: Any = reader.get("multipleOf")
    whole: Any = writer.get("multipleOf")
    if _is_number(step) and step:
        if not _is_number(whole):
            found.append(f"{path}: multipleOf {step} is new")
        elif not _divides(step, whole):
            found.append(f"{path}: multipleOf {whole} became {step}")
    if reader.get("uniqueItems") is True and writer.get("uniqueItems") is not True:
        found.append(f"{path}: items must differ now")
    return found


def enumerated(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values of `enum` or `const`; None without either."""
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return values if isinstance(values, list) else None


def _enum_problems(reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    allowed, before = enumerated(reader), enumerated(writer)
    if allowed is None:
        return []
    if before is None:
        return [f"{path}: only some values are accepted now"]
    known = {_key(value) for value in allowed}
    gone = [repr(value) for value in before if _key(value) not in known]
    return [f"{path}: not accepted any more: {', '.join(gone)}"] if gone else []


def _key(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a string that is equal for equal JSON values: 1 equals 1.0, but not true."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{name!r}:{_key(value[name])}" for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_key, value)) + "]"
    return repr(float(value)) if type(value) is int and abs(value) < 1 << 53 else repr(value)


def _type_of(value: Any) -> str:  # noqa: ANN401
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")


def _is_number(value: Any) -> bool:  # noqa: ANN401
    return type(value) in {int, float}


def _divides(step: float, of: float) -> bool:
    try:
        return of % step == 0
    except (ArithmeticError, ValueError):
        return False


def _allows_all(pattern: Any) -> bool:  # noqa: ANN401
    return pattern in {"", ".*", "^.*$", "^.*", ".*$"}


def _listed(kinds: frozenset[str]) -> str:
    shown = kinds - {"integer"} if "number" in kinds else kinds
    return " or ".join(sorted(shown))


def array_problems(problems: Problems, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> list[str]:
    """Return the incompatibilities of keywords for arrays."""
    read, read_rest = _items(reader)
    wrote, wrote_rest = _items(writer)
    found = []
    for place in range(max(len(read), len(wrote))):
        below = f"{path}[{place}]"
        if place >= len(read) and read_rest is False and not _takes_anything(wrote[place]):
            # As in Confluent's rules, a closed array may only lose trailing items that nothing could match.
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
    """Return the schemas of the first items, and the schema of all other items."""
    items = schema.get("items", schema.get("additionalItems", True))
    if isinstance(schema.get("prefixItems"), list):
        return schema["prefixItems"], items
    if isinstance(items, list):
        return items, schema.get("additionalItems", schema.get("unevaluatedItems", True))
    return [], items


def _takes_anything(schema: Any) -> bool:  # noqa: ANN401 - a JSON Schema
    return schema is True or schema == {}
