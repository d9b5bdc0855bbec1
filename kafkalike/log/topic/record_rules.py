"""Record rules: check a batch against its topic's settings before anything is written."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from kafkalike import errors
from kafkalike.model.config.topic_config import CODECS, NO_CHECKS, TopicConfig
from kafkalike.model.record_batch import Headers, RecordBatch, TxnId
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.model.schemas.registry_state import RegistryState

MAX_TIMESTAMP_MS: Final = 253_402_214_399_999
"""Largest record time, ms: 9999-12-30T23:59:59.999Z. Look-ups by time use file statistics, which hold times as text,
and Spark writes that text in the session's time zone. Beyond the year 9999, here a day away, the text is not
defined."""

RECORD_OVERHEAD: Final = 70
"""Bytes that Kafka's format 2 adds to a record alone in its batch: 61 of batch header, and up to 9 of record fields for
short records. `max.message.bytes` includes it, because a broker measures a batch."""


def record_size(key: bytes | None, value: bytes | None, headers: Headers | None) -> int:
    """Return the bytes of one record that count towards `max.message.bytes`."""
    return RECORD_OVERHEAD + len(key or b"") + len(value or b"") + headers_size(headers or [])


class RegistryView(Protocol):
    """Read access to a cluster's schema registry."""

    @property
    def state(self) -> RegistryState:
        """State as of the last look."""
        ...

    def refresh(self) -> RegistryState:
        """Look at the registry and return its state."""
        ...


SchemasOf = Callable[[], RegistryView]
"""Returns a cluster's registry, which is opened only for topics that check schemas."""


def check_batch(
    batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int, schemas: SchemasOf | None = None
) -> None:
    """Check every record of a batch against its topic.

    Args:
        batch: the records.
        info: the topic that gets them.
        config: its settings in effect.
        now_ms: time of the append, ms, which the timestamp limits count from.
        schemas: the cluster's registry; None only if the topic checks no schemas.

    Raises:
        IllegalArgumentError: the batch is empty.
        MirrorTopicError: the topic is a read-only copy.
        UnknownTopicOrPartitionError: the topic does not have a partition.
        MessageSizeTooLargeError: a record is larger than `max.message.bytes`.
        InvalidTimestampError: a time is negative, too large, or outside `message.timestamp.*.max.ms`.
        InvalidRecordError: a record of a compacted topic has no key, or a record has a schema of another topic.
        KafkaError: the registry cannot be read.
    """
    if not batch.partitions:
        raise errors.IllegalArgumentError(f"nothing to append to {info.name!r}: the batch is empty")
    info.check_own()
    low, high = min(batch.partitions), max(batch.partitions)
    if low < 0 or high >= info.num_partitions:
        wrong = low if low < 0 else high
        raise errors.UnknownTopicOrPartitionError(
            f"{info.name}-{wrong} does not exist: the topic has partitions 0 to {info.num_partitions - 1}"
        )
    _check_sizes(batch, info, config)
    _check_times(batch, info, config, now_ms)
    if config.compacted and None in batch.keys:
        raise errors.InvalidRecordError(
            f"{info.name}: {_record(batch, batch.keys.index(None))} has no key; cleanup.policy=compact needs one"
        )
    if config.schemas is not NO_CHECKS:
        assert schemas is not None, f"{info.name} checks schemas"
        _check_schemas(batch, info, config, schemas())


def _check_schemas(batch: RecordBatch, info: TopicInfo, config: TopicConfig, registry: RegistryView) -> None:
    """Refuse records with a schema that the topic does not admit. The registry is refreshed once for unknown ids."""
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
                raise errors.InvalidRecordError(
                    f"{info.name}: {_record(batch, row)}: {refusal(known, info.name, part, strategy, head)}"
                )


def codec_for(config: TopicConfig, producer: str) -> str:
    """Return the codec of new files: the topic's, or the producer's if the topic's setting is `producer`.

    Raises:
        UnsupportedCodecError: the producer's codec is unknown, even if the topic's codec applies.
    """
    if producer not in CODECS:
        raise errors.UnsupportedCodecError(f"unknown compression codec {producer!r}; known codecs: {', '.join(CODECS)}")
    return producer if config.compression_type == "producer" else config.compression_type


RECORD_ERRORS: Final = (errors.InvalidRecordError, errors.InvalidTimestampError, errors.MessageSizeTooLargeError)
"""Errors of `check_batch` that single records cause."""


