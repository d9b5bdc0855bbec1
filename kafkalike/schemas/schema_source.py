"""`SchemaSource`: schema lookups for serializers, readers and checks, over our registries or Confluent's client."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.registry_state import referenced_by
from kafkalike.model.schemas.schema import Reference, Registered, Schema
from kafkalike.schemas.confluent_types import read_value, read_version, written


class SchemaSource(Protocol):
    """Looks up schemas. Thread-safe."""

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - Confluent's word
        """Return the schema of an id. It never changes, so implementations may cache it.

        Raises:
            SchemaRegistryError: the id is unknown; `error_code` is 40403.
        """
        ...

    def latest(self, subject: str) -> Registered | None:
        """Return the newest undeleted version of a subject without caching; None if it has none."""
        ...

    def ids_of(self, subject: str) -> Sequence[int]:
        """Return the ids of all undeleted versions of a subject without caching, oldest version first."""
        ...

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by reference name.

        Each schema follows the schemas that it references itself, so a parser can read them in this order.

        Raises:
            SchemaRegistryError: a reference is not registered; `error_code` is 40402.
        """
        ...


class Transport(Protocol):
    """Sends requests of Confluent's REST interface."""

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """Return the JSON of the answer; see `RegistryService.ask`."""
        ...


class TransportClient:
    """Base of the registry clients.

    Args:
        transport: sends the requests.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def query_flag(value: bool) -> str:  # noqa: FBT001
    """Return a boolean as it is written in a query."""
    return "true" if value else "false"


def query_of(**given: str | float | bool | None) -> dict[str, str]:
    """Return the query parameters that are not None."""
    return {
        name: query_flag(value) if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }


def at(kind: str, subject: str | None) -> tuple[str, ...]:
    """Return the path of a subject's setting, or of the global one if `subject` is None."""
    return (kind,) if subject is None else (kind, subject)


NOT_FOUND: Final = 404

CACHED_SCHEMAS: Final = 1_000
"""Maximum schemas in each cache of a client. Schemas never change, so entries do not expire."""


class SourceClient(TransportClient):
    """Schema lookups of `RegistryClient`, with caches."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._values: LruCache[int, Schema] = LruCache(CACHED_SCHEMAS)
        self._versions: LruCache[tuple[str, int], Schema] = LruCache(CACHED_SCHEMAS)

    def clear_caches(self) -> None:
        """Drop all cached schemas of this client."""
        self._values.clear()
        self._versions.clear()

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        """Return the schema of an id, from the cache if possible."""
        known = self._values.get(id)
        if known is None:
            known = read_value(self._transport.ask("GET", ("schemas", "ids", str(id))))
            self._values.put(id, known)
        return known

    def schema_by_guid(self, guid: str) -> Schema:
        """Return the schema of a GUID."""
        return read_value(self._transport.ask("GET", ("schemas", "guids", guid)))

    def latest(self, subject: str) -> Registered | None:
        """Return the newest undeleted version of a subject without caching."""
        try:
            return read_version(self._transport.ask("GET", ("subjects", subject, "versions", "latest")))
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND:
                raise
            return None

    def register_first(self, subject: str, schema: Schema) -> bool:
        """Register a schema as the first version of a subject, unless the subject has a version.

        The request carries the version number, and a registry rejects any but the next number. If several writers race,
        exactly one succeeds, whatever the compatibility level of the subject.

        Args:
            subject: such as `orders-value`.
            schema: the schema.

        Returns:
            True if the schema was registered; False if the subject already had a version.

        Raises:
            SchemaRegistryError: the schema is rejected, and the subject has no version.
            UnknownOutcomeError: the schema may have been registered; retrying is safe.
        """
        path = ("subjects", subject, "versions")
        try:
            # Soft-deleted versions keep their numbers.
            known = self._transport.ask("GET", path, {"deleted": "true"})
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND:
                raise
            known = []
        if self.latest(subject) is None:
            try:
                self._transport.ask("POST", path, None, {**written(schema), "version": max(known, default=0) + 1})
            except SchemaRegistryError:
                if self.latest(subject) is None:
                    raise
                return False
            return True
        return False

    def ids_of(self, subject: str) -> Sequence[int]:
        """Return the ids of all undeleted versions of a subject without caching, oldest first."""
        path = ("subjects", subject, "versions")
        try:
            versions = self._transport.ask("GET", path)
            return [int(self._transport.ask("GET", (*path, str(version)))["id"]) for version in versions]
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND:
                raise
            return []

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by reference name."""
        return referenced_by(schema, self._reference) if schema.references else {}

    def _reference(self, reference: Reference) -> Schema:
        where = (reference.subject, reference.version)
        known = self._versions.get(where)
        if known is None:
            path = ("subjects", reference.subject, "versions", str(reference.version))
            known = read_value(self._transport.ask("GET", path, {"deleted": "true"}))
            self._versions.put(where, known)
        return known


