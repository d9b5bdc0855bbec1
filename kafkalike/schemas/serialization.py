"""Serializers and deserializers: kafka-python's and Confluent's interfaces, and Kafka's own formats."""

from __future__ import annotations

import codecs
import dataclasses
import inspect
import json
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any, ClassVar, Final, Literal, TypeAlias

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.record_batch import Headers

__all__ = [
    "BytesSerializer",
    "DefaultSerializer",
    "DeserializeFunction",
    "Deserializer",
    "DoubleSerializer",
    "Field",
    "FloatSerializer",
    "IntegerSerializer",
    "JsonSerializer",
    "LongSerializer",
    "MessageField",
    "SerializationContext",
    "SerializeFunction",
    "Serializer",
    "StringSerializer",
    "as_deserializer",
    "as_serializer",
    "deserializer_for",
    "serializer_for",
]

SerializeFunction: TypeAlias = Callable[[str, Headers, object], bytes | None]
"""`(topic, headers, value) -> bytes`; None is a tombstone or a missing key."""
DeserializeFunction: TypeAlias = Callable[[str, Headers, bytes | None], Any]
"""`(topic, headers, bytes or None) -> value`; None is a tombstone or a missing key."""


class Serializer(ABC):
    """Turns keys or values into bytes; kafka-python 3.x's interface.

    Several threads may call it at once. As in kafka-python it is also called with None, for a record without a key or
    value. Return None to keep a tombstone, as the built-in formats do.
    """

    __slots__ = ()

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401
        """Return the bytes of a key or value.

        Args:
            topic: the record's topic.
            headers: the record's headers.
            data: the user's key or value.

        Raises:
            SerializationError: the format cannot represent `data`.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Release resources; does nothing by default."""


class Deserializer(ABC):
    """Turns bytes into keys or values; kafka-python 3.x's interface.

    As in kafka-python it is also called with None, for a tombstone or a record without a key.
    """

    __slots__ = ()

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
        """Return the key or value of stored bytes.

        Args:
            topic: the record's topic.
            headers: the record's headers.
            data: the stored bytes; None for a tombstone or a missing key.

        Raises:
            SerializationError: `data` is not in this format.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Release resources; does nothing by default."""


Field = Literal["key", "value"]


class MessageField:
    """Names of a record's parts, as in `confluent_kafka.serialization`."""

    NONE: Final = "none"
    KEY: Final = "key"
    VALUE: Final = "value"


@dataclass(slots=True)
class SerializationContext:
    """The place of a key or value, with the attributes of `confluent_kafka.serialization.SerializationContext`."""

    topic: str
    field: str
    """`key` or `value`."""
    headers: Headers = dataclasses.field(default_factory=list)
    """Headers of the record; headers that a serializer adds are stored."""


def as_serializer(obj: object, field: Field = "value") -> SerializeFunction:
    """Convert any serializer that kafka-python or Confluent's client accepts to a function.

    Args:
        obj: a `Serializer` or any object with kafka-python 3.x's `serialize(topic, headers, data)`; a 2.x object with
            `serialize(topic, data)`; Confluent's callable `(data, ctx)`; a plain callable `(data)`; None, which accepts
            only bytes.
        field: the record's part, needed by Confluent's serializers and by serializers with schemas.

    Returns:
        A function `(topic, headers, data) -> bytes | None`. As in kafka-python it also calls `obj` with None: if that
        returns `b"null"`, this is stored in place of a tombstone. It turns bytearray and memoryview into bytes, raises
        TypeError if `obj` returns another type, and does not catch errors of `obj`.

    Raises:
        IllegalArgumentError: `obj` is something else, or a class that was not instantiated.
    """
    call = _uniform(obj, "serialize", field)

    def serialize(topic: str, headers: Headers, data: object) -> bytes | None:
        done = call(topic, headers, data)
        if done is None or type(done) is bytes:
            return done
        if isinstance(done, bytes | bytearray | memoryview):
            return bytes(done)
        kind = type(done).__name__
        if obj is None:
            raise TypeError(f"topic {topic!r}: the {field} must be bytes, not {kind}; set {field}_serializer")
        raise TypeError(f"topic {topic!r}: {field}_serializer returned {kind}, not bytes")

    return serialize


