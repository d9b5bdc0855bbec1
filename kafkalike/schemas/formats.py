"""Formats: a schema as clients send it in, as the registry keeps it out; and as clients want to have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kafkalike.model.schemas.schema import Resolve, Schema
from kafkalike.schemas.extras import needed

SERIALIZED: Final = "serialized"
"""A Protobuf schema as its `FileDescriptorProto` in Base64, which Confluent's Python client sends and wants back."""


def readable(schema: Schema) -> Schema:
    """A schema as people read it: a Protobuf schema in Base64 as the text of its `.proto` file; others as they are.

    Raises:
        SchemaRegistryError: it is neither; 42201.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type != "PROTOBUF":
        return schema
    text = needed("kafkalike.schemas.proto.files", "Protobuf schemas").as_text(schema.text)
    return schema if text == schema.text else replace(schema, text=text)


def formatted(schema: Schema, wanted: str | None, resolve: Resolve) -> Schema:
    """The schema in a format; as it is in one that has no meaning for its type.

    Args:
        schema: a registered one.
        wanted: `serialized`, or None.
        resolve: gives what it uses.

    Raises:
        SchemaRegistryError: it cannot be brought into that format.
        KafkaConfigurationError: a package is missing.
    """
    if wanted != SERIALIZED or schema.type != "PROTOBUF":
        return schema
    files = needed("kafkalike.schemas.proto.files", "Protobuf schemas")
    return replace(schema, text=files.serialized(schema, resolve(schema)))
