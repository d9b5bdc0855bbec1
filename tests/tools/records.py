"""Records: partitions and values in, batches out; and a log in, everything that can be read of it out."""

from collections.abc import Iterable
from typing import Any, Protocol

from kafkalike.connect import connect
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import Headers, RecordBatch
from tests.tools.partitions import partition_records

NOW_MS = 1_700_000_000_000

ANY_TIME = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Settings of a topic whose records may have times to come."""

Value = str | bytes | None
Row = tuple[int, bytes | None, bytes | None, int, Headers | None]
"""Partition, key, value, time in ms, headers."""


class _OpensLogs(Protocol):
    def log(self, name: str) -> TopicLog: ...


def batch(
    *records: Value | tuple[int, Value],
    partition: int = 0,
    key: bytes | None = None,
    at_ms: int = NOW_MS,
    step_ms: int = 0,
    headers: Headers | None = None,
) -> RecordBatch:
    """A batch of values for one partition; a pair is a value with a partition of its own.

    Text is encoded and None is a tombstone. The first record's time is `at_ms`, each next one's `step_ms` later.
    """
    made = RecordBatch()
    for nth, record in enumerate(records):
        where, value = record if isinstance(record, tuple) else (partition, record)
        content = value.encode() if isinstance(value, str) else value
        made.add(where, key, content, at_ms + nth * step_ms, headers)
    return made


def batch_now(*values: str) -> RecordBatch:
    """A batch of values for partition 0 with the time of this machine, so that no retention takes them away."""
    return batch(*values, at_ms=SYSTEM_CLOCK.now_ms())


def fill(
    cluster: _OpensLogs,
    topic: str,
    *records: Value | tuple[int, Value],
    partition: int = 0,
    key: bytes | None = None,
    at_ms: int = 1_000,
    step_ms: int = 1,
    headers: Headers | None = None,
) -> None:
    """One append to a topic that exists; records are `step_ms` apart."""
    made = batch(*records, partition=partition, key=key, at_ms=at_ms, step_ms=step_ms, headers=headers)
    cluster.log(topic).append(made)


def fill_at(cluster: _OpensLogs, topic: str, *times_ms: int, partition: int = 0) -> None:
    """One append with a record of each of these times."""
    made = RecordBatch()
    for at_ms in times_ms:
        made.add(partition, b"k", b"v", at_ms)
    cluster.log(topic).append(made)


def append_records(root: str, topic: str, records: Iterable[Row], *, partitions: int, **configs: str) -> None:
    """One append of rows; creates the topic when it is missing."""
    cluster = connect(root)
    if topic not in cluster.topics():
        cluster.create_topic(topic, partitions, configs)
    made = RecordBatch()
    for partition, key, value, at_ms, headers in records:
        made.add(partition, key, value, at_ms, headers)
    cluster.log(topic).append(made)


def records_of(log: TopicLog, partition: int) -> list[tuple[int, str]]:
    """The same as text; a tombstone is the empty text."""
    return [(offset, (value or b"").decode()) for offset, value in partition_records(log, partition)]


def all_records(root: str, topic: str = "t") -> dict[int, list[tuple[int, str]]]:
    """What a reader that comes new sees of a topic, by partition."""
    return everything(connect(root).log(topic))


def everything(log: TopicLog) -> dict[int, list[tuple[int, str]]]:
    """The records of an open log, by partition."""
    return {p: records_of(log, p) for p in log.info.partitions}


def open_log(cluster: _OpensLogs, topic: str = "t") -> TopicLog:
    """The log of a topic in Delta tables."""
    log: Any = cluster.log(topic)
    assert isinstance(log, TopicLog)
    return log


def make_topic(root: str, *records: tuple[int, str], partitions: int = 2, topic: str = "t") -> TopicLog:
    """A new topic with some records in one append."""
    cluster = connect(root)
    cluster.create_topic(topic, partitions, {})
    log = open_log(cluster, topic)
    if records:
        log.append(batch(*records))
    return log
