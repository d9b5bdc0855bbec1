"""SchemaSerializer: the base of serializers with schemas, which registers the schema and frames records."""

from __future__ import annotations

import threading
import uuid
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.record_batch import Headers
from kafkalike.model.schemas.schema import Schema
from kafkalike.schemas import confluent_types as shapes
from kafkalike.schemas.schema_source import RegistryApi, as_source, value_of
from kafkalike.schemas.serde.codec import Codec, Encode
from kafkalike.schemas.serde.serde_settings import Settings, fixed_by_topic, subject_of
from kafkalike.schemas.serialization import Field as RecordField
from kafkalike.schemas.serialization import SerializationContext, SerializeFunction, Serializer
from kafkalike.schemas.wire import MAGIC_GUID, frame

GUID_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
"""Headers with the GUID of a schema in place of an id before the payload, since Confluent Platform 8."""
ToDict = Callable[[Any, Any], Any]
"""`(object, ctx) -> value of the schema`."""


@dataclass(frozen=True, slots=True)
class Writer:
    """Encodes the records of one subject."""

    encode: Encode
    header: bytes | None
    """Content of the header with the schema's GUID; None if records start with the id."""


class SchemaSerializer(Serializer):
    """Writes values with a registered schema.

    Pass it as `value_serializer` or `key_serializer` of `KafkaProducer`, or call it with a `SerializationContext` as
    Confluent's serializers. It may serve several topics and threads.

    Args:
        registry: a `Registry`, a `RemoteRegistry`, or Confluent's client.
        settings: the parsed `conf`.
        to_dict: turns an object into a value of the schema; None if values are sent.
    """

    __slots__ = ("_lock", "_ready", "_registry", "_source", "_to_dict", "_writers", "settings")

    def __init__(self, registry: RegistryApi, settings: Settings, to_dict: ToDict | None = None) -> None:
        if to_dict is not None and not callable(to_dict):
            raise IllegalArgumentError("to_dict must be a function (object, ctx)")
        self._registry = registry
        self._source = as_source(registry)
        self.settings = settings
        self._to_dict = to_dict
        self._lock = threading.Lock()
        self._writers: dict[str | None, Writer] = {}
        self._ready: dict[tuple[str, str], Writer] = {}
        """Writers by topic and field."""

    @abstractmethod
    def record_name(self) -> str | None:
        """Return the full name of the record's type, or None."""

    @abstractmethod
    def own_schema(self, context: SerializationContext) -> Schema | None:
        """Return the schema given to the serializer, with its references; None to use the registry's."""

    @abstractmethod
    def codec(self, schema: Schema) -> Codec:
        """Return the codec of a schema."""

    @abstractmethod
    def encoder(self, codec: Codec, prefix: bytes) -> Encode:
        """Return an encoder of records with a prefix."""

    def header_tail(self, codec: Codec) -> bytes:
        """Return the bytes after the GUID in a header."""
        del codec
        return b""

    def __call__(self, obj: Any, ctx: Any = None) -> bytes | None:  # noqa: ANN401
        """Return the bytes of a value, as Confluent's serializers do.

        Args:
            obj: the value; None returns None.
            ctx: a `SerializationContext` of kafkalike or Confluent.

        Raises:
            SerializationError: the value does not match the schema.
            SchemaRegistryError: the registry rejects the schema.
        """
        if obj is None:
            return None
        context = SerializationContext("", "value") if ctx is None else ctx
        if ctx is None and self.settings.strategy != "RECORD" and not callable(self.settings.strategy):
            raise IllegalArgumentError("a SerializationContext with the topic is needed")
        return self._write(context, obj)

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401
        """Return the bytes of a record's value; None for None.

        Raises:
            SerializationError: the value does not match the schema.
            SchemaRegistryError: the registry rejects the schema.
        """
        return None if data is None else self._write(SerializationContext(topic, "value", headers), data)

    def for_field(self, field: RecordField) -> SerializeFunction:
        """Return the function that a producer calls for its keys or its values."""
        if self.settings.in_headers or self._to_dict is not None or not fixed_by_topic(self.settings):

            def each(topic: str, headers: Headers, data: object) -> bytes | None:
                return None if data is None else self._write(SerializationContext(topic, field, headers), data)

            return each
        ready: dict[str, Encode] = {}

        def serialize(topic: str, headers: Headers, data: object) -> bytes | None:
            if data is None:
                return None
            # Hot path, measured in nanoseconds per record: one lookup, one call.
            try:
                encode = ready[topic]
            except KeyError:
                encode = first(topic, headers)
            try:
                return encode(data)
            except SerializationError as error:
                raise _in_topic(error, topic) from error.__cause__

        def first(topic: str, headers: Headers) -> Encode:
            try:
                made = ready[topic] = self._writer(SerializationContext(topic, field, headers)).encode
            except SerializationError as error:
                raise _in_topic(error, topic) from error.__cause__
            return made

        return serialize

    def _write(self, context: Any, obj: Any) -> bytes:  # noqa: ANN401 - ours or Confluent's context
        try:
            writer = self._writer(context)
            done = writer.encode(obj if self._to_dict is None else self._to_dict(obj, context))
        except SerializationError as error:
            raise _in_topic(error, context.topic) from error.__cause__
        if writer.header is not None:
            _add_header(context, writer.header)
        return done

    def _writer(self, context: Any) -> Writer:  # noqa: ANN401
        place = (context.topic, context.field)
        if fixed_by_topic(self.settings):
            known = self._ready.get(place)
            if known is not None:
                return known
        subject = subject_of(self.settings, context, self.record_name())
        writer = self._writers.get(subject)
        if writer is None:
            # One thread asks the registry; the writer is stored for all threads, or not at all.
            with self._lock:
                writer = self._writers.get(subject) or self._made(subject, context)
                self._writers[subject] = writer
        self._ready[place] = writer
        return writer

    def _made(self, subject: str | None, context: Any) -> Writer:  # noqa: ANN401
        number, guid, schema = self._registered(subject, context)
        codec = self.codec(schema)
        if not self.settings.in_headers:
            return Writer(self.encoder(codec, frame(number)), None)
        if guid is None:
            raise SerializationError(
                "the registry returns no GUID for the header: use prefix_schema_id_serializer", schema_id=number
            )
        header = bytes([MAGIC_GUID]) + uuid.UUID(guid).bytes + self.header_tail(codec)
        return Writer(self.encoder(codec, b""), header)

    def _registered(self, subject: str | None, context: Any) -> tuple[int, str | None, Schema]:  # noqa: ANN401
        """Return the id, the GUID and the schema to write with."""
        settings = self.settings
        if settings.use_schema_id is not None:
            number = settings.use_schema_id
            schema = self._source.schema_by_id(number)
            guid = (
                getattr(self._registry.lookup_schema(subject, shaped(schema)), "guid", None)
                if subject and settings.in_headers
                else None
            )
            return number, guid, schema
        if subject is None:
            raise SerializationError("subject.name.strategy returned no subject", topic=context.topic)
        if settings.use_latest or settings.use_latest_metadata is not None:
            found = (
                self._registry.get_latest_version(subject)
                if settings.use_latest_metadata is None
                else self._registry.get_latest_with_metadata(subject, settings.use_latest_metadata)
            )
            return found.schema_id, found.guid, value_of(found.schema)
        own = self.own_schema(context)
        if own is None:
            raise SerializationError("the serializer has no schema: pass one, or set use.latest.version")
        ask = self._registry.register_schema_full_response if settings.auto_register else self._registry.lookup_schema
        found = ask(subject, shaped(own), settings.normalize)
        return found.schema_id, found.guid, own


def shaped(schema: Schema) -> shapes.Schema:
    """Return a schema as the argument of a registry client."""
    references = tuple(shapes.SchemaReference(r.name, r.subject, r.version) for r in schema.references)
    return shapes.Schema(schema.text, schema.type, references)


def _add_header(context: Any, content: bytes) -> None:  # noqa: ANN401
    name, headers = GUID_HEADERS[context.field], context.headers
    if isinstance(headers, list):
        headers.append((name, content))
    elif isinstance(headers, dict):
        headers[name] = content
    else:
        raise SerializationError("the schema's GUID needs a list or dict of headers, and the record has none")


def _in_topic(error: SerializationError, topic: str) -> SerializationError:
    """Return the error with the topic of the record."""
    if error.topic is not None or not topic:
        return error
    made = SerializationError(f"topic {topic!r}: {error}", topic=topic, schema_id=error.schema_id)
    made.__cause__ = error.__cause__
    return made
