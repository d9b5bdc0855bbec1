"""Registries as serializers see them: ours, remote ones, and Confluent's own client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.registry_state import referenced_by
from kafkalike.model.schemas.schema import Reference, Registered, Schema
from kafkalike.schemas.schema_source import SchemaSource


class RegistryApi(Protocol):
    """The methods of `confluent_kafka.schema_registry.SchemaRegistryClient` that serializers call."""

    def register_schema_full_response(self, subject_name: str, schema: Any, normalize_schemas: bool = ...) -> Any:  # noqa: ANN401, FBT001
        """Register a schema; gives its `schema_id`, `guid` and `version`."""
        ...

    def lookup_schema(self, subject_name: str, schema: Any, normalize_schemas: bool = ...) -> Any:  # noqa: ANN401, FBT001
        """The version of a subject that a schema is."""
        ...

    def get_schema(self, schema_id: int, subject_name: str | None = ..., fmt: str | None = ...) -> Any:  # noqa: ANN401
        """The schema of an id."""
        ...

    def get_schema_by_guid(self, guid: str, fmt: str | None = ...) -> Any:  # noqa: ANN401
        """The schema of a GUID."""
        ...

    def get_version(self, subject_name: str, version: Any, deleted: bool = ..., fmt: str | None = ...) -> Any:  # noqa: ANN401, FBT001
        """A version of a subject."""
        ...

    def get_latest_version(self, subject_name: str, fmt: str | None = ...) -> Any:  # noqa: ANN401
        """The newest version of a subject."""
        ...

    def get_latest_with_metadata(self, subject_name: str, metadata: Any) -> Any:  # noqa: ANN401
        """The newest version of a subject with metadata."""
        ...


def as_source(registry: Any) -> SchemaSource:  # noqa: ANN401 - a `SchemaSource` or a `RegistryApi`
    """A registry as a source of schemas; Confluent's client is made one."""
    if hasattr(registry, "schema_by_id"):
        source: SchemaSource = registry
        return source
    return _ClientSource(registry)


def value_of(schema: Any) -> Schema:  # noqa: ANN401 - a schema of any of the packages
    """A schema of Confluent's shape as a value."""
    if isinstance(schema, Schema):
        return schema
    references = tuple(Reference(r.name, r.subject, r.version) for r in schema.references or ())
    return Schema(schema.schema_type or "AVRO", schema.schema_str, references)


class NoRegistry:
    """Stands for a registry where a deserializer needs none.

    Args:
        schema: what every id stands for; None where nothing is read by a schema.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema or Schema("PROTOBUF", "")

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - the protocol's word
        """The one schema."""
        del id
        return self._schema

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """The one schema."""
        del guid, fmt
        return self._schema

    def latest(self, subject: str) -> Registered | None:
        """There is none."""
        del subject
        return None

    def ids_of(self, subject: str) -> Sequence[int]:
        """None."""
        del subject
        return ()

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Nothing."""
        del schema
        return {}


class _ClientSource:
    """Confluent's client as a source. It caches by itself what never changes."""

    def __init__(self, client: RegistryApi) -> None:
        self._client = client

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - the protocol's word
        """The schema of an id."""
        return value_of(self._client.get_schema(id))

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject."""
        try:
            found = self._client.get_latest_version(subject)
        except Exception as error:
            if getattr(error, "http_status_code", None) != 404:  # noqa: PLR2004 - HTTP's "not found"
                raise
            return None
        return Registered(subject, found.version, found.schema_id, value_of(found.schema))

    def ids_of(self, subject: str) -> Sequence[int]:
        """Serializers do not ask for this."""
        raise SchemaRegistryError(501, -1, f"Confluent's client does not tell all ids of {subject!r} at once")

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """What a schema uses."""
        return referenced_by(schema, self._reference) if schema.references else {}

    def _reference(self, reference: Reference) -> Schema:
        found = self._client.get_version(reference.subject, reference.version, True)  # noqa: FBT003 - Confluent's
        return value_of(found.schema)
