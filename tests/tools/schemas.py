"""Schemas for tests: a source in memory that numbers what it is given; it knows no rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.schema import Reference, Registered, Schema


class SchemasInMemory:
    """A `SchemaSource` whose schemas a test puts in."""

    def __init__(self) -> None:
        self._ids: dict[Schema, int] = {}
        self._subjects: dict[str, list[Registered]] = {}

    def register(self, subject: str, schema: Schema) -> int:
        """Add a version of a subject, unless it has the schema; returns the schema's id."""
        number = self._ids.setdefault(schema, len(self._ids) + 1)
        versions = self._subjects.setdefault(subject, [])
        if all(known.id != number for known in versions):
            versions.append(Registered(subject, len(versions) + 1, number, schema))
        return number

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        for schema, number in self._ids.items():
            if number == id:
                return schema
        raise SchemaRegistryError(404, 40403, f"Schema {id} not found")

    def latest(self, subject: str) -> Registered | None:
        versions = self._subjects.get(subject)
        return versions[-1] if versions else None

    def ids_of(self, subject: str) -> Sequence[int]:
        return [known.id for known in self._subjects.get(subject, [])]

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        found: dict[str, Schema] = {}
        for reference in schema.references:
            used = self._at(reference)
            found |= self.referenced(used)
            found[reference.name] = used
        return found

    def _at(self, reference: Reference) -> Schema:
        for known in self._subjects.get(reference.subject, []):
            if known.version == reference.version:
                return known.schema
        raise SchemaRegistryError(404, 40402, f"Version {reference.version} not found.")
