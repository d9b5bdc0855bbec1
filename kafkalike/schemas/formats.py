"""Formats: a schema as clients send it in, as the registry keeps it out; and as clients want to have it."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Final

from kafkalike.model.schemas import refusals
from kafkalike.model.schemas.checks import Resolve
from kafkalike.model.schemas.values import Schema
from kafkalike.schemas.extras import needed

SERIALIZED: Final = "serialized"
"""A Protobuf schema as its `FileDescriptorProto` in Base64, which Confluent's Python client sends and wants back."""

_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+=*\s*")


def readable(schema: Schema) -> Schema:
    """A schema as people read it: a Protobuf schema in Base64 as the text of its `.proto` file; others as they are.

    Raises:
        SchemaRegistryError: it is neither; 42201.
        KafkaConfigurationError: a package is missing.
    """
    if schema.type != "PROTOBUF" or not _BASE64.fullmatch(schema.text):
        return schema
    files = needed("kafkalike.schemas.proto.files", "Protobuf schemas")
    printer = needed("kafkalike.schemas.proto.printer", "Protobuf schemas")
    return replace(schema, text=printer.print_proto(files.load_proto(schema.text)))


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
    try:
        file = files.resolved(files.build_file(schema, resolve(schema)))
    except ValueError as cause:
        raise refusals.invalid_schema(cause) from cause
    return replace(schema, text=base64.b64encode(file.SerializeToString()).decode())
