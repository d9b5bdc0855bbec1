"""ProtobufSerializer and ProtobufDeserializer, with the arguments and settings of Confluent's."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.codecs.codec import Codec, Decode, Encode
from kafkalike.schemas.codecs.protobuf_codec import ProtobufCodec, read_message, serialized_message
from kafkalike.schemas.proto.proto_files import indexes_of, is_builtin
from kafkalike.schemas.serde.registry_clients import NoRegistry
from kafkalike.schemas.serde.schema_deserializer import SchemaDeserializer
from kafkalike.schemas.serde.schema_serializer import SchemaSerializer, shaped
from kafkalike.schemas.serde.serde_settings import READING, WRITING, read_settings
from kafkalike.schemas.wire import join_indexes, split_indexes


class ProtobufSerializer(SchemaSerializer):
    """Writes messages behind the id of their schema and their place in it.

    Args:
        msg_type: the class of the messages. Its file is what is registered, as a descriptor in base64 like Confluent's
            client does it, and each file that it imports under a subject of the import's name.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        conf: settings under Confluent's names, as those of `AvroSerializer` without `validate.strict`, and
            `skip.known.types` (True): Google's and Confluent's own files are not registered;
            `reference.subject.name.strategy`.

    Raises:
        KafkaConfigurationError: a setting is unknown or has a wrong value.
    """

    __slots__ = ("_descriptor", "_indexes", "_message", "_text")

    def __init__(
        self,
        msg_type: type[Message],
        schema_registry_client: Any,  # noqa: ANN401 - see `RegistryApi`
        conf: Mapping[str, Any] | None = None,
    ) -> None:
        settings = read_settings(conf, (*WRITING, "skip.known.types", "reference.subject.name.strategy"))
        super().__init__(schema_registry_client, settings)
        self._message = msg_type
        # Any: the published types call it one of two classes.
        self._descriptor = cast("Any", msg_type.DESCRIPTOR)
        self._indexes = join_indexes(indexes_of(self._descriptor))
        self._text = _base64(self._descriptor.file)

    def record_name(self) -> str | None:
        """The full name of the message."""
        name: str = self._message.DESCRIPTOR.full_name
        return name

    def own_schema(self, context: Any) -> Schema | None:  # noqa: ANN401
        """The message's file; what it imports is registered on the way."""
        return Schema("PROTOBUF", self._text, self._references(context, self._descriptor.file))

    def _references(self, context: Any, file: FileDescriptor) -> tuple[Reference, ...]:  # noqa: ANN401
        made = []
        for imported in file.dependencies:
            if self.settings.skip_known_types and is_builtin(imported.name):
                continue
            strategy = self.settings.reference_strategy
            subject = imported.name if strategy is None else strategy(context, imported)
            if subject is None:
                raise SerializationError(f"the strategy gives the import {imported.name!r} no subject")
            schema = shaped(Schema("PROTOBUF", _base64(imported), self._references(context, imported)))
            if self.settings.auto_register:
                self._registry.register_schema_full_response(subject, schema, self.settings.normalize)
            version = self._registry.lookup_schema(subject, schema, self.settings.normalize).version
            made.append(Reference(imported.name, subject, version))
        return tuple(made)

    def codec(self, schema: Schema) -> Codec:
        """The codec of a schema."""
        return ProtobufCodec(schema, self._source)

    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """What writes messages of the one class."""
        del codec
        message, full = self._message, prefix if self.settings.in_headers else prefix + self._indexes

        def encode(value: Any) -> bytes:  # noqa: ANN401
            if not isinstance(value, message):
                raise SerializationError(f"a {message.DESCRIPTOR.full_name} is needed, not {type(value).__name__}")
            return full + serialized_message(value)

        return encode

    def header_tail(self, codec: Codec) -> bytes:
        """The place of the message in its file."""
        del codec
        return self._indexes


class ProtobufDeserializer(SchemaDeserializer):
    """Reads messages.

    Args:
        message_type: the class to read; None for one that is made of each record's schema.
        conf: settings under Confluent's names, as those of `AvroDeserializer`.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client; it is not needed where a class
            is given: then a record's schema is not looked at.

    Raises:
        KafkaConfigurationError: a setting is unknown or has a wrong value.
    """

    __slots__ = ("_message",)

    def __init__(
        self,
        message_type: type[Message] | None = None,
        conf: Mapping[str, Any] | None = None,
        schema_registry_client: Any = None,  # noqa: ANN401 - see `RegistryApi`
    ) -> None:
        if message_type is None and schema_registry_client is None:
            raise IllegalArgumentError("a registry is needed where no class of messages is given")
        registry: Any = NoRegistry(None) if schema_registry_client is None else schema_registry_client
        super().__init__(registry, read_settings(conf, READING))
        self._message: type[Message] | None = None
        if message_type is not None:
            descriptor = cast("Any", message_type.DESCRIPTOR)
            self._message = GetMessageClass(descriptor)

    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """What reads messages of a schema."""
        if isinstance(self._registry, NoRegistry):
            return self._without_schema(start)
        return ProtobufCodec(schema, self._source, reader, message=self._message).decoder(start)

    def decoder_behind(self, schema: Schema, reader: Schema | None, tail: bytes) -> Decode:
        """What reads messages whose header has a GUID and the message's place."""
        indexes, length = split_indexes(tail)
        if length != len(tail):
            raise SerializationError(f"{len(tail) - length} bytes stand behind the place of the message")
        if isinstance(self._registry, NoRegistry):
            message = self._message
            assert message is not None
        else:
            message = ProtobufCodec(schema, self._source, reader, message=self._message).message_class(indexes)
        return lambda data: read_message(message, data)

    def record_name(self, schema: Schema) -> str | None:
        """The full name of the message that is asked for, or of the schema's first."""
        if self._message is not None:
            name: str = self._message.DESCRIPTOR.full_name
            return name
        first: str = ProtobufCodec(schema, self._source).message_class().DESCRIPTOR.full_name
        return first

    def _without_schema(self, start: int) -> Decode:
        message = self._message
        assert message is not None

        def decode(data: bytes) -> Any:  # noqa: ANN401
            return read_message(message, data[start + split_indexes(data[start:])[1] :])

        return decode


def _base64(file: FileDescriptor) -> str:
    return base64.b64encode(file.serialized_pb).decode()
