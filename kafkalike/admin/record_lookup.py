"""Record lookup: find the newest records of a key with file statistics instead of a scan."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.connect import connect
from kafkalike.consumer.record_builders import to_records
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.topic.key_search import with_key
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.segments import MAX_OFFSET

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.structs import ConsumerRecord

MAX_BYTES: Final = 64 * 1024 * 1024
"""Default limit on the bytes of records that a lookup returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRecords:
    """Result of a lookup."""

    records: list[ConsumerRecord]
    """Records with keys and values as bytes, newest first; within a partition by descending offset."""
    partitions: list[int]
    """Partitions that were searched."""
    hashed: int
    """Partition of the key by murmur2 and the current partition count."""
    files: int
    """Number of data files searched. If `limit` was reached, older files were not searched."""
    skipped: int
    """Number of these files that were skipped because their Bloom filter excluded the key."""
    complete: bool
    """True if these are all requested records; False if `limit`, `max_bytes` or `timeout_ms` was reached."""
    following: dict[int, int]
    """By partition, the offset from which on all records with the key were returned: `below` of the next lookup."""
    late: bool
    """True if `timeout_ms` was reached."""


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
    """Return the newest records of a key.

    All partitions are searched by default, so no record is missed, even if its sender chose the partition, if another
    partitioner placed it, or if it was written before partitions were added. The search is cheap in files with Bloom
    filters on keys, which are written for 8,192 records and more; in other files all keys are read.

    Args:
        topic: the topic.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        key: the key as bytes, or as text, which is encoded in UTF-8. Records without a key cannot be looked up.
        limit: maximum number of records.
        partitions: partitions to search; None for all.
        below: by partition, an offset below which to search: `following` of the previous lookup. None searches
            everything.
        max_bytes: approximate limit on the bytes of records, and on the memory of the lookup beside one read step. The
            first record is always returned.
        timeout_ms: time limit, checked between files, after which the records found so far are returned; None for no
            limit.
        storage_options: credentials of an object store; see `kafkalike.connect.connect`.
        clock: source of time for the timeout.

    Returns:
        The records and statistics of the search.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: the topic or a partition does not exist.
        IllegalArgumentError: the key is missing, or a limit or time is not positive (a ValueError).
        CorruptRecordError: a data file is damaged; the message names it.
        KafkaStorageError: the storage is unreachable, or maintenance has removed a file during the search; call again.

    Example:
        >>> from kafkalike import KafkaProducer
        >>> from kafkalike.testing import MemoryCluster
        >>> cluster = MemoryCluster()
        >>> with KafkaProducer(bootstrap_servers=cluster) as producer:
        ...     for key in (b"alice", b"bob", b"alice"):
        ...         _ = producer.send("orders", b"tea", key=key)
        >>> [record.offset for record in find_records("orders", cluster, key=b"alice").records]
        [2, 0]
    """
    given: object = key
    if not isinstance(given, bytes | str):
        raise IllegalArgumentError(f"the key must be bytes or str, not {key!r}")
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
        raise UnknownTopicOrPartitionError(
            f"{topic}-{unknown[0]} does not exist: the topic has partitions 0 to {len(known) - 1}"
        )
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
    """Remaining limits of a lookup."""

    limit: int
    max_bytes: int
    deadline: Deadline
    given: int = 0
    size: int = 0
    spent: bool = False
    late: bool = False

    def takes(self, record: ConsumerRecord) -> bool:
        """Count a record; return False if it exceeds a limit."""
        parts = (record.key, record.value, *(value for _, value in record.headers))
        size = sum(len(part) for part in parts if part is not None)
        self.spent = self.given == self.limit or (self.given > 0 and self.size + size > self.max_bytes)
        self.given += 1
        self.size += size
        return not self.spent

    def over(self) -> bool:
        """Return True if the time limit was reached."""
        self.late = self.late or self.deadline.expired()
        return self.late


@dataclass(slots=True)
class _Search:
    """The search in a single partition."""

    log: TopicLog
    partition: int
    key: bytes
    at: int
    """All records with the key from this offset on were returned."""
    share: int
    """Maximum bytes of records held in memory."""
    budget: _Budget
    files: int = 0
    skipped: int = 0

    def records(self) -> Iterator[ConsumerRecord]:
        """Yield the records by descending offset, reading them on demand. `at` is 0 when the search is complete."""
        first = self.log.log_start(self.partition)
        begun = True
        while begun and self.at > first:
            begun = False
            if self.budget.over():
                return
            for searched in with_key(self.log, self.partition, self.key, below=self.at, most_bytes=self.share):
                self.files += 1
                self.skipped += searched.skipped
                if searched.chunk is not None:
                    yield from reversed(to_records(self.log.info.name, searched.chunk)[0])
                self.at, begun = searched.start, True
                if self.budget.over():
                    return
        self.at = 0
