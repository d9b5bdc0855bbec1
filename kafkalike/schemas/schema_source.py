"""`SchemaSource`: the schemas of a registry as serializers, readers and checks need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafkalike.model.schemas.schema import Registered, Schema


class SchemaSource(Protocol):
    """Where schemas are looked up. Thread-safe."""

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - Confluent's word
        """The schema that has an id. It never changes, so it is asked for once.

        Raises:
            SchemaRegistryError: there is none; its `error_code` is 40403.
        """
        ...

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject that is not deleted, fresh; None where there is none."""
        ...

    def ids_of(self, subject: str) -> Sequence[int]:
        """Ids of all versions of a subject that are not deleted, fresh, oldest version first."""
        ...

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Schemas that a schema uses, and those that these use in turn, by the names of the references.

        A schema stands behind those that it uses itself, so that a parser may take them in this order.

        Raises:
            SchemaRegistryError: one is not registered; 40402.
        """
        ...