def refused_rows(
    batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int, schemas: SchemasOf | None = None
) -> dict[int, errors.KafkaError]:
    """Find the records that make `check_batch` refuse a batch.

    Call it after a refusal: it halves the batch until the bad records stand alone, so a few bad records cost little.

    Returns:
        Errors by row; empty if there are none.

    Raises:
        IllegalArgumentError, UnknownTopicOrPartitionError: as `check_batch`.
    """
    found: dict[int, errors.KafkaError] = {}
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
            raise errors.MessageSizeTooLargeError(
                f"{info.name}: {_record(batch, row)} has {size} bytes; max.message.bytes={limit}"
            )


def _longest(column: list[bytes | None]) -> int:
    """Return the bytes of the longest value; twice as fast without nulls."""
    if None in column:
        return max(map(len, filter(None, column)), default=0)
    return max(map(len, column))  # type: ignore[arg-type]


def _record(batch: RecordBatch, row: int) -> str:
    return "the record" if len(batch) == 1 else f"record {row} of the batch"


def _check_times(batch: RecordBatch, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
    low, high = min(batch.timestamps), max(batch.timestamps)
    if low < 0 or high > MAX_TIMESTAMP_MS:
        wrong = low if low < 0 else high
        raise errors.InvalidTimestampError(f"{info.name}: timestamp {wrong} is not in [0, {MAX_TIMESTAMP_MS}] ms")
    if config.log_append_time:
        return
    if low < now_ms - config.timestamp_before_max_ms:
        raise errors.InvalidTimestampError(
            f"{info.name}: timestamp {low} is more than message.timestamp.before.max.ms="
            f"{config.timestamp_before_max_ms} before the time of the append ({now_ms})"
        )
    if high > now_ms + config.timestamp_after_max_ms:
        raise errors.InvalidTimestampError(
            f"{info.name}: timestamp {high} is more than message.timestamp.after.max.ms="
            f"{config.timestamp_after_max_ms} after the time of the append ({now_ms})"
        )


def check_after(topic: str, txn: TxnId, latest: int | None) -> None:
    """Refuse a write of an application if another writer of the application wrote after this writer's look.

    Raises:
        OutOfOrderSequenceNumberError: another writer wrote meanwhile.
    """
    if txn.after is not None and latest is not None and latest > txn.after:
        raise errors.OutOfOrderSequenceNumberError(
            f"{topic}: nothing was written: another writer wrote version {latest} of {txn.app_id!r} after this "
            "writer's last look; two queries or jobs share the name"
        )


def not_in_order(topic: str, app_id: str, version: int, latest: int) -> errors.OutOfOrderSequenceNumberError:
    """Return the error for a write whose version is below the application's latest one and was never written."""
    return errors.OutOfOrderSequenceNumberError(
        f"{topic}: {app_id!r} has written version {latest}, and the log shows no version {version} of it; nothing was "
        "written: versions of an application must rise"
    )


def check_headers(headers: object) -> list[tuple[str, bytes | None]]:
    """Return a copy of a record's headers.

    Raises:
        TypeError: not a list of `(str, bytes or None)`.
    """
    if not isinstance(headers, list):
        raise TypeError(f"headers must be a list of (str, bytes), not {type(headers).__name__}")
    for item in headers:
        if not (isinstance(item, tuple) and len(item) == 2):  # noqa: PLR2004 - a pair
            raise TypeError(f"headers must be (str, bytes) tuples, not {item!r}")
        if not isinstance(item[0], str) or not isinstance(item[1], bytes | None):
            kinds = f"({type(item[0]).__name__}, {type(item[1]).__name__})"
            raise TypeError(f"headers must be (str, bytes) tuples; header {item[0]!r} is {kinds}")
    return list(headers)


def headers_size(headers: Headers) -> int:
    """Return the size of a record's headers in bytes.

    Raises:
        ValueError: a header's name cannot be encoded in UTF-8.
    """
    return sum(len(name.encode()) + len(content or b"") for name, content in headers)


def check_timestamp(timestamp_ms: Any) -> int:  # noqa: ANN401 - the check is below
    """Return a record's time in ms; accepts NumPy's integers.

    Raises:
        TypeError: not an integer; bool and float are rejected.
        InvalidTimestampError: negative, or after the year 9999.
    """
    if isinstance(timestamp_ms, bool) or not hasattr(timestamp_ms, "__index__"):
        raise TypeError(f"timestamp_ms must be an int of ms since the epoch, not {timestamp_ms!r}")
    number = operator.index(timestamp_ms)
    if not 0 <= number <= MAX_TIMESTAMP_MS:
        raise errors.InvalidTimestampError(f"timestamp_ms must be in [0, {MAX_TIMESTAMP_MS}], not {number}")
    return number
