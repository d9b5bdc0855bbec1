"""Segment files: an added file of a topic's table in, the segment that it is out."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Final

from kafkalike.delta.actions import Add, version_of
from kafkalike.errors import CorruptRecordError, KafkaStorageError, LogCorruptError
from kafkalike.model.row_value import UNREADABLE as UNREADABLE_STATS
from kafkalike.model.segments import Segment
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.storage.port import Storage

PART_BYTES: Final = 1024 * 1024
"""Bytes read at a time where nothing is decoded."""

LONG_MAX: Final = 2**63 - 1
"""The largest log end that Kafka's clients can name."""


def parse_time_ms(text: str | int) -> int:
    """A timestamp of file statistics, in ms since the epoch; a number is one already."""
    if isinstance(text, int):
        return text
    moment = datetime.fromisoformat(text)
    days = moment.toordinal() - 719_163
    offset = moment.utcoffset()
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return (seconds - (int(offset.total_seconds()) if offset else 0)) * 1000 + moment.microsecond // 1000


def segment_of(add: Add, files: Storage) -> Segment:
    """The segment that an added file is.

    Reads the file itself when the commit carries no statistics that say it, as a foreign writer's may.

    Raises:
        LogCorruptError: the file has no partition, or rows without offset.
        CorruptRecordError: it is missing.
        KafkaStorageError: it cannot be read now.
    """
    if add.partition is None:
        raise LogCorruptError(f"{files.uri}/{add.path} belongs to no partition: a foreign writer wrote it")
    try:
        return _segment_from_stats(add, add.partition)
    except UNREADABLE_STATS:
        return _segment_from_file(add, add.partition, files)


def _segment_from_stats(add: Add, partition: int) -> Segment:
    low, high = add.stats["minValues"], add.stats["maxValues"]
    first_ms = parse_time_ms(low["timestamp"])
    stop = int(high["offset"]) + 1
    if stop > LONG_MAX:
        raise ValueError(stop)
    return Segment(
        partition=partition,
        start=int(low["offset"]),
        stop=stop,
        num_records=int(add.stats["numRecords"]),
        min_timestamp=first_ms,
        # The same where all records are of one append of a topic with `LogAppendTime`, or there is only one.
        max_timestamp=first_ms if high["timestamp"] == low["timestamp"] else parse_time_ms(high["timestamp"]),
        size_bytes=add.size,
        path=add.path,
        modification_ms=add.modification_ms,
    )


def _segment_from_file(add: Add, partition: int, files: Storage) -> Segment:
    import pyarrow.compute as pc  # 30 ms, which most processes never need

    try:
        table = open_parquet(files, add.path).read(columns=["offset", "timestamp"])
        offsets, times = pc.min_max(table["offset"]).as_py(), pc.min_max(table["timestamp"]).as_py()
        return Segment(
            partition=partition,
            start=int(offsets["min"]),
            stop=int(offsets["max"]) + 1,
            num_records=table.num_rows,
            min_timestamp=int(times["min"].timestamp() * 1000),
            max_timestamp=int(times["max"].timestamp() * 1000),
            size_bytes=add.size,
            path=add.path,
            modification_ms=add.modification_ms,
        )
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{files.uri}/{add.path} is named by the log but missing") from cause
    except UNREADABLE as cause:
        if is_storage_error(cause):
            raise KafkaStorageError(f"{files.uri}/{add.path} cannot be read now: {cause}") from cause
        raise LogCorruptError(
            f"{files.uri}/{add.path} has no statistics and cannot stand in for them: {cause}"
        ) from cause


def versions(files: Storage) -> list[int]:
    """Table versions whose commit file still exists, in order."""
    return sorted(v for entry in files.list("_delta_log") if (v := version_of(entry.name)) is not None)


def sha256_of(files: Storage, name: str) -> str:
    """SHA-256 of a file's content.

    Raises:
        FileNotFoundError: there is none.
        OSError: the storage does not answer.
    """
    hashed = hashlib.sha256()
    with files.open_input(name) as stream:
        while part := stream.read(PART_BYTES):
            hashed.update(part)
    return hashed.hexdigest()
