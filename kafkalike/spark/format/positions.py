"""Starting and ending positions in a query's options, and their resolution to offsets by partition.

The JSON forms, the words and the precedence of options follow Spark's Kafka source (`JsonUtils`,
`KafkaSourceProvider.getKafkaOffsetRangeLimit`, `KafkaOffsetReaderAdmin`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.segments import MAX_OFFSET
from kafkalike.model.structs import OffsetAndTimestamp, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
NAMES: Final = {mark: word for word, mark in WORDS.items()}


@dataclass(frozen=True, slots=True)
class Everywhere:
    """A mark, `EARLIEST` or `LATEST`, for every partition."""

    mark: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """Offsets or marks by partition, and marks by topic."""

    offsets: Mapping[TopicPartition, int]
    topics: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time (ms), in every partition."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record at or after a time (ms), by partition."""

    timestamps: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CommittedPosition:
    """A consumer group's committed offset in every partition; see `kafkalike.spark.format.source_topics`."""

    reset: str | None = None
    """Start in partitions without a committed offset: `earliest`, `latest`, or `none` for an error. None: the start of
    a new query."""


Settled: TypeAlias = Everywhere | AtOffsets | AtTime | AtTimes
Position: TypeAlias = Settled | CommittedPosition


class Ends(Protocol):
    """The methods of a topic's log that resolving a position needs; see `TopicLog`."""

    def log_start(self, partition: int) -> int:
        """Return the first readable offset."""
        ...

    def log_end(self, partition: int) -> int:
        """Return the offset of the next record."""
        ...

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first record at or after a time."""
        ...


# --- JSON --------------------------------------------------------------------------------------


def parse_offsets(option: str, text: str) -> Position:
    """Parse `earliest`, `latest`, or JSON such as `{"a": {"0": 23, "1": -1}, "b": "earliest"}`.

    Raises:
        IllegalArgumentError: the text has another form; quotes it.
    """
    word = WORDS.get(text.strip().lower())
    if word is not None:
        return Everywhere(word)
    shape = 'earliest, latest or JSON like {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    offsets: dict[TopicPartition, int] = {}
    topics: dict[str, int] = {}
    for topic, given in _object(option, text, shape).items():
        if isinstance(given, str) and given.lower() in WORDS:
            topics[topic] = WORDS[given.lower()]
        else:
            offsets |= _numbers(option, text, shape, topic, given, least=EARLIEST)
    return AtOffsets(offsets, topics)


def parse_timestamps(option: str, text: str) -> AtTimes:
    """Parse JSON such as `{"a": {"0": 1000, "1": 2000}}`: ms since the epoch.

    Raises:
        IllegalArgumentError: the text has another form; quotes it.
    """
    shape = 'JSON like {"topicA":{"0":1000,"1":1000}}'
    found: dict[TopicPartition, int] = {}
    for topic, given in _object(option, text, shape).items():
        found |= _numbers(option, text, shape, topic, given, least=0)
    return AtTimes(found)


def parse_partitions(option: str, text: str) -> frozenset[TopicPartition]:
    """Parse JSON such as `{"a": [0, 1]}`.

    Raises:
        IllegalArgumentError: the text has another form; quotes it.
    """
    shape = 'JSON like {"topicA":[0,1],"topicB":[2,4]}'
    found = set()
    for topic, given in _object(option, text, shape).items():
        if not isinstance(given, list) or not all(type(p) is int and p >= 0 for p in given):
            raise IllegalArgumentError(f"option {option}: {shape} is needed, not {text!r}")
        found |= {TopicPartition(topic, p) for p in given}
    return frozenset(found)


def offsets_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as the JSON object that Spark's Kafka source and `parse_offsets` read."""
    made: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(offsets.items()):
        made.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return made


