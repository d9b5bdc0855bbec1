"""JSON Schemas with the documents that they use: what each `$ref` leads to.

Everything that follows references asks here, so that a writer's check, the columns of a view and the comparison of two
schemas mean the same by `$id`, an anchor, a pointer and the name of a registered reference.
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
"""`referencing`'s, which knows the base of the references in one schema."""

_IGNORES_SIBLINGS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Dialects in which nothing counts beside a `$ref`."""


def valid_json_schema() -> AbstractContextManager[None]:
    """Return a context that raises what the libraries find wrong with a schema as `InvalidSchemaError`.

    The libraries assume the right types, so an `$id` that is a number makes them raise errors of any class.
    """
    return foreign_errors(lambda cause: InvalidSchemaError(f"it is no JSON Schema: {type(cause).__name__}: {cause}"))


class JsonReferences:
    """The references of a document.

    Args:
        document: the schema.
        used: the schemas that it refers to, by the names of its references.

    Attributes:
        registry: what `jsonschema` resolves references with.
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
        # Under no name, as the library would count an `$id` that is relative twice.
        self.resolver: Resolver = self.registry.with_resource("", root).resolver(self._base)

    def inside(self, resolver: Resolver, schema: JsonSchema) -> Resolver:
        """The resolver of a schema, for the one around it: an `$id` changes the base."""
        if not isinstance(schema, dict):
            return resolver
        return resolver.in_subresource(self._specification.create_resource(schema))

    def at(self, name: str) -> Resolver:
        """The resolver of a used schema."""
        found = self.resolver.lookup(name)
        return self._arrived(found.resolver, found.contents)

    def follow(self, resolver: Resolver, reference: object) -> tuple[JsonSchema, Resolver]:
        """Return the schema that a `$ref` leads to, and its resolver.

        Raises:
            InvalidSchemaError: it leads nowhere.
        """
        if not isinstance(reference, str):
            raise InvalidSchemaError(f"the $ref {reference!r} is no text")
        # A pointer may lead through what is no schema at all.
        with foreign_errors(lambda cause: InvalidSchemaError(f"the $ref {reference!r} leads nowhere: {cause}")):
            try:
                found = resolver.lookup(reference)
            except Unresolvable as cause:
                raise InvalidSchemaError(
                    f"the $ref {reference!r} leads nowhere, and no reference has its name"
                ) from cause
        return found.contents, self._arrived(found.resolver, found.contents)

    def _arrived(self, resolver: Resolver, schema: JsonSchema) -> Resolver:
        """The resolver of a schema that was looked up, which counts the `$id` of it already if that is relative."""
        name = self._specification.create_resource(schema).id() if isinstance(schema, dict) else None
        return self.inside(resolver, schema) if name and urlsplit(name).scheme else resolver

    def _resource(self, document: JsonSchema, other: JsonSchema) -> Resource[Any]:
        dialect = dialect_of(document)
        if dialect is not None and dialect_of(other) == dialect:
            return specification_with(dialect, default=DRAFT7).create_resource(without_dialect(other))
        return Resource.from_contents(other, DRAFT7)

    def _named(self, uri: str) -> Resource[Any]:
        """A used schema whose name was read relative to the `$id` of the schema that refers to it."""
        bases = {self._base, *(resource.id() or "" for resource in self._used.values())}
        for name, resource in self._used.items():
            if any(urljoin(base, name) == uri for base in bases):
                return resource
        raise NoSuchResource(uri)


def dialect_of(document: JsonSchema) -> str | None:
    """The dialect that a document names."""
    said = document.get("$schema") if isinstance(document, dict) else None
    return said if isinstance(said, str) else None


def without_dialect(document: JsonSchema) -> JsonSchema:
    """A schema that does not say its dialect: one that does, `jsonschema` checks by that dialect's own class."""
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
"""What keywords hold; a `$ref` may lead to what no metaschema has looked at."""


class DocumentReferences:
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
        with valid_json_schema():
            self._references = JsonReferences(self.root, used)
            self._resolvers: dict[int, Resolver] = {}
            """Of schemas, which know the `$id`s around them."""
            for name, document in used.items():
                self._enter(document, self._references.at(name))
            self._enter(self.root, self._references.resolver)

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
