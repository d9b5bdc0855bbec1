"""Consumer protocol: the bytes in which consumers of Kafka write subscriptions and read assignments.

Kafka's broker passes these bytes on unread. Here the gateway parses and writes them, because it runs the assignor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kafkalike.errors import InvalidRequestError
from kafkalike.model.structs import TopicPartition

WRITTEN_VERSION: Final = 1
"""Version of the bytes that this module writes. All consumers read later versions than their own as well."""

OWNED_VERSION: Final = 1
"""First version that names the owned partitions."""

MAX_BYTES: Final = 8 * 1024 * 1024
"""Most bytes of one subscription."""


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription of a consumer: the topics it asks for and the partitions it owns."""

    topics: tuple[str, ...]
    """Names of the subscribed topics, sorted."""
    owned: frozenset[TopicPartition] = frozenset()
    """Partitions that a consumer of a cooperative assignor still holds."""


class _Bytes:
    """Reads numbers and text from bytes of a client."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def number(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self._data, self._at)
        except struct.error:
            raise InvalidRequestError("the subscription of a consumer is cut off") from None
        self._at += struct.calcsize(form)
        return int(value)

    def length(self) -> int:
        length = self.number(">i")
        if length > self.left:
            raise InvalidRequestError("the subscription of a consumer names more items than it has bytes")
        return max(length, 0)

    def text(self) -> str:
        size = self.number(">h")
        if not 0 <= size <= self.left:
            raise InvalidRequestError("the subscription of a consumer is cut off")
        raw = self._data[self._at : self._at + size]
        self._at += size
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise InvalidRequestError("a topic in the subscription of a consumer is not UTF-8") from None

    def skip(self, size: int) -> None:
        if size > self.left:
            raise InvalidRequestError("the subscription of a consumer is cut off")
        self._at += max(size, 0)


def parse_subscription(data: bytes) -> MemberSubscription:
    """Parse a subscription of any version; unknown fields at its end are ignored.

    Raises:
        InvalidRequestError: the bytes are not a subscription.
    """
    if len(data) > MAX_BYTES:
        raise InvalidRequestError(f"the subscription of a consumer has {len(data)} bytes; {MAX_BYTES} are allowed")
    given = _Bytes(data)
    version = given.number(">h")
    topics = tuple(sorted({given.text() for _ in range(given.length())}))
    given.skip(given.number(">i"))
    owned = set()
    if version >= OWNED_VERSION and given.left:
        for _ in range(given.length()):
            topic = given.text()
            owned |= {TopicPartition(topic, given.number(">i")) for _ in range(given.length())}
    return MemberSubscription(topics, frozenset(owned))


def subscription_bytes(topics: Iterable[str], owned: Iterable[TopicPartition] = ()) -> bytes:
    """Return the bytes of a subscription."""
    names = list(topics)
    named = b"".join(map(_text, names))
    return struct.pack(">hi", WRITTEN_VERSION, len(names)) + named + struct.pack(">i", -1) + _by_topic(owned)


def assignment_bytes(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the bytes of an assignment."""
    return struct.pack(">h", WRITTEN_VERSION) + _by_topic(partitions) + struct.pack(">i", -1)


def _by_topic(partitions: Iterable[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    parts = [struct.pack(">i", len(by_topic))]
    parts += [
        _text(topic) + struct.pack(f">i{len(numbers)}i", len(numbers), *numbers) for topic, numbers in by_topic.items()
    ]
    return b"".join(parts)


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack(">h", len(raw)) + raw
