"""Places of JSON Schemas: a document and what it refers to in, the schema behind a `$ref` out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.json_text import load_json

JsonSchema = Any
"""True, False or an object."""
_SUBSCHEMAS = ("$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies")
_SINGLE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")


_SHAPES: tuple[tuple[type | tuple[type, ...], tuple[str, ...]], ...] = (
    (dict, ("$defs", "definitions", "properties", "patternProperties", "dependencies", "dependentSchemas")),
    (dict, ("dependentRequired",)),
    (list, ("allOf", "anyOf", "oneOf", "prefixItems", "enum", "required")),
    ((dict, bool), tuple(keyword for keyword in _SINGLE if keyword != "items")),
    ((dict, bool, list), ("items",)),
    (str, ("$ref", "pattern")),
    ((str, list), ("type",)),
)
"""What keywords hold; a `$ref` may lead to what no metaschema has looked at."""


class Places:
    """Where the schemas of a document, and of those that it uses, stand.

    Args:
        schema: a JSON Schema.
        referenced: what it uses, by the names of the references.

    Raises:
        InvalidSchemaError: one of them is no JSON Schema.
    """

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        self.root = load_json_schema(schema)
        self._documents: dict[str, JsonSchema] = {}
        self._base: dict[int, str] = {}
        for name, used in referenced.items():
            document = load_json_schema(used)
            self._documents[name] = document
            self._enter(document, name)
        self._documents[""] = self.root
        self._enter(self.root, "")

    def resolve(self, schema: JsonSchema) -> JsonSchema:
        """What a schema says, behind its `$ref` and those that follow.

        Raises:
            InvalidSchemaError: a `$ref` leads nowhere, or in a circle.
        """
        seen: set[int] = set()
        _check_shape(schema)
        while isinstance(schema, dict) and "$ref" in schema:
            if id(schema) in seen:
                raise InvalidSchemaError(f"the $ref {schema['$ref']!r} leads in a circle")
            seen.add(id(schema))
            schema = self._at(schema["$ref"], self._base.get(id(schema), ""))
            _check_shape(schema)
        return schema

    def _at(self, reference: str, base: str) -> JsonSchema:
        if reference in self._documents:
            return self._documents[reference]
        address, fragment = urldefrag(urljoin(base, reference))
        document = self._documents.get(address)
        if document is None:
            document = self._documents.get(urldefrag(reference)[0])
        if document is None:
            raise InvalidSchemaError(f"the $ref {reference!r} has no reference")
        if not fragment or fragment == "/":
            return document
        if not fragment.startswith("/"):
            return self._anchored(f"{address}#{fragment}", reference)
        found = document
        for part in fragment.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(key)] if isinstance(found, list) else found[key]
            except (KeyError, ValueError, IndexError, TypeError) as cause:
                raise InvalidSchemaError(f"the $ref {reference!r} leads nowhere") from cause
        return found

    def _anchored(self, address: str, reference: str) -> JsonSchema:
        found = self._documents.get(address)
        if found is None:
            raise InvalidSchemaError(f"the $ref {reference!r} leads nowhere")
        return found

    def _enter(self, schema: JsonSchema, base: str) -> None:
        """Note the addresses of a schema and of those inside it."""
        if not isinstance(schema, dict):
            return
        own = schema.get("$id", schema.get("id"))
        if isinstance(own, str) and own:
            address, fragment = urldefrag(urljoin(base, own))
            if fragment:
                self._documents[f"{address}#{fragment}"] = schema
            else:
                base = address
                self._documents.setdefault(address, schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            if isinstance(schema.get(keyword), str):
                self._documents[f"{base}#{schema[keyword]}"] = schema
        self._base[id(schema)] = base
        for part in _parts(schema):
            self._enter(part, base)


def _parts(schema: dict[str, Any]) -> Iterator[JsonSchema]:
    """The schemas that stand directly inside one."""
    for keyword in _SUBSCHEMAS:
        if isinstance(schema.get(keyword), dict):
            yield from schema[keyword].values()
    yield from (schema.get(keyword) for keyword in _SINGLE)
    for keyword in _LISTS:
        if isinstance(schema.get(keyword), list):
            yield from schema[keyword]


def _check_shape(schema: JsonSchema) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidSchemaError(f"a JSON Schema is an object, true or false, not {schema!r:.80}")
    for kinds, keywords in _SHAPES:
        for keyword in keywords:
            if keyword in schema and not isinstance(schema[keyword], kinds):
                raise InvalidSchemaError(f"a JSON Schema has a {keyword!r} that is {schema[keyword]!r:.80}")


def load_json_schema(schema: Schema) -> JsonSchema:
    """The JSON of a schema's text.

    Raises:
        InvalidSchemaError: it is no JSON, or neither an object nor a boolean.
    """
    if schema.type != "JSON":
        raise InvalidSchemaError(f"the schema is of type {schema.type}, not JSON")
    loaded = load_json(schema.text)
    if not isinstance(loaded, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object, true or false")
    return loaded
