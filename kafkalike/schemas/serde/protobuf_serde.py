"""ProtobufSerializer and ProtobufDeserializer, with the arguments and settings of Confluent's, and their codec."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FileDescriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.schemas.schema import Reference, Schema
from kafkalike.schemas.limits import no_deeper_than_the_stack
from kafkalike.schemas.proto.proto_files import build_file, indexes_of, is_builtin, message_at
from kafkalike.schemas.schema_source import NoRegistry, SchemaSource
from kafkalike.schemas.serde.codec import Codec, Decode, Encode
from kafkalike.schemas.serde.schema_deserializer import SchemaDeserializer
from kafkalike.schemas.serde.schema_serializer import SchemaSerializer, shaped
from kafkalike.schemas.serde.serde_settings import READING, WRITING, read_settings
from kafkalike.schemas.wire import join_indexes, split_indexes


class ProtobufSerializer(SchemaSerializer):
    """Writes messages, preceded by the schema id and the indexes of the message.

    Args:
        msg_type: the class of the messages. Its file is registered as a Base64 descriptor, as by Confluent's client,
            and each imported file is registered under a subject with the import's name.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        conf: settings under Confluent's names, as for `AvroSerializer` without `validate.strict`, and
            `skip.known.types` (True): do not register Google's and Confluent's own files;
            `reference.subject.name.strategy`.

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
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
        # Any, because the published types declare a union of two classes.
        self._descriptor = cast("Any", msg_type.DESCRIPTOR)
        self._indexes = join_indexes(indexes_of(self._descriptor))
        self._text = _base64(self._descriptor.file)

    def record_name(self) -> str | None:
        """Return the full name of the message."""
        name: str = self._message.DESCRIPTOR.full_name
        return name

    def own_schema(self, context: Any) -> Schema | None:  # noqa: ANN401
        """Return the message's file, after registering its imports."""
        return Schema("PROTOBUF", self._text, self._references(context, self._descriptor.file))

    def _references(self, context: Any, file: FileDescriptor) -> tuple[Reference, ...]:  # noqa: ANN401
        made = []
        for imported in file.dependencies:
            if self.settings.skip_known_types and is_builtin(imported.name):
                continue
            strategy = self.settings.reference_strategy
            subject = imported.name if strategy is None else strategy(context, imported)
            if subject is None:
                raise SerializationError(f"reference.subject.name.strategy returned no subject for {imported.name!r}")
            schema = shaped(Schema("PROTOBUF", _base64(imported), self._references(context, imported)))
            if self.settings.auto_register:
                self._registry.register_schema_full_response(subject, schema, self.settings.normalize)
            version = self._registry.lookup_schema(subject, schema, self.settings.normalize).version
            made.append(Reference(imported.name, subject, version))
        return tuple(made)

    def codec(self, schema: Schema) -> Codec:
        """Return a codec of the schema."""
        return ProtobufCodec(schema, self._source)

    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """Return an encoder of messages of the serializer's class."""
        del codec
        message, full = self._message, prefix if self.settings.in_headers else prefix + self._indexes

        def encode(value: Any) -> bytes:  # noqa: ANN401
            if not isinstance(value, message):
                raise SerializationError(f"a {message.DESCRIPTOR.full_name} is needed, not {type(value).__name__}")
            return full + serialized_message(value)

        return encode

    def header_tail(self, codec: Codec) -> bytes:
        """Return the indexes of the message in its file."""
        del codec
        return self._indexes


class ProtobufDeserializer(SchemaDeserializer):
    """Reads Protobuf messages.

    Args:
        message_type: the class to return; None for a class built from each record's schema.
        conf: settings under Confluent's names, as for `AvroDeserializer`.
        schema_registry_client: a `Registry`, a `RemoteRegistry`, or Confluent's client; optional if `message_type` is
            given, and then the schemas of records are ignored.

    Raises:
        KafkaConfigurationError: a setting is unknown or invalid.
    """

    __slots__ = ("_message",)

    def __init__(
        self,
        message_type: type[Message] | None = None,
        conf: Mapping[str, Any] | None = None,
        schema_registry_client: Any = None,  # noqa: ANN401 - see `RegistryApi`
    ) -> None:
        if message_type is None and schema_registry_client is None:
            raise IllegalArgumentError("schema_registry_client is needed unless message_type is given")
        registry: Any = NoRegistry(None) if schema_registry_client is None else schema_registry_client
        super().__init__(registry, read_settings(conf, READING))
        self._message: type[Message] | None = None
        if message_type is not None:
            descriptor = cast("Any", message_type.DESCRIPTOR)
            self._message = GetMessageClass(descriptor)

    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """Return a decoder of messages written with a schema."""
        if isinstance(self._registry, NoRegistry):
            return self._without_schema(start)
        return ProtobufCodec(schema, self._source, reader, message=self._message).decoder(start)

    def decoder_behind(self, schema: Schema, reader: Schema | None, tail: bytes) -> Decode:
        """Return a decoder of messages with a GUID and indexes in a header."""
        indexes, length = split_indexes(tail)
        if length != len(tail):
            raise SerializationError(f"{len(tail) - length} bytes follow the message indexes in the header")
        if isinstance(self._registry, NoRegistry):
            message = self._message
            assert message is not None
        else:
            message = ProtobufCodec(schema, self._source, reader, message=self._message).message_class(indexes)
        return lambda data: read_message(message, data)

    def record_name(self, schema: Schema) -> str | None:
        """Return the full name of the requested message, or of the schema's first message."""
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