def as_deserializer(obj: object, field: Field = "value") -> DeserializeFunction:
    """Convert any deserializer that kafka-python or Confluent's client accepts to a function.

    Args:
        obj: a `Deserializer` or any object with kafka-python 3.x's `deserialize(topic, headers, data)`; a 2.x object
            with `deserialize(topic, data)`; Confluent's callable `(data, ctx)`; a plain callable `(data)`; None, which
            returns bytes unchanged.
        field: the record's part.

    Returns:
        A function `(topic, headers, data) -> value`. As in kafka-python it also calls `obj` with None, and it does not
        catch errors of `obj`. The built-in formats return None for None.

    Raises:
        IllegalArgumentError: `obj` is something else, or a class that was not instantiated.
    """
    return _uniform(obj, "deserialize", field)


def _uniform(obj: object, method_name: str, field: Field) -> Callable[[str, Headers, Any], Any]:
    """Return `obj` as a function of topic, headers and data."""
    if obj is None:
        return lambda _topic, _headers, data: data
    for_field: Callable[[Field], Callable[[str, Headers, Any], Any]] | None = getattr(obj, "for_field", None)
    if callable(for_field) and not isinstance(obj, type):
        return for_field(field)
    method: Callable[..., Any] | None = getattr(obj, method_name, None)
    if callable(method):
        if isinstance(obj, type):
            raise IllegalArgumentError(f"{method_name}r: an instance is needed, not the class {obj.__name__}")
        if _takes_headers(method):
            return method
        return lambda topic, _headers, data: method(topic, data)
    if callable(obj):
        if _takes_context(obj):
            return lambda topic, headers, data: obj(data, SerializationContext(topic, field, headers))
        return lambda _topic, _headers, data: obj(data)
    raise IllegalArgumentError(f"{method_name}r: an object with {method_name}() or a callable is needed, not {obj!r}")


def _takes_context(obj: Callable[..., Any]) -> bool:
    """Return True for Confluent's callables, whose second parameter is `ctx`."""
    if isinstance(obj, type):
        return False
    try:
        return list(inspect.signature(obj).parameters)[1:2] == ["ctx"]
    except (TypeError, ValueError):
        return False


def _takes_headers(method: Callable[..., Any]) -> bool:
    """Return True if a bound method accepts `(topic, headers, data)`, or if Python cannot tell."""
    try:
        inspect.signature(method).bind("topic", [], b"")
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


class _Format(Serializer, Deserializer):
    """A format in both directions: None stays None, and failures become `SerializationError`.

    A subclass defines the name and the conversion of one value.
    """

    __slots__ = ()

    name: ClassVar[str]
    """Name of the format in `serializer_for` and in errors."""

    @abstractmethod
    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return the bytes of a value that is not None; may raise errors of the standard library."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the value of bytes; may raise errors of the standard library."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401, ARG002
        """Return the bytes of `data`; None for None.

        Raises:
            SerializationError: the format cannot represent `data`.
        """
        if data is None:
            return None
        try:
            return self.encode(data)
        except _FAILURES as cause:
            what = f"topic {topic!r}: {short(data)} ({type(data).__name__}) cannot be written as {self.name}"
            raise SerializationError(f"{what}: {cause}") from cause

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401, ARG002
        """Return the value of `data`; None for None.

        Raises:
            SerializationError: `data` is not in this format.
        """
        if data is None:
            return None
        try:
            return self.decode(data)
        except _FAILURES as cause:
            what = f"topic {topic!r}: {short(data)} ({len(data)} bytes) cannot be read as {self.name}"
            raise SerializationError(f"{what}: {cause}") from cause


_FAILURES: Final = (TypeError, ValueError, OverflowError, RecursionError, struct.error)
"""Errors of the standard library for a value or bytes that do not fit (UnicodeError is a ValueError)."""


class BytesSerializer(_Format):
    """Passes bytes through; bytearray and memoryview are copied into bytes."""

    __slots__ = ()
    name = "bytes"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return the bytes of a bytes-like object."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError("bytes are needed")
        return bytes(data)

    def decode(self, data: bytes) -> bytes:
        """Return the stored bytes unchanged."""
        return data


