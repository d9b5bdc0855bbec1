"""SchemaDeserializer: what the deserializers of all types of schemas share: finding the schema, the way of a record."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError, KafkaError, SerializationError
from kafkalike.model.record_batch import Headers
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas.schema_source import RegistryApi, as_source, value_of
from kafkalike.schemas.serde.codec import Decode
from kafkalike.schemas.serde.schema_serializer import GUID_HEADERS
from kafkalike.schemas.serde.serde_settings import Settings, subject_of
from kafkalike.schemas.serialization import DeserializeFunction, Deserializer, SerializationContext
from kafkalike.schemas.serialization import Field as RecordField
from kafkalike.schemas.wire import HEADER, MAGIC_GUID, split

FromDict = Callable[[Any, Any], Any]
"""`(value of the schema, ctx) -> object`."""
MOST_DECODERS: Final = 10_000
"""Schemas that a deserializer keeps ready; then it begins anew."""
_GUID_LENGTH: Final = 17


class SchemaDeserializer(Deserializer):
    """Reads values with the schema that each record names.

    It is used as `value_deserializer` or `key_deserializer` of `KafkaConsumer`, or called as Confluent's are, with a
    `SerializationContext`. It may serve several topics and threads.

    Args:
        registry: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        settings: what it was told.
        reader: the schema to read as; None for each record's own.
        from_dict: turns a value of the schema into an object; None where values are wanted.
    """

    __slots__ = ("_by_guid", "_from_dict", "_reader", "_ready", "_registry", "_source", "settings")

    def __init__(
        self, registry: RegistryApi, settings: Settings, reader: Schema | None = None, from_dict: FromDict | None = None
    ) -> None:
        if from_dict is not None and not callable(from_dict):
            raise IllegalArgumentError("from_dict must be a function (value, ctx)")
        self._registry = registry
        self._source = as_source(registry)
        self.settings = settings
        self._reader = reader
        self._from_dict = from_dict
        # By part of the record, topic, and the first bytes of the record.
        self._ready: dict[str, dict[str, dict[bytes, Decode]]] = {}
        self._by_guid: dict[tuple[str, str, bytes], Decode] = {}

    @abstractmethod
    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """What reads records of a schema.

        Args:
            schema: the writer's.
            reader: the schema to read as; None for the same.
            start: where the payload begins.
        """

    @abstractmethod
    def record_name(self, schema: Schema) -> str | None:
        """The full name of the type of a schema's records; None where it has none."""

    def decoder_behind(self, schema: Schema, reader: Schema | None, tail: bytes) -> Decode:
        """What reads records whose header has a GUID, and something behind it."""
        if tail:
            raise SerializationError(f"{len(tail)} bytes stand behind the GUID of the schema")
        return self.decoder(schema, reader, 0)

    def __call__(self, data: bytes | None, ctx: Any = None) -> Any:  # noqa: ANN401
        """The value of a record's bytes, as Confluent's deserializers give it.

        Args:
            data: the bytes; None gives None.
            ctx: a `SerializationContext`, of kafkalike or of Confluent; only some settings need it.

        Raises:
            SerializationError: the bytes are not of their schema.
            SchemaRegistryError: there is no such schema.
        """
        return None if data is None else self._read(SerializationContext("", "value") if ctx is None else ctx, data)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
        """The value of a record; None for None.

        Raises:
            SerializationError: the bytes are not of their schema, or it is not known.
        """
        return None if data is None else self._read(SerializationContext(topic, "value", headers), data)

    def for_field(self, field: RecordField) -> DeserializeFunction:
        """The function that a consumer calls for its keys, or for its values."""
        # With `from_dict` there is nothing to find here, and each record goes the long way.
        ready = self._ready.setdefault(field, {}) if self._from_dict is None else {}
        head = HEADER

        def deserialize(topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
            if data is None:
                return None
            if not headers:
                # What is done for each record is counted in nanoseconds.
                try:
                    decode = ready[topic][data[:head]]
                except KeyError:
                    pass
                else:
                    try:
                        return decode(data)
                    except SerializationError as error:
                        raise _of_record(error, topic, data) from error.__cause__
            return self._read(SerializationContext(topic, field, headers), data)

        return deserialize

    def _read(self, context: Any, data: bytes) -> Any:  # noqa: ANN401
        try:
            value = self._decoder(context, data)(data)
        except SerializationError as error:
            raise _of_record(error, context.topic, data) from error.__cause__
        return value if self._from_dict is None else self._from_dict(value, context)

    def _decoder(self, context: Any, data: bytes) -> Decode:  # noqa: ANN401
        if self.settings.from_headers and context.headers:
            content = _header(context)
            if content is not None:
                return self._of_header(context, content)
        ready = self._ready.setdefault(context.field, {})
        known = ready.get(context.topic)
        if known is None or len(known) > MOST_DECODERS:
            known = ready[context.topic] = {}
        decode = known.get(data[:HEADER])
        if decode is None:
            number, _ = split(data)
            decode = self._made(context, lambda: self._source.schema_by_id(number), number, HEADER)
            known[data[:HEADER]] = decode
        return decode

    def _of_header(self, context: Any, content: bytes) -> Decode:  # noqa: ANN401
        place = (context.topic, context.field, content)
        known = self._by_guid.get(place)
        if known is not None:
            return known
        if content[:1] == b"\x00":
            number, tail = split(content)
            made = self._made(context, lambda: self._source.schema_by_id(number), number, 0, tail)
        elif len(content) >= _GUID_LENGTH and content[0] == MAGIC_GUID:
            guid = str(uuid.UUID(bytes=content[1:_GUID_LENGTH]))
            tail = content[_GUID_LENGTH:]
            made = self._made(context, lambda: value_of(self._registry.get_schema_by_guid(guid)), guid, 0, tail)
        else:
            raise SerializationError(f"the header {GUID_HEADERS[context.field]!r} holds no id of a schema")
        if len(self._by_guid) > MOST_DECODERS:
            self._by_guid.clear()
        self._by_guid[place] = made
        return made

    def _made(
        self,
        context: Any,  # noqa: ANN401
        find: Callable[[], Schema],
        name: int | str,
        start: int,
        tail: bytes | None = None,
    ) -> Decode:
        number = name if isinstance(name, int) else None
        try:
            schema = find()
            reader = self._read_as(context, schema)
            return self.decoder(schema, reader, start) if tail is None else self.decoder_behind(schema, reader, tail)
        except SerializationError:
            raise
        except KafkaError as cause:
            # What the registry says for good is a fault of this record; that it is away is not.
            if getattr(cause, "http_status_code", 0) not in _FOR_GOOD:
                raise
            raise SerializationError(f"the schema {name} cannot be used: {cause}", schema_id=number) from cause

    def _read_as(self, context: Any, schema: Schema) -> Schema | None:  # noqa: ANN401
        settings = self.settings
        if not settings.use_latest and settings.use_latest_metadata is None:
            return self._reader
        subject = subject_of(settings, context, self.record_name(schema))
        if subject is None:
            return self._reader
        if settings.use_latest_metadata is not None:
            return value_of(self._registry.get_latest_with_metadata(subject, settings.use_latest_metadata).schema)
        latest = self._source.latest(subject)
        return self._reader if latest is None else latest.schema


_FOR_GOOD: Final = (404, 422)


def _header(context: Any) -> bytes | None:  # noqa: ANN401
    name, headers = GUID_HEADERS[context.field], context.headers
    if isinstance(headers, dict):
        found = headers.get(name)
        return found if isinstance(found, bytes) else None
    return next((content for key, content in headers if key == name and content is not None), None)


def _of_record(error: SerializationError, topic: str, data: bytes) -> SerializationError:
    """The error, with the topic and the schema's id of the record."""
    number = error.schema_id
    if number is None and len(data) >= HEADER and data[0] == 0:
        number = int.from_bytes(data[1:HEADER], "big")
    where = f"topic {topic!r}" if topic else ""
    of = f"schema {number}" if number is not None else ""
    said = ", ".join(part for part in (where, of) if part)
    made = SerializationError(f"{said}: {error}" if said else str(error), topic=topic or None, schema_id=number)
    made.__cause__ = error.__cause__
    return made
