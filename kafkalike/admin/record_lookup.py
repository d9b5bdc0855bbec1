"""Record lookup: finds the newest records of a key by file statistics, without a scan."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.connect import connect
from kafkalike.consumer.record_builders import to_records
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.segments import MAX_OFFSET

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.structs import ConsumerRecord

MAX_BYTES: Final = 64 * 1024 * 1024
"""Of the records of one look-up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecords:
    """What a look-up has found, and what it has looked at."""

    records: list[ConsumerRecord]
    """Keys and values as bytes, the newest first; those of one partition from the highest offset down."""
    partitions: list[int]
    """The partitions that were looked at."""
    hashed: int
    """The partition that murmur2 names for the key now."""
    files: int
    """Data files that were asked. Where `limit` was reached, older ones were not."""
    skipped: int
    """Those of them whose Bloom filters ruled the key out, so that no record was read."""
    complete: bool
    """Whether these are all records with the key that were asked for; False where `limit`, `max_bytes` or `timeout_ms`
    was reached."""
    following: dict[int, int]
    """By partition: all records with the key from this offset on were given. `below` of the next look-up."""
    late: bool
    """Whether `timeout_ms` was reached."""


def find_records(
    topic: str,
    bootstrap_servers: Address | None = None,
    *,
    key: bytes | str,
    limit: int = 100,
    partitions: Iterable[int] | None = None,
    below: Mapping[int, int] | None = None,
    max_bytes: int = MAX_BYTES,
    timeout_ms: int | None = None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> KeyRecords:
    """The newest records that have a key.

    All partitions are looked at by default, so that no record is missed: also one that was sent to a partition of its
    sender's choice, placed by another partitioner, or written before the topic got more partitions. That costs little
    where files have Bloom filters on their keys, as all files of 8,192 records and more have that this release or a
    later one has written; of others the keys are read.

    Args:
        topic: its topic.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        key: the key's bytes, or text, whose UTF-8 is taken. Records without key are not looked up: they have nothing
            to be found by.
        limit: most records.
        partitions: which partitions to look at; None for all.
        below: by partition, an offset that the records must be below: `following` of the look-up before. None for all.
        max_bytes: bytes of records, roughly, after which the look-up ends; the first record is given in any case. It
            also bounds the memory that a look-up takes, beside what one step of reading takes.
        timeout_ms: after so long the look-up ends, with what it has; looked at between files. None: it goes on.
        storage_options: who asks an object store; see `kafkalike.connect.connect`.
        clock: time.

    Returns:
        The records, and what was looked at, as of now.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: no such topic, or no such partition.
        IllegalArgumentError: no key, or no positive limit or time (a ValueError).
        CorruptRecordError: a data file is damaged; says which.
        KafkaStorageError: the storage does not answer, or maintenance has removed a file meanwhile: ask again.
    """
    given: object = key
    if not isinstance(given, bytes | str):
        raise IllegalArgumentError(f"a key is needed, as bytes or text, not {key!r}")
    for name, number, least in (("limit", limit, 1), ("max_bytes", max_bytes, 1), ("timeout_ms", timeout_ms or 0, 0)):
        if type(number) is not int or number < least:
            raise IllegalArgumentError(f"{name} must be {least} or more, not {number!r}")
    wanted = key.encode() if isinstance(key, str) else key
    log = connect(bootstrap_servers, storage_options).log(check_topic_name(topic))
    log.refresh()
    known = log.info.partitions
    chosen = list(known) if partitions is None else sorted(set(partitions))
    unknown = [p for p in (*chosen, *(below or ())) if p not in known]
    if unknown:
        raise UnknownTopicOrPartitionError(f"{topic}-{unknown[0]} does not exist: there are 0 to {len(known) - 1}")
    budget = _Budget(limit, max_bytes, Deadline(clock, timeout_ms))
    share = max(1, max_bytes // max(1, len(chosen)))
    searches = [_Search(log, p, wanted, (below or {}).get(p, MAX_OFFSET), share, budget) for p in chosen]
    newest = heapq.merge(*(one.records() for one in searches), key=lambda record: -record.timestamp)
    taken = []
    for record in newest:
        if not budget.takes(record):
            break
        taken.append(record)
        searches[chosen.index(record.partition)].at = record.offset
    return KeyRecords(
        records=taken,
        partitions=chosen,
        hashed=partition_for_key(wanted, len(known)),
        files=sum(one.files for one in searches),
        skipped=sum(one.skipped for one in searches),
        complete=not (budget.spent or budget.late),
        following={one.partition: one.at for one in searches},
        late=budget.late,
    )


@dataclass(slots=True)
class _Budget:
    """What a look-up may still give."""

    limit: int
    max_bytes: int
    deadline: Deadline
    given: int = 0
    size: int = 0
    spent: bool = False
    late: bool = False

    def takes(self, record: ConsumerRecord) -> bool:
        """Whether there is room for one more."""
        parts = (record.key, record.value, *(value for _, value in record.headers))
        size = sum(len(part) for part in parts if part is not None)
        self.spent = self.given == self.limit or (self.given > 0 and self.size + size > self.max_bytes)
        self.given += 1
        self.size += size
        return not self.spent

    def over(self) -> bool:
        """Whether the time is."""
        self.late = self.late or self.deadline.expired()
        return self.late


@dataclass(slots=True)
class _Search:
    """The search in one partition."""

    log: TopicLog
    partition: int
    key: bytes
    at: int
    """All records with the key from this offset on were given."""
    share: int
    """Bytes of records that may be held."""
    budget: _Budget
    files: int = 0
    skipped: int = 0

    def records(self) -> Iterator[ConsumerRecord]:
        """Its records, from the highest offset down, read as they are asked for. At the end, `at` is 0."""
        first = self.log.log_start(self.partition)
        begun = True
        while begun and self.at > first:
            begun = False
            if self.budget.over():
                return
            for searched in self.log.with_key(self.partition, self.key, below=self.at, most_bytes=self.share):
                self.files += 1
                self.skipped += searched.skipped
                if searched.chunk is not None:
                    yield from reversed(to_records(self.log.info.name, searched.chunk)[0])
                self.at, begun = searched.start, True
                if self.budget.over():
                    return
        self.at = 0
