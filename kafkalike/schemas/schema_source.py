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


class Transport(Protocol):
    """Takes requests of Confluent's REST interface."""

    def ask(self, method: str, path: Sequence[str], query: Mapping[str, str] | None = None, body: object = None) -> Any:  # noqa: ANN401 - any JSON
        """The JSON of the answer; see `RegistryService.ask`."""
        ...


class Asking:
    """What asks a registry.

    Args:
        transport: where requests go.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport


def query_flag(value: bool) -> str:  # noqa: FBT001
    """A truth value in a query."""
    return "true" if value else "false"


def query_of(**given: str | float | bool | None) -> dict[str, str]:
    """A query without what is None."""
    return {
        name: query_flag(value) if isinstance(value, bool) else str(value)
        for name, value in given.items()
        if value is not None
    }


def at(kind: str, subject: str | None) -> tuple[str, ...]:
    """The path of a setting, of a subject or of all."""
    return (kind,) if subject is None else (kind, subject)


NOT_FOUND: Final = 404

CACHED_SCHEMAS: Final = 1_000
"""Schemas that a client keeps, each as it came: they never change."""


class SourceClient(Asking):
    """See `RegistryClient`."""

    def __init__(self, transport: Transport) -> None:
        super().__init__(transport)
        self._values: LruCache[int, Schema] = LruCache(CACHED_SCHEMAS)
        self._versions: LruCache[tuple[str, int], Schema] = LruCache(CACHED_SCHEMAS)

    def clear_caches(self) -> None:
        """Forget schemas that were looked up."""
        self._values.clear()
        self._versions.clear()

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002
        """The schema that an id has for ever."""
        known = self._values.get(id)
        if known is None:
            known = read_value(self._transport.ask("GET", ("schemas", "ids", str(id))))
            self._values.put(id, known)
        return known

    def schema_by_guid(self, guid: str) -> Schema:
        """The schema that a GUID has for ever."""
        return read_value(self._transport.ask("GET", ("schemas", "guids", guid)))

    def latest(self, subject: str) -> Registered | None:
        """The newest version of a subject that is not deleted, fresh."""
        try:
            return read_version(self._transport.ask("GET", ("subjects", subject, "versions", "latest")))
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND:
                raise
            return None

    def register_first(self, subject: str, schema: Schema) -> bool:
        """Make a schema the first version of a subject, unless it has one.

        The number of the version goes with it, and a registry refuses one that is not the next: of several writers
        that do this at once one gets through, whatever the level of the subject allows.

        Args:
            subject: such as `orders-value`.
            schema: the schema.

        Returns:
            Whether the newest version is this one; False when another one was there.

        Raises:
            SchemaRegistryError: it is refused, and the subject has no version.
            UnknownOutcomeError: it may have been registered; call it again, which does it once.
        """
        path = ("subjects", subject, "versions")
        try:
            # Versions that were deleted softly keep their numbers.
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
        """Ids of all versions of a subject that are not deleted, fresh, oldest first."""
        path = ("subjects", subject, "versions")
        try:
            versions = self._transport.ask("GET", path)
            return [int(self._transport.ask("GET", (*path, str(version)))["id"]) for version in versions]
        except SchemaRegistryError as error:
            if error.http_status_code != NOT_FOUND:
                raise
            return []

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """Schemas that a schema uses, and those that these use in turn, by the names of the references."""
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
    """A cache that forgets what was not used for longest. Thread-safe.

    Args:
        room: how many values it keeps.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._held: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, key: K) -> V | None:
        """The value of a key; None when it is not known, or not any more."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: K, value: V) -> None:
        """Keep a value."""
        with self._lock:
            self._held[key] = value
            self._held.move_to_end(key)
            while len(self._held) > self._room:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._held.clear()


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
