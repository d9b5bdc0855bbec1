"""Record builders: make deserialized `ConsumerRecord`s from a chunk of Arrow columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import RecordDeserializationError
from kafkalike.model.structs import NO_HEADERS, ConsumerRecord, TopicPartition
from kafkalike.schemas.serialization import DeserializeFunction

if TYPE_CHECKING:
    from kafkalike.log.topic.chunk import Chunk

NO_EPOCH: Final = -1
"""Leader epoch of every record: "unknown" in kafka-python, because topic tables have no leaders."""

Build = Callable[[TopicPartition, "Chunk"], tuple[Any, RecordDeserializationError | None]]
"""Converts a chunk to the caller's form. Also returns the error of the first record that failed, which follows the
converted ones."""

Headers = list[tuple[str, bytes | None]]

# `ConsumerRecord._make` is a Python function that checks the length of every row; the rows below have the right one.
_to_record: Final[Callable[[Iterable[object]], ConsumerRecord]] = partial(tuple.__new__, ConsumerRecord)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deserializers:
    """Functions that turn bytes into keys and values; None leaves bytes."""

    key: DeserializeFunction | None
    value: DeserializeFunction | None
    key_given: object = None
    """The user's object."""
    value_given: object = None


def to_records(
    topic: str,
    chunk: Chunk,
    key_deserializer: DeserializeFunction | None = None,
    value_deserializer: DeserializeFunction | None = None,
) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
    """Return the records of a chunk as tuples.

    Args:
        topic: the chunk's topic.
        chunk: at least one record.
        key_deserializer: turns key bytes into keys; None leaves them.
        value_deserializer: turns value bytes into values; None leaves them.

    Returns:
        The records, and None; or the records before the first failure of a deserializer, and the error.
    """
    columns = chunk.columns()
    headers = columns.headers
    if headers is None:
        count, plain = len(columns.offsets), key_deserializer is None and value_deserializer is None
        # A deserializer may change the headers.
        headers = [NO_HEADERS] * count if plain else [[] for _ in range(count)]
    keys, values, failed = columns.keys, columns.values, None
    if key_deserializer is not None:
        keys, failed = _deserialize("key", key_deserializer, topic, chunk.partition, columns.offsets, headers, keys)
    if value_deserializer is not None:
        values, value_failed = _deserialize(
            "value", value_deserializer, topic, chunk.partition, columns.offsets, headers[: len(keys)], values
        )
        failed = value_failed or failed
    rows = zip(
        repeat(topic),
        repeat(chunk.partition),
        repeat(NO_EPOCH),
        columns.offsets,
        columns.timestamps,
        columns.timestamp_types,
        keys,
        values,
        headers,
        repeat(None),
        _sizes(columns.keys),
        _sizes(columns.values),
        repeat(-1) if columns.headers is None else map(_headers_size, headers),
    )
    return list(map(_to_record, rows)), failed


def deserialized(
    raw: ConsumerRecord, key_deserializer: DeserializeFunction | None, value_deserializer: DeserializeFunction | None
) -> ConsumerRecord:
    """Deserialize one record of bytes.

    Raises:
        RecordDeserializationError: a deserializer failed; its error is the cause.
    """
    keys, values, failed = [raw.key], [raw.value], None
    # A deserializer may change them; `raw` becomes the dead letter if it fails.
    headers = list(raw.headers)
    where = raw.topic, raw.partition, (raw.offset,), (headers,)
    if key_deserializer is not None:
        keys, failed = _deserialize("key", key_deserializer, *where, keys)
    if failed is None and value_deserializer is not None:
        values, failed = _deserialize("value", value_deserializer, *where, values)
    if failed is not None:
        raise failed
    return raw._replace(key=keys[0], value=values[0], headers=headers)


def _deserialize(  # noqa: PLR0917 - the parts of one record's place and content
    part: str,
    function: DeserializeFunction,
    topic: str,
    partition: int,
    offsets: Sequence[int],
    headers: Sequence[Headers],
    data: Sequence[bytes | None],
) -> tuple[list[Any], RecordDeserializationError | None]:
    """Return the values up to the first failure, and the failure."""
    done: list[Any] = []
    try:
        for pairs, content in zip(headers, data, strict=False):
            done.append(function(topic, pairs, content))
    except Exception as cause:  # noqa: BLE001 - the user's code may raise anything
        error = RecordDeserializationError(topic, partition, offsets[len(done)], part, cause)
        error.__cause__ = cause
        return done, error
    return done, None


def _sizes(data: list[bytes | None]) -> Iterable[int]:
    """Return the lengths; -1 for None."""
    return [-1 if content is None else len(content) for content in data]


def _headers_size(headers: Headers) -> int:
    """Return the size of a record's headers in bytes; -1 without headers."""
    if not headers:
        return -1
    return sum(len(name.encode()) + len(content or b"") for name, content in headers)


def record_builder(key: DeserializeFunction | None, value: DeserializeFunction | None) -> Build:
    """Return a function that makes `ConsumerRecord`s of a chunk."""

    def build(tp: TopicPartition, chunk: Chunk) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        return to_records(tp.topic, chunk, key, value)

    return build


def arrow_builder(tp: TopicPartition, chunk: Chunk) -> tuple[Any, None]:
    """Make an Arrow table of a chunk."""
    return chunk.to_arrow(tp.topic), None
