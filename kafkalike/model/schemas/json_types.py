"""JSON types: the Spark type that holds all of some sampled JSON objects, in the JSON form of Spark's schemas.

Whole numbers within 64 bits are `long`, other numbers `double`, texts `string`; times and dates stay texts. Values of
several types, objects with more than `MAX_FIELDS` fields or with fields that differ only in case, and everything below
`MAX_DEPTH` are `string`: Spark puts the JSON text there, so nothing is lost.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, TypeAlias

from kafkalike.errors import IllegalArgumentError

MAX_FIELDS: Final = 200
MAX_DEPTH: Final = 8
MAX_WHOLE: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ArrayType:
    """Arrays with elements of a type."""

    element: JsonType


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Objects with the types of their fields, in the order in which these appeared."""

    fields: Mapping[str, JsonType]


JsonType: TypeAlias = "str | ArrayType | ObjectType | None"
"""A name of a type in Spark, a nested type, or None for null alone."""


def inferred_schema(values: Iterable[bytes]) -> dict[str, Any]:
    """Return the schema of sampled JSON objects; values that are not JSON objects are left out.

    The same values in the same order have the same schema.

    Raises:
        IllegalArgumentError: no value is an object, or the objects have too many fields, or fields that differ only in
            case, for columns.
    """
    whole: JsonType = None
    for value in values:
        found = _parsed(value)
        if isinstance(found, dict):
            whole = merged(whole, type_of(found))
    if whole is None:
        raise IllegalArgumentError("no JSON object was found to infer the fields from; give a schema")
    if not isinstance(whole, ObjectType):
        raise IllegalArgumentError(f"the sampled JSON objects have more than {MAX_FIELDS} fields; give a schema")
    twins = _twins(whole)
    if twins:
        raise IllegalArgumentError(f"the fields {twins} of the JSON objects differ only in case; give a schema")
    return {"type": "struct", "fields": _fields(whole)}


def _parsed(value: bytes) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def type_of(value: object, depth: int = 0) -> JsonType:
    """Return the type of a parsed JSON value at a depth below the record."""
    match value:
        case list() if depth < MAX_DEPTH:
            return ArrayType(reduce(merged, (type_of(one, depth + 1) for one in value), None))
        case dict() if depth < MAX_DEPTH:
            return _object({name: type_of(one, depth + 1) for name, one in value.items()})
        case int() if type(value) is int and not -MAX_WHOLE - 1 <= value <= MAX_WHOLE:
            return "string"
        case _:
            return _SCALARS.get(type(value), "string")


_SCALARS: Final[Mapping[type, JsonType]] = {type(None): None, bool: "boolean", int: "long", float: "double"}


def _object(fields: Mapping[str, JsonType]) -> JsonType:
    return ObjectType(fields) if len(fields) <= MAX_FIELDS else "string"


def merged(left: JsonType, right: JsonType) -> JsonType:
    """Return the type of values of both types.

    >>> merged("long", "double"), merged("long", "boolean"), merged(None, ArrayType("long"))
    ('double', 'string', ArrayType(element='long'))
    """
    match left, right:
        case (None, other) | (other, None):
            return other
        case (ArrayType(a), ArrayType(b)):
            return ArrayType(merged(a, b))
        case (ObjectType(a), ObjectType(b)):
            return _object({name: merged(a.get(name), b.get(name)) for name in {**a, **b}})
        case ("long", "double") | ("double", "long"):
            return "double"
        case _:
            return left if left == right else "string"


def _twins(found: ObjectType) -> str:
    """Return two fields that differ only in case; empty if there are none."""
    folded: dict[str, str] = {}
    for name in found.fields:
        other = folded.setdefault(name.lower(), name)
        if other != name:
            return f"{other!r} and {name!r}"
    return ""


def _fields(found: ObjectType) -> list[dict[str, Any]]:
    return [
        {"name": name, "type": _spark_type(kind), "nullable": True, "metadata": {}}
        for name, kind in found.fields.items()
    ]


def _spark_type(found: JsonType) -> str | dict[str, Any]:
    match found:
        case ArrayType(element):
            return {"type": "array", "elementType": _spark_type(element), "containsNull": True}
        case ObjectType(fields) if fields and not _twins(found):
            return {"type": "struct", "fields": _fields(found)}
        case str():
            return found
        case _:
            return "string"
