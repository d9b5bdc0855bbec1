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

    It may be called from several threads at once. As in kafka-python it is called with None too, for a record without
    key or value: None for None keeps a tombstone one, as the ready-made formats here do.
    """

    __slots__ = ()

    @abstractmethod
    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401
        """Bytes of one key or value.

        Args:
            topic: the record's topic.
            headers: the record's headers.
            data: what the user sent.

        Raises:
            SerializationError: `data` has no form in this format.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Let go of resources; nothing by default."""


class Deserializer(ABC):
    """Turns bytes back into keys or values; kafka-python 3.x's interface.

    It is also called with None, for a tombstone and for a record without a key, as in kafka-python.
    """

    __slots__ = ()

    @abstractmethod
    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401
        """Value of one stored key or value.

        Args:
            topic: the record's topic.
            headers: the record's headers.
            data: the stored bytes; None for a tombstone or a missing key.

        Raises:
            SerializationError: `data` is not in this format.
        """

    def close(self) -> None:  # noqa: B027 - optional
        """Let go of resources; nothing by default."""


Field = Literal["key", "value"]


class MessageField:
    """Names of a record's parts, as in `confluent_kafka.serialization`."""

    NONE: Final = "none"
    KEY: Final = "key"
    VALUE: Final = "value"


@dataclass(slots=True)
class SerializationContext:
    """Where a key or a value belongs; the attributes of `confluent_kafka.serialization.SerializationContext`."""

    topic: str
    field: str
    """`key` or `value`."""
    headers: Headers = dataclasses.field(default_factory=list)
    """The record's; what a serializer adds is stored."""


def as_serializer(obj: object, field: Field = "value") -> SerializeFunction:
    """Give any serialiser that kafka-python or Confluent's client takes one form.

    Args:
        obj: a `Serializer` or any object with kafka-python 3.x's `serialize(topic, headers, data)`; a 2.x
            object with `serialize(topic, data)`; Confluent's callable `(data, ctx)`; a plain callable `(data)`;
            None, which takes bytes only.
        field: what it is for; Confluent's serializers and those of schemas want to know.

    Returns:
        A function `(topic, headers, data) -> bytes | None`. As in kafka-python it calls `obj` with None too: a
        function that makes `b"null"` of None stores that, and no tombstone. It turns bytearray and memoryview into
        bytes, raises TypeError when `obj` returns anything else, and lets errors of `obj` pass as they are.

    Raises:
        IllegalArgumentError: `obj` is none of these, or is a class that was not instantiated.
    """
    call = _uniform(obj, "serialize", field)

    def serialize(topic: str, headers: Headers, data: object) -> bytes | None:
        done = call(topic, headers, data)
        if done is None or type(done) is bytes:
            return done
        if isinstance(done, bytes | bytearray | memoryview):
            return bytes(done)
        raise TypeError(f"topic {topic!r}: bytes are needed, not {type(done).__name__}; set a serializer")

    return serialize


def as_deserializer(obj: object, field: Field = "value") -> DeserializeFunction:
    """Give any deserialiser that kafka-python or Confluent's client takes one form.

    Args:
        obj: a `Deserializer` or any object with kafka-python 3.x's `deserialize(topic, headers, data)`; a
            2.x object with `deserialize(topic, data)`; Confluent's callable `(data, ctx)`; a plain callable
            `(data)`; None, which leaves bytes as they are.
        field: what it is for.

    Returns:
        A function `(topic, headers, data) -> value`. It calls `obj` with None as well, as kafka-python does, and lets
        errors of `obj` pass as they are. The formats of kafkalike give None for None.

    Raises:
        IllegalArgumentError: `obj` is none of these, or is a class that was not instantiated.
    """
    return _uniform(obj, "deserialize", field)


def _uniform(obj: object, method_name: str, field: Field) -> Callable[[str, Headers, Any], Any]:
    """`obj` as a function of topic, headers and data."""
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
    raise IllegalArgumentError(
        f"{method_name}r: an object with {method_name}() or a callable is needed, not {obj!r}",
    )


def _takes_context(obj: object) -> bool:
    """Whether a callable is Confluent's, with the place of the data as its second argument, `ctx`."""
    if not callable(obj) or isinstance(obj, type):
        return False
    try:
        return list(inspect.signature(obj).parameters)[1:2] == ["ctx"]
    except (TypeError, ValueError):
        return False


def _takes_headers(method: Callable[..., Any]) -> bool:
    """Whether a bound method takes `(topic, headers, data)`; True also when Python does not know."""
    try:
        inspect.signature(method).bind("topic", [], b"")
    except TypeError:
        return False
    except ValueError:  # written in C, without a signature
        return True
    return True


