"""Record builders: deserialize chunks of Arrow columns to `ConsumerRecord`s; failed records may become dead letters."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from gzip import BadGzipFile
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

from kafkalike.errors import KafkaError, RecordDeserializationError, UnknownTopicOrPartitionError
from kafkalike.model import dead_letter
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.model.structs import NO_HEADERS, ConsumerRecord, TopicPartition
from kafkalike.schemas.serialization import DeserializeFunction

if TYPE_CHECKING:
    from kafkalike.consumer.consumer_context import ConsumerContext, ConsumerMetrics
    from kafkalike.log.dead_letter_buffer import DeadLetterBuffer
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


log = logging.getLogger(__name__)

FOR_GOOD: Final = (404, 422)
"""HTTP status codes of a registry that a retry does not change: unknown schema, or invalid schema."""

_STAGES: Final = {"key": dead_letter.KEY_CONVERTER, "value": dead_letter.VALUE_CONVERTER}


@dataclass(slots=True)
class DeadLetterBuilder:
    """Makes `ConsumerRecord`s; a record that a deserializer fails on becomes a dead letter, or is skipped.

    A chunk without such a record costs no extra work. If a record cannot become a letter, the error is that of a
    consumer without tolerance, with the reason.
    """

    deserializers: Deserializers
    settings: DeadLetterSettings
    box: DeadLetterBuffer | None
    """None without a group: then failed records are skipped."""
    reader: dead_letter.FailedReader
    metrics: ConsumerMetrics

    def build(self, tp: TopicPartition, chunk: Chunk) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """Build the records of a chunk, as `Build` requires."""
        made, error = to_records(tp.topic, chunk, self.deserializers.key, self.deserializers.value)
        letters: list[dead_letter.Letter] = []
        if error is not None:
            made, letters, error = self._one_by_one(tp, chunk)
        stop = chunk.next_offset if error is None else error.offset
        if self.box is not None:
            self.box.read(tp, range(chunk.offset_at(0), stop), letters)
        return made, error

    def _one_by_one(
        self, tp: TopicPartition, chunk: Chunk
    ) -> tuple[list[ConsumerRecord], list[dead_letter.Letter], RecordDeserializationError | None]:
        made: list[ConsumerRecord] = []
        letters: list[dead_letter.Letter] = []
        size = 0
        for raw in to_records(tp.topic, chunk)[0]:
            try:
                made.append(deserialized(raw, self.deserializers.key, self.deserializers.value))
            except RecordDeserializationError as error:
                cause = error.__cause__
                if passes(cause):
                    return made, letters, error
                try:
                    letter = self._tolerate(raw, error, len(letters), size)
                except KafkaError as reason:
                    if reason.retriable and not isinstance(reason, UnknownTopicOrPartitionError):
                        raise  # the storage, which may be asked again
                    return made, letters, _refused(error, self.settings.letters_of(raw.topic), reason)
                if letter is not None:
                    letters.append(letter)
                    size += letter.size
        return made, letters, None

    def _tolerate(
        self, raw: ConsumerRecord, error: RecordDeserializationError, count: int, size: int
    ) -> dead_letter.Letter | None:
        """Make a letter of a record, in addition to letters of that number and size; or skip the record.

        Raises:
            KafkaError: the record cannot become a letter.
        """
        letter = None
        topic = self.settings.letters_of(raw.topic)
        if topic is not None and self.box is not None:
            letter = self._letter(topic, raw, error)
            self.box.check(letter)
            if not self.box.room(letter, count, size):
                raise KafkaError(
                    f"{self.box.held.count + count} dead letters wait for a commit; commit the offsets first"
                )
        self.metrics.letters += topic is not None
        self.metrics.records_skipped += 1
        self._say(raw, error)
        return letter

    def _letter(self, topic: str, raw: ConsumerRecord, error: RecordDeserializationError) -> dead_letter.Letter:
        origin = TopicPartition(raw.topic, raw.partition)
        headers = dead_letter.original_headers(raw.headers)
        if self.settings.errors_deadletterqueue_context_headers_enable:
            given = self.deserializers.key_given if error.part == "key" else self.deserializers.value_given
            headers = [
                *headers,
                *dead_letter.context_headers(origin, raw.offset, failure_of(error, given), self.reader),
            ]
        return dead_letter.Letter(
            topic=topic,
            origin=origin,
            offset=raw.offset,
            key=raw.key,
            value=raw.value,
            headers=headers,
            timestamp_ms=raw.timestamp,
        )

    def _say(self, raw: ConsumerRecord, error: RecordDeserializationError) -> None:
        if not self.settings.errors_log_enable:
            return
        self.metrics.errors_logged += 1
        where = f"{raw.topic}-{raw.partition}: offset {raw.offset}, timestamp {raw.timestamp}"
        about = where if self.settings.errors_log_include_messages else raw.topic
        log.error("%s: a record was skipped: %s %r", self.reader.task, about, error.__cause__)


def passes(error: BaseException | None) -> bool:
    """Return True if the record may not be the cause of an error, for instance if a registry does not answer.

    Such an error is raised, as without tolerance: an outage must not turn a topic into dead letters.
    """
    if isinstance(error, BadGzipFile):
        return False  # an OSError that only says what the record's bytes are
    if isinstance(error, OSError | MemoryError):
        return True
    if isinstance(error, KafkaError) and error.retriable:
        return True
    status = getattr(error, "http_status_code", None)
    if isinstance(status, int):
        return status not in FOR_GOOD
    # Confluent's client passes on errors of httpx, which are not OSErrors.
    return any(kind.__module__.startswith("httpx") and kind.__name__ == "TransportError" for kind in type(error).mro())


def failure_of(error: RecordDeserializationError, deserializer: object) -> dead_letter.Failure:
    """Describe for a letter why a record could not be deserialized."""
    cause = error.__cause__ or error
    # Its text exists even if the `str` of the user's class fails.
    told = traceback.TracebackException.from_exception(cause)
    return dead_letter.Failure(
        stage=_STAGES.get(error.part, error.part),
        class_name=full_name(deserializer),
        exception=full_name(type(cause)),
        message=str(told),
        stacktrace="".join(told.format()),
    )


def full_name(thing: Any) -> str:  # noqa: ANN401
    """Return module and name of a class or function, or of the class of any other object."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def _refused(error: RecordDeserializationError, topic: str | None, reason: KafkaError) -> RecordDeserializationError:
    """Make the error of a record that cannot become a letter either."""
    cause = error.__cause__
    assert isinstance(cause, Exception)
    told = RecordDeserializationError(error.topic, error.partition, error.offset, error.part, cause)
    told.args = (f"{error.args[0]}; it cannot become a dead letter in {topic!r}: {type(reason).__name__}: {reason}",)
    told.__cause__ = cause
    return told


def dead_letter_builder(deserializers: Deserializers, context: ConsumerContext) -> Build:
    """Return the function that makes records for a consumer with `errors_tolerance='all'`."""
    config = context.config
    reader = dead_letter.FailedReader(name=config.group_id or config.client_id, task=config.client_id)
    return DeadLetterBuilder(deserializers, config, context.letters, reader, context.metrics).build
