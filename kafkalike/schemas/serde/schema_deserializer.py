"""SchemaDeserializer: the base of deserializers with schemas, which finds the schema of each record."""

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
"""Maximum decoders that a deserializer caches per topic; the cache is then cleared."""
_GUID_LENGTH: Final = 17


class SchemaDeserializer(Deserializer):
    """Reads values with the schema that each record names.

    Pass it as `value_deserializer` or `key_deserializer` of `KafkaConsumer`, or call it with a `SerializationContext`
    as Confluent's deserializers. It may serve several topics and threads.

    Args:
        registry: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        settings: the parsed `conf`.
        reader: the reader's schema; None for the schema of each record.
        from_dict: turns a value of the schema into an object; None to return values.
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
        # Decoders by field, topic, and the first bytes of the record.
        self._ready: dict[str, dict[str, dict[bytes, Decode]]] = {}
        self._by_guid: dict[tuple[str, str, bytes], Decode] = {}

    @abstractmethod
    def decoder(self, schema: Schema, reader: Schema | None, start: int) -> Decode:
        """Return a decoder of records.

        Args:
            schema: the writer's schema.
            reader: the reader's schema; None for the writer's.
            start: start of the payload.
        """

    @abstractmethod
    def record_name(self, schema: Schema) -> str | None:
        """Return the full name of the type of a schema's records, or None."""

    def decoder_behind(self, schema: Schema, reader: Schema | None, tail: bytes) -> Decode:
        """Return a decoder of records with a GUID and a tail in a header."""
        if tail:
            raise SerializationError(f"{len(tail)} bytes follow the GUID of the schema in the header")
        return self.decoder(schema, reader, 0)

    def __call__(self, data: bytes | None, ctx: Any = None) -> Any:  # noqa: ANN401
        """Return the value of a record's bytes, as Confluent's deserializers do.

        Args:
            data: the bytes; None returns None.
            ctx: a `SerializationContext` of kafkalike or Confluent, needed only by some settings.

        Raises:
            SerializationError: the bytes do not match their schema, or the registry does not have it.
            SchemaRegistryError: the registry failed otherwise.
        """
        return None if data is None else self._read(SerializationContext("", "value") if ctx is None else ctx, data)

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
        """Return the value of a record; None for None.

        Raises:
            SerializationError: the bytes do not match their schema, or it is unknown.
        """
        return None if data is None else self._read(SerializationContext(topic, "value", headers), data)

    def for_field(self, field: RecordField) -> DeserializeFunction:
        """Return the function that a consumer calls for its keys or its values."""
        # With `from_dict` this stays empty, so that `_read` handles each record.
        ready = self._ready.setdefault(field, {}) if self._from_dict is None else {}
        head = HEADER

        def deserialize(topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
            if data is None:
                return None
            if not headers:
                # Hot path, measured in nanoseconds per record.
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
            raise SerializationError(f"the header {GUID_HEADERS[context.field]!r} contains no schema id")
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
            # A final answer of the registry is a fault of the record; an unreachable registry is not.
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
    """Return the error with the topic and the schema id of the record."""
    number = error.schema_id
    if number is None and len(data) >= HEADER and data[0] == 0:
        number = int.from_bytes(data[1:HEADER], "big")
    where = f"topic {topic!r}" if topic else ""
    of = f"schema {number}" if number is not None else ""
    said = ", ".join(part for part in (where, of) if part)
    made = SerializationError(f"{said}: {error}" if said else str(error), topic=topic or None, schema_id=number)
    made.__cause__ = error.__cause__
    return made
