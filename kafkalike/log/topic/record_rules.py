"""Record rules: a batch is checked against its topic's settings, and refused by a named error before a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kafkalike.errors import (
    IllegalArgumentError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumberError,
    UnknownTopicOrPartitionError,
    UnsupportedCodecError,
)
from kafkalike.model.config.topic_config import CODECS, NO_CHECKS, TopicConfig
from kafkalike.model.record_batch import Headers, RecordBatch
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.model.record_batch import TxnId
    from kafkalike.model.schemas.registry_state import RegistryState

MAX_TIMESTAMP_MS: Final = 253_402_214_399_999
"""Largest record time, ms: 9999-12-30T23:59:59.999Z. File statistics, which look-ups by time rest on, have times as
text, Spark's in the session's time zone; beyond the year 9999, here a day away, that text is not defined."""

RECORD_OVERHEAD: Final = 70
"""Bytes Kafka's format 2 adds to a record alone in its batch: 61 of batch header, 9 of record fields at most for
short records. `max.message.bytes` is measured with it, as a broker measures a batch."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Bytes that `max.message.bytes` counts for one record."""
    size = RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers or ():
        size += len(name.encode()) + len(content or b"")
    return size


class RegistryView(Protocol):
    """A cluster's registry."""

    @property
    def state(self) -> RegistryState:
        """As of the last look."""
        ...

    def refresh(self) -> RegistryState:
        """As of now."""
        ...


SchemasOf = Callable[[], RegistryView]
"""Gives a cluster's registry, which is opened only for topics that check schemas."""


def check_batch(
    batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int, schemas: SchemasOf | None = None
) -> None:
    """Check every record of a batch against its topic.

    Args:
        batch: the records.
        info: the topic they go to.
        config: its settings in effect.
        now_ms: time of the append, ms; what the timestamp limits count from.
        schemas: the cluster's registry; None only where the topic is known to check no schemas.

    Raises:
        IllegalArgumentError: the batch is empty.
        MirrorTopicError: the topic is a read-only copy.
        UnknownTopicOrPartitionError: a partition the topic does not have.
        MessageSizeTooLargeError: a record above `max.message.bytes`.
        InvalidTimestampError: a time that is negative, too large, or outside `message.timestamp.*.max.ms`.
        InvalidRecordError: a record without key in a compacted topic, or with a schema that is not the topic's.
        KafkaError: the registry cannot be read.
    """
    if not batch.partitions:
        raise IllegalArgumentError(f"nothing to append to {info.name!r}: the batch is empty")
    info.check_own()
    low, high = min(batch.partitions), max(batch.partitions)
    if low < 0 or high >= info.num_partitions:
        wrong = low if low < 0 else high
        raise UnknownTopicOrPartitionError(
            f"{info.name}-{wrong} does not exist: the topic has partitions 0 to {info.num_partitions - 1}"
        )
    _check_sizes(batch, info, config)
    _check_times(batch, info, config, now_ms)
    if config.compacted and None in batch.keys:
        raise InvalidRecordError(
            f"{info.name}: {_record(batch, batch.keys.index(None))} has no key; cleanup.policy=compact needs one"
        )
    if config.schemas is not NO_CHECKS:
        assert schemas is not None, f"{info.name} checks schemas"
        _check_schemas(batch, info, config, schemas())


def _check_schemas(batch: RecordBatch, info: TopicInfo, config: TopicConfig, registry: RegistryView) -> None:
    """Refuse records whose schema is not the topic's. What is not known is looked up anew, once."""
    from kafkalike.model.schemas.admission import admits, heads_of, id_of, refusal

    known = registry.state
    looked = False
    for part, strategy in config.schemas.parts.items():
        column = batch.keys if part == "key" else batch.values
        for head in sorted(heads_of(column)):
            found = id_of(head)
            good = found is not None and admits(known, info.name, part, strategy, found)
            if not good and found is not None and not looked:
                known, looked = registry.refresh(), True
                good = admits(known, info.name, part, strategy, found)
            if not good:
                row = next(at for at, content in enumerate(column) if content is not None and content[:5] == head)
                raise InvalidRecordError(
                    f"{info.name}: {_record(batch, row)}: {refusal(known, info.name, part, strategy, head)}"
                )


