"""File check: a data file of a topic in, its findings out; reads what `file_rules` judges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import CorruptRecordError, KafkaError, KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE, first_undecodable
from kafkalike.log.topic.data_file import COLUMNS, ReadOptions, kind_of, rows_at_a_time
from kafkalike.log.topic.segment_rows import SegmentRows
from kafkalike.maintenance.verify.file_rules import ORDER_KINDS, SegmentCheck
from kafkalike.maintenance.verify.findings import Finding, Report
from kafkalike.maintenance.verify.table_rules import check_schema
from kafkalike.model.segments import Segment
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, open_parquet

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.storage.port import Storage


BATCH_BYTES: Final = 16 * 1024 * 1024


MAX_BATCH_ROWS: Final = 65_536


def files_of(cluster: Cluster, info: TopicInfo) -> Storage | None:
    """Files of a topic's table; None for a cluster in memory, which has none."""
    found = getattr(cluster, "files_of", None)
    return None if found is None else cast("Storage", found(info))


def check_segment(cluster: Cluster, log: TopicLog, segment: Segment, report: Report) -> SegmentCheck:
    """Read the records of a file and check them.

    Args:
        cluster: where it is.
        log: its topic's, refreshed.
        segment: what the log says of the file.
        report: gets the findings.

    Raises:
        KafkaStorageError: the storage does not answer; this says nothing about the file.
    """
    name, partition = log.info.name, segment.partition
    files = files_of(cluster, log.info)
    if files is None:
        segment = _readable(segment, log.log_start(partition))
    holes = log.holes_below(partition)
    check = SegmentCheck(name, segment, log.info.num_partitions, holes_below=holes)
    batches = _from_reader(log, segment) if files is None else _from_file(name, files, segment, report)
    try:
        for batch in batches:
            _check_partition_column(batch, partition)
            offsets, times_ms, keys = _columns(batch)
            check.feed(offsets, times_ms, keys)
            for at, what in _undecodable(batch):
                check.header_key(int(offsets[at]), what)
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


def _as_read(files: Storage, segment: Segment, found: list[Finding], holes: int) -> list[Finding]:
    """What is left of the findings about a file out of order, which readers sort if no record is missing."""
    reading = ReadOptions(columns=("offset",), batch_bytes=BATCH_BYTES, max_rows=MAX_BATCH_ROWS)
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


def _from_file(topic: str, files: Storage, segment: Segment, report: Report) -> Iterator[pa.RecordBatch]:
    # Elsewhere that is a request, and a damaged file shows when it is read.
    size = files.size(segment.path) if files.reach == "machine" else segment.size_bytes
    if size != segment.size_bytes:
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
        raise CorruptRecordError(
            f"it is registered for partition {partition} and holds records of partition {found[0]}"
        )


def _undecodable(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, str]]:
    """Rows with a header whose key is no text, and what they have: the first of each chunk."""
    if "headers" not in batch.schema.names:
        return
    column = batch.column("headers")
    if kind_of(column.type) != kind_of(HEADERS_TYPE):
        return
    before = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        wrong = first_undecodable(chunk)
        if wrong is not None:
            yield before + wrong.row, str(wrong)
        before += len(chunk)


def _columns(batch: pa.RecordBatch | pa.Table) -> tuple[Any, Any, list[bytes | None]]:
    offsets, times = batch.column("offset"), batch.column("timestamp")
    if offsets.null_count or times.null_count:
        raise CorruptRecordError("records without offset or timestamp")
    millis = pc.divide(pc.cast(times.cast(pa.timestamp("us", "UTC")), pa.int64()), 1000)
    keys = batch.column("key").to_pylist()
    return np.asarray(offsets, np.int64), np.asarray(millis, np.int64), keys