class StringSerializer(_Format):
    """Strings in a character encoding, as Kafka's `StringSerializer`.

    Args:
        encoding: name of a Python codec.

    Raises:
        LookupError: the codec is unknown.
    """

    __slots__ = ("encoding",)
    name = "string"

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = codecs.lookup(encoding).name

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return the encoded string; raises an error for characters that the encoding lacks."""
        if not isinstance(data, str):
            raise TypeError("a str is needed")
        return data.encode(self.encoding)

    def decode(self, data: bytes) -> str:
        """Return the decoded string; raises an error for invalid bytes."""
        return data.decode(self.encoding)


class DefaultSerializer(StringSerializer):
    """Encodes strings and passes bytes through, as kafka-python's `DefaultSerializer`. Reading always decodes.

    Args:
        encoding: name of a Python codec.
    """

    __slots__ = ()
    name = "default"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return the encoded string, or the bytes unchanged."""
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        if not isinstance(data, str):
            raise TypeError("a str or bytes are needed")
        return data.encode(self.encoding)


class JsonSerializer(_Format):
    """JSON without spaces, in UTF-8. NaN and infinities are rejected, because JSON cannot represent them.

    None becomes a tombstone, not `null`; the bytes `null` are read as None.
    """

    __slots__ = ()
    name = "json"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return a value as JSON in UTF-8."""
        return _JSON.encode(data).encode()

    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """Return the Python value of JSON in UTF-8."""
        return json.loads(data.decode())


_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Number(_Format):
    """A big-endian number of fixed width."""

    __slots__ = ()

    layout: ClassVar[struct.Struct]
    """Encoding of the number."""
    accepts: ClassVar[tuple[type, ...]] = (int,)
    """Accepted Python types; bool is always rejected."""

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Return the encoded number; raises an error outside of its range."""
        if isinstance(data, bool) or not isinstance(data, self.accepts):
            raise TypeError("a number is needed")
        return self.layout.pack(data)

    def decode(self, data: bytes) -> int | float:
        """Return the decoded number; raises an error for another width."""
        if len(data) != self.layout.size:
            raise ValueError(f"{self.layout.size} bytes are needed")
        number: int | float = self.layout.unpack(data)[0]
        return number


class LongSerializer(_Number):
    """Signed 8-byte integers, big-endian, as Kafka's `LongSerializer`."""

    __slots__ = ()
    name = "long"
    layout = struct.Struct(">q")


class IntegerSerializer(_Number):
    """Signed 4-byte integers, big-endian, as Kafka's `IntegerSerializer`."""

    __slots__ = ()
    name = "integer"
    layout = struct.Struct(">i")


class DoubleSerializer(_Number):
    """8-byte IEEE 754 floats, big-endian, as Kafka's `DoubleSerializer`; integers are also accepted."""

    __slots__ = ()
    name = "double"
    layout = struct.Struct(">d")
    accepts = (int, float)


class FloatSerializer(_Number):
    """4-byte IEEE 754 floats, big-endian, as Kafka's `FloatSerializer`: Python floats lose precision."""

    __slots__ = ()
    name = "float"
    layout = struct.Struct(">f")
    accepts = (int, float)


_NUMBERS: Final = (LongSerializer(), IntegerSerializer(), DoubleSerializer(), FloatSerializer())
_FORMATS: Final[dict[str, _Format]] = {
    format_.name: format_
    for format_ in (BytesSerializer(), StringSerializer(), JsonSerializer(), *_NUMBERS, DefaultSerializer())
}
_ALIASES: Final = {"bytearray": "bytes", "str": "string"}


def serializer_for(name: str) -> Serializer:
    """Return the serializer of a format.

    Args:
        name: `bytes`, `string`, `json`, `long`, `integer`, `double`, `float` or `default`, or the name of Kafka's Java
            class for it: `org.apache.kafka.common.serialization.LongSerializer`.

    Raises:
        IllegalArgumentError: the format is unknown; the message lists the known names.
    """
    return _format_for(name)


def deserializer_for(name: str) -> Deserializer:
    """Return the deserializer of a format; names as in `serializer_for`.

    Raises:
        IllegalArgumentError: the format is unknown; the message lists the known names.
    """
    return _format_for(name)


def _format_for(name: str) -> _Format:
    plain = name.strip().rpartition(".")[2].lower().removesuffix("serializer").removesuffix("de")
    found = _FORMATS.get(_ALIASES.get(plain, plain))
    if found is None:
        raise IllegalArgumentError(f"unknown serialization format {name!r}; known are {', '.join(_FORMATS)}")
    return found


for _name in set(__all__) - {"DeserializeFunction", "Field", "SerializeFunction"}:
    # Pickles and reprs show the public module.
    globals()[_name].__module__ = "kafkalike.serialization"