def codec_for(config: TopicConfig, producer: str) -> str:
    """The codec of new files: the topic's own, or the producer's where the topic says `producer`.

    Raises:
        UnsupportedCodecError: the producer's is none of Kafka's, whichever of the two holds.
    """
    if producer not in CODECS:
        raise UnsupportedCodecError(f"unknown compression codec {producer!r}; one of {', '.join(CODECS)} is needed")
    return producer if config.compression_type == "producer" else config.compression_type


RECORD_ERRORS: Final = (InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError)
"""What `check_batch` raises when single records are to blame."""


def refused_rows(
    batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int, schemas: SchemasOf | None = None
) -> dict[int, KafkaError]:
    """Find the records for whose sake `check_batch` refuses a batch.

    For after a refusal: it halves the batch until the bad records stand alone, so few of them cost little.

    Returns:
        By row, why the record is refused; empty when there is none.

    Raises:
        IllegalArgumentError, UnknownTopicOrPartitionError: as `check_batch`.
    """
    found: dict[int, KafkaError] = {}
    parts = [range(len(batch))]
    while parts:
        rows = parts.pop()
        part = RecordBatch(
            partitions=batch.partitions[rows.start : rows.stop],
            keys=batch.keys[rows.start : rows.stop],
            values=batch.values[rows.start : rows.stop],
            timestamps=batch.timestamps[rows.start : rows.stop],
            headers=batch.headers[rows.start : rows.stop],
        )
        try:
            check_batch(part, info, config, now_ms, schemas)
        except RECORD_ERRORS as error:
            if len(rows) == 1:
                found[rows.start] = error
            else:
                middle = (rows.start + rows.stop) // 2
                parts += [range(middle, rows.stop), range(rows.start, middle)]
    return found


def _check_sizes(batch: RecordBatch, info: TopicInfo, config: TopicConfig) -> None:
    limit = config.max_message_bytes
    longest = _longest(batch.keys) + _longest(batch.values)
    if longest + RECORD_OVERHEAD <= limit and not any(batch.headers):
        return
    for row, (key, value, headers) in enumerate(zip(batch.keys, batch.values, batch.headers, strict=True)):
        size = record_size(key, value, headers)
        if size > limit:
            raise MessageSizeTooLargeError(
                f"{info.name}: {_record(batch, row)} has {size} bytes; max.message.bytes={limit}"
            )


def _longest(column: list[bytes | None]) -> int:
    """Bytes of the longest; twice as fast where none is null."""
    if None in column:
        return max(map(len, filter(None, column)), default=0)
    return max(map(len, column))  # type: ignore[arg-type]


def _record(batch: RecordBatch, row: int) -> str:
    return "the record" if len(batch) == 1 else f"record {row} of the batch"


def _check_times(batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
    low, high = min(batch.timestamps), max(batch.timestamps)
    if low < 0 or high > MAX_TIMESTAMP_MS:
        wrong = low if low < 0 else high
        raise InvalidTimestampError(f"{info.name}: timestamp {wrong} is not in [0, {MAX_TIMESTAMP_MS}] ms")
    if config.log_append_time:
        return
    if low < now_ms - config.timestamp_before_max_ms:
        raise InvalidTimestampError(
            f"{info.name}: timestamp {low} is more than message.timestamp.before.max.ms="
            f"{config.timestamp_before_max_ms} before the time of the append ({now_ms})"
        )
    if high > now_ms + config.timestamp_after_max_ms:
        raise InvalidTimestampError(
            f"{info.name}: timestamp {high} is more than message.timestamp.after.max.ms="
            f"{config.timestamp_after_max_ms} after the time of the append ({now_ms})"
        )


def check_after(topic: str, txn: TxnId, latest: int | None) -> None:
    """Refuse a new write of an application that another writer has moved on since this one looked.

    Raises:
        OutOfOrderSequenceNumberError: it has.
    """
    if txn.after is not None and latest is not None and latest > txn.after:
        raise OutOfOrderSequenceNumberError(
            f"{topic}: nothing was written: another writer has written version {latest} of {txn.app_id!r} after this "
            "one had looked; two queries or jobs share the name"
        )


def not_in_order(topic: str, app_id: str, version: int, latest: int) -> OutOfOrderSequenceNumberError:
    """The error for a write whose version lies below the application's latest one and was never seen."""
    return OutOfOrderSequenceNumberError(
        f"{topic}: {app_id!r} has written version {latest}, and the log shows no version {version} of it; nothing was "
        "written: versions of an application must rise"
    )
