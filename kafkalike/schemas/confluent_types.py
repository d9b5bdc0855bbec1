"""Confluent's types: what a registry's client takes and gives, under the names of `confluent_kafka.schema_registry`.

Code that was written for these classes finds the same attributes here. Clients take either.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkalike.errors import SchemaRegistryError
from kafkalike.model.schemas.schema import Reference, Registered
from kafkalike.model.schemas.schema import Schema as SchemaValue


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """That a schema uses a registered one."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema that need not be registered."""

    schema_str: str
    schema_type: str = "AVRO"
    """`AVRO`, `PROTOBUF` or `JSON`."""
    references: Sequence[SchemaReference] = field(default=(), hash=False)
    metadata: None = None
    """Not kept here; None."""
    rule_set: None = None
    """Not kept here; None."""

    def to_dict(self) -> dict[str, Any]:
        """The body of a request."""
        return body_of(self)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id and, where it is known, its subject and version."""

    schema_id: int | None
    guid: str | None
    subject: str | None
    version: int | None
    schema: Schema


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A version of a subject."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What is set for a subject, or for all."""

    compatibility: str | None = None
    """A level to set."""
    compatibility_level: str | None = None
    """The level that is set."""
    normalize: bool | None = None
    """Whether schemas are normalized though nobody asks for it."""


def body_of(schema: object) -> dict[str, Any]:
    """A schema as the body of a request.

    Args:
        schema: this module's, Confluent's, or a schema of `kafkalike.model.schemas.schema`.

    Raises:
        TypeError: it is none of them.
    """
    if isinstance(schema, SchemaValue):
        return written(schema)
    if not hasattr(schema, "schema_str") or not hasattr(schema, "schema_type"):
        raise TypeError(f"a Schema is needed, not {type(schema).__name__}")
    body: dict[str, Any] = {"schema": schema.schema_str, "schemaType": schema.schema_type or "AVRO"}
    references = getattr(schema, "references", None)
    if references:
        body["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in references]
    for key, name in (("metadata", "metadata"), ("ruleSet", "rule_set")):
        held = getattr(schema, name, None)
        if held is not None:
            body[key] = held.to_dict() if hasattr(held, "to_dict") else held
    return body


def written(schema: SchemaValue) -> dict[str, Any]:
    """A schema as JSON, as the service writes it: the type of an Avro schema goes without saying."""
    said: dict[str, Any] = {"schema": schema.text}
    if schema.type != "AVRO":
        said["schemaType"] = schema.type
    if schema.references:
        said["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
    return said


def read_value(answer: Mapping[str, Any]) -> SchemaValue:
    """The schema of an answer.

    Raises:
        SchemaRegistryError: it is not a registry's answer.
    """
    try:
        return SchemaValue(
            answer.get("schemaType") or "AVRO",
            answer["schema"],
            tuple(Reference(r["name"], r["subject"], r["version"]) for r in answer.get("references") or ()),
        )
    except (AttributeError, LookupError, TypeError) as cause:
        raise not_understood(answer) from cause


def read_schema(answer: Mapping[str, Any]) -> Schema:
    """The same in Confluent's shape."""
    value = read_value(answer)
    return Schema(
        value.text, value.type, tuple(SchemaReference(r.name, r.subject, r.version) for r in value.references)
    )


def read_registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    """A schema with its id, of an answer."""
    schema = read_schema(answer)
    return RegisteredSchema(answer.get("id"), answer.get("guid"), answer.get("subject"), answer.get("version"), schema)


def read_version(answer: Mapping[str, Any]) -> Registered:
    """A version of a subject, of an answer."""
    try:
        return Registered(
            answer["subject"], answer["version"], answer["id"], read_value(answer), bool(answer.get("deleted"))
        )
    except (AttributeError, LookupError, TypeError) as cause:
        raise not_understood(answer) from cause


def not_understood(answer: object) -> SchemaRegistryError:
    """The error for an answer that no registry gives."""
    return SchemaRegistryError(502, -1, f"what answers is not a schema registry: {str(answer)[:200]}")
