"""Interfaces: what a serialiser and a deserialiser are, as in kafka-python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

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
