"""The reader's schema of a topic's records, and a registry that tasks can ask too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, SchemaRegistryError
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.confluent_types import body_of, read_value
from kafkalike.schemas.factory import OWN, SentSchemas, Where
from kafkalike.spark.call_options import RegistryAddress

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


Part = Literal["key", "value"]

FORMATS: Final[Mapping[str, SchemaType]] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
"""Formats of records with schemas, and the types of these."""

NO_SUBJECT: Final = 40401


def registry_place(cluster: Cluster, registry: RegistryAddress | None) -> Where:
    """The registry of a cluster, or another one.

    Args:
        cluster: opened.
        registry: None for the cluster's own; a URL, or the settings that `open_registry` takes.

    Raises:
        KafkaConfigurationError: it names no registry.
    """
    own = OWN + cluster.root
    settings = {"url": own} if registry is None else {"url": registry} if isinstance(registry, str) else dict(registry)
    is_own = settings.get("url") in {OWN, own}
    if is_own:
        settings["url"] = own
    where = Where(tuple(sorted(settings.items())), cluster.store.tasks.sent_options() if is_own else None)
    where.open()
    return where


def subject_of(topic: str, part: Part) -> str:
    """The subject of a topic's keys or values, by Confluent's default."""
    return f"{topic}-{part}"


def schema_of(given: object, kind: str | None = None) -> Schema:
    """A schema that a user gave: `kafkalike.schemas.Schema`, Confluent's, or with a format its text.

    Raises:
        IllegalArgumentError: it is none.
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str) and kind is not None:
        return Schema(FORMATS[kind], given)
    try:
        return read_value(body_of(given))
    except TypeError:
        raise IllegalArgumentError(f"a kafkalike.schemas.Schema is needed, not {given!r}") from None


@dataclass(frozen=True, slots=True)
class ReaderSchema:
    """How the keys or values of a topic are read."""

    schema: Schema
    """The reader's."""
    id: int | None
    """Its id, where it is the subject's latest."""
    source: SentSchemas


def reading_of(where: Where, subject: str, kind: str | None = None, schema: Schema | None = None) -> ReaderSchema:
    """What reads the records of a subject.

    Args:
        where: the registry.
        subject: the subject.
        kind: one of `FORMATS` that the schema must be of; None for any.
        schema: the reader's schema; None for the newest version of the subject.

    Raises:
        SchemaRegistryError: 40401, the subject has no schema.
        IllegalArgumentError: its schemas are of another type.
    """
    number = None
    if schema is None:
        found = where.open().latest(subject)
        if found is None:
            raise SchemaRegistryError(404, NO_SUBJECT, f"Subject '{subject}' not found.")
        schema, number = found.schema, found.id
    if kind is not None and schema.type != FORMATS[kind]:
        raise IllegalArgumentError(f"the schemas of {subject} are of type {schema.type}, not {FORMATS[kind]}")
    return ReaderSchema(schema, number, SentSchemas.of(where, subject, [schema]))


def open_with_registry(
    bootstrap_servers: Address | None,
    storage_options: StorageOptionsLike | None,
    registry: RegistryAddress | None,
) -> tuple[Cluster, Where]:
    """The cluster and the registry that a user named."""
    cluster = connect(bootstrap_servers, storage_options, access="spark")
    return cluster, registry_place(cluster, registry)
