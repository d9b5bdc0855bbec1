"""Letters: a record that could not be read and why in, a record of a dead-letter topic out, and back.

The headers have the names and forms of Kafka Connect's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike.model.structs import TopicPartition

Headers = Sequence[tuple[str, bytes | None]]

PREFIX: Final = "__connect.errors."
"""Of the names of all headers that say why a record is a dead letter."""

SUFFIX: Final = ".dlq"
"""The dead-letter topic of a topic has its name with this, unless a setting says another one."""

TOPIC: Final = PREFIX + "topic"
PARTITION: Final = PREFIX + "partition"
OFFSET: Final = PREFIX + "offset"
CONNECTOR: Final = PREFIX + "connector.name"
TASK: Final = PREFIX + "task.id"
STAGE: Final = PREFIX + "stage"
CLASS: Final = PREFIX + "class.name"
EXCEPTION: Final = PREFIX + "exception.class.name"
MESSAGE: Final = PREFIX + "exception.message"
STACKTRACE: Final = PREFIX + "exception.stacktrace"

KEY_CONVERTER: Final = "KEY_CONVERTER"
VALUE_CONVERTER: Final = "VALUE_CONVERTER"

MOST_MESSAGE: Final = 4_096
MOST_STACKTRACE: Final = 16_384
"""Bytes of an exception's message and stack that a letter keeps: it must fit where its record did. Of a longer text the
beginning and the end stay."""

CONTEXT_BYTES: Final = 32_768
"""A letter is longer than its record by no more than this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a record could not be read."""

    stage: str
    """`KEY_CONVERTER` or `VALUE_CONVERTER`; other words are possible."""
    class_name: str
    """What was at work: the full name of a deserializer's class, or of a function."""
    exception: str
    """Full name of the error's class."""
    message: str
    stacktrace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who could not read it."""

    name: str
    """Connect's `connector.name`: a consumer's group, a streaming query's name, a job's."""
    task: str
    """Connect's `task.id`: a consumer's `client_id`, the number of a stream's batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record on its way into a dead-letter topic."""

    topic: str
    """The dead-letter topic."""
    origin: TopicPartition
    offset: int
    """Of the record in `origin`."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those of the record, and what is known of the error."""
    timestamp_ms: int
    size: int = field(init=False, compare=False)
    """Bytes, about."""

    def __post_init__(self) -> None:
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        object.__setattr__(self, "size", len(self.key or b"") + len(self.value or b"") + headers + 100)


def default_topic(topic: str) -> str:
    """The dead-letter topic of a topic; a dead-letter topic has no other one."""
    return topic if topic.endswith(SUFFIX) else topic + SUFFIX


def context_headers(origin: TopicPartition, offset: int, failure: Failure, reader: Reader) -> Headers:
    """What Kafka Connect adds to a dead letter, as text in UTF-8."""
    texts = {
        TOPIC: origin.topic,
        PARTITION: str(origin.partition),
        OFFSET: str(offset),
        CONNECTOR: reader.name,
        TASK: reader.task,
        STAGE: failure.stage,
        CLASS: failure.class_name,
        EXCEPTION: failure.exception,
        MESSAGE: _shortened(failure.message, MOST_MESSAGE),
        STACKTRACE: _shortened(failure.stacktrace, MOST_STACKTRACE),
    }
    return [(name, text.encode(errors="replace")) for name, text in texts.items()]


def original_headers(headers: Headers) -> Headers:
    """The headers of a record without what dead letters have in addition."""
    return [(name, content) for name, content in headers if not name.startswith(PREFIX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a dead letter says of itself; empty where it does not."""

    origin: TopicPartition | None
    """Topic and partition of the record; None where they are not said."""
    offset: int | None
    connector: str
    task: str
    stage: str
    class_name: str
    exception: str
    message: str
    stacktrace: str


def read_context(headers: Headers) -> Context | None:
    """What the headers of a record say of the error; None where they say nothing, as of a record that is no letter.

    Of several headers of one name the last one counts, as Connect adds its own behind.
    """
    found = {name: (content or b"").decode(errors="replace") for name, content in headers if name.startswith(PREFIX)}
    if not found:
        return None
    topic, partition = found.get(TOPIC, ""), _whole(found.get(PARTITION))
    return Context(
        origin=TopicPartition(topic, partition) if topic and partition is not None else None,
        offset=_whole(found.get(OFFSET)),
        connector=found.get(CONNECTOR, ""),
        task=found.get(TASK, ""),
        stage=found.get(STAGE, ""),
        class_name=found.get(CLASS, ""),
        exception=found.get(EXCEPTION, ""),
        message=found.get(MESSAGE, ""),
        stacktrace=found.get(STACKTRACE, ""),
    )


def same_class(wanted: str, exception: str) -> bool:
    """Whether an error's class is the one that is meant: by its full name, or by the last part of it."""
    return wanted in {exception, exception.rpartition(".")[2]}


def names(headers: Iterable[tuple[str, bytes | None]]) -> set[str]:
    """Names of headers."""
    return {name for name, _ in headers}


def _whole(text: str | None) -> int | None:
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 19:  # noqa: PLR2004 - digits of int64
        return None
    return int(text)


def _shortened(text: str, most: int) -> str:
    data = text.encode(errors="replace")
    if len(data) <= most:
        return text
    gap = f"\n... {len(data) - most} bytes ...\n"
    half = (most - len(gap)) // 2
    return data[:half].decode(errors="ignore") + gap + data[-half:].decode(errors="ignore")
