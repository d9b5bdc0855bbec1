"""Make the reader that brings values to the columns of a schema."""

from __future__ import annotations

from typing import Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.avro_plan import AvroReader
from kafkalike.schemas.arrow.column_reader import ColumnReader
from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.schema_source import SchemaSource

DEPTH: Final = 3
"""How often a type may stand in itself, unless the caller says otherwise."""


def reader_of(schema: Schema, source: SchemaSource, *, depth: int = DEPTH, message: str | None = None) -> ColumnReader:
    """The columns that values are brought to.

    Args:
        schema: the reader's.
        source: where the schemas that it uses are.
        depth: how often a type may stand in itself; fields that would go deeper are left out.
        message: the full name of a Protobuf message; None for the first one of the file.

    Raises:
        IllegalArgumentError: it is no such schema, or has no such message.
        SchemaRegistryError: a schema that it uses is not registered.
    """
    if depth < 1:
        raise IllegalArgumentError(f"depth must be at least 1, not {depth}")
    if message is not None and schema.type != "PROTOBUF":
        raise IllegalArgumentError("message is for Protobuf")
    match schema.type:
        case "AVRO":
            return AvroReader(schema, source, depth)
        case "PROTOBUF":
            require_module("google.protobuf", "Columns of Protobuf")
            from kafkalike.schemas.arrow.protobuf_columns import ProtobufReader

            return ProtobufReader(schema, source, depth, message)
        case "JSON":
            require_module("jsonschema", "JSON schemas")
            from kafkalike.schemas.arrow.json_columns import JsonReader

            return JsonReader(schema, source, depth)
    raise IllegalArgumentError(f"{schema.type} is no type of schemas")
