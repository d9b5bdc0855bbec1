"""File check: find damage among the records of a data file: columns, offsets, keys and partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import CorruptRecordError, KafkaError, KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE, first_undecodable
from kafkalike.log.topic.data_file import COLUMNS, ReadOptions, kind_of, rows_at_a_time
from kafkalike.log.topic.segment_rows import SegmentRows
from kafkalike.maintenance.verify.log_rules import check_schema
from kafkalike.maintenance.verify.verify_report import Finding, VerifyReport, finding, one
from kafkalike.model.murmur2 import partitions_for_keys
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
    """Return the files of a topic's table; None for a cluster in memory, which has none."""
    found = getattr(cluster, "files_of", None)
    return None if found is None else cast("Storage", found(info))


def check_segment(cluster: Cluster, log: TopicLog, segment: Segment, report: VerifyReport) -> SegmentCheck:
    """Read and check the records of a file.

    Args:
        cluster: the cluster.
        log: the topic's log, refreshed.
        segment: the file's entry in the log.
        report: receives the findings.

    Raises:
        KafkaStorageError: the storage does not answer, so the file's state is unknown.
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
            # Maintenance has merged or deleted the file meanwhile.
            return check
        kind, message = _explain(segment, error)
        report.findings.append(
            Finding(kind=kind, message=message, topic=name, partition=partition, offsets=segment.offsets)
        )
        return check
    except _WrongColumnsError:
        # Reported already; its rows cannot be checked.
        return check
    found = check.finish()
    if files is not None and any(finding.kind == "unsorted" for finding in found):
        found = _as_read(files, segment, found, holes)
    report.findings += found
    return check


def _as_read(files: Storage, segment: Segment, found: list[Finding], holes: int) -> list[Finding]:
    """Downgrade findings about a file out of order to a warning if no record is missing, because readers sort it."""
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
    """Return kind and message of the finding about a file that could not be read to its end."""
    if isinstance(error, FileNotFoundError):
        return "missing-file", f"{segment.path} is missing: its records are lost"
    if isinstance(error, CorruptRecordError):
        return "damaged-file", f"{segment.path}: {error}"
    return "damaged-file", f"{segment.path} cannot be read: {error}: its records are lost"


class _WrongColumnsError(Exception):
    """A file lacks columns, so its records cannot be checked."""


def _from_file(topic: str, files: Storage, segment: Segment, report: VerifyReport) -> Iterator[pa.RecordBatch]:
    # Elsewhere this takes a request, and reading the file shows the damage anyway.
    size = files.size(segment.path) if files.coordination.reach == "machine" else segment.size_bytes
    if size != segment.size_bytes:
        message = f"{segment.path} has {size} bytes, the log says {segment.size_bytes}"
        report.findings.append(
            Finding(
                kind="file-size", message=message, topic=topic, partition=segment.partition, offsets=segment.offsets
            )
        )
    with open_parquet(files, segment.path) as file:
        # Delta's Spark also writes the partition into the file, delta-rs only into the path.
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
    """Return the readable part of a segment in memory."""
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
    """Raise if a file with a partition column, as Spark writes it, has records of other partitions."""
    if "partition" not in batch.schema.names:
        return
    found = [p for p in pc.unique(batch.column("partition")).to_pylist() if p != partition]
    if found:
        raise CorruptRecordError(
            f"it is registered for partition {partition} and holds records of partition {found[0]}"
        )


def _undecodable(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[int, str]]:
    """Yield the first row of each chunk with a header key that is not text, and a description."""
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


Longs = npt.NDArray[np.int64]


ORDER_KINDS: Final = frozenset({"unsorted", "hole-in-file", "offset-statistics"})
"""Kinds of findings that a file with all its rows out of order may cause."""


class SegmentCheck:
    """Checks the records of one file against its entry in the log, batch by batch in bounded memory.

    Args:
        topic: for the findings.
        segment: the file's entry in the log.
        num_partitions: the topic's number of partitions, for the hash of the keys.
        holes_below: offset below which gaps are legitimate; see `TopicLog.holes_below`.
    """

    def __init__(self, topic: str, segment: Segment, num_partitions: int, *, holes_below: int) -> None:
        self.records = 0
        self.misplaced = 0
        """Records outside of the partition to which their key hashes."""
        self.first_misplaced: int | None = None
        self._topic = topic
        self._segment = segment
        self._num_partitions = num_partitions
        self._holes_below = holes_below
        self._first: int | None = None
        self._last: int | None = None
        self._times: tuple[int, int] | None = None
        self._found: dict[str, Finding] = {}

    def feed(self, offsets: Longs, times_ms: Longs, keys: Sequence[bytes | None]) -> None:
        """Check the next records of the file, in file order."""
        if not len(offsets):
            return
        self._order(offsets)
        self.records += len(offsets)
        low, high = int(times_ms.min()), int(times_ms.max())
        self._times = (low, high) if self._times is None else (min(self._times[0], low), max(self._times[1], high))
        self._keys(offsets, keys)

    def _order(self, offsets: Longs) -> None:
        before = offsets[:1] - 1 if self._last is None else np.array([self._last], np.int64)
        steps = np.diff(np.concatenate([before, offsets]))
        if self._first is None:
            self._first = int(offsets[0])
        self._last = int(offsets[-1])
        if (steps == 1).all():
            return
        for kind, wrong, message in (
            ("duplicate-offset", steps == 0, "an offset is there twice in a row"),
            ("unsorted", steps < 0, "offsets go back"),
            (
                "hole-in-file",
                (steps > 1) & (offsets > self._holes_below),
                "offsets are missing inside the file: their records are lost",
            ),
        ):
            if wrong.any():
                at = int(wrong.argmax())
                offset = int(offsets[at])
                where = range(offset - int(steps[at]) + 1, offset) if kind == "hole-in-file" else one(offset)
                self._add(kind, message, where)

    def _keys(self, offsets: Longs, keys: Sequence[bytes | None]) -> None:
        wanted = partitions_for_keys(keys, self._num_partitions)
        here = self._segment.partition
        wrong = [row for row, partition in enumerate(wanted) if partition is not None and partition != here]
        if wrong and self.first_misplaced is None:
            self.first_misplaced = int(offsets[wrong[0]])
        self.misplaced += len(wrong)

    def header_key(self, offset: int, what: str) -> None:
        """Record a header key that is not text."""
        self._add("header-key", f"a record has {what}", one(offset))

    def _add(self, kind: str, message: str, offsets: range) -> None:
        """Keep the first finding of a kind, because a damaged file breaks a rule at every record."""
        if kind not in self._found:
            segment = self._segment
            self._found[kind] = finding(kind, f"{segment.path}: {message}", self._topic, segment.partition, offsets)

    def finish(self) -> list[Finding]:
        """Return the findings, after the last batch."""
        segment = self._segment
        if self.records != segment.num_records:
            message = f"records in the file: {self.records}, by the log: {segment.num_records}"
            self._add("record-count", message, segment.offsets)
        if self._first is None or self._last is None or self._times is None:
            return list(self._found.values())
        if self._first != segment.start or self._last + 1 != segment.stop:
            message = (
                f"it holds offsets [{self._first}, {self._last + 1}), the log says [{segment.start}, {segment.stop})"
            )
            self._add("offset-statistics", message, segment.offsets)
        low, high = self._times
        if low < segment.min_timestamp or high > segment.max_timestamp:
            message = (
                f"its timestamps [{low}, {high}] ms are not within the log's "
                f"[{segment.min_timestamp}, {segment.max_timestamp}]: look-ups by time may miss records"
            )
            self._add("time-statistics", message, segment.offsets)
        return list(self._found.values())


def misplaced_keys(topic: str, partition: int, checks: Iterable[SegmentCheck]) -> list[Finding]:
    """Return one warning per partition with records whose keys hash to other partitions."""
    wrong = [check for check in checks if check.misplaced]
    if not wrong:
        return []
    count = sum(check.misplaced for check in wrong)
    first = min(check.first_misplaced for check in wrong if check.first_misplaced is not None)
    message = (
        f"records with keys that hash to other partitions: {count}, the first at offset {first}; sent with an explicit "
        "partition or another partitioner, or before partitions were added"
    )
    return [finding("key-partition", message, topic, partition, None, warning=True)]
