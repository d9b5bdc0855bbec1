"""Verify run: a cluster in, a report out; reads what the rules of `kafkalike.log.inspect.findings` judge.

Files are read in batches of about 16 MiB. What is appended while the run goes on is not looked at.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import BrokerResponseError, CorruptRecordError, KafkaError, KafkaStorageError, LogCorruptError
from kafkalike.log.inspect.commits import list_commits
from kafkalike.log.inspect.findings import (
    ORDER_KINDS,
    Finding,
    SegmentCheck,
    check_commits,
    check_committed,
    check_coverage,
    check_group_rows,
    check_partitions,
    check_place,
    check_schema,
    misplaced_keys,
)
from kafkalike.log.store.parquet import UNREADABLE, is_storage_error, open_parquet
from kafkalike.log.table.layout import TOPIC_SCHEMA
from kafkalike.log.table.snapshot import load_snapshot
from kafkalike.log.table.table import load_table
from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.log.topic.segment_rows import (
    COLUMNS,
    Reading,
    SegmentRows,
    kind_of,
    rows_at_a_time,
)
from kafkalike.model.segments import Segment
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster, TopicLog
    from kafkalike.log.store.port import Store

BATCH_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH_ROWS: Final = 65_536

Progress = Callable[[int], None]


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found."""

    topics: int = 0
    partitions: int = 0
    segments: int = 0
    records: int = 0
    findings: list[Finding] = field(default_factory=list)

    def errors(self, *, strict: bool = False) -> int:
        """How many findings are errors; with `strict`, warnings count too."""
        return sum(1 for finding in self.findings if strict or not finding.warning)


def known_topics(cluster: Cluster) -> list[str]:
    """Names of all topics; none when the metadata cannot be read, which `verify` says."""
    try:
        return sorted(cluster.topics())
    except LogCorruptError:
        return []


def total_bytes(cluster: Cluster, topics: Iterable[str]) -> int:
    """Bytes of the files that a run over these topics reads; topics that cannot be opened count nothing."""
    total = 0
    for name in topics:
        try:
            total += sum(cluster.disk_usage(name).values())
        except KafkaError:
            # The run itself says what is wrong with it.
            continue
    return total


def verify_topic(cluster: Cluster, name: str, report: Report, progress: Progress = lambda _: None) -> None:
    """Check one topic: its table's schema and commits, its partitions, every file, and the offsets committed in it.

    Args:
        cluster: where it is.
        name: an existing topic.
        report: gets the findings and counts.
        progress: called with the bytes of each file after it was read.
    """
    report.topics += 1
    try:
        log = cluster.log(name)
        log.refresh()
    except (LogCorruptError, BrokerResponseError) as error:
        report.findings += _damaged(cluster, cluster.topic(name)) or [
            Finding(kind="table", message=str(error), topic=name)
        ]
        return
    info = log.info
    live = {p: range(log.log_start(p), log.log_end(p)) for p in info.partitions}
    report.findings += _damaged(cluster, info)
    report.findings += [
        Finding(kind="foreign-rule", message=f"its table: {refusal}", topic=name)
        for refusal in getattr(log, "foreign_rules", list)()
    ]
    report.findings += _table_findings(cluster, info)
    for partition in info.partitions:
        report.partitions += 1
        segments = tuple(log.segments(partition))
        holes = log.holes_below(partition)
        report.findings += check_coverage(name, partition, segments, live[partition], holes_below=holes)
        checks = []
        for segment in segments:
            report.findings += check_place(name, segment)
            checks.append(_check_segment(cluster, log, segment, report))
            report.segments += 1
            report.records += checks[-1].records
            progress(segment.size_bytes)
        report.findings += misplaced_keys(name, partition, checks)
    with contextlib.suppress(LogCorruptError):
        # Said of the offsets table itself.
        report.findings += check_committed(cluster.groups.refresh(), name, info.topic_id, live)


def verify_groups(cluster: Cluster, report: Report) -> None:
    """Check the rows of the offsets table: numbering, generations, commits of members that were replaced."""
    damaged = _damaged(cluster, None)
    report.findings += damaged
    try:
        report.findings += check_group_rows(cluster.groups.rows)
    except LogCorruptError as error:
        if not damaged:
            report.findings.append(Finding(kind="groups-table", message=str(error)))


