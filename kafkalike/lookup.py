"""Lookup: a topic and a key in, the newest records that have it out, by file statistics and not by a scan."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalike.consumer.records import to_records
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.connect import connect
from kafkalike.model.names import check_topic_name
from kafkalike.partitioner import partition_for_key

if TYPE_CHECKING:
    from kafkalike.log.port import TopicLog
    from kafkalike.model.structs import ConsumerRecord


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
    """Whether these are all records with the key, in these partitions; False where `limit` was reached."""


def find_records(
    topic: str,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    key: bytes | str,
    limit: int = 100,
    partitions: Iterable[int] | None = None,
    storage_options: Any = None,  # noqa: ANN401 - see `connect`
) -> KeyRecords:
    """The newest records that have a key.

    All partitions are looked at by default, so that no record is missed: also one that was sent to a partition of its
    sender's choice, placed by another partitioner, or written before the topic got more partitions. That costs little
    where files have Bloom filters on their keys, as all files of 8,192 records and more have that this release or a
    later one has written; of others the keys are read.

    Args:
        topic: its topic.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        key: the key's bytes, or text, whose UTF-8 is taken. Records without key are not looked up: they have nothing
            to be found by.
        limit: most records.
        partitions: which partitions to look at; None for all.
        storage_options: who asks an object store; see `kafkalike.log.connect.connect`.

    Returns:
        The records, and what was looked at, as of now.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: no such topic, or no such partition.
        IllegalArgumentError: no key, or no positive limit (a ValueError).
        CorruptRecordError: a data file is damaged; says which.
        KafkaStorageError: the storage does not answer, or maintenance has removed a file meanwhile: ask again.
    """
    given: object = key
    if not isinstance(given, bytes | str):
        raise IllegalArgumentError(f"a key is needed, as bytes or text, not {key!r}")
    if type(limit) is not int or limit < 1:
        raise IllegalArgumentError(f"limit must be 1 or more, not {limit!r}")
    wanted = key.encode() if isinstance(key, str) else key
    log = connect(bootstrap_servers, storage_options).log(check_topic_name(topic))
    log.refresh()
    known = log.info.partitions
    chosen = list(known) if partitions is None else sorted(set(partitions))
    unknown = [p for p in chosen if p not in known]
    if unknown:
        raise UnknownTopicOrPartitionError(f"{topic}-{unknown[0]} does not exist: there are 0 to {len(known) - 1}")
    found = [_Found.of(log, p, wanted, limit) for p in chosen]
    newest = heapq.merge(*(one.records for one in found), key=lambda record: -record.timestamp)
    total = sum(len(one.records) for one in found)
    return KeyRecords(
        records=[record for record, _ in zip(newest, range(limit), strict=False)],
        partitions=chosen,
        hashed=partition_for_key(wanted, len(known)),
        files=sum(one.files for one in found),
        skipped=sum(one.skipped for one in found),
        complete=total <= limit and all(one.complete for one in found),
    )


@dataclass(slots=True)
class _Found:
    """What one partition has."""

    records: list[ConsumerRecord]
    files: int = 0
    skipped: int = 0
    complete: bool = True

    @classmethod
    def of(cls, log: TopicLog, partition: int, key: bytes, limit: int) -> _Found:
        """Look until there are more than `limit`."""
        found = cls([])
        for searched in log.with_key(partition, key):
            found.files += 1
            found.skipped += searched.skipped
            if searched.chunk is not None:
                found.records += reversed(to_records(log.info.name, searched.chunk)[0])
            if len(found.records) > limit:
                found.complete = False
                break
        return found
