"""Protobuf's codec: messages of the classes that a schema describes; Google's library keeps to limits of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor import Descriptor
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError, EncodeError, Message
from google.protobuf.message_factory import GetMessageClass

from kafkalike.errors import SerializationError
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.codecs.codec import Codec, Decode, Encode
from kafkalike.schemas.limits import no_deeper_than_the_stack
from kafkalike.schemas.proto.proto_files import build_file, indexes_of, message_at
from kafkalike.schemas.schema_source import SchemaSource
from kafkalike.schemas.wire import join_indexes, split_indexes


class ProtobufCodec(Codec):
    """Values are messages. A payload begins with the place of its message in the schema's file.

    Args:
        schema: the writer's.
        source: knows what the schemas import.
        reader: the reader's; None for the writer's. Its message of the same name is read, or its first.
        message: the class to read; None for one that is made of the schema.
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
        """The class in which a message of the writer's schema is read.

        Args:
            indexes: its place in the file.

        Raises:
            SerializationError: there is none.
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
        """A function that writes messages, of classes of this schema or of others of the same names, and dicts."""
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
            raise SerializationError(f"the value is no {made.DESCRIPTOR.full_name}: {cause}") from cause

    def decoder(self, start: int) -> Decode:
        """A function that reads messages."""
        known = self._classes

        def decode(data: bytes) -> Any:  # noqa: ANN401
            indexes, length = split_indexes(data[start : start + _MOST_OF_A_PLACE])
            message = known.get(indexes) or self.message_class(indexes)
            return read_message(message, data[start + length :])

        return decode


_MOST_OF_A_PLACE = 1024
"""Bytes that can say where a message stands."""


def read_message(message: type[Message], payload: bytes) -> Message:
    """A message of its bytes.

    Raises:
        SerializationError: they are none of this class.
    """
    try:
        return message.FromString(payload)
    except (DecodeError, RecursionError) as cause:
        raise SerializationError(f"the record is not of its Protobuf schema: {cause}") from cause


def serialized_message(message: Message) -> bytes:
    """The bytes of a message.

    Raises:
        SerializationError: a required field is not set.
    """
    try:
        return message.SerializeToString()
    except (EncodeError, RecursionError, ValueError) as cause:
        raise SerializationError(f"the message cannot be written: {cause}") from cause
