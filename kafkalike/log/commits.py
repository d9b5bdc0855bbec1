"""Commits: the JSON files of a Delta log in, table commits with their segments out.

Only what the Delta protocol fixes is read: `commitInfo`, `metaData`, `protocol`, `txn`, `add`, `remove`
(github.com/delta-io/delta, PROTOCOL.md).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from kafkalike.errors import CorruptRecordError, LogCorruptError, UnsupportedVersionError
from kafkalike.log.layout import SUPPORTED_READER_VERSION, SUPPORTED_WRITER_VERSION
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster
    from kafkalike.log.storage import Files

APPEND_KEY: Final = "kafkalikeAppend"
"""Key, in a commit's user metadata (a JSON object), of the id of the append that made it."""


END_APP: Final = "kafkalike.end/"
"""Begins the name of the Delta application whose version is a partition's log end, as appends record it: what is
deleted from the table, and checkpoints that forget the deletion, do not take it back."""


def end_app(partition: int) -> str:
    """The Delta application whose version is the log end of a partition."""
    return f"{END_APP}{partition}"


def ends_of(txns: Mapping[str, int | None]) -> dict[int, int]:
    """The log ends, by partition, among the applications of a table or a commit."""
    return {
        int(app_id[len(END_APP) :]): version
        for app_id, version in txns.items()
        if version is not None and app_id.startswith(END_APP) and app_id[len(END_APP) :].isdigit()
    }


def log_name(version: int) -> str:
    """File of a table version, relative to the table's folder."""
    return f"_delta_log/{version:020d}.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Add:
    """A data file that a commit adds."""

    path: str
    partition: int | None
    size: int
    modification_ms: int
    data_change: bool
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCommit:
    """One table version."""

    version: int
    timestamp_ms: int
    operation: str
    engine: str
    user_metadata: str | None
    adds: tuple[Add, ...] = ()
    removes: tuple[str, ...] = ()
    taken: tuple[Add, ...] = ()
    """Those of the removed files whose records are not said to be in other files."""
    txns: Mapping[str, int] = field(default_factory=dict)
    table_id: str | None = None
    """Set by a commit that changes the table's metadata."""

    @property
    def append_id(self) -> str | None:
        """Id of the append that made it; None when something else did."""
        return append_info(self.user_metadata).get(APPEND_KEY)

    @property
    def data_change(self) -> bool:
        """False for a commit that only moves records between files."""
        return any(a.data_change for a in self.adds) or not self.adds


def append_info(user_metadata: str | None) -> dict[str, Any]:
    """What an append wrote into the commit's user metadata; empty when it is not ours."""
    if not user_metadata or APPEND_KEY not in user_metadata:
        return {}
    try:
        info = json.loads(user_metadata)
    except ValueError:
        return {}
    return info if isinstance(info, dict) else {}


def parse_commit(version: int, content: bytes, where: str) -> TableCommit:
    """Parse the file of one table version.

    Raises:
        LogCorruptError: it is empty, cut off, or not what Delta writes.
        UnsupportedVersionError: it asks for a newer Delta protocol than this package knows.
    """
    name = f"{where}/{log_name(version)}"
    info: dict[str, Any] = {}
    adds: list[Add] = []
    removes: list[Add] = []
    txns: dict[str, int] = {}
    table_id: str | None = None
    lines = [line for line in content.split(b"\n") if line.strip()]
    if not lines:
        message = f"{name} is empty: the table's log is damaged"
        raise LogCorruptError(message)
    for line in lines:
        try:
            action = _object(line)
            if "add" in action:
                adds.append(_parse_add(action["add"]))
            elif "remove" in action:
                removes.append(_parse_remove(action["remove"]))
            elif "commitInfo" in action:
                info = action["commitInfo"]
            elif "txn" in action:
                txns[action["txn"]["appId"]] = int(action["txn"]["version"])
            elif "metaData" in action:
                table_id = action["metaData"]["id"]
            elif "protocol" in action:
                check_protocol(
                    int(action["protocol"]["minReaderVersion"]), int(action["protocol"]["minWriterVersion"]), where
                )
        except (ValueError, KeyError, TypeError) as cause:
            message = f"{name} is damaged: {cause}"
            raise LogCorruptError(message) from cause
    return TableCommit(
        version=version,
        timestamp_ms=int(info.get("timestamp", 0)),
        operation=str(info.get("operation", "?")),
        engine=str(info.get("engineInfo", "?")),
        user_metadata=_user_metadata(info),
        adds=tuple(adds),
        removes=tuple(old.path for old in removes),
        taken=tuple(old for old in removes if old.data_change),
        txns=txns,
        table_id=table_id,
    )