class ProtobufCodec(Codec):
    """Codec of messages. A payload starts with the indexes of its message in the schema's file.

    Args:
        schema: the writer's schema.
        source: looks up the imported files.
        reader: the reader's schema; None for the writer's. Messages are read as its message of the same name, or its
            first.
        message: the class to return; None for a class built from the schema.
    """

    def __init__(
        self,
        schema: Schema,
        source: SchemaSource,
        reader: Schema | None = None,
        *,
        message: type[Message] | None = None,
    ) -> None:
        self.schema = schema
        with no_deeper_than_the_stack():
            self.file = build_file(schema, source.referenced(schema))
            self._reader = self.file if reader is None else build_file(reader, source.referenced(reader))
        self._message = message
        self._classes: dict[tuple[int, ...], type[Message]] = {}

    def message_class(self, indexes: tuple[int, ...] = (0,)) -> type[Message]:
        """Return the class that reads a message of the writer's schema.

        Args:
            indexes: the indexes of the message in the file.

        Raises:
            SerializationError: the file has no such message.
        """
        known = self._classes.get(indexes)
        if known is None:
            written = message_at(self.file, indexes)
            known = self._classes[indexes] = self._message or GetMessageClass(self._read_as(written))
        return known

    def _read_as(self, written: Descriptor) -> Descriptor:
        if self._reader is self.file:
            return written
        inner = written.full_name[len(self.file.package) + 1 :] if self.file.package else written.full_name
        first, *rest = inner.split(".")
        found = self._reader.message_types_by_name.get(first)
        for name in rest:
            found = found.nested_types_by_name.get(name) if found is not None else None
        return found if found is not None else message_at(self._reader, (0,))

    def encoder(self, prefix: bytes) -> Encode:
        """Return an encoder of dicts and messages; the class of a message may come from another version of the file."""
        places: dict[str, bytes] = {}

        def encode(value: Any) -> bytes:  # noqa: ANN401
            if not isinstance(value, Message):
                value = self._from_dict(value)
            name = value.DESCRIPTOR.full_name
            place = places.get(name)
            if place is None:
                place = places[name] = prefix + join_indexes(self._place(name))
            return place + serialized_message(value)

        return encode

    def _place(self, name: str) -> tuple[int, ...]:
        try:
            found = self.file.pool.FindMessageTypeByName(name)
        except KeyError:
            found = None
        if found is None or found.file.name != self.file.name:
            raise SerializationError(f"the schema has no message {name!r}")
        return indexes_of(found)

    def _from_dict(self, value: Any) -> Message:  # noqa: ANN401
        if not isinstance(value, Mapping):
            raise SerializationError(f"a message or a dict is needed, not {type(value).__name__}")
        made = GetMessageClass(message_at(self.file, (0,)))()
        try:
            return ParseDict(dict(value), made)
        except (ParseError, ValueError, TypeError, RecursionError) as cause:
            raise SerializationError(f"the value is not a {made.DESCRIPTOR.full_name}: {cause}") from cause

    def decoder(self, start: int) -> Decode:
        """Return a decoder of messages; see `Codec`."""
        known = self._classes

        def decode(data: bytes) -> Any:  # noqa: ANN401
            indexes, length = split_indexes(data[start : start + _MOST_OF_A_PLACE])
            message = known.get(indexes) or self.message_class(indexes)
            return read_message(message, data[start + length :])

        return decode


_MOST_OF_A_PLACE = 1024
"""Maximum size of the indexes of a message, in bytes."""


def read_message(message: type[Message], payload: bytes) -> Message:
    """Parse a message.

    Raises:
        SerializationError: the bytes are not a message of this class.
    """
    try:
        return message.FromString(payload)
    except (DecodeError, RecursionError) as cause:
        raise SerializationError(f"the record is not of its Protobuf schema: {cause}") from cause


def serialized_message(message: Message) -> bytes:
    """Return the bytes of a message.

    Raises:
        SerializationError: a required field is not set.
    """
    try:
        return message.SerializeToString()
    except (EncodeError, RecursionError, ValueError) as cause:
        raise SerializationError(f"the message cannot be written: {cause}") from cause
