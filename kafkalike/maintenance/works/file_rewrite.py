"""File rewrite: write one data file with all or some records of adjacent data files, in bounded memory.

`merge` replaces each run of small segments with one large sorted file and changes no record. Its files are written
without the topic's lock, in this process or in Spark tasks; one table version with `dataChange=false` then commits all
files of a round. A run that is interrupted leaves a file that no commit names, and `vacuum` removes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import TYPE_CHECKING, Final, Self

import numpy as np
import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.errors import CorruptRecordError, KafkaError, KafkaStorageError
from kafkalike.log.topic.batch_payload import PARQUET_CODECS, segment_name, segment_stats
from kafkalike.log.topic.chunk import CHUNK_SCHEMA
from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.maintenance import maintenance_commit
from kafkalike.maintenance.file_tasks import IN_PROCESS, Tasks, where_possible
from kafkalike.model import faults
from kafkalike.model.clock import Deadline
from kafkalike.model.segments import Segment
from kafkalike.storage.parquet import (
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
    ParquetOutput,
    key_filter,
    open_parquet,
    parquet_writer,
)

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.maintenance.log_cleanup import Run
    from kafkalike.storage.port import Storage


Mask = np.ndarray[tuple[int], np.dtype[np.bool_]]
Keep = Callable[[Segment], Mask | None]
"""Selects the rows of a segment that stay: a mask in offset order, or None for all of them."""


def rewrite(
    files: Storage, run: Sequence[Segment], codec: str, keep: Keep = lambda _: None, *, data_change: bool = False
) -> Add | None:
    """Write the records of adjacent segments of one partition into a new file, which no commit names yet.

    Args:
        files: the topic's table.
        run: the segments, in offset order.
        codec: pyarrow's name of the codec.
        keep: selects the rows that stay.
        data_change: Delta's `dataChange` for the commit that adds the file.

    Returns:
        The file; None if no row stays. Its modification time is that of its newest part, so the age of the records is
            kept.

    Raises:
        CorruptRecordError: a segment cannot be read, or contradicts the log.
        KafkaStorageError: the storage refused; the new file was removed.
    """
    partition = run[0].partition
    name = segment_name(partition, run[0].start)
    faults.point("rewrite.before_file")
    written = WrittenRows()
    try:
        with SegmentWriter(files, name, codec, sum(s.num_records for s in run)) as writer:
            for segment in run:
                for table in _kept(files, segment, keep(segment)):
                    written.take(table, segment)
                    writer.write(table)
        if not written.rows:
            files.remove(name, quietly=True)
            return None
        size = files.size(name)
    except KafkaError:
        files.remove(name, quietly=True)
        raise
    except (OSError, pa.ArrowException) as cause:
        files.remove(name, quietly=True)
        raise KafkaStorageError(f"{files.uri}/{name} cannot be written: {cause}") from cause
    return Add(
        path=name,
        partition=partition,
        size=size,
        modification_ms=max(s.modification_ms for s in run),
        data_change=data_change,
        # A merged file has a time before which none of its records is due if each of its parts has one.
        stats=written.stats(min(s.due_ms for s in run)),
    )


def _kept(files: Storage, segment: Segment, mask: Mask | None) -> Iterator[pa.Table]:
    at = 0
    for table in read_segment(files, segment):
        rows = table.num_rows
        if mask is None:
            yield table
        else:
            kept = mask[at : at + rows]
            if kept.any():
                yield table if kept.all() else table.filter(pa.array(kept))
        at += rows


def codec_of(files: Storage, compression: str, segment: Segment) -> str:
    """Return pyarrow's name of the codec for a file that replaces a segment.

    Args:
        files: the topic's table.
        compression: the topic's `compression.type`; with `producer`, the segment's own codec.
        segment: a live segment.
    """
    if compression != "producer":
        return PARQUET_CODECS[compression]
    try:
        with open_parquet(files, segment.path) as file:
            found = str(file.metadata.row_group(0).column(0).compression).lower()
    except (OSError, pa.ArrowException, IndexError):
        return "none"
    return {"uncompressed": "none", "lz4_raw": "lz4"}.get(found, found)


class SegmentWriter:
    """Writes a Parquet file with row groups of bounded size; without rows, no file is made."""

    def __init__(self, files: Storage, name: str, codec: str, expected: int) -> None:
        self._expected = expected
        self._files = files
        self._name = name
        self._codec = codec
        self._parts: list[pa.Table] = []
        self._rows = self._bytes = 0
        self._open = contextlib.ExitStack()
        self._writer: ParquetOutput | None = None

    def __enter__(self) -> Self:
        return self

    def write(self, table: pa.Table) -> None:
        """Add the next rows."""
        self._parts.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            sink = self._open.enter_context(self._files.open_output(self._name))
            # Later row groups have about the size of the first one, which is at most one batch too large.
            bloom = key_filter(self._parts[0], self._rows, self._expected)
            self._writer = self._open.enter_context(parquet_writer(CHUNK_SCHEMA, sink, self._codec, bloom=bloom))
        self._writer.write_table(pa.concat_tables(self._parts), row_group_size=self._rows)
        self._parts, self._rows, self._bytes = [], 0, 0

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._open:
            if kind is None:
                self._flush()


class WrittenRows:
    """Statistics of the rows written so far."""

    def __init__(self) -> None:
        self.rows = 0
        self._first = self._last = -1
        self._times: tuple[int, int] | None = None

    def take(self, table: pa.Table, segment: Segment) -> None:
        """Count rows, and check that they follow in offset order."""
        offsets = table.column("offset")
        first, last = offsets[0].as_py(), offsets[-1].as_py()
        if first <= self._last:
            raise CorruptRecordError(f"{segment.path} holds offset {first}, and so does a file before it")
        self._last = last
        times = table.column("timestamp").cast(pa.int64()).to_numpy()
        low, high = int(times.min()) // 1000, int(times.max()) // 1000
        self._times = (low, high) if self._times is None else (min(low, self._times[0]), max(high, self._times[1]))
        self._first = first if not self.rows else self._first
        self.rows += table.num_rows

    def stats(self, due_ms: int) -> dict[str, object]:
        """Return Delta's file statistics; `due_ms` as in `Segment`."""
        return segment_stats(self.rows, (self._first, self._last), self._times or (0, 0), due_ms)


