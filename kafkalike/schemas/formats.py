"""Formats: a schema in, its text as a client wants to have it out."""

from __future__ import annotations

from dataclasses import replace

from kafkalike.model.schemas.checks import Resolve
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.extras import needed

SERIALIZED = "serialized"
"""A Protobuf schema as its `FileDescriptorProto` in Base64, which Confluent's Python client wants."""


def formatted(schema: Schema, wanted: str | None, resolve: Resolve) -> Schema:
    """The schema in a format; as it is in one that has no meaning for its type.

    Args:
        schema: a registered one.
        wanted: `serialized`, or None.
        resolve: gives what it uses.

    Raises:
        SchemaRegistryError: it cannot be brought into that format.
    """
    if wanted != SERIALIZED or schema.type != "PROTOBUF":
        return schema
    files = needed("kafkalike.schemas.proto.files", "Protobuf schemas")
    return replace(schema, text=files.serialized(schema, resolve(schema)))
