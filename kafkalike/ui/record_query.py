"""Record query: a topic and a question in, some of its records out; never more work than a page may cost.

Records are looked at in blocks of offsets, the newest or the oldest first. A search ends after so many records that it
has looked at, and says where it stands, so that the next page goes on there.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalike.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog

BLOCK: Final = 500
"""Offsets of a block at first; blocks grow while nothing is found."""

LARGEST_BLOCK: Final = 20_000

READ_BYTES: Final = 4 * 1024 * 1024
"""Bytes that one read of a partition gives, roughly."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Bytes of records that a block keeps; what lies further down is read again."""

PAGE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records after which a page ends, though it may hold more of them."""

UNSURE_MS: Final = 1
"""How far the times of a file may be off, as statistics say them."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """A record, its bytes as they are stored."""

    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: int
    """0 for the producer's time, 1 for the log's."""
    key: bytes | None
    value: bytes | None
    headers: Headers

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        parts = (self.key, self.value, *(content for _, content in self.headers))
        return sum(len(part) for part in parts if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Which records are meant. What is None does not matter."""

    partition: int | None = None
    newest_first: bool = True
    start: Mapping[int, int] | None = None
    """By partition: the first offset to look at when the oldest come first, the first one not to when the newest do."""
    key: bytes | None = None
    contains: bytes | None = None
    """Stands in the key or the value."""
    header: tuple[str, bytes | None] | None = None
    """Name of a header, and what stands in it; None for any content."""
    limit: int = 50
    most_looked_at: int = 100_000
    """Records; a search ends there."""
    most_seconds: float = 5.0
    """A search ends then, with what it has; looked at after each record."""

    @property
    def by_key(self) -> bool:
        """Whether the newest records with a key are meant, whatever else stands in them."""
        return self.key is not None and self.newest_first and self.contains is None and self.header is None

    def takes(self, record: StoredRecord) -> bool:
        """Whether a record is meant."""
        if self.key is not None and record.key != self.key:
            return False
        if self.contains is not None and not any(
            part is not None and self.contains in part for part in (record.key, record.value)
        ):
            return False
        return self.header is None or _has(record.headers, *self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer."""

    records: Sequence[StoredRecord]
    """Newest or oldest first, by time between partitions."""
    looked_at: int
    """Records."""
    following: Mapping[int, int] = field(default_factory=dict)
    """`Question.start` of the next page, by partition; empty when there is none."""
    files: int | None = None
    """Data files that were asked for a key; None where records were looked at one by one."""
    skipped: int = 0
    """Those of them that said by their Bloom filter that they do not have it."""
    late: bool = False
    """Whether time ended the search, so that there may be more records before `following`."""


@dataclass(slots=True)
class _Place:
    """How far a search has come in a partition."""

    partition: int
    at: int
    bound: int
    block: int = BLOCK

    @property
    def left(self) -> bool:
        """Whether there are offsets to look at."""
        return self.at != self.bound


def browse(log: TopicLog, question: Question, clock: Clock = SYSTEM_CLOCK) -> Page:
    """Records of a topic.

    Args:
        log: of the topic, refreshed.
        question: which records.
        clock: time.

    Raises:
        UnknownTopicOrPartitionError: no such partition.
        CorruptRecordError, DataLossError: a data file is missing or damaged.
    """
    if question.partition is not None and question.partition not in log.info.partitions:
        raise UnknownTopicOrPartitionError(f"{log.info.name}-{question.partition} does not exist")
    partitions = log.info.partitions if question.partition is None else [question.partition]
    look = _newest if question.newest_first else _oldest
    deadline = Deadline(clock, question.most_seconds * 1000)
    places = [_place(log, partition, question) for partition in partitions]
    streams = [look(log, place, question) for place in places]
    bounds = [_bound(log, place, question) for place in places]
    return _merged(streams, bounds, places, question, deadline)


def _place(log: TopicLog, partition: int, question: Question) -> _Place:
    low, high = log.log_start(partition), log.log_end(partition)
    asked = None if question.start is None else question.start.get(partition)
    if question.newest_first:
        at = high if asked is None else max(low, min(asked, high))
        return _Place(partition, at, low)
    at = low if asked is None else max(low, min(asked, high))
    return _Place(partition, at, high)


def _bound(log: TopicLog, place: _Place, question: Question) -> int | None:
    """A time that the first record of a search is not beyond, by the statistics of the files; None where none is left.

    A partition is read when it is its turn by this time: most partitions of a topic with many of them never are.
    """
    segments = log.segments(place.partition)
    if question.newest_first:
        latest = max((s.max_timestamp for s in segments if s.start < place.at), default=None)
        return None if latest is None else latest + UNSURE_MS
    first = min((s.min_timestamp for s in segments if s.stop > place.at), default=None)
    return None if first is None else first - UNSURE_MS


Found = tuple[StoredRecord, bool]
"""A record that was looked at, and whether it is meant."""


def _newest(log: TopicLog, place: _Place, question: Question) -> Iterator[Found]:
    while place.at > place.bound:
        start = _block_start(log, place)
        block: deque[StoredRecord] = deque()
        size = 0
        for record in _between(log, place.partition, start, place.at):
            block.append(record)
            size += record.size
            while size > BLOCK_BYTES and len(block) > 1:
                size -= block.popleft().size
                start = block[0].offset
        if size * 4 <= BLOCK_BYTES:
            place.block = min(place.block * 4, LARGEST_BLOCK)
        else:
            place.block = place.at - start
        while block:
            record = block.pop()
            place.at = record.offset
            yield record, question.takes(record)
        place.at = start


def _block_start(log: TopicLog, place: _Place) -> int:
    """Where the block below a place begins; past what compaction has left empty."""
    below = [s for s in log.segments(place.partition) if s.start < place.at]
    fitting = BLOCK_BYTES * len(below[-1].offsets) // max(1, below[-1].size_bytes) if below else place.block
    start = max(place.bound, place.at - max(1, min(place.block, fitting)))
    return start if not below or below[-1].stop > start else max(place.bound, below[-1].start, below[-1].stop - 1)


def _oldest(log: TopicLog, place: _Place, question: Question) -> Iterator[Found]:
    for record in _between(log, place.partition, place.at, place.bound):
        place.at = record.offset + 1
        yield record, question.takes(record)
    place.at = place.bound


def _between(log: TopicLog, partition: int, start: int, stop: int) -> Iterator[StoredRecord]:
    reader = log.reader(partition, start)
    while reader.position < stop:
        try:
            chunk = reader.read(READ_BYTES)
        except OffsetOutOfRangeError:
            # Retention was quicker.
            return
        if chunk is None:
            return
        columns = chunk.columns()
        headers: Sequence[Headers] = columns.headers or [()] * len(chunk)
        for row, offset in enumerate(columns.offsets):
            if offset >= stop:
                return
            yield StoredRecord(
                partition=partition,
                offset=offset,
                timestamp_ms=columns.timestamps[row],
                timestamp_type=columns.timestamp_types[row],
                key=columns.keys[row],
                value=columns.values[row],
                headers=headers[row],
            )


def _merged(
    streams: Sequence[Iterator[Found]],
    bounds: Sequence[int | None],
    places: Sequence[_Place],
    question: Question,
    deadline: Deadline,
) -> Page:
    """Records of all partitions by time, until there are enough of them or enough was looked at."""
    sign = -1 if question.newest_first else 1
    taken: list[StoredRecord] = []
    resume = {place.partition: place.at for place in places}
    looked_at = size = 0
    # None stands for the first record of a partition that was not read yet.
    heads: list[tuple[int, int, Found | None]] = [
        (sign * bound, at, None) for at, bound in enumerate(bounds) if bound is not None and places[at].left
    ]
    heapq.heapify(heads)

    def pull(at: int) -> None:
        found = next(streams[at], None)
        if found is None:
            resume[places[at].partition] = places[at].bound
        else:
            heapq.heappush(heads, (sign * found[0].timestamp_ms, at, found))

    late = False
    while heads and len(taken) < question.limit and looked_at < question.most_looked_at and size < PAGE_BYTES:
        # Not before something was looked at: a page that goes on must get on.
        late = looked_at > 0 and deadline.expired()
        if late:
            break
        _, at, found = heapq.heappop(heads)
        if found is not None:
            record, meant = found
            looked_at += 1
            resume[record.partition] = record.offset + (0 if question.newest_first else 1)
            if meant:
                taken.append(record)
                size += record.size
        pull(at)
    following = resume if heads else {}
    return Page(records=taken, looked_at=looked_at, following=following, late=late)


def record_at(log: TopicLog, partition: int, offset: int) -> StoredRecord | None:
    """The record at an offset; None where there is none (any more).

    Args:
        log: of the topic, refreshed.
        partition: its partition.
        offset: its offset.

    Raises:
        UnknownTopicOrPartitionError: no such partition.
    """
    if partition not in log.info.partitions:
        raise UnknownTopicOrPartitionError(f"{log.info.name}-{partition} does not exist")
    if not log.log_start(partition) <= offset < log.log_end(partition):
        return None
    return next(_between(log, partition, offset, offset + 1), None)


def at_time(log: TopicLog, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
    """The first offset of each partition at or after a time; the log end where there is none.

    Args:
        log: of the topic, refreshed.
        partitions: of the topic.
        timestamp_ms: the time.
    """
    found = {p: log.offset_for_time(p, timestamp_ms) for p in partitions}
    return {p: log.log_end(p) if at is None else at.offset for p, at in found.items()}


def _has(headers: Headers, name: str, content: bytes | None) -> bool:
    return any(
        name == held and (content is None or (value is not None and content in value)) for held, value in headers
    )
