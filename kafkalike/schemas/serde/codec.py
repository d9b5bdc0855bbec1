"""A schema's codec, which turns values into payloads and back; made once for each schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema, SchemaType
from kafkalike.schemas.optional_imports import require_module
from kafkalike.schemas.schema_source import SchemaSource

Encode = Callable[[Any], bytes]
"""A value in, a record's bytes out."""
Decode = Callable[[bytes], Any]
"""A record's bytes in, a value out."""


class Codec(ABC):
    """Turns values into payloads and back. Thread-safe.

    What a payload is made of may be hostile: memory and time are bounded by its length and by
    `kafkalike.schemas.limits`.
    """

    schema: Schema
    """The writer's."""

    @abstractmethod
    def encoder(self, prefix: bytes) -> Encode:
        """A function that writes records.

        Args:
            prefix: what they begin with.

        Returns:
            A function that raises SerializationError for a value that is not of the schema.
        """

    @abstractmethod
    def decoder(self, start: int) -> Decode:
        """A function that reads records.

        Args:
            start: where their payload begins.

        Returns:
            A function that raises SerializationError for a payload that is not of the schema.
        """

    def encode(self, value: Any) -> bytes:  # noqa: ANN401 - any value of the schema
        """The payload of a value.

        Raises:
            SerializationError: it is not of the schema.
        """
        return self.encoder(b"")(value)

    def decode(self, payload: bytes) -> Any:  # noqa: ANN401 - any value of the schema
        """The value of a payload.

        Raises:
            SerializationError: it is not of the schema.
        """
        return self.decoder(0)(payload)


_HOMES: Final[dict[SchemaType, tuple[str, str]]] = {
    "AVRO": ("kafkalike.schemas.serde.avro_serde", "AvroCodec"),
    "PROTOBUF": ("kafkalike.schemas.serde.protobuf_serde", "ProtobufCodec"),
    "JSON": ("kafkalike.schemas.serde.json_serde", "JsonCodec"),
}


def codec_for(schema: Schema, source: SchemaSource, *, reader: Schema | None = None) -> Codec:
    """The codec of a schema.

    Args:
        schema: what records are written with.
        source: knows what the schemas refer to.
        reader: what they are read with; None for the same. JSON Schemas read nothing differently.

    Raises:
        InvalidSchemaError: the schema cannot be understood.
        SchemaRegistryError: something that it uses is not registered.
        SerializationError: the reader's schema is of another type.
        KafkaConfigurationError: a package is missing; says what to install.
    """
    if reader is not None and reader.type != schema.type:
        raise SerializationError(f"the record has a schema of type {schema.type} and is read with one of {reader.type}")
    home, name = _HOMES[schema.type]
    made: Codec = getattr(require_module(home, f"{schema.type} schemas"), name)(schema, source, reader)
    return made
