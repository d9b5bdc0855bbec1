"""AvroSerializer and AvroDeserializer, with the arguments and settings of Confluent's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

from fastavro import schemaless_reader

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.record_batch import Headers
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.schema_source import value_of
from kafkalike.schemas.serde.avro_codec import AVRO_ERRORS, AvroCodec, PlainDecode
from kafkalike.schemas.serde.codec import Codec, Decode, Encode
from kafkalike.schemas.serde.schema_deserializer import SchemaDeserializer
from kafkalike.schemas.serde.schema_serializer import SchemaSerializer
from kafkalike.schemas.serde.serde_settings import READING, WRITING, read_settings
from kafkalike.schemas.serialization import DeserializeFunction
from kafkalike.schemas.serialization import Field as RecordField
from kafkalike.schemas.wire import HEADER


class AvroSerializer(SchemaSerializer):
    """Writes values of an Avro schema, preceded by the schema id.

    Args:
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        schema_str: the schema as text, or a `Schema` of kafkalike or Confluent with its references; None if `conf`
            selects a registered schema.
        to_dict: turns an object into a dict, `(object, ctx)`.
        conf: settings under Confluent's names, with defaults: `auto.register.schemas` (True), `normalize.schemas`
            (False), `use.schema.id`, `use.latest.version` (False), `use.latest.with.metadata`, `subject.name.strategy`,
            `subject.name.strategy.type` (`TOPIC`), `schema.id.serializer` (`prefix_schema_id_serializer`),
            `validate.strict` (False), `validate.strict.allow.default` (False).

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
        InvalidSchemaError: the schema is invalid.
    """

    __slots__ = ("_name", "_schema")

    def __init__(
        self,
        schema_registry_client: Any,  # noqa: ANN401 - see `RegistryApi`
        schema_str: Any = None,  # noqa: ANN401 - text or a schema
        to_dict: Callable[[Any, Any], Any] | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        settings = read_settings(conf, (*WRITING, "validate.strict", "validate.strict.allow.default"))
        super().__init__(schema_registry_client, settings, to_dict)
        self._schema = None if schema_str is None else _schema(schema_str)
        self._name = None if self._schema is None else AvroCodec(self._schema, self._source).name

    def record_name(self) -> str | None:
        """Return the full name of the record."""
        return self._name

    def own_schema(self, context: Any) -> Schema | None:  # noqa: ANN401
        """Return the schema given to the serializer, or None."""
        del context
        return self._schema

    def codec(self, schema: Schema) -> Codec:
        """Return a codec with the serializer's settings."""
        return AvroCodec(
            schema,
            self._source,
            strict=self.settings.strict,
            strict_allow_default=self.settings.strict_allow_default,
        )

    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """Return an encoder of records with a prefix."""
        return codec.encoder(prefix)


class AvroDeserializer(SchemaDeserializer):
    """Reads values of Avro schemas as dicts and Python's own types.

    Args:
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        schema_str: the reader's schema, applied by Avro's resolution rules; None for the schema of each record.
        from_dict: turns a dict into an object, `(dict, ctx)`.
        return_record_name: return a record in a union as a pair of its name and its value.
        conf: settings under Confluent's names, with defaults: `use.latest.version` (False; the newest version at the
            time a schema is first read in a topic), `use.latest.with.metadata`, `subject.name.strategy`,
            `subject.name.strategy.type` (`TOPIC`), `schema.id.deserializer` (`dual_schema_id_deserializer`).

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
        InvalidSchemaError: the schema is invalid.
    """

    __slots__ = ("_return_record_name",)

    def __init__(
        self,
        schema_registry_client: Any,  # noqa: ANN401 - see `RegistryApi`
        schema_str: Any = None,  # noqa: ANN401 - text or a schema
        from_dict: Callable[[Any, Any], Any] | None = None,
        return_record_name: bool = False,  # noqa: FBT001, FBT002 - Confluent's signature
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        reader = None if schema_str is None else _schema(schema_str)
        super().__init__(schema_registry_client, read_settings(conf, READING), reader, from_dict)
        self._return_record_name = return_record_name
        if reader is not None:
            AvroCodec(reader, self._source)

    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """Return a decoder of records written with a schema."""
        return self._codec(schema, reader).decoder(start)

    def for_field(self, field: RecordField) -> DeserializeFunction:
        """Return the function that a consumer calls for its keys or its values."""
        every = super().for_field(field)
        if self._from_dict is not None:
            return every
        ready = self._ready.setdefault(field, {})

        # Hot path, measured in nanoseconds per record: fastavro is called directly, and nothing else.
        def deserialize(topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
            if data is not None and not headers:
                try:
                    decode = ready[topic][data[:HEADER]]
                    if type(decode) is PlainDecode:
                        payload = BytesIO(data)
                        payload.seek(HEADER)
                        value = schemaless_reader(payload, decode.wrote, None)
                        if payload.tell() == len(data):
                            return value
                except AVRO_ERRORS:
                    # `every` reads it again and raises the error with its record.
                    pass
            return every(topic, headers, data)

        return deserialize

    def record_name(self, schema: Schema) -> str | None:
        """Return the full name of a schema's record."""
        return self._codec(schema, None).name

    def _codec(self, schema: Schema, reader: Schema | None) -> AvroCodec:
        return AvroCodec(schema, self._source, reader, return_record_name=self._return_record_name)


def _schema(given: Any) -> Schema:  # noqa: ANN401
    if isinstance(given, str):
        return Schema("AVRO", _bare_to_json(given))
    made = value_of(given)
    if made.type != "AVRO":
        raise IllegalArgumentError(f"the schema is of type {made.type}, not AVRO")
    return made


def _bare_to_json(text: str) -> str:
    """Put the bare name of a primitive into braces, because Confluent's client registers that text."""
    stripped = text.strip()
    return stripped if stripped[:1] in {"{", "["} else f'{{"type":{stripped}}}'
