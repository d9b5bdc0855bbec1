"""Dead-letter builder: deserializes chunks, and turns records that cannot be deserialized into dead letters."""

from __future__ import annotations

import logging
import traceback
from dataclasses import dataclass
from gzip import BadGzipFile
from typing import TYPE_CHECKING, Any, Final

from kafkalike.consumer.consumer_context import ConsumerContext, ConsumerMetrics
from kafkalike.consumer.record_builders import Build, Deserializers, deserialized, to_records
from kafkalike.errors import KafkaError, RecordDeserializationError, UnknownTopicOrPartitionError
from kafkalike.log.dead_letter_buffer import DeadLetterBuffer
from kafkalike.model.config.dead_letter_config import DeadLetterSettings
from kafkalike.model.dead_letter import (
    KEY_CONVERTER,
    VALUE_CONVERTER,
    FailedReader,
    Failure,
    Letter,
    context_headers,
    original_headers,
)
from kafkalike.model.structs import ConsumerRecord, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.chunk import Chunk

log = logging.getLogger(__name__)

FOR_GOOD: Final = (404, 422)
"""HTTP status codes of a registry that a retry does not change: unknown schema, or invalid schema."""

_STAGES: Final = {"key": KEY_CONVERTER, "value": VALUE_CONVERTER}


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
    reader: FailedReader
    metrics: ConsumerMetrics

    def build(self, tp: TopicPartition, chunk: Chunk) -> tuple[list[ConsumerRecord], RecordDeserializationError | None]:
        """Build the records of a chunk, as `Build` requires."""
        made, error = to_records(tp.topic, chunk, self.deserializers.key, self.deserializers.value)
        letters: list[Letter] = []
        if error is not None:
            made, letters, error = self._one_by_one(tp, chunk)
        stop = chunk.next_offset if error is None else error.offset
        if self.box is not None:
            self.box.read(tp, range(chunk.offset_at(0), stop), letters)
        return made, error

    def _one_by_one(
        self, tp: TopicPartition, chunk: Chunk
    ) -> tuple[list[ConsumerRecord], list[Letter], RecordDeserializationError | None]:
        made: list[ConsumerRecord] = []
        letters: list[Letter] = []
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

    def _tolerate(self, raw: ConsumerRecord, error: RecordDeserializationError, count: int, size: int) -> Letter | None:
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

    def _letter(self, topic: str, raw: ConsumerRecord, error: RecordDeserializationError) -> Letter:
        origin = TopicPartition(raw.topic, raw.partition)
        headers = original_headers(raw.headers)
        if self.settings.errors_deadletterqueue_context_headers_enable:
            given = self.deserializers.key_given if error.part == "key" else self.deserializers.value_given
            headers = [*headers, *context_headers(origin, raw.offset, failure_of(error, given), self.reader)]
        return Letter(
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


def failure_of(error: RecordDeserializationError, deserializer: object) -> Failure:
    """Describe for a letter why a record could not be deserialized."""
    cause = error.__cause__ or error
    return Failure(
        stage=_STAGES.get(error.part, error.part),
        class_name=full_name(deserializer),
        exception=full_name(type(cause)),
        message=_text(cause),
        stacktrace="".join(traceback.format_exception(cause)),
    )


def full_name(thing: Any) -> str:  # noqa: ANN401
    """Return module and name of a class or function, or of the class of any other object."""
    named = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{getattr(named, '__module__', None) or 'builtins'}.{named.__qualname__}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as cause:  # noqa: BLE001 - the user's class
        return f"str() of it raised {cause!r}"


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
    reader = FailedReader(name=config.group_id or config.client_id, task=config.client_id)
    return DeadLetterBuilder(deserializers, config, context.letters, reader, context.metrics).build
