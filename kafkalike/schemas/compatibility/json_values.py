"""Types, numbers, strings and enums of JSON Schemas: what of a writer's the reader refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

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
"""What a schema can demand, beside combining others."""
_UPPER: Final = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER: Final = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")


def types_of(schema: Mapping[str, Any]) -> frozenset[str]:
    """The types that a schema accepts: said, or shown by its keywords, as Confluent's registry takes it."""
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
    """Types that the writer has and the reader lacks."""
    lacking = types_of(writer) - types_of(reader)
    if not lacking:
        return []
    if types_of(writer) == ALL_TYPES:
        return [f"{path}: any type was accepted, now only {_listed(types_of(reader))}"]
    return [f"{path}: the type {_listed(types_of(writer))} became {_listed(types_of(reader))}"]


def value_problems(  # noqa: C901 - one branch for each keyword
    reader: Mapping[str, Any], writer: Mapping[str, Any], path: str
) -> list[str]:
    """Values that the reader's limits leave out."""
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
    # In draft 4 these say whether the limit itself is left out.
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
    """The values of `enum` or `const`; None where there is neither."""
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
    """A value as text that is the same for equal JSON; 1 and 1.0 are, 1 and true are not."""
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
