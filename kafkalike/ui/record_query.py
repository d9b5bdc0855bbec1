"""Record query: find records of a topic for a page, with limited work.

A search reads blocks of offsets, newest or oldest first. It ends after a maximum number of records, and returns its
positions, from which the next page continues.
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
"""Offsets of the first block; blocks of small records grow."""

LARGEST_BLOCK: Final = 20_000

READ_BYTES: Final = 4 * 1024 * 1024
"""Approximate bytes of one read of a partition."""

BLOCK_BYTES: Final = 8 * 1024 * 1024
"""Maximum bytes of records of a block; older records are read again with the next block."""

PAGE_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records after which a page ends."""

UNSURE_MS: Final = 1
"""Error of the timestamps in file statistics."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRecord:
    """Record with its stored bytes."""

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
        """Return the bytes of key, value and headers."""
        parts = (self.key, self.value, *(content for _, content in self.headers))
        return sum(len(part) for part in parts if part is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Condition of a search; None means any."""

    partition: int | None = None
    newest_first: bool = True
    start: Mapping[int, int] | None = None
    """Start by partition: the first offset if the oldest come first, else the offset after the first."""
    key: bytes | None = None
    contains: bytes | None = None
    """Bytes that the key or the value contains."""
    header: tuple[str, bytes | None] | None = None
    """Name of a header and bytes that it contains; None for any content."""
    limit: int = 50
    most_looked_at: int = 100_000
    """Maximum number of records to read."""
    most_seconds: float = 5.0
    """Time limit of a search, checked after each record."""

    @property
    def by_key(self) -> bool:
        """True for the newest records with a key, without other conditions."""
        return self.key is not None and self.newest_first and self.contains is None and self.header is None

    def takes(self, record: StoredRecord) -> bool:
        """Check that a record matches."""
        if self.key is not None and record.key != self.key:
            return False
        if self.contains is not None and not any(
            part is not None and self.contains in part for part in (record.key, record.value)
        ):
            return False
        return self.header is None or _has(record.headers, *self.header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Records of a page, and the start of the next one."""

    records: Sequence[StoredRecord]
    """Newest or oldest first; ordered by time across partitions."""
    looked_at: int
    """Number of records read."""
    following: Mapping[int, int] = field(default_factory=dict)
    """`Question.start` of the next page by partition; empty on the last page."""
    files: int | None = None
    """Number of data files searched for a key; None after a scan."""
    skipped: int = 0
    """Number of these files that their Bloom filters exclude."""
    late: bool = False
    """True if the time limit ended the search."""


@dataclass(slots=True)
class _Place:
    """Position of a search in a partition."""

    partition: int
    at: int
    bound: int
    block: int = BLOCK

    @property
    def left(self) -> bool:
        """True if offsets remain."""
        return self.at != self.bound


def browse(log: TopicLog, question: Question, clock: Clock = SYSTEM_CLOCK) -> Page:
    """Find records of a topic.

    Args:
        log: refreshed log of the topic.
        question: condition of the search.
        clock: for the time limit.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
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
    """Return a bound of the first record's time from file statistics; None without records.

    The merge opens a partition only when its bound is next, so most partitions of a wide topic are never read.
    """
    segments = log.segments(place.partition)
    if question.newest_first:
        latest = max((s.max_timestamp for s in segments if s.start < place.at), default=None)
        return None if latest is None else latest + UNSURE_MS
    first = min((s.min_timestamp for s in segments if s.stop > place.at), default=None)
    return None if first is None else first - UNSURE_MS


Found = tuple[StoredRecord, bool]
"""Record, and True if it matches."""


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
    """Return the start of the block below a position, and skip offsets without files after compaction."""
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
            # Retention deleted the offset in the meantime.
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
    """Merge the partitions by time until a limit of the search."""
    sign = -1 if question.newest_first else 1
    taken: list[StoredRecord] = []
    resume = {place.partition: place.at for place in places}
    looked_at = size = 0
    # None stands for the first record of an unread partition.
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
        # Each page reads at least one record, so that the next page makes progress.
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
    """Return the record at an offset; None if it does not exist.

    Args:
        log: refreshed log of the topic.
        partition: partition number.
        offset: offset of the record.

    Raises:
        UnknownTopicOrPartitionError: the partition does not exist.
    """
    if partition not in log.info.partitions:
        raise UnknownTopicOrPartitionError(f"{log.info.name}-{partition} does not exist")
    if not log.log_start(partition) <= offset < log.log_end(partition):
        return None
    return next(_between(log, partition, offset, offset + 1), None)


def at_time(log: TopicLog, partitions: Sequence[int], timestamp_ms: int) -> dict[int, int]:
    """Return the first offset of each partition at or after a time; else the log end.

    Args:
        log: refreshed log of the topic.
        partitions: partition numbers.
        timestamp_ms: the time.
    """
    found = {p: log.offset_for_time(p, timestamp_ms) for p in partitions}
    return {p: log.log_end(p) if at is None else at.offset for p, at in found.items()}


def _has(headers: Headers, name: str, content: bytes | None) -> bool:
    return any(
        name == held and (content is None or (value is not None and content in value)) for held, value in headers
    )
