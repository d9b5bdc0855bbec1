"""JSON references: a JSON Schema and the schemas that it uses in, what each of its `$ref`s leads to out.

Everything that follows references asks here, so that a writer's check, the columns of a view and the comparison of two
schemas mean the same by `$id`, an anchor, a pointer and the name of a registered reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from jsonschema.validators import validator_for
from referencing import Registry, Resource, Specification
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT202012, specification_with

from kafkalike.errors import InvalidSchemaError

JsonSchema = Any
"""True, False or an object."""
Resolver = Any
"""`referencing`'s, which knows the base of the references in one schema."""

_IGNORES_SIBLINGS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Dialects in which nothing counts beside a `$ref`."""


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
        try:
            found = resolver.lookup(reference)
        except Unresolvable as cause:
            raise InvalidSchemaError(f"the $ref {reference!r} leads nowhere, and no reference has its name") from cause
        except Exception as cause:
            # A pointer may lead through what is no schema at all.
            raise InvalidSchemaError(f"the $ref {reference!r} leads nowhere: {cause}") from cause
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
