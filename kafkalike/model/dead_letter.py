"""Dead letters: convert a failed record and its error to a record of a dead-letter topic, and back.

The headers have the names and forms of Kafka Connect's. The commit that moves the group's offset past a record also
writes its letter, with the same outcome. Until then the letter waits in memory, and a restart reads uncommitted records
again. A replay commits the offset of the first letter that has not been replayed, with a note of the later letters that
have been, because a filter leaves gaps. The group's lag is therefore about the number of waiting letters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]

PREFIX: Final = "__connect.errors."
"""Prefix of the names of all headers that describe the error."""

SUFFIX: Final = ".dlq"
"""Suffix of the dead-letter topic of a topic, unless a setting names another topic."""

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
"""Bytes of an exception's message and stack that a letter keeps, so that it fits where its record did. The beginning
and the end of a longer text are kept."""

CONTEXT_BYTES: Final = 32_768
"""Most bytes by which a letter is longer than its record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Reason why a record could not be read."""

    stage: str
    """`KEY_CONVERTER` or `VALUE_CONVERTER`; other values are possible."""
    class_name: str
    """Full name of the deserializer's class or of the function that failed."""
    exception: str
    """Full name of the error's class."""
    message: str
    stacktrace: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedReader:
    """The client that could not read the record."""

    name: str
    """Connect's `connector.name`: a consumer's group, or the name of a streaming query or job."""
    task: str
    """Connect's `task.id`: a consumer's `client_id`, or the number of a stream's batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A record to be written to a dead-letter topic."""

    topic: str
    """The dead-letter topic."""
    origin: TopicPartition
    offset: int
    """Offset of the record in `origin`."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Headers of the record and of the error."""
    timestamp_ms: int
    size: int = field(init=False, compare=False)
    """Approximate size in bytes."""

    def __post_init__(self) -> None:
        headers = sum(len(name) + len(content or b"") for name, content in self.headers)
        object.__setattr__(self, "size", len(self.key or b"") + len(self.value or b"") + headers + 100)


def default_topic(topic: str) -> str:
    """Return the default dead-letter topic of a topic; for a dead-letter topic, the topic itself."""
    return topic if topic.endswith(SUFFIX) else topic + SUFFIX


def context_headers(origin: TopicPartition, offset: int, failure: Failure, reader: FailedReader) -> Headers:
    """Return the headers that Kafka Connect adds to a dead letter, as text in UTF-8."""
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
    """Return the record's own headers, without the headers of dead letters."""
    return [(name, content) for name, content in headers if not name.startswith(PREFIX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The parsed error headers of a dead letter; values of missing headers are empty."""

    origin: TopicPartition | None
    """Topic and partition of the record; None if they are missing."""
    offset: int | None
    connector: str
    task: str
    stage: str
    class_name: str
    exception: str
    message: str
    stacktrace: str


def read_context(headers: Headers) -> Context | None:
    """Parse the error headers of a record; None if it has none, so it is not a dead letter.

    The last of several headers with one name counts, because Connect appends its own.
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
    """Return whether an error's class has this name: its full name, or the last part of it."""
    return wanted in {exception, exception.rpartition(".")[2]}


def names(headers: Iterable[tuple[str, bytes | None]]) -> set[str]:
    """Return the names of headers."""
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
    """Letters in offset order."""


@dataclass(frozen=True, slots=True)
class Held:
    """Letters that wait for a commit: an immutable value."""

    parts: Mapping[TopicPartition, _Part] = field(default_factory=dict)
    count: int = 0
    size: int = 0
    """Approximate size in bytes."""

    def read(self, tp: TopicPartition, topic_id: str | None, span: range, letters: Sequence[Letter]) -> Held:
        """Replace the letters of a range of offsets that was read.

        Args:
            tp: the partition.
            topic_id: id of its topic; letters of another topic with that name are dropped.
            span: offsets that were read.
            letters: letters within the span, in offset order.
        """
        known = self.parts.get(tp)
        if known is None and not letters:
            return self
        old = () if known is None or known.topic_id != topic_id else known.letters
        before = tuple(letter for letter in old if letter.offset < span.start)
        after = tuple(letter for letter in old if letter.offset >= span.stop)
        return _of({**self.parts, tp: _Part(topic_id, before + tuple(letters) + after)})

    def of(self, lives: Lives) -> Held:
        """Keep only letters of partitions that the consumer still owns, of the same topic."""
        kept = {tp: part for tp, part in self.parts.items() if tp in lives and lives[tp] == part.topic_id}
        return self if len(kept) == len(self.parts) else _of(kept)

    def due(self, offsets: Mapping[TopicPartition, int], committed: Mapping[TopicPartition, int]) -> Sequence[Letter]:
        """Return the letters that a commit writes.

        Args:
            offsets: offsets to commit.
            committed: the group's committed offsets, without partitions that have none. Letters below them were written
                with that commit: by an earlier owner of the partition, by a transaction's producer, or by a commit
                whose answer was lost.

        Returns:
            The letters in order of partitions and offsets.
        """
        return [
            letter
            for tp in sorted(self.parts.keys() & offsets.keys())
            for letter in self.parts[tp].letters
            if committed.get(tp, 0) <= letter.offset < offsets[tp]
        ]

    def below(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether any letter is below these offsets, committed or not."""
        return any(
            tp in offsets and part.letters and part.letters[0].offset < offsets[tp] for tp, part in self.parts.items()
        )

    def settled(self, offsets: Mapping[TopicPartition, int]) -> Held:
        """Drop the letters below committed offsets."""
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
"""Prefix of a note. Notes without it were written by other programs and are ignored."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Replayed letters of one partition."""

    below: int = 0
    """All letters below this offset have been replayed or are deleted."""
    above: tuple[range, ...] = ()
    """Other replayed offsets: ascending, apart from each other and from `below`."""

    @classmethod
    def of(cls, committed: OffsetAndMetadata | None, start: int) -> Self:
        """Parse what a group has committed.

        Args:
            committed: offset and note; None without a commit.
            start: the partition's log start, below which all letters are deleted.
        """
        if committed is None:
            return cls(start)
        return cls(committed.offset, _parsed(committed.metadata, committed.offset)).from_start(start)

    def __contains__(self, offset: int) -> bool:
        return offset < self.below or any(offset in run for run in self.above)

    def with_these(self, more: Iterable[range]) -> Self:
        """Add more replayed letters."""
        runs = [*self.above, *(run for run in more if run)]
        merged: list[range] = []
        for run in sorted(runs, key=lambda run: run.start):
            if merged and run.start <= merged[-1].stop:
                merged[-1] = range(merged[-1].start, max(merged[-1].stop, run.stop))
            else:
                merged.append(run)
        return type(self)(self.below, tuple(merged)).from_start(self.below)

    def from_start(self, start: int) -> Self:
        """Add all letters below an offset."""
        below = max(self.below, start)
        for run in self.above:
            if run.start <= below:
                below = max(below, run.stop)
        return type(self)(below, tuple(run for run in self.above if run.start > below))

    def position(self) -> OffsetAndMetadata:
        """Return the offset and note that the group commits."""
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
