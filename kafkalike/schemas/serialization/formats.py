"""Serializers and deserializers of Kafka's own formats and JSON."""

from __future__ import annotations

import codecs
import json
import struct
from abc import abstractmethod
from reprlib import repr as short
from typing import Any, ClassVar, Final

from kafkalike.errors import IllegalArgumentError, SerializationError
from kafkalike.model.record_batch import Headers
from kafkalike.schemas.serialization.interfaces import Deserializer, Serializer


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