def _damaged(cluster: Cluster, info: TopicInfo | None) -> list[Finding]:
    """Damaged files of a topic's table log, or of the control tables."""
    from kafkalike.log.cluster.delta_cluster import DeltaCluster
    from kafkalike.log.inspect.repair import damaged_tables

    if not isinstance(cluster, DeltaCluster):
        return []
    tables = damaged_tables(cluster, [] if info is None else [info], control=info is None)
    return [finding for table in tables for finding in table.findings()]


def _table_findings(cluster: Cluster, info: TopicInfo) -> list[Finding]:
    files = _files_of(cluster, info)
    if files is None:
        return []
    try:
        snapshot = load_snapshot(files)
        found = _delta_kinds(json.loads(snapshot.metadata()["schemaString"]))
        live = load_table(files, segment_of).index
        return [
            *check_schema(info.name, "its table", found, _delta_kinds(TOPIC_SCHEMA)),
            *check_partitions(info.name, sorted({s.partition for s in live}), info.num_partitions),
            *check_commits(info.name, list_commits(cluster, info.name)),
        ]
    except (KafkaError, OSError, KeyError, ValueError) as error:
        return [Finding(kind="table-log", message=str(error), topic=info.name)]


def _delta_kinds(schema: Mapping[str, Any]) -> dict[str, str]:
    """Columns of a table by Delta's schema, with their types."""
    return {str(field["name"]): json.dumps(field["type"]) for field in schema["fields"]}


def _files_of(cluster: Cluster, info: TopicInfo) -> Store | None:
    """Files of a topic's table; None for a cluster in memory, which has none."""
    files_of = getattr(cluster, "files_of", None)
    return None if files_of is None else cast("Store", files_of(info))


def _check_segment(cluster: Cluster, log: TopicLog, segment: Segment, report: Report) -> SegmentCheck:
    name, partition = log.info.name, segment.partition
    files = _files_of(cluster, log.info)
    if files is None:
        segment = _readable(segment, log.log_start(partition))
    holes = log.holes_below(partition)
    check = SegmentCheck(name, segment, log.info.num_partitions, holes_below=holes)
    batches = _from_reader(log, segment) if files is None else _from_file(name, files, segment, report)
    try:
        for batch in batches:
            _check_partition_column(batch, partition)
            check.feed(*_columns(batch))
    except (*UNREADABLE, CorruptRecordError) as error:
        if is_storage_error(error):
            raise KafkaStorageError(f"{name}-{partition}: {segment.path} cannot be read now: {error}") from error
        log.refresh()
        if files is not None and segment not in log.segments(partition):
            # Maintenance has merged or deleted it while it was being read.
            return check
        kind, message = _explain(segment, error)
        report.findings.append(
            Finding(kind=kind, message=message, topic=name, partition=partition, offsets=segment.offsets)
        )
        return check
    except _WrongColumnsError:
        # Said already; its rows cannot be judged.
        return check
    found = check.finish()
    if files is not None and any(finding.kind == "unsorted" for finding in found):
        found = _as_read(files, segment, found, holes)
    report.findings += found
    return check


def _as_read(files: Store, segment: Segment, found: list[Finding], holes: int) -> list[Finding]:
    """What is left of the findings about a file out of order, which readers sort if no record is missing."""
    reading = Reading(columns=("offset",), batch_bytes=BATCH_BYTES, max_rows=MAX_BATCH_ROWS)
    rows = SegmentRows(files, segment, segment.start, reading, name="", holes_below=lambda: holes)
    try:
        while rows.next() is not None:
            pass
    except KafkaError:
        return found
    finally:
        rows.close()
    unsorted = [
        replace(f, message=f"{f.message}: readers sort them, merging writes them anew", warning=True)
        for f in found
        if f.kind == "unsorted"
    ]
    return unsorted + [f for f in found if f.kind not in ORDER_KINDS]


