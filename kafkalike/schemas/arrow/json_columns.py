"""JSON columns: a JSON Schema in, what makes columns of parsed values out.

A value that may be of several types, or of any, has no column type of its own: it is its JSON as a text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from kafkalike.errors import InvalidSchemaError
from kafkalike.schemas.arrow.values import Column, Leaf, Lists, Maps, Structs
from kafkalike.schemas.json_text import load_json

_MOST_REFS: Final = 50


def json_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    """A value as JSON, as short as can be."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


class JsonColumns:
    """The columns of a JSON Schema.

    Args:
        text: the schema.
        used: the schemas that it refers to, by the names of its references.
        depth: how often a referenced schema may stand in itself; properties that would go deeper are left out.

    Raises:
        InvalidSchemaError: it is no JSON, or a `$ref` that leads nowhere.
    """

    def __init__(self, text: str, used: Mapping[str, str], depth: int) -> None:
        self._depth = depth
        self._documents = {"": load_json(text), **{name: load_json(other) for name, other in used.items()}}

    def top(self) -> tuple[Structs, bool]:
        """The column of whole values, and whether it has the fields of an object; else there is one field `value`."""
        found = self._of(self._documents[""], "", ())
        if isinstance(found, Structs):
            return found, True
        if found is None:
            raise InvalidSchemaError("a schema that only consists of itself has no columns")
        return Structs([("value", lambda values: values, found)]), False

    def _of(self, schema: Any, document: str, around: tuple[str, ...]) -> Column | None:  # noqa: ANN401
        """The column of a schema; None where it would stand too deeply in itself."""
        for _ in range(_MOST_REFS):
            if not isinstance(schema, dict) or "$ref" not in schema:
                break
            document, schema, name = self._referenced(str(schema["$ref"]), document)
            if around.count(name) >= self._depth:
                return None
            around = (*around, name)
        else:
            raise InvalidSchemaError("a $ref leads to itself")
        if not isinstance(schema, dict):
            return Leaf(pa.string(), json_text)
        schema = self._merged(schema, document)
        only = _without_null(schema)
        if only is not schema:
            return self._of(only, document, around)
        kind = schema.get("type", _implied(schema))
        if kind == "object":
            return self._object(schema, document, around)
        if kind == "array" and isinstance(schema.get("items"), dict):
            item = self._of(schema["items"], document, around)
            return None if item is None else Lists(item, list)
        return _text(schema.get("format")) if kind == "string" else _leaf(kind)

    def _object(self, schema: dict[str, Any], document: str, around: tuple[str, ...]) -> Column | None:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, dict) and properties:
            found = [(name, self._of(inner, document, around)) for name, inner in properties.items()]
            required = schema.get("required")
            return Structs(
                [(name, _taking(name), column) for name, column in found if column is not None],
                required if isinstance(required, list) else (),
            )
        if isinstance(more, dict) and more:
            item = self._of(more, document, around)
            return None if item is None else Maps(Leaf(pa.string()), item)
        return Leaf(pa.string(), json_text)

    def _merged(self, schema: dict[str, Any], document: str) -> dict[str, Any]:
        """A schema with the properties of its `allOf`, where all of them are in this document."""
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        merged = {name: value for name, value in schema.items() if name != "allOf"}
        properties: dict[str, Any] = {}
        for part in parts:
            for _ in range(_MOST_REFS):
                if not isinstance(part, dict) or "$ref" not in part:
                    break
                where, part, _ = self._referenced(str(part["$ref"]), document)  # noqa: PLW2901
                if where != document:
                    return {}
            else:
                raise InvalidSchemaError("a $ref leads to itself")
            if not isinstance(part, dict):
                continue
            properties |= part.get("properties", {})
            merged = {**part, **merged}
        properties |= schema.get("properties", {})
        return {**merged, **({"properties": properties} if properties else {})}

    def _referenced(self, ref: str, document: str) -> tuple[str, Any, str]:
        """What a `$ref` names: the document, the schema in it, and one name for both."""
        name, _, pointer = ref.partition("#")
        where = name if name and name in self._documents else document
        if name and name not in self._documents and name != self._documents[document].get("$id"):
            raise InvalidSchemaError(f"no schema is registered for the $ref {ref!r}")
        found = self._documents[where]
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, IndexError, ValueError, TypeError) as cause:
                raise InvalidSchemaError(f"the $ref {ref!r} leads nowhere") from cause
        return where, found, f"{where}#{pointer}"


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """The one schema that a value has when it is not null; the schema itself if there is no such one."""
    kind = schema.get("type")
    if isinstance(kind, list):
        others = [name for name in kind if name != "null"]
        return {**schema, "type": others[0] if len(others) == 1 else "any"}
    for word in ("oneOf", "anyOf"):
        options = schema.get(word)
        if isinstance(options, list):
            others = [option for option in options if not (isinstance(option, dict) and option.get("type") == "null")]
            return others[0] if len(others) == 1 and isinstance(others[0], dict) else {"type": "any"}
    return schema


def _implied(schema: dict[str, Any]) -> str:
    """The type that a schema without one must mean."""
    if isinstance(schema.get("properties"), dict):
        return "object"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return "string" if values and all(isinstance(value, str) for value in values) else "any"


def _taking(name: str) -> Callable[[Sequence[Any]], Sequence[Any]]:
    def take(values: Sequence[Any]) -> Sequence[Any]:
        for value in values:
            if not isinstance(value, dict):
                raise TypeError(f"an object is needed, not {json_text(value)[:100]}")
        return [value.get(name) for value in values]

    return take


def _leaf(kind: object) -> Column:
    if kind == "integer":
        return Leaf(pa.int64(), _whole)
    if kind == "number":
        return Leaf(pa.float64(), _number)
    if kind in {"boolean", "null"}:
        return Leaf(pa.bool_() if kind == "boolean" else pa.null())
    return Leaf(pa.string(), json_text)


def _text(form: object) -> Column:
    if form == "date":
        return Leaf(pa.date32(), date.fromisoformat)
    if form == "date-time":
        return Leaf(pa.timestamp("us", "UTC"), _moment)
    return Leaf(pa.string())


def _moment(value: str) -> datetime:
    found = datetime.fromisoformat(value)
    # In UTC, where the first and the last year end earlier or later: `astimezone` refuses what lies outside.
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _whole(value: Any) -> int:  # noqa: ANN401
    """A number that is whole, however it is written: 1.0 is 1."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
        raise TypeError(f"a whole number is needed, not {json_text(value)[:100]}")
    return int(value)


def _number(value: Any) -> float:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"a number is needed, not {json_text(value)[:100]}")
    return float(value)