def offsets_of(given: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Turn the object of `offsets_json` back into offsets.

    Raises:
        IllegalArgumentError: a checkpoint holds something else.
    """
    try:
        return {TopicPartition(t, int(p)): int(offset) for t, by in given.items() for p, offset in by.items()}
    except (AttributeError, TypeError, ValueError) as cause:
        raise IllegalArgumentError(
            f'the checkpoint holds {given!r} instead of offsets such as {{"topicA":{{"0":23}}}}'
        ) from cause


def _object(option: str, text: str, shape: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            raise ValueError("a name stands there twice")
        return made

    try:
        given = json.loads(text, object_pairs_hook=once)
    except ValueError as cause:
        raise IllegalArgumentError(f"option {option}: {shape} is needed, not {text!r}: {cause}") from cause
    if not isinstance(given, dict):
        raise IllegalArgumentError(f"option {option}: {shape} is needed, not {text!r}")
    return given


def _numbers(  # noqa: PLR0917
    option: str, text: str, shape: str, topic: str, given: object, least: int
) -> dict[TopicPartition, int]:
    if not isinstance(given, dict):
        raise IllegalArgumentError(f"option {option}: {shape} is needed, not {text!r}")
    found = {}
    for partition, number in given.items():
        if not (partition.isascii() and partition.isdigit()) or type(number) is not int:
            raise IllegalArgumentError(f"option {option}: {shape} is needed, not {text!r}")
        if not least <= number <= MAX_OFFSET:
            raise IllegalArgumentError(
                f"option {option}: {topic}-{partition}: {number} is not in [{least}, {MAX_OFFSET}], in {text!r}"
            )
        found[TopicPartition(topic, int(partition))] = number
    return found


# --- checks that need no log -------------------------------------------------------------------


def refuse_mark(option: str, position: Position, mark: int) -> None:
    """Refuse a mark that a batch cannot have at its start or end, as a word or inside JSON.

    Raises:
        IllegalArgumentError: the position has the mark; names the partition if it is in JSON.
    """
    if position == Everywhere(mark):
        raise IllegalArgumentError(f"option {option}: {NAMES[mark]} is not supported for batch queries")
    if isinstance(position, AtOffsets):
        for name in [t for t, at in position.topics.items() if at == mark]:
            raise IllegalArgumentError(f"option {option}: {name}: {NAMES[mark]} is not supported for batch queries")
        for tp in [tp for tp, at in sorted(position.offsets.items()) if at == mark]:
            message = f"{tp.topic}-{tp.partition}: {NAMES[mark]} ({mark}) is not supported for batch queries"
            raise IllegalArgumentError(f"option {option}: {message}")


def check_literals(start: Position, end: Position) -> None:
    """Check start and end offsets against each other if both are given by partition; no log is needed.

    Raises:
        IllegalArgumentError: they name different partitions, or a start is above its end.
    """
    if not isinstance(start, AtOffsets) or not isinstance(end, AtOffsets) or start.topics or end.topics:
        return
    if start.offsets.keys() != end.offsets.keys():
        raise IllegalArgumentError(
            "startingOffsets and endingOffsets must name the same partitions, not "
            f"{names(start.offsets)} and {names(end.offsets)}"
        )
    for tp, at in sorted(start.offsets.items()):
        until = end.offsets[tp]
        if at >= 0 and 0 <= until < at:
            raise IllegalArgumentError(
                f"UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET: {tp.topic}-{tp.partition}: the start {at} is "
                f"above the end {until}"
            )


# --- resolving ---------------------------------------------------------------------------------


def resolve(
    position: Settled,
    chosen: Collection[TopicPartition],
    log: Callable[[str], Ends],
    *,
    ending: bool,
    or_latest: bool = False,
) -> dict[TopicPartition, int]:
    """Resolve a position to offsets, as of this call.

    Args:
        position: a position from the options.
        chosen: the partitions to read.
        log: returns the refreshed log of a topic.
        ending: whether the position is an end: there, a time after the last record is the log end.
        or_latest: treat a start in the same way (`startingOffsetsByTimestampStrategy=latest`).

    Raises:
        IllegalArgumentError: the position names other partitions than the chosen ones, or no record is at or after a
            starting time.
    """

    def at(tp: TopicPartition, mark: int) -> int:
        if mark == EARLIEST:
            return log(tp.topic).log_start(tp.partition)
        return log(tp.topic).log_end(tp.partition) if mark == LATEST else mark

    def at_time(tp: TopicPartition, timestamp_ms: int) -> int:
        found = log(tp.topic).offset_for_time(tp.partition, timestamp_ms)
        if found is not None:
            return found.offset
        if ending or or_latest:
            return log(tp.topic).log_end(tp.partition)
        raise IllegalArgumentError(
            f"No offset matched from request of topic-partition {tp.topic}-{tp.partition} and timestamp "
            f"{timestamp_ms}: it has no record at or after that time; startingOffsetsByTimestampStrategy=latest would "
            "begin at its end"
        )

    match position:
        case Everywhere(mark):
            return {tp: at(tp, mark) for tp in chosen}
        case AtTime(timestamp_ms):
            return {tp: at_time(tp, timestamp_ms) for tp in chosen}
        case AtTimes(timestamps):
            _check_same("KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", timestamps, chosen)
            return {tp: at_time(tp, timestamps[tp]) for tp in chosen}
        case AtOffsets():
            marks = by_partition(position, chosen)
            return {tp: at(tp, marks[tp]) for tp in chosen}


def by_partition(position: AtOffsets, chosen: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return offsets and marks of exactly the chosen partitions.

    Raises:
        IllegalArgumentError: the position names other partitions, or leaves some out.
    """
    marks = {tp: position.topics[tp.topic] for tp in chosen if tp.topic in position.topics} | dict(position.offsets)
    unknown = position.topics.keys() - {tp.topic for tp in chosen}
    given = [*marks, *(TopicPartition(topic, -1) for topic in unknown)]
    _check_same("KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", given, chosen)
    return marks


def _check_same(error: str, given: Collection[TopicPartition], chosen: Collection[TopicPartition]) -> None:
    if set(given) != set(chosen):
        message = "the partitions that are given must be exactly those that are read; -1 is latest, -2 earliest"
        raise IllegalArgumentError(f"{error}: {message}. Given: {names(given)}; read: {names(chosen)}")


def resolved_from_latest(
    position: Position, offsets: Mapping[TopicPartition, int], log: Callable[[str], Ends]
) -> frozenset[TopicPartition]:
    """Return the partitions whose start depends on when it is resolved: at the log end, or at a group's offset."""
    match position:
        case Everywhere(mark):
            return frozenset(offsets) if mark == LATEST else frozenset()
        case AtOffsets():
            return frozenset(tp for tp, mark in by_partition(position, offsets).items() if mark == LATEST)
        case AtTime() | AtTimes():
            return frozenset(tp for tp, at in offsets.items() if at == log(tp.topic).log_end(tp.partition))
        case CommittedPosition():
            # The group may have moved, in either direction.
            return frozenset(offsets)


def names(partitions: Iterable[TopicPartition]) -> str:
    """List partitions for people: `orders-0, orders-1`."""
    return ", ".join(f"{tp.topic}-{tp.partition}" if tp.partition >= 0 else tp.topic for tp in sorted(partitions))
