"""Transport of requests to a registry, and a `SchemaSource` over it that asks once for what never changes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.registry_state import referenced_by
from kafkalike.model.schemas.schema import Reference, Registered, Schema
from kafkalike.schemas.confluent_types import read_value, read_version, written


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
