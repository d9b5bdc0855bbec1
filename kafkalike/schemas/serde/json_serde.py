"""JSONSerializer and JSONDeserializer, with the arguments and settings of Confluent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.codecs.codec import Codec, Decode, Encode
from kafkalike.schemas.codecs.json_codec import JsonCodec
from kafkalike.schemas.serde.registry_clients import NoRegistry, value_of
from kafkalike.schemas.serde.schema_deserializer import SchemaDeserializer
from kafkalike.schemas.serde.schema_serializer import SchemaSerializer
from kafkalike.schemas.serde.serde_settings import READING, WRITING, read_settings


class JSONSerializer(SchemaSerializer):
    """Writes values as JSON behind the id of their JSON Schema.

    Args:
        schema_str: the schema as text, or a `Schema` of kafkalike or Confluent, with its references; None where
            `conf` says to use the registry's.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        to_dict: turns an object into a value of JSON, `(object, ctx)`.
        conf: settings under Confluent's names, as those of `AvroSerializer`, and `validate` (True): check each value
            by the schema.
        json_encode: writes a value; None for compact JSON without NaN.

    Raises:
        KafkaConfigurationError: a setting is unknown or has a wrong value.
        InvalidSchemaError: the schema cannot be understood.
    """

    __slots__ = ("_json_encode", "_name", "_schema")

    def __init__(
        self,
        schema_str: Any,  # noqa: ANN401 - text or a schema
        schema_registry_client: Any,  # noqa: ANN401 - see `RegistryApi`
        to_dict: Callable[[Any, Any], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
        *,
        json_encode: Callable[[Any], str | bytes] | None = None,
    ) -> None:
        super().__init__(schema_registry_client, read_settings(conf, (*WRITING, "validate")), to_dict)
        self._json_encode = json_encode
        self._schema = None if schema_str is None else _schema(schema_str)
        self._name = None if self._schema is None else JsonCodec(self._schema, self._source).name

    def record_name(self) -> str | None:
        """The schema's title."""
        return self._name

    def own_schema(self, context: Any) -> Schema | None:  # noqa: ANN401
        """The schema that it was made with."""
        del context
        return self._schema

    def codec(self, schema: Schema) -> Codec:
        """The codec of a schema."""
        return JsonCodec(schema, self._source, validate=self.settings.validate, dumps=self._json_encode)

    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """What writes records that begin with a prefix."""
        return codec.encoder(prefix)


class JSONDeserializer(SchemaDeserializer):
    """Reads values of JSON Schemas.

    Args:
        schema_str: the schema that values are checked by; None for each record's own.
        from_dict: turns a value into an object, `(value, ctx)`.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client; it is not needed where
            `schema_str` is given and refers to nothing.
        conf: settings under Confluent's names, as those of `AvroDeserializer`, and `validate` (True).
        json_decode: reads a value from bytes; None for Python's.

    Raises:
        KafkaConfigurationError: a setting is unknown or has a wrong value.
        InvalidSchemaError: the schema cannot be understood.
    """

    __slots__ = ("_json_decode",)

    def __init__(
        self,
        schema_str: Any,  # noqa: ANN401 - text or a schema
        from_dict: Callable[[Any, Any], Any] | None = None,
        schema_registry_client: Any = None,  # noqa: ANN401 - see `RegistryApi`
        conf: Mapping[str, Any] | None = None,
        *,
        json_decode: Callable[[bytes], Any] | None = None,
    ) -> None:
        reader = None if schema_str is None else _schema(schema_str)
        if schema_registry_client is None and (reader is None or reader.references):
            raise IllegalArgumentError("a registry is needed, but where a schema is given that refers to no others")
        registry: Any = (
            NoRegistry(reader) if schema_registry_client is None and reader is not None else schema_registry_client
        )
        super().__init__(registry, read_settings(conf, (*READING, "validate")), reader, from_dict)
        self._json_decode = json_decode
        if reader is not None:
            self._codec(reader, None)

    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """What reads records of a schema."""
        return self._codec(schema, reader).decoder(start)

    def record_name(self, schema: Schema) -> str | None:
        """The schema's title."""
        return self._codec(schema, None).name

    def _codec(self, schema: Schema, reader: Schema | None) -> JsonCodec:
        return JsonCodec(schema, self._source, reader, validate=self.settings.validate, loads=self._json_decode)


def _schema(given: Any) -> Schema:  # noqa: ANN401
    if isinstance(given, str):
        return Schema("JSON", given)
    made = value_of(given)
    if made.type != "JSON":
        raise IllegalArgumentError(f"the schema is of type {made.type}, not JSON")
    return made