class _Format(Serializer, Deserializer):
    """A format with both directions: None stays None, and failures become `SerializationError`.

    A subclass says its name and how one value is turned round.
    """

    __slots__ = ()

    name: ClassVar[str]
    """What the format is called in `serializer_for` and in errors."""

    @abstractmethod
    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """Bytes of a value that is not None; may raise what the standard library raises."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """Value of bytes; may raise what the standard library raises."""

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes | None:  # noqa: ANN401, ARG002
        """Bytes of `data`; None for None.

        Raises:
            SerializationError: `data` has no form in this format.
        """
        if data is None:
            return None
        try:
            return self.encode(data)
        except _FAILURES as cause:
            what = f"topic {topic!r}: {short(data)} ({type(data).__name__}) cannot be written as {self.name}"
            raise SerializationError(f"{what}: {cause}") from cause

    def deserialize(self, topic: str, headers: Headers, data: bytes | None) -> Any:  # noqa: ANN401, ARG002
        """Value of `data`; None for None.

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
"""What the standard library raises for a value or bytes that do not fit (UnicodeError is a ValueError)."""


class BytesSerializer(_Format):
    """Bytes as they are; bytearray and memoryview are copied into bytes."""

    __slots__ = ()

    name = "bytes"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """The bytes themselves."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError("bytes are needed")
        return bytes(data)

    def decode(self, data: bytes) -> bytes:
        """The bytes themselves."""
        return data


class StringSerializer(_Format):
    """Text in a character encoding, as Kafka's `StringSerializer`.

    Args:
        encoding: a codec of Python's, UTF-8 by default.

    Raises:
        LookupError: there is no such codec.
    """

    __slots__ = ("encoding",)

    name = "string"

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = codecs.lookup(encoding).name

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """The text's bytes; raises for characters that the encoding does not have."""
        if not isinstance(data, str):
            raise TypeError("a str is needed")
        return data.encode(self.encoding)

    def decode(self, data: bytes) -> str:
        """The text; raises for bytes that the encoding does not know."""
        return data.decode(self.encoding)


class DefaultSerializer(StringSerializer):
    """Text is encoded and bytes pass; kafka-python's `DefaultSerializer`. Reading always decodes.

    Args:
        encoding: a codec of Python's, UTF-8 by default.
    """

    __slots__ = ()

    name = "default"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """The text's bytes, or the bytes themselves."""
        if isinstance(data, bytes | bytearray | memoryview):
            return bytes(data)
        if not isinstance(data, str):
            raise TypeError("a str or bytes are needed")
        return data.encode(self.encoding)


class JsonSerializer(_Format):
    """JSON without spaces, in UTF-8. NaN and the infinities are refused: JSON has none.

    None is a tombstone and not `null`, but bytes that say `null` are read as None.
    """

    __slots__ = ()

    name = "json"

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """The JSON text's bytes."""
        return _JSON.encode(data).encode()

    def decode(self, data: bytes) -> Any:  # noqa: ANN401
        """The Python form of a JSON text."""
        return json.loads(data.decode())


_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class _Number(_Format):
    """One big-endian number of fixed width."""

    __slots__ = ()

    layout: ClassVar[struct.Struct]
    """How the number is stored in the bytes."""
    accepts: ClassVar[tuple[type, ...]] = (int,)
    """Python types that are taken; bool never is."""

    def encode(self, data: Any) -> bytes:  # noqa: ANN401
        """The number's bytes; raises outside the range."""
        if isinstance(data, bool) or not isinstance(data, self.accepts):
            raise TypeError("a number is needed")
        return self.layout.pack(data)

    def decode(self, data: bytes) -> int | float:
        """The number; raises when the width is another."""
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
    """8-byte IEEE 754 floats, big-endian, as Kafka's `DoubleSerializer`; integers are taken as well."""

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


_FORMATS: Final[dict[str, _Format]] = {
    format_.name: format_
    for format_ in (
        BytesSerializer(),
        StringSerializer(),
        JsonSerializer(),
        LongSerializer(),
        IntegerSerializer(),
        DoubleSerializer(),
        FloatSerializer(),
        DefaultSerializer(),
    )
}
_ALIASES: Final = {"bytearray": "bytes", "str": "string"}


def serializer_for(name: str) -> Serializer:
    """The serialiser of a format.

    Args:
        name: `bytes`, `string`, `json`, `long`, `integer`, `double`, `float` or `default`, or the name of
            Kafka's Java class for it: `org.apache.kafka.common.serialization.LongSerializer`.

    Raises:
        IllegalArgumentError: there is no such format; says the known names.
    """
    return _format_for(name)


def deserializer_for(name: str) -> Deserializer:
    """The deserialiser of a format; names as in `serializer_for`.

    Raises:
        IllegalArgumentError: there is no such format; says the known names.
    """
    return _format_for(name)


def _format_for(name: str) -> _Format:
    plain = name.strip().rpartition(".")[2].lower().removesuffix("serializer").removesuffix("de")
    found = _FORMATS.get(_ALIASES.get(plain, plain))
    if found is None:
        raise IllegalArgumentError(f"no serialisation is called {name!r}; known are {', '.join(_FORMATS)}")
    return found


for _name in set(__all__) - {"DeserializeFunction", "Field", "SerializeFunction"}:
    # A user sees one name, as in a pickle and in `repr`.
    globals()[_name].__module__ = "kafkalike.serialization"
