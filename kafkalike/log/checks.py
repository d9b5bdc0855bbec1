"""Checks: the rules of `validate` as a Column, for records that only Spark sees."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.config.properties import LONG_MAX
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.job_errors import problem
from kafkalike.log.validate import MAX_TIMESTAMP_MS, RECORD_OVERHEAD


def checked_partition(partition: Column, num_partitions: int, config: TopicConfig, now_ms: int | None) -> Column:
    """The partition of a record that its topic takes; a record that it does not take makes the job fail.

    Args:
        partition: INT, the partition the record goes to.
        num_partitions: how many the topic has.
        config: its settings in effect.
        now_ms: what the timestamp limits count from, ms; None when there are none (`limits_time`).

    Returns:
        INT. The expression reads the columns `key`, `value`, `headers` and `timestamp` of the frame it is used in.
    """
    wrong = F.lit(None).cast("string")
    for found, message in reversed(_rules(partition, num_partitions, config, now_ms)):
        wrong = F.when(found, message).otherwise(wrong)
    return F.when(wrong.isNotNull(), F.raise_error(wrong).cast("int")).otherwise(partition)


def limits_time(config: TopicConfig) -> bool:
    """Whether a topic limits how far a record's time may lie from the time of the append."""
    unlimited = config.timestamp_before_max_ms == config.timestamp_after_max_ms == LONG_MAX
    return not config.log_append_time and not unlimited


def _rules(
    partition: Column, num_partitions: int, config: TopicConfig, now_ms: int | None
) -> list[tuple[Column, Column]]:
    headers = F.aggregate(
        F.coalesce(F.col("headers"), F.array()),
        F.lit(0).cast("bigint"),
        lambda size, h: size + F.octet_length(h["key"]) + F.coalesce(F.octet_length(h["value"]), F.lit(0)),
    )
    plain = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0)) + F.lit(RECORD_OVERHEAD)
    nameless = F.exists(F.coalesce(F.col("headers"), F.array()), lambda h: h["key"].isNull())
    size = F.when(F.col("headers").isNull(), plain).otherwise(plain + headers)
    time = F.unix_millis("timestamp")
    rules = [
        (
            (partition < 0) | (partition >= num_partitions),
            _say(
                UnknownTopicOrPartitionError,
                "partition ",
                partition,
                f" does not exist: the topic has partitions 0 to {num_partitions - 1}",
            ),
        ),
        (nameless, F.lit(problem(InvalidRecordError, "a record has a header without key"))),
        (
            size > config.max_message_bytes,
            _say(
                MessageSizeTooLargeError,
                "a record has ",
                size,
                f" bytes; max.message.bytes={config.max_message_bytes}",
            ),
        ),
        (
            (time < 0) | (time > MAX_TIMESTAMP_MS),
            _say(InvalidTimestampError, "timestamp ", time, f" is not in [0, {MAX_TIMESTAMP_MS}] ms"),
        ),
    ]
    if now_ms is not None and limits_time(config):
        low = max(0, now_ms - config.timestamp_before_max_ms)
        high = min(MAX_TIMESTAMP_MS, now_ms + config.timestamp_after_max_ms)
        limits = f" is outside message.timestamp.before/after.max.ms around the time of the append ({now_ms})"
        rules += [
            ((time < low) | (time > high), _say(InvalidTimestampError, "timestamp ", time, limits)),
        ]
    if config.compacted:
        missing = problem(InvalidRecordError, "a record has no key; cleanup.policy=compact needs one")
        rules.append((F.col("key").isNull(), F.lit(missing)))
    return rules


def _say(error: type[KafkaError], before: str, fact: Column, after: str) -> Column:
    return F.concat(F.lit(problem(error, before)), fact.cast("string"), F.lit(after))
