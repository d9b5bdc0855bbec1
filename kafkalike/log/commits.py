"""Segment files: an added file of a topic's table in, the segment that it is out; and a topic's commits, for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kafkalike.errors import CorruptRecordError, LogCorruptError
from kafkalike.log.store.parquet import open_parquet
from kafkalike.log.store.port import Store
from kafkalike.log.table.actions import Add, log_name, parse_commit, version_of
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster


def parse_time_ms(text: str | int) -> int:
    """A timestamp of file statistics, in ms since the epoch; a number is one already."""
    if isinstance(text, int):
        return text
    moment = datetime.fromisoformat(text)
    days = moment.toordinal() - 719_163
    offset = moment.utcoffset()
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return (seconds - (int(offset.total_seconds()) if offset else 0)) * 1000 + moment.microsecond // 1000


def segment_of(add: Add, files: Store) -> Segment:
    """The segment that an added file is.

    Reads the file itself when the commit carries no statistics, as a foreign writer's may.

    Raises:
        LogCorruptError: the file has no partition, or rows without offset.
    """
    if add.partition is None:
        message = f"{files.uri}/{add.path} belongs to no partition: a foreign writer wrote it"
        raise LogCorruptError(message)
    low, high = add.stats.get("minValues") or {}, add.stats.get("maxValues") or {}
    if {"offset", "timestamp"} <= low.keys() & high.keys() and "numRecords" in add.stats:
        return Segment(
            partition=add.partition,
            start=int(low["offset"]),
            stop=int(high["offset"]) + 1,
            num_records=int(add.stats["numRecords"]),
            min_timestamp=parse_time_ms(low["timestamp"]),
            max_timestamp=parse_time_ms(high["timestamp"]),
            size_bytes=add.size,
            path=add.path,
            modification_ms=add.modification_ms,
        )
    return _segment_from_file(add, add.partition, files)


def _segment_from_file(add: Add, partition: int, files: Store) -> Segment:
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
        message = f"{files.uri}/{add.path} is named by the log but missing"
        raise CorruptRecordError(message) from cause
    except (TypeError, KeyError, OSError) as cause:
        message = f"{files.uri}/{add.path} has no statistics and cannot stand in for them: {cause}"
        raise LogCorruptError(message) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo:
    """A table commit of a topic, for people: `dump-log` and `verify`."""

    version: int
    timestamp_ms: int
    operation: str
    append_id: str | None
    added: tuple[Segment, ...]
    removed: tuple[str, ...]
    engine: str
    fences: str | None = None
    """Id of the append that was surely not written, as this commit has the version that it could have got."""


def list_commits(cluster: Cluster, topic: str) -> Iterator[CommitInfo]:
    """The table commits of a topic that its log still holds, oldest first; none for a cluster in memory."""
    reading = getattr(cluster, "files_of", None)
    if reading is None:
        return
    files: Store = reading(cluster.topic(topic))
    for version in versions(files):
        commit = parse_commit(version, files.read(log_name(version)), files.uri)
        yield CommitInfo(
            version=version,
            timestamp_ms=commit.timestamp_ms,
            operation=commit.operation,
            append_id=commit.append_id,
            added=tuple(segment_of(a, files) for a in commit.adds),
            removed=commit.removes,
            engine=commit.engine,
            fences=commit.fences,
        )


def versions(files: Store) -> list[int]:
    """Table versions whose commit file still exists, in order."""
    return sorted(v for entry in files.list("_delta_log") if (v := version_of(entry.name)) is not None)
