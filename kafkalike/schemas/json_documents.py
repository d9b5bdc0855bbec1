"""JSON Schemas with the documents that they reference, and the resolution of `$ref`.

The check of a writer's values, the columns of a view and the comparison of two schemas all resolve references here, so
an `$id`, an anchor, a pointer and a reference name mean the same in each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from jsonschema.validators import validator_for
from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT202012, specification_with

from kafkalike.errors import InvalidSchemaError
from kafkalike.errors.kafka_error import foreign_errors
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.limits import load_json

JsonSchema = Any
"""True, False or an object."""
Resolver = Any
"""A resolver of `referencing`, which knows the base URI of one schema."""

_IGNORES_SIBLINGS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Dialects that ignore the keywords beside a `$ref`."""


def valid_json_schema() -> AbstractContextManager[None]:
    """Return a context that raises any error about a schema as `InvalidSchemaError`.

    The libraries assume the right types, so an `$id` that is a number makes them raise errors of any class.
    """
    return foreign_errors(lambda cause: InvalidSchemaError(f"it is not a JSON Schema: {type(cause).__name__}: {cause}"))


class JsonReferences:
    """The references of a document.

    Args:
        document: the schema.
        used: the schemas that it references, by reference name.

    Attributes:
        registry: resolves references for `jsonschema`.
    """

    def __init__(self, document: JsonSchema, used: Mapping[str, JsonSchema]) -> None:
        self.document = document
        meta = validator_for(document).META_SCHEMA
        self._specification: Specification[Any] = specification_with(
            meta.get("$id") or meta.get("id") or "", default=DRAFT202012
        )
        self.ignores_siblings = self._specification.name in _IGNORES_SIBLINGS
        self._used = {name: self._resource(document, other) for name, other in used.items()}
        self._base = self._specification.create_resource(without_dialect(document)).id() or ""
        registry: Registry[Any] = Registry(retrieve=self._named)  # type: ignore[call-arg]
        self.registry = registry.with_resources(self._used.items())
        root = self._specification.create_resource(without_dialect(document))
        # With an empty name, because the library would apply a relative `$id` twice.
        self.resolver: Resolver = self.registry.with_resource("", root).resolver(self._base)

    def inside(self, resolver: Resolver, schema: JsonSchema) -> Resolver:
        """Return the resolver of a nested schema; an `$id` changes the base URI."""
        if not isinstance(schema, dict):
            return resolver
        return resolver.in_subresource(self._specification.create_resource(schema))

    def at(self, name: str) -> Resolver:
        """Return the resolver of a referenced schema."""
        found = self.resolver.lookup(name)
        return self._arrived(found.resolver, found.contents)

    def follow(self, resolver: Resolver, reference: object) -> tuple[JsonSchema, Resolver]:
        """Return the schema that a `$ref` refers to, and its resolver.

        Raises:
            InvalidSchemaError: the reference cannot be resolved.
        """
        if not isinstance(reference, str):
            raise InvalidSchemaError(f"the $ref {reference!r} is not a string")
        # A pointer may pass through any JSON, so any error is possible.
        with foreign_errors(lambda cause: InvalidSchemaError(f"the $ref {reference!r} leads nowhere: {cause}")):
            try:
                found = resolver.lookup(reference)
            except Unresolvable as cause:
                raise InvalidSchemaError(
                    f"the $ref {reference!r} leads nowhere, and no reference has its name"
                ) from cause
        return found.contents, self._arrived(found.resolver, found.contents)

    def _arrived(self, resolver: Resolver, schema: JsonSchema) -> Resolver:
        """Return the resolver of a schema after a lookup, which applies the schema's `$id` only if that is relative."""
        name = self._specification.create_resource(schema).id() if isinstance(schema, dict) else None
        return self.inside(resolver, schema) if name and urlsplit(name).scheme else resolver

    def _resource(self, document: JsonSchema, other: JsonSchema) -> Resource[Any]:
        dialect = dialect_of(document)
        if dialect is not None and dialect_of(other) == dialect:
            return specification_with(dialect, default=DRAFT7).create_resource(without_dialect(other))
        return Resource.from_contents(other, DRAFT7)

    def _named(self, uri: str) -> Resource[Any]:
        """Return a referenced schema whose name was resolved against the `$id` of the referencing schema."""
        bases = {self._base, *(resource.id() or "" for resource in self._used.values())}
        for name, resource in self._used.items():
            if any(urljoin(base, name) == uri for base in bases):
                return resource
        raise NoSuchResource(uri)


def dialect_of(document: JsonSchema) -> str | None:
    """Return the dialect that a document names, or None."""
    said = document.get("$schema") if isinstance(document, dict) else None
    return said if isinstance(said, str) else None


def without_dialect(document: JsonSchema) -> JsonSchema:
    """Return a schema without `$schema`; otherwise `jsonschema` would validate it with another validator class."""
    if dialect_of(document) is None:
        return document
    return {name: part for name, part in document.items() if name != "$schema"}


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
"""Types that keywords must have. A `$ref` may lead to JSON that no metaschema has validated."""


class DocumentReferences:
    """The base URIs of all schemas in a document and in the documents that it references.

    Args:
        schema: a JSON Schema.
        referenced: the schemas that it references, by reference name.

    Raises:
        InvalidSchemaError: a document is not a JSON Schema.
    """

    def __init__(self, schema: Schema, referenced: Mapping[str, Schema]) -> None:
        self.root = load_json_schema(schema)
        used = {name: load_json_schema(other) for name, other in referenced.items()}
        with valid_json_schema():
            self._references = JsonReferences(self.root, used)
            self._resolvers: dict[int, Resolver] = {}
            """Resolvers by the identity of the schema."""
            for name, document in used.items():
                self._enter(document, self._references.at(name))
            self._enter(self.root, self._references.resolver)

    def resolve(self, schema: JsonSchema) -> JsonSchema:
        """Follow the `$ref` of a schema, and all further ones, to a schema without `$ref`.

        Raises:
            InvalidSchemaError: a `$ref` cannot be resolved, or is circular.
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
        """Record the resolvers of a schema and all nested schemas."""
        if not isinstance(schema, dict):
            return
        self._resolvers[id(schema)] = resolver
        for part in _parts(schema):
            self._enter(part, self._references.inside(resolver, part))


def _parts(schema: dict[str, Any]) -> Iterator[JsonSchema]:
    """Yield the schemas directly inside a schema."""
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
    """Parse the text of a JSON Schema.

    Raises:
        InvalidSchemaError: the text is not JSON, or neither an object nor a boolean.
    """
    if schema.type != "JSON":
        raise InvalidSchemaError(f"the schema is of type {schema.type}, not JSON")
    loaded = load_json(schema.text)
    if not isinstance(loaded, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object, true or false")
    return loaded
