"""Picklable registry: one on its way to other processes: the schemas that are known, and where others are looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.schemas.schema import Registered, Schema
from kafkalike.schemas.factory import open_registry
from kafkalike.schemas.registry_client import RegistryClient


@dataclass(frozen=True, slots=True)
class Where:
    """A registry that any process can open. What says who asks is in no text of it.

    May be pickled as part of a function for tasks, which Spark keeps out of plans and logs; see `SentOptions`.
    """

    settings: tuple[tuple[str, str], ...] = field(repr=False)
    """What `open_registry` takes, `url` among it; a registry of a cluster's own is named with its root."""
    storage: SentOptions | None = None

    def open(self) -> RegistryClient:
        """The registry: opened once in a process."""
        return _opened(self)

    def id_of(self, subject: str, schema: Schema, *, register: bool) -> int:
        """The id of a schema, which becomes the next version of a subject if it is none yet and may be registered.

        Raises:
            SchemaRegistryError: it is refused, or not there.
        """
        if register:
            return self.open().register_schema(subject, schema)
        found = self.open().lookup_schema(subject, schema).schema_id
        assert found is not None, "a version has an id"
        return found


@lru_cache(maxsize=16)
def _opened(where: Where) -> RegistryClient:
    return open_registry(dict(where.settings), storage_options=where.storage)


class SentSchemas:
    """A `SchemaSource` that knows some schemas, and asks a registry for the others.

    Args:
        where: the registry.
        known: schemas by id.
        used: what schemas refer to, by schema.
    """

    def __init__(self, where: Where, known: Mapping[int, Schema], used: Mapping[Schema, Mapping[str, Schema]]) -> None:
        self._where = where
        self._known = dict(known)
        self._used = dict(used)

    @classmethod
    def of(cls, where: Where, subject: str, more: Sequence[Schema] = ()) -> SentSchemas:
        """With all schemas of a subject, and of some others what they refer to.

        Raises:
            SchemaRegistryError: a reference leads nowhere.
        """
        source = where.open()
        known = {number: source.schema_by_id(number) for number in source.ids_of(subject)}
        used = {schema: dict(source.referenced(schema)) for schema in (*known.values(), *more) if schema.references}
        return cls(where, known, used)

    def schema_by_id(self, id: int) -> Schema:  # noqa: A002 - Confluent's word
        """See `SchemaSource`."""
        found = self._known.get(id)
        if found is None:
            found = self._known[id] = self._where.open().schema_by_id(id)
        return found

    def referenced(self, schema: Schema) -> Mapping[str, Schema]:
        """See `SchemaSource`."""
        if not schema.references:
            return {}
        found = self._used.get(schema)
        if found is None:
            found = self._used[schema] = dict(self._where.open().referenced(schema))
        return found

    def latest(self, subject: str) -> Registered | None:
        """See `SchemaSource`."""
        return self._where.open().latest(subject)

    def ids_of(self, subject: str) -> Sequence[int]:
        """See `SchemaSource`."""
        return self._where.open().ids_of(subject)
