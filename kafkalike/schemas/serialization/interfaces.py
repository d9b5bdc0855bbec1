"""Serializers and deserializers as kafka-python and Confluent define them, and any one as a function of one form."""

from __future__ import annotations

import dataclasses
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.record_batch import Headers

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