K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A cache that evicts the least recently used value. Thread-safe.

    Args:
        room: maximum number of values.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """Return the value of a key, or None if it is not cached."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        """Add a value, and evict the oldest one if the cache is full."""
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._room:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Remove all values from the cache."""
        with self._lock:
            self._held.clear()


class RegistryApi(Protocol):
    """The methods of `confluent_kafka.schema_registry.SchemaRegistryClient` that serializers call."""

    def register_schema_full_response(self, subject_name: str, schema: Any, normalize_schemas: bool = ...) -> Any:  # noqa: ANN401, FBT001
        """Register a schema and return its `schema_id`, `guid` and `version`."""
        ...

    def lookup_schema(self, subject_name: str, schema: Any, normalize_schemas: bool = ...) -> Any:  # noqa: ANN401, FBT001
        """Return the version of a subject with this schema."""
        ...

    def get_schema(self, schema_id: int, subject_name: str | None = ..., fmt: str | None = ...) -> Any:  # noqa: ANN401
        """Return the schema of an id."""
        ...

    def get_schema_by_guid(self, guid: str, fmt: str | None = ...) -> Any:  # noqa: ANN401
        """Return the schema of a GUID."""
        ...

    def get_version(self, subject_name: str, version: Any, deleted: bool = ..., fmt: str | None = ...) -> Any:  # noqa: ANN401, FBT001
        """Return a version of a subject."""
        ...

    def get_latest_version(self, subject_name: str, fmt: str | None = ...) -> Any:  # noqa: ANN401
        """Return the newest version of a subject."""
        ...

    def get_latest_with_metadata(self, subject_name: str, metadata: Any) -> Any:  # noqa: ANN401
        """Return the newest version of a subject with the given metadata."""
        ...


def as_source(registry: Any) -> SchemaSource:  # noqa: ANN401 - a `SchemaSource` or a `RegistryApi`
    """Return a registry as a `SchemaSource`, wrapping Confluent's client."""
    if hasattr(registry, "schema_by_id"):
        source: SchemaSource = registry
        return source
    return _ClientSource(registry)


def value_of(schema: Any) -> Schema:  # noqa: ANN401 - a schema of any of the packages
    """Convert a schema with Confluent's attributes to our `Schema`."""
    if isinstance(schema, Schema):
        return schema
    references = tuple(Reference(r.name, r.subject, r.version) for r in schema.references or ())
    return Schema(schema.schema_type or "AVRO", schema.schema_str, references)


class NoRegistry:
    """Replaces the registry of a deserializer that does not need one.

    Args:
        schema: the schema of every id; None if records are read without a schema.
    """

    def __init__(self, schema: Schema | None) -> None:
        self._schema = schema or Schema("PROTOBUF", "")

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - the protocol's word
        """Return the schema, whatever the id."""
        del id
        return self._schema

    def get_schema_by_guid(self, guid: str, fmt: str | None = None) -> Schema:
        """Return the schema, whatever the GUID."""
        del guid, fmt
        return self._schema

    def latest(self, subject: str) -> Registered | None:
        """Return None, because this source has no subjects."""
        del subject
        return None

    def ids_of(self, subject: str) -> Sequence[int]:
        """Return an empty sequence, because this source has no subjects."""
        del subject
        return ()

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return an empty mapping: references are not resolved."""
        del schema
        return {}


class _ClientSource:
    """A `SchemaSource` over Confluent's client, which has a cache of its own."""

    def __init__(self, client: RegistryApi) -> None:
        self._client = client

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - the protocol's word
        """Return the schema of an id."""
        return value_of(self._client.get_schema(id))

    def latest(self, subject: str) -> Registered | None:
        """Return the newest version of a subject."""
        try:
            found = self._client.get_latest_version(subject)
        except Exception as error:
            if getattr(error, "http_status_code", None) != 404:  # noqa: PLR2004 - HTTP's "not found"
                raise
            return None
        return Registered(subject, found.version, found.schema_id, value_of(found.schema))

    def ids_of(self, subject: str) -> Sequence[int]:
        """Raise `SchemaRegistryError`: Confluent's client has no such request, and serializers do not need it."""
        raise SchemaRegistryError(501, -1, f"Confluent's client cannot list the schema ids of {subject!r}")

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Return the schemas that a schema references, directly or indirectly, by reference name."""
        return referenced_by(schema, self._reference) if schema.references else {}

    def _reference(self, reference: Reference) -> Schema:
        found = self._client.get_version(reference.subject, reference.version, True)  # noqa: FBT003 - Confluent's
        return value_of(found.schema)
