"""Places of JSON Schemas: a document and what it refers to in, the schema behind a `$ref` out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kafkalike.errors import InvalidSchemaError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.json_references import JsonReferences, JsonSchema, Resolver
from kafkalike.schemas.json_text import load_json

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
        used = {name: load_json_schema(other) for name, other in referenced.items()}
        try:
            self._references = JsonReferences(self.root, used)
            self._resolvers: dict[int, Resolver] = {}
            """Of schemas, which know the `$id`s around them."""
            for name, document in used.items():
                self._enter(document, self._references.at(name))
            self._enter(self.root, self._references.resolver)
        except InvalidSchemaError:
            raise
        except Exception as cause:
            # The library takes texts for granted that are none, such as an `$id` that is a number.
            raise InvalidSchemaError(f"it is no JSON Schema: {type(cause).__name__}: {cause}") from cause

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
            resolver = self._resolvers.get(id(schema), self._references.resolver)
            schema, resolver = self._references.follow(resolver, schema["$ref"])
            self._resolvers.setdefault(id(schema), resolver)
            _check_shape(schema)
        return schema

    def _enter(self, schema: JsonSchema, resolver: Resolver) -> None:
        """Note the resolvers of a schema and of those inside it."""
        if not isinstance(schema, dict):
            return
        self._resolvers[id(schema)] = resolver
        for part in _parts(schema):
            self._enter(part, self._references.inside(resolver, part))


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
