"""Encode Arrow arrays as records with a schema id."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from kafkalike.errors import SerializationError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.arrow.avro_arrow_types import VALUE
from kafkalike.schemas.arrow.avro_encode import joined, writer_of
from kafkalike.schemas.arrow.column_reader import UnmatchedError
from kafkalike.schemas.avro_schema import parse_avro
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.wire import frame

Encode = Callable[[pa.Array], pa.BinaryArray]
"""Encodes the values of an array without nulls as payloads."""


class BatchEncoder:
    """Encodes batches of values.

    Args:
        schema: the schema to write with.
        number: its id.
        source: looks up the schemas that it references.
        kind: the type of the arrays: for a record a struct with the schema's field names, otherwise the type of the
            value. Times of day and durations may be whole microseconds.
        depth: how many times a type may be nested in itself.
        message: full name of the Protobuf message; None for the first one in the file.

    Raises:
        SerializationError: no value of this type can be written with this schema.
        SchemaRegistryError: the schema is invalid.
    """

    def __init__(
        self,
        schema: Schema,
        number: int,
        source: SchemaSource,
        kind: pa.DataType,
        *,
        depth: int,
        message: str | None = None,
    ) -> None:
        self._head = pa.array([frame(number)], pa.binary())
        try:
            _check_names(kind, "")
            self._encode = _encoder(schema, source, kind, depth, message)
        except UnmatchedError as cause:
            raise SerializationError(f"the columns do not fit schema {number}: {cause}") from cause

    def encode(self, values: pa.Array) -> pa.BinaryArray:
        """Encode values; null becomes a tombstone.

        Raises:
            SerializationError: a value does not fit the schema.
        """
        there = np.flatnonzero(values.is_valid().to_numpy(zero_copy_only=False))
        some = values if len(there) == len(values) else values.take(pa.array(there))
        heads = self._head.take(pa.array(np.zeros(len(some), np.int64)))
        made = joined(heads, self._encode(some))
        if len(some) == len(values):
            return made
        chosen = np.full(len(values), -1, np.int64)
        chosen[there] = np.arange(len(there))
        return made.take(pa.array(chosen, mask=chosen < 0))


def _check_names(kind: pa.DataType, path: str) -> None:
    """Reject a struct with a duplicate field name, because a value could have only one such field."""
    if pa.types.is_struct(kind):
        doubled = next((name for name, count in Counter(kind.names).items() if count > 1), None)
        if doubled is not None:
            raise UnmatchedError(f"{path}{doubled} is duplicated")
    for nth in range(kind.num_fields):
        inner = kind.field(nth)
        _check_names(inner.type, f"{path}{inner.name}.")


def _encoder(schema: Schema, source: SchemaSource, kind: pa.DataType, depth: int, message: str | None) -> Encode:
    match schema.type:
        case "AVRO":
            top = parse_avro(schema, source.referenced(schema), strict=False)
            if top.kind != "record" and pa.types.is_struct(kind) and kind.names == [VALUE]:
                inner = writer_of(top, kind.field(0).type, depth)
                return lambda values: inner(values.field(0))
            return writer_of(top, kind, depth)
        case "PROTOBUF":
            require_module("google.protobuf", "Columns of Protobuf")
            from kafkalike.schemas.arrow.protobuf_columns import protobuf_encoder

            return protobuf_encoder(schema, source, kind, message)
        case "JSON":
            require_module("jsonschema", "JSON schemas")
            from kafkalike.schemas.arrow.json_columns import json_encoder

            return json_encoder(schema, source, kind, depth)
