"""Dead-letter topics: create one for its first letter, stage letters in a transaction, read and filter letters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError
from kafkalike.model import faults
from kafkalike.model.config.dead_letter_config import topic_settings
from kafkalike.model.dead_letter import Context, Headers, Letter, original_headers, read_context, same_class
from kafkalike.model.record_batch import RecordBatch

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.log.transactions.session import TransactionSession
    from kafkalike.model.clock import Deadline
    from kafkalike.model.topic import TopicInfo


def ensure(cluster: Cluster, name: str, source: str) -> TopicLog:
    """Open the log of a dead-letter topic; create the topic if it is missing.

    A new topic has the server's default number of partitions. It keeps letters for `retention.ms` after they were
    written, regardless of their records' times. Its `max.message.bytes` exceeds the source's by the size of a letter's
    error headers.

    Args:
        cluster: the topics' cluster.
        name: the dead-letter topic.
        source: the topic of the records.

    Raises:
        UnknownTopicOrPartitionError: the topic is missing, and `auto.create.topics.enable=false`.
        InvalidTopicError: its name is too long.
    """
    known = cluster.topics()
    if name not in known:
        if not cluster.server.auto_create_topics:
            return cluster.log(cluster.ensure_topic(name).name)  # raises the error
        own = known[source].configs if source in known else {}
        with suppress(TopicAlreadyExistsError):
            cluster.create_topic(name, -1, topic_settings(cluster.server.effective(own)))
    return cluster.log(name)


def batch_of(letters: Sequence[Letter], num_partitions: int) -> RecordBatch:
    """Return letters of one dead-letter topic as records.

    Letters of a partition stay in one partition, in their order.
    """
    batch = RecordBatch()
    for letter in letters:
        batch.add(
            letter.origin.partition % num_partitions, letter.key, letter.value, letter.timestamp_ms, letter.headers
        )
    return batch


ONCE: Final = "dead letters"
"""Name under which a transaction has the letters of a topic once, even if an interrupted call is repeated."""


def stage(  # noqa: PLR0917 - what, where to, until when
    cluster: Cluster, session: TransactionSession, number: int, letters: Sequence[Letter], deadline: Deadline, once: str
) -> None:
    """Add letters to a transaction. Idempotent.

    Args:
        cluster: the cluster of the dead-letter topics.
        session: the transaction's session.
        number: the transaction.
        letters: the result of `DeadLetterBuffer.due`.
        deadline: until when to try.
        once: name of the letters within the transaction.

    Raises:
        KafkaError: a dead-letter topic is missing and must not be created, or rejects a letter; and see
            `TransactionSession.stage`.
    """
    by_topic: dict[str, list[Letter]] = {}
    for letter in letters:
        by_topic.setdefault(letter.topic, []).append(letter)
    for topic, some in by_topic.items():
        log = ensure(cluster, topic, some[0].origin.topic)
        batch = batch_of(some, log.info.num_partitions)
        session.stage(number, log, batch, deadline=deadline, once=f"{ONCE} {once}")
        faults.point("dead_letters.staged")


_READ_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A record of a dead-letter topic."""

    topic: str
    """Name of the dead-letter topic."""
    partition: int
    offset: int
    timestamp_ms: int
    """Time of the unreadable record, ms."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Headers of the unreadable record."""
    context: Context | None
    """Origin and error of the letter; None if the record has no such headers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Conditions for letters; None accepts all."""

    error_class: str | None = None
    """Class of the error, with or without its module."""
    source: str | None = None
    """Topic of the unreadable record."""
    partition: int | None = None
    """Partition of the dead-letter topic."""
    offsets: range | None = None
    """Offsets in the dead-letter topic."""

    def takes(self, letter: StoredLetter) -> bool:
        """True if a letter meets the conditions."""
        about = letter.context
        return (
            (self.error_class is None or (about is not None and same_class(self.error_class, about.exception)))
            and (
                self.source is None
                or (about is not None and about.origin is not None and about.origin.topic == self.source)
            )
            and (self.partition is None or letter.partition == self.partition)
            and (self.offsets is None or letter.offset in self.offsets)
        )

    def partitions_of(self, info: TopicInfo) -> Sequence[int]:
        """Return the partitions of a dead-letter topic that may have such letters.

        Raises:
            UnknownTopicOrPartitionError: the topic does not have the partition.
        """
        if self.partition is None:
            return list(info.partitions)
        if self.partition not in info.partitions:
            raise UnknownTopicOrPartitionError(f"{info.name}-{self.partition} does not exist")
        return [self.partition]


def letters_of(log: TopicLog, partition: int, start: int, stop: int | None = None) -> Iterator[StoredLetter]:
    """Yield the letters of a partition from an offset on, as of the log's last refresh.

    Args:
        log: the dead-letter topic.
        partition: a partition of the topic.
        start: the first offset.
        stop: exclusive end offset; None reads up to the log end.
    """
    end = log.log_end(partition) if stop is None else stop
    reader = log.reader(partition, start)
    while reader.position < end:
        chunk = reader.read(_READ_BYTES)
        if chunk is None:
            return
        columns = chunk.columns()
        headers = columns.headers or [[] for _ in columns.offsets]
        for offset, time, key, value, some in zip(
            columns.offsets, columns.timestamps, columns.keys, columns.values, headers, strict=True
        ):
            if offset >= end:
                return
            yield StoredLetter(
                topic=log.info.name,
                partition=partition,
                offset=offset,
                timestamp_ms=time,
                key=key,
                value=value,
                headers=original_headers(some),
                context=read_context(some),
            )
