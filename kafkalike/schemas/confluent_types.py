"""Arguments and results of registry clients, named as in `confluent_kafka.schema_registry`.

Code written for Confluent's classes finds the same attributes here. Clients accept both.
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
    """A reference of a schema to a version of a subject."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema, registered or not."""

    schema_str: str
    schema_type: str = "AVRO"
    """`AVRO`, `PROTOBUF` or `JSON`."""
    references: Sequence[SchemaReference] = field(default=(), hash=False)
    metadata: None = None
    """Not supported; always None."""
    rule_set: None = None
    """Not supported; always None."""

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as the body of a request."""
        return body_of(self)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema with its id and, if known, its subject and version."""

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
    """Settings of a subject, or the global settings."""

    compatibility: str | None = None
    """The compatibility level to set."""
    compatibility_level: str | None = None
    """The compatibility level in effect."""
    normalize: bool | None = None
    """True if schemas are normalized even if the request does not ask for it."""


def body_of(schema: object) -> dict[str, Any]:
    """Return a schema as the body of a request.

    Args:
        schema: a schema of this module, of Confluent's, or of `kafkalike.model.schemas.schema`.

    Raises:
        TypeError: another object was given.
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
    """Return a schema as the service's JSON, which omits the type AVRO."""
    said: dict[str, Any] = {"schema": schema.text}
    if schema.type != "AVRO":
        said["schemaType"] = schema.type
    if schema.references:
        said["references"] = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
    return said


def read_value(answer: Mapping[str, Any]) -> SchemaValue:
    """Return the schema of an answer.

    Raises:
        SchemaRegistryError: the answer does not come from a registry.
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
    """Return the schema of an answer with Confluent's attributes."""
    value = read_value(answer)
    return Schema(
        value.text, value.type, tuple(SchemaReference(r.name, r.subject, r.version) for r in value.references)
    )


def read_registered(answer: Mapping[str, Any]) -> RegisteredSchema:
    """Return the schema of an answer with its id and version."""
    schema = read_schema(answer)
    return RegisteredSchema(answer.get("id"), answer.get("guid"), answer.get("subject"), answer.get("version"), schema)


def read_version(answer: Mapping[str, Any]) -> Registered:
    """Return a version of a subject from an answer."""
    try:
        return Registered(
            answer["subject"], answer["version"], answer["id"], read_value(answer), bool(answer.get("deleted"))
        )
    except (AttributeError, LookupError, TypeError) as cause:
        raise not_understood(answer) from cause


def not_understood(answer: object) -> SchemaRegistryError:
    """Return the error for an answer that does not come from a registry."""
    return SchemaRegistryError(502, -1, f"the answer does not come from a schema registry: {str(answer)[:200]}")
