"""Compaction pass: find the records of one partition that a later record of their key shadows, and rewrite their files.

A pass reads twice and commits nothing. The first reading finds the last offset of each key in the dirty part, from the
columns `key` and `offset` alone. The second decides file by file which records stay (in the dirty part by their
offsets) and rewrites only files that lose a record. Memory is bounded: when the keys of the dirty part exceed the
buffer, the pass ends there and the next run continues. A pass is a value that can be sent to another machine
(`file_tasks`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.log.topic.segment_rows import read_segment
from kafkalike.maintenance.works.file_rewrite import Mask, Replacement, check_apart, groups, losing, replaced
from kafkalike.model.clock import Deadline
from kafkalike.model.maintenance.log_cleanup import CompactionPlan
from kafkalike.model.segments import Segment
from kafkalike.storage.parquet import open_parquet

if TYPE_CHECKING:
    from kafkalike.storage.port import Storage


Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

CHUNK_ROWS: Final = 4_000_000
CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Rows, and bytes of their keys and offsets, that are grouped with the known keys at a time; each time costs as much
again as there are known keys."""

_KEYS: Final = ("key", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaning:
    """A job: a pass over one partition."""

    files: Storage
    plan: CompactionPlan
    start: int
    """Offset from which the partition is dirty."""
    compression: str
    """The topic's `compression.type`."""
    buffer_bytes: int
    """Memory for the keys of the dirty part, bytes."""
    dry_run: bool = False
    """Count only, without writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The end of a pass: its counts."""

    partition: int
    end: int
    """Offset up to which it examined the dirty part."""
    complete: bool
    """False if the keys did not fit into the buffer."""
    stopped: bool = False
    """True if time ran out before the end, so that nothing counts as clean."""
    records_before: int = 0
    """Number of records in the clean and the dirty part."""
    shadowed: int = 0
    """Number of records to remove that a later record with the same key shadows."""
    tombstones: int = 0
    """Number of tombstones to remove."""
    keyless: int = 0
    """Number of records without key to remove; Kafka's cleaner drops them, too."""


def clean(job: Cleaning, budget: Deadline) -> Iterator[Replacement | Looked]:
    """Run a pass; a `Work` of `kafkalike.maintenance.file_tasks`.

    Args:
        job: the pass.
        budget: checked before each group of files; after it, the pass ends.

    Yields:
        Replacements in offset order, each of which may be committed by itself; then the counts.

    Raises:
        CorruptRecordError: a file cannot be read, or contradicts the log.
        KafkaStorageError: the storage refused.
    """
    plan = job.plan
    check_apart([*plan.clean, *plan.dirty])
    latest = _latest(job)
    looked_at = [*plan.clean, *(s for s in plan.dirty if s.start < latest.end)]
    pass_ = _Pass(job, latest)
    stopped = False
    for group in groups(looked_at):
        if budget.expired():
            stopped = True
            break
        for run, masks in pass_.affected(group):
            yield replaced(job.files, run, masks, job.compression, end=latest.end, dry_run=job.dry_run)
    counts = pass_.counts
    yield Looked(
        partition=plan.partition,
        end=latest.end,
        complete=latest.complete and not stopped,
        stopped=stopped,
        records_before=counts["records"],
        shadowed=counts["shadowed"],
        tombstones=counts["tombstones"],
        keyless=counts["keyless"],
    )


@dataclass(frozen=True, slots=True)
class _Latest:
    """The last offset of each key in the dirty part."""

    keys: pa.Array
    offsets: Longs
    """Sorted offsets of the dirty part's records that stay."""
    end: int
    """Offset up to which the dirty part was examined."""
    start: int
    """Offset from which the partition is dirty."""
    complete: bool
    keyless: Mapping[str, int]
    """Number of records without key, by file that was read to its end."""


def _latest(job: Cleaning) -> _Latest:
    dirty, start = job.plan.dirty, job.start
    known: pa.Table | None = None
    keyless: Counter[str] = Counter()
    end = start
    complete = True
    for chunk in _key_chunks(job.files, dirty, keyless):
        end = int(chunk.column("offset")[-1].as_py()) + 1
        fresh = _keyed_from(chunk, start)
        known = _grouped(fresh if known is None else pa.concat_tables([known, fresh]))
        if known.nbytes > job.buffer_bytes:
            complete = end >= dirty[-1].stop
            break
    if dirty and complete:
        end = dirty[-1].stop
    keys, offsets = pa.array([], pa.binary()), np.array([], np.int64)
    if known is not None:
        keys, offsets = known.column("key").combine_chunks(), np.sort(known.column("offset").to_numpy())
    return _Latest(keys, offsets, end, start, complete, keyless)


def _keyed_from(chunk: pa.Table, start: int) -> pa.Table:
    """Select the rows with a key, from an offset on."""
    if not chunk.column("key").null_count and chunk.column("offset")[0].as_py() >= start:
        return chunk
    return chunk.filter(pc.and_(pc.is_valid(chunk["key"]), pc.greater_equal(chunk["offset"], start)))


def _grouped(table: pa.Table) -> pa.Table:
    grouped = table.group_by("key").aggregate([("offset", "max")])
    return pa.Table.from_arrays([grouped.column("key"), grouped.column("offset_max")], schema=table.schema)


def _key_chunks(files: Storage, segments: Sequence[Segment], keyless: Counter[str]) -> Iterator[pa.Table]:
    """Yield keys and offsets of segments, and count records without key."""
    parts: list[pa.Table] = []
    rows = size = 0
    for segment in segments:
        for table in read_segment(files, segment, _KEYS):
            keyless[segment.path] += table.column("key").null_count
            parts.append(table)
            rows += table.num_rows
            size += table.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield pa.concat_tables(parts)
                parts, rows, size = [], 0, 0
    if parts:
        yield pa.concat_tables(parts)


_Masks = dict[str, Mask]


class _Pass:
    """The second reading: decides which records stay."""

    def __init__(self, job: Cleaning, latest: _Latest) -> None:
        self.counts: Counter[str] = Counter()
        self._job = job
        self._files = job.files
        self._latest = latest

    def affected(self, group: Sequence[Segment]) -> Iterator[tuple[list[Segment], _Masks]]:
        """Yield runs of adjacent segments that lose records, with the masks of the rows that stay."""
        masks: _Masks = {s.path: self._dirty_mask(s) for s in group if self._is_dirty(s)}
        masks |= self._masks([s for s in group if s.path not in masks])
        for segment in group:
            kept = masks[segment.path]
            masks[segment.path] = kept & ~self._old_tombstones(segment, kept)
            self.counts["records"] += segment.num_records
        for run in losing(group, masks):
            yield run, masks

    def _is_dirty(self, segment: Segment) -> bool:
        """Return whether a segment lies completely in the examined dirty part."""
        return segment.start >= self._latest.start and segment.stop <= self._latest.end

    def _dirty_mask(self, segment: Segment) -> Mask:
        """Select the last row of each key. The first reading has checked the order of offsets."""
        latest, rows = self._latest.offsets, segment.num_records
        ends = np.searchsorted(latest, [segment.start, segment.stop])
        stay = latest[ends[0] : ends[1]]
        kept: Mask
        if rows == segment.stop - segment.start:
            kept = np.zeros(rows, np.bool_)
            kept[stay - segment.start] = True
        else:
            kept = _among(pa.concat_tables(read_segment(self._files, segment, ("offset",)))[0].to_numpy(), stay)
        keyless = self._latest.keyless[segment.path]
        self.counts["keyless"] += keyless
        self.counts["shadowed"] += rows - len(stay) - keyless
        return kept

    def _masks(self, segments: Sequence[Segment]) -> _Masks:
        """Select the rows that stay in segments that are clean, or partly dirty."""
        if not segments:
            return {}
        tables = [pa.concat_tables(read_segment(self._files, s, _KEYS)) for s in segments]
        mask = self._mask(pa.concat_tables(tables))
        cuts = np.cumsum([s.num_records for s in segments])[:-1]
        return {s.path: kept for s, kept in zip(segments, np.split(mask, cuts), strict=True)}

    def _mask(self, table: pa.Table) -> Mask:
        """Select the rows that no later record of the dirty part shadows."""
        offsets = table.column("offset").to_numpy()
        keyed = pc.is_valid(table.column("key")).to_numpy()
        latest = self._latest
        kept = np.ones(len(offsets), np.bool_)
        below = offsets < latest.end
        dirty = below & (offsets >= latest.start)
        if dirty.any():
            kept[dirty] = _among(offsets[dirty], latest.offsets)
        clean_ = below & ~dirty & keyed
        if clean_.any() and len(latest.keys):
            shadowed = pc.is_in(table.column("key"), value_set=latest.keys).to_numpy()
            kept[clean_] = ~shadowed[clean_]
        kept[below & ~keyed] = False
        keyless = int((below & ~keyed).sum())
        self.counts["keyless"] += keyless
        self.counts["shadowed"] += int((~kept).sum()) - keyless
        return kept

    def _old_tombstones(self, segment: Segment, kept: Mask) -> Mask:
        """Select expired tombstones among the remaining rows."""
        none = np.zeros(len(kept), np.bool_)
        below = self._job.plan.tombstones_below
        if segment.start >= below or not self._has_nulls(segment):
            return none
        table = pa.concat_tables(read_segment(self._files, segment, ("offset", "value")))
        old: Mask = pc.is_null(table.column("value")).to_numpy() & (table.column("offset").to_numpy() < below) & kept
        self.counts["tombstones"] += int(old.sum())
        return old

    def _has_nulls(self, segment: Segment) -> bool:
        """Return whether the file's statistics allow null values."""
        with open_parquet(self._files, segment.path) as file:
            groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
            columns = [group.column(at) for group in groups for at in range(group.num_columns)]
            found = [column.statistics for column in columns if column.path_in_schema == "value"]
        return any(stats is None or not stats.has_null_count or stats.null_count for stats in found)


def _among(values: Longs, ordered: Longs) -> Mask:
    """Select the values that are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Mask = ordered[at] == values
    return found
