"""Codecs turn values into payloads and back; there is one per schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from kafkalike.errors import SerializationError
from kafkalike.errors.optional_imports import require_module
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.schema_source import SchemaSource

Encode = Callable[[Any], bytes]
"""Encodes a value as the bytes of a record."""
Decode = Callable[[bytes], Any]
"""Decodes the bytes of a record as a value."""


class Codec(ABC):
    """Turns values into payloads and back. Thread-safe.

    Payloads may be hostile: memory and time are bounded by their length and by `kafkalike.schemas.limits`.
    """

    schema: Schema
    """The schema of the writer."""

    @abstractmethod
    def encoder(self, prefix: bytes) -> Encode:
        """Return an encoder of records.

        Args:
            prefix: the first bytes of each record.

        Returns:
            A function that raises SerializationError for a value that does not match the schema.
        """

    @abstractmethod
    def decoder(self, start: int) -> Decode:
        """Return a decoder of records.

        Args:
            start: start of the payload.

        Returns:
            A function that raises SerializationError for a payload that does not match the schema.
        """

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - any value of the schema
        """Return the payload of a value.

        Raises:
            SerializationError: the value does not match the schema.
        """
        return self.encoder(b"")(value)

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401 - any value of the schema
        """Return the value of a payload.

        Raises:
            SerializationError: the payload does not match the schema.
        """
        return self.decoder(0)(payload)


_HOMES: Final[dict[SchemaType, tuple[str, str]]] = {
    "AVRO": ("kafkalike.schemas.serde.avro_codec", "AvroCodec"),
    "PROTOBUF": ("kafkalike.schemas.serde.protobuf_serde", "ProtobufCodec"),
    "JSON": ("kafkalike.schemas.serde.json_serde", "JsonCodec"),
}


def codec_for(schema: Schema, source: SchemaSource, *, reader: Schema | None = None) -> Codec:
    """Return the codec of a schema.

    Args:
        schema: the writer's schema.
        source: looks up the referenced schemas.
        reader: the reader's schema; None for the writer's. A JSON Schema only validates, and never changes a value.

    Raises:
        InvalidSchemaError: the schema is invalid.
        SchemaRegistryError: a referenced schema is not registered.
        SerializationError: the reader's schema has another type.
        KafkaConfigurationError: a package is missing; the message says how to install it.
    """
    if reader is not None and reader.type != schema.type:
        raise SerializationError(f"the record's schema has the type {schema.type}, the reader's has {reader.type}")
    home, name = _HOMES[schema.type]
    made: Codec = getattr(require_module(home, f"{schema.type} schemas"), name)(schema, source, reader)
    return made
