"""Dead letters: a record that could not be read and why in, a record of a dead-letter topic out, and back.

The headers have the names and forms of Kafka Connect's. A letter is written by the commit that moves the group's offset
past its record, in one outcome with it: until then it waits in memory, and records that were read and never committed
are read again. A replay commits the offset of the first letter that has not gone back, with a note of the later ones
that have, as a filter leaves gaps: the group's lag is about the number of waiting letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

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
class FailedReader:
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


def context_headers(origin: TopicPartition, offset: int, failure: Failure, reader: FailedReader) -> Headers:
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


Lives = Mapping[TopicPartition, str | None]
"""Ids of the topics of partitions."""


@dataclass(frozen=True, slots=True)
class _Part:
    topic_id: str | None
    letters: tuple[Letter, ...]
    """In offset order."""


@dataclass(frozen=True, slots=True)
class Held:
    """Letters that wait for a commit. A value: whoever changes it replaces it whole."""

    parts: Mapping[TopicPartition, _Part] = field(default_factory=dict)
    count: int = 0
    size: int = 0
    """Bytes, about."""

    def read(self, tp: TopicPartition, topic_id: str | None, span: range, letters: Sequence[Letter]) -> Held:
        """Some offsets of a partition were read, and these of them are letters; what was known of them is forgotten.

        Args:
            tp: the partition.
            topic_id: of its topic; letters of another one that had the name are forgotten.
            span: offsets that were read.
            letters: in offset order, all within the span.
        """
        known = self.parts.get(tp)
        if known is None and not letters:
            return self
        old = () if known is None or known.topic_id != topic_id else known.letters
        before = tuple(letter for letter in old if letter.offset < span.start)
        after = tuple(letter for letter in old if letter.offset >= span.stop)
        return _of({**self.parts, tp: _Part(topic_id, before + tuple(letters) + after)})

    def of(self, lives: Lives) -> Held:
        """Only letters of partitions that are held still, of the same topic."""
        kept = {tp: part for tp, part in self.parts.items() if tp in lives and lives[tp] == part.topic_id}
        return self if len(kept) == len(self.parts) else _of(kept)

    def due(self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> Sequence[Letter]:
        """The letters that a commit writes.

        Args:
            offsets: what is to be committed.
            committed: what the group has committed; a partition without offset is missing. Letters below that were
                written when it was: by an earlier owner of the partition, by a transaction's producer, or by a
                commit that nobody got an answer to.

        Returns:
            In order of partitions and offsets.
        """
        return [
            letter
            for tp in sorted(self.parts.keys() & offsets.keys())
            for letter in self.parts[tp].letters
            if committed.get(tp, 0) <= letter.offset < offsets[tp]
        ]

    def below(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether any letter lies below these offsets, committed or not."""
        return any(
            tp in offsets and part.letters and part.letters[0].offset < offsets[tp] for tp, part in self.parts.items()
        )

    def settled(self, offsets: Mapping[TopicPartition, int]) -> Held:
        """Without letters below offsets that are committed."""
        if not self.below(offsets):
            return self
        return _of(
            {
                tp: _Part(part.topic_id, tuple(one for one in part.letters if one.offset >= offsets.get(tp, 0)))
                for tp, part in self.parts.items()
            }
        )


def _of(parts: Mapping[TopicPartition, _Part]) -> Held:
    kept = {tp: part for tp, part in parts.items() if part.letters}
    letters = [letter for part in kept.values() for letter in part.letters]
    return Held(kept, len(letters), sum(letter.size for letter in letters))


_MARK: Final = "replayed "
"""A note begins with it; one that does not is somebody else's, and says nothing."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Letters of one partition that went back."""

    below: int = 0
    """All below this did, or are gone."""
    above: tuple[range, ...] = ()
    """And these: ascending, apart from each other and from `below`."""

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None, start: int) -> Self:
        """What a group has committed.

        Args:
            committed: offset and note; None where there is none.
            start: the partition's log start: what lies below is gone.
        """
        if committed is None:
            return cls(start)
        return cls(committed.offset, _parsed(committed.metadata, committed.offset)).from_start(start)

    def __contains__(self, offset: int) -> bool:
        return offset < self.below or any(offset in run for run in self.above)

    def with_these(self, more: Iterable[range]) -> Self:
        """With some more letters."""
        runs = [*self.above, *(run for run in more if run)]
        merged: list[range] = []
        for run in sorted(runs, key=lambda run: run.start):
            if merged and run.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, run.stop))
            else:
                merged.append(run)
        return type(self)(self.below, tuple(merged)).from_start(self.below)

    def from_start(self, start: int) -> Self:
        """With all below an offset."""
        below = max(self.below, start)
        for run in self.above:
            if run.start <= below:
                below = max(below, run.stop)
        return type(self)(below, tuple(run for run in self.above if run.start > below))

    def position(self) -> OffsetAndMetadata:
        """What a group commits."""
        runs = ",".join(f"{run.start - self.below}+{len(run)}" for run in self.above)
        return OffsetAndMetadata(self.below, _MARK + runs if runs else "")


def _parsed(note: str, below: int) -> tuple[range, ...]:
    if not note.startswith(_MARK):
        return ()
    runs: list[range] = []
    for part in note.removeprefix(_MARK).split(","):
        start, _, length = part.partition("+")
        if not (start.isdecimal() and length.isdecimal()):
            return ()
        run = range(below + int(start), below + int(start) + int(length))
        if not run or run.start <= (runs[-1].stop if runs else below):
            return ()
        runs.append(run)
    return tuple(runs)