def _object(line: bytes) -> dict[str, Any]:
    action = json.loads(line)
    if not isinstance(action, dict):
        message = f"an action must be an object, not {line[:40]!r}"
        raise TypeError(message)
    return action


def _user_metadata(info: Mapping[str, Any]) -> str | None:
    given = info.get("userMetadata")
    return None if given is None else str(given)


def _parse_add(add: Mapping[str, Any]) -> Add:
    partition = (add.get("partitionValues") or {}).get("partition")
    return Add(
        path=unquote(add["path"]),
        partition=None if partition is None else int(partition),
        size=int(add["size"]),
        modification_ms=int(add["modificationTime"]),
        data_change=bool(add["dataChange"]),
        stats=json.loads(add["stats"]) if add.get("stats") else {},
    )


def _parse_remove(remove: Mapping[str, Any]) -> Add:
    """A removed file, with as much as the log still says of it."""
    path = unquote(remove["path"])
    folder = path.rpartition("/")[0].rpartition("/")[2]
    partition = (remove.get("partitionValues") or {}).get("partition", folder.removeprefix("partition="))
    return Add(
        path=path,
        partition=int(partition) if partition and str(partition).lstrip("-").isdigit() else None,
        size=int(remove.get("size") or 0),
        modification_ms=0,
        data_change=bool(remove.get("dataChange", True)),
        stats=json.loads(remove["stats"]) if remove.get("stats") else {},
    )


def check_protocol(reader: int, writer: int, where: str) -> None:
    """Refuse a table that needs more of a Delta client than this package does.

    Raises:
        UnsupportedVersionError: saying what the table asks for.
    """
    if reader > SUPPORTED_READER_VERSION or writer > SUPPORTED_WRITER_VERSION:
        message = (
            f"{where} needs Delta reader version {reader} and writer version {writer}; kafkalike keeps its tables at "
            f"{SUPPORTED_READER_VERSION} and {SUPPORTED_WRITER_VERSION}: someone has switched on a table feature"
        )
        raise UnsupportedVersionError(message)


def parse_time_ms(text: str | int) -> int:
    """A timestamp of file statistics, in ms since the epoch; a number is one already."""
    if isinstance(text, int):
        return text
    moment = datetime.fromisoformat(text)
    days = moment.toordinal() - 719_163
    offset = moment.utcoffset()
    seconds = ((days * 24 + moment.hour) * 60 + moment.minute) * 60 + moment.second
    return (seconds - (int(offset.total_seconds()) if offset else 0)) * 1000 + moment.microsecond // 1000


def segment_of(add: Add, files: Files) -> Segment:
    """The segment that an added file is.

    Reads the file itself when the commit carries no statistics, as an outsider's may.

    Raises:
        LogCorruptError: the file has no partition, or rows without offset.
    """
    if add.partition is None:
        message = f"{files.uri}/{add.path} belongs to no partition: an outsider wrote it"
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


def _segment_from_file(add: Add, partition: int, files: Files) -> Segment:
    import pyarrow.compute as pc  # 30 ms, which most processes never need

    try:
        table = files.parquet(add.path).read(columns=["offset", "timestamp"])
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


def list_commits(cluster: Cluster, topic: str) -> Iterator[CommitInfo]:
    """The table commits of a topic that its log still holds, oldest first; none for a cluster in memory."""
    reading = getattr(cluster, "files_of", None)
    if reading is None:
        return
    files: Files = reading(cluster.topic(topic))
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
        )


def versions(files: Files) -> list[int]:
    """Table versions whose commit file still exists, in order."""
    names = files.list_log()
    return sorted(int(n[:20]) for n in names if n.endswith(".json") and len(n) == 25 and n[:20].isdigit())  # noqa: PLR2004