GROUP_ROWS: Final = 1_000_000
GROUP_BYTES: Final = 128 * 1024 * 1024
"""Maximum number of records, and bytes, of files that one table version replaces; so also the approximate size of a
compacted file."""

Masks = Mapping[str, Mask]
"""Masks by file: the rows that stay, in offset order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """Adjacent segments that lose records, and the file that replaces them."""

    partition: int
    removes: tuple[Segment, ...]
    add: Add | None
    """None if no record stays, and in a dry run."""
    records_after: int
    end: int
    """Offset below which records are removed."""


def check_apart(segments: Sequence[Segment]) -> None:
    """Raise if segments of a partition contain an offset twice, because the log's record is ambiguous.

    Raises:
        CorruptRecordError: names two of them.
    """
    for before, after in pairwise(segments):
        if after.start < before.stop:
            raise CorruptRecordError(
                f"two files hold offsets in [{after.start}, {min(before.stop, after.stop)}): {before.path} and "
                f"{after.path}; partition {after.partition} is left as it is"
            )


def groups(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    """Group adjacent segments into units that one table version may replace."""
    group: list[Segment] = []
    size = rows = 0
    for segment in segments:
        if group and (size + segment.size_bytes > GROUP_BYTES or rows + segment.num_records > GROUP_ROWS):
            yield group
            group, size, rows = [], 0, 0
        group.append(segment)
        size += segment.size_bytes
        rows += segment.num_records
    if group:
        yield group


def losing(group: Sequence[Segment], masks: Masks) -> Iterator[list[Segment]]:
    """Yield runs of adjacent segments that lose records; a segment without a mask loses none."""
    run: list[Segment] = []
    for segment in group:
        if segment.path not in masks or masks[segment.path].all():
            if run:
                yield run
            run = []
        else:
            run.append(segment)
    if run:
        yield run


def replaced(
    files: Storage, run: Sequence[Segment], masks: Masks, compression: str, *, end: int, dry_run: bool
) -> Replacement:
    """Write the remaining records of a run of segments into one file.

    Args:
        files: the topic's table.
        run: adjacent segments, in offset order.
        masks: the rows that stay.
        compression: the topic's `compression.type`.
        end: see `Replacement`.
        dry_run: whether to count only.

    Raises:
        CorruptRecordError, KafkaStorageError: see `rewrite`.
    """
    kept = sum(int(masks[s.path].sum()) for s in run)
    added: Add | None = None
    if kept and not dry_run:
        codec = codec_of(files, compression, run[-1])
        added = rewrite(files, run, codec, lambda s: masks[s.path], data_change=True)
    return Replacement(partition=run[0].partition, removes=tuple(run), add=added, records_after=kept, end=end)


ROUND_BYTES: Final = 256 * 1024 * 1024
ROUND_RUNS: Final = 64
"""Maximum size of a round, which one table version commits: large enough for few versions, small enough to stop soon.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The result of one round."""

    segments: int
    """Number of files that were replaced."""
    files: int
    """Number of files that replaced them."""
    bytes_before: int
    bytes_after: int


def merge(
    log: TopicLog,
    files: Storage,
    runs: Sequence[Run],
    run_id: str,
    problems: list[str],
    *,
    budget: Deadline,
    tasks: Tasks = IN_PROCESS,
) -> Iterator[Merged]:
    """Merge runs of segments, round by round; the caller may stop after any round.

    Args:
        log: the topic.
        files: its files.
        runs: from `plan_merges`; a round with a file that has been removed meanwhile is skipped.
        run_id: id of the maintenance run.
        problems: receives a line for each run that cannot be read and stays as it is.
        budget: no round starts after it.
        tasks: reads and writes the files.

    Yields:
        The result of each round.

    Raises:
        KafkaStorageError, TopicDeletedError: the storage refused, or the topic was deleted; earlier rounds stay
            committed.
    """
    compression = log.config.compression_type
    jobs = (_Round(files.tasks.sendable(files), tuple(round_), compression, log.fenced) for round_ in _rounds(runs))
    for written in where_possible(tasks, files).run(_write, takewhile(lambda _: not budget.expired(), jobs), budget):
        problems += [why for run, why in written.problems if maintenance_commit.still_live(log, run)]
        if not (written.removes and _put_in_place(log, written, run_id)):
            continue
        yield Merged(
            segments=len(written.removes),
            files=len(written.adds),
            bytes_before=sum(s.size_bytes for s in written.removes),
            bytes_after=sum(a.size for a in written.adds),
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """A job: runs that one table version replaces."""

    files: Storage
    runs: tuple[Run, ...]
    compression: str
    fenced: int
    """The log's fence count before the files were written."""


