"""Stored letters: read the letters of a dead-letter topic's log, and filter them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.dead_letter import Context, Headers, original_headers, read_context, same_class

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo

_READ_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetter:
    """A record of a dead-letter topic."""

    topic: str
    """The dead-letter topic."""
    partition: int
    offset: int
    timestamp_ms: int
    """Of the record that could not be read."""
    key: bytes | None
    value: bytes | None
    headers: Headers
    """Those of the record that could not be read."""
    context: Context | None
    """Where it comes from, and why it is a letter; None for a record that does not say it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which letters are meant; what is None does not matter."""

    error_class: str | None = None
    """Class of the error, with its module or without."""
    source: str | None = None
    """Topic that they come from."""
    partition: int | None = None
    """Partition of the dead-letter topic."""
    offsets: range | None = None
    """Offsets in the dead-letter topic."""

    def takes(self, letter: StoredLetter) -> bool:
        """Whether a letter is meant."""
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
        """Partitions of a dead-letter topic that may have such letters.

        Raises:
            UnknownTopicOrPartitionError: it does not have the one that is meant.
        """
        if self.partition is None:
            return list(info.partitions)
        if self.partition not in info.partitions:
            raise UnknownTopicOrPartitionError(f"{info.name}-{self.partition} does not exist")
        return [self.partition]


def letters_of(log: TopicLog, partition: int, start: int, stop: int | None = None) -> Iterator[StoredLetter]:
    """Letters of a partition from an offset on, as of the log's last refresh.

    Args:
        log: the dead-letter topic.
        partition: one of its partitions.
        start: the first offset.
        stop: the offset to stop at; None reads up to the log end.
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