def _explain(segment: Segment, error: Exception) -> tuple[str, str]:
    """Kind and message of a finding about a file that could not be read to its end."""
    if isinstance(error, FileNotFoundError):
        return "missing-file", f"{segment.path} is missing: its records are lost"
    if isinstance(error, CorruptRecordError):
        return "damaged-file", f"{segment.path}: {error}"
    return "damaged-file", f"{segment.path} cannot be read: {error}: its records are lost"


class _WrongColumnsError(Exception):
    """A file lacks columns, so that its records cannot be checked."""


def _from_file(topic: str, files: Store, segment: Segment, report: Report) -> Iterator[pa.RecordBatch]:
    size = _size_of(files, segment.path)
    if size is not None and size != segment.size_bytes:
        message = f"{segment.path} has {size} bytes, the log says {segment.size_bytes}"
        report.findings.append(
            Finding(
                kind="file-size", message=message, topic=topic, partition=segment.partition, offsets=segment.offsets
            )
        )
    with open_parquet(files, segment.path) as file:
        # Delta's Spark writes the partition into the file as well, delta-rs only into the path.
        found = {column.name: kind_of(column.type) for column in file.schema_arrow if column.name != "partition"}
        wanted = {column.name: kind_of(column.type) for column in CHUNK_SCHEMA}
        flaws = check_schema(topic, segment.path, found, wanted, segment.partition)
        report.findings += flaws
        if flaws and not {"offset", "timestamp", "key"} <= found.keys():
            raise _WrongColumnsError
        groups = range(file.metadata.num_row_groups)
        rows = rows_at_a_time(files, segment.path, file, groups, BATCH_BYTES, COLUMNS)
        yield from file.iter_batches(batch_size=min(rows, MAX_BATCH_ROWS))


def _size_of(files: Store, path: str) -> int | None:
    """Bytes of a file on a local disk; None elsewhere, where a damaged file shows when it is read."""
    local = getattr(files, "path", None)
    return None if local is None else os.stat(local(path)).st_size  # noqa: PTH116


def _readable(segment: Segment, log_start: int) -> Segment:
    """The part of a segment in memory that a reader may read."""
    start = max(segment.start, log_start)
    return replace(segment, start=start, num_records=segment.num_records - (start - segment.start))


def _from_reader(log: TopicLog, segment: Segment) -> Iterator[pa.Table]:
    reader = log.reader(segment.partition, segment.start)
    left = segment.num_records
    while left > 0:
        chunk = reader.read(BATCH_BYTES)
        if chunk is None:
            return
        yield chunk.table.slice(0, left)
        left -= min(left, len(chunk))


def _check_partition_column(batch: pa.RecordBatch | pa.Table, partition: int) -> None:
    """A file that has the partition column, as Spark's have, must hold records of its partition only."""
    if "partition" not in batch.schema.names:
        return
    found = [p for p in pc.unique(batch.column("partition")).to_pylist() if p != partition]
    if found:
        message = f"it is registered for partition {partition} and holds records of partition {found[0]}"
        raise CorruptRecordError(message)


def _columns(batch: pa.RecordBatch | pa.Table) -> tuple[Any, Any, list[bytes | None]]:
    offsets, times = batch.column("offset"), batch.column("timestamp")
    if offsets.null_count or times.null_count:
        message = "records without offset or timestamp"
        raise CorruptRecordError(message)
    millis = pc.divide(pc.cast(times.cast(pa.timestamp("us", "UTC")), pa.int64()), 1000)
    keys = batch.column("key").to_pylist()
    return np.asarray(offsets, np.int64), np.asarray(millis, np.int64), keys


def verify(
    cluster: Cluster, topics: Iterable[str], progress: Progress = lambda _: None, *, groups: bool = True
) -> Report:
    """Check topics and, with `groups`, the offsets table.

    Args:
        cluster: where they are.
        topics: existing topics.
        progress: called with the bytes of each file after it was read.
        groups: also check the rows of the offsets table, whichever topics they are about.
    """
    report = Report()
    for name in topics:
        verify_topic(cluster, name, report, progress)
    if groups:
        verify_groups(cluster, report)
    return report