@dataclass(slots=True)
class _MergedFiles:
    """The files that a round has read and written."""

    fenced: int
    removes: list[Segment] = field(default_factory=list)
    adds: list[Add] = field(default_factory=list)
    problems: list[tuple[Run, str]] = field(default_factory=list)
    """Runs that cannot be read, with the reasons."""


def _write(round_: _Round, budget: Deadline) -> Iterator[_MergedFiles]:
    """Write the files of a round, which is short and ignores the budget; a `Work` of `file_tasks`."""
    del budget
    written = _MergedFiles(round_.fenced)
    try:
        for run in round_.runs:
            try:
                added = rewrite(round_.files, run, codec_of(round_.files, round_.compression, run[-1]))
            except CorruptRecordError as error:
                written.problems.append((run, str(error)))
                continue
            if added is not None:
                written.adds.append(added)
                written.removes += run
    except maintenance_commit.NOT_COMMITTED:
        maintenance_commit.discard_all(round_.files, written.adds)
        raise
    yield written


def _put_in_place(log: TopicLog, written: _MergedFiles, run_id: str) -> bool:
    facts = {"segments": len(written.removes), "files": len(written.adds)}
    change = maintenance_commit.MaintenanceCommit(
        work="merge",
        removes=written.removes,
        adds=written.adds,
        fenced=written.fenced,
        facts=facts,
        data_change=False,
    )
    return maintenance_commit.publish_or_discard(log, change, run_id) is not None


def _rounds(runs: Sequence[Run]) -> Iterator[list[Run]]:
    round_: list[Run] = []
    size = 0
    for run in runs:
        round_.append(run)
        size += sum(s.size_bytes for s in run)
        if size >= ROUND_BYTES or len(round_) >= ROUND_RUNS:
            yield round_
            round_, size = [], 0
    if round_:
        yield round_
