"""Compact: a plan of one partition in, its shadowed records out of the table; each key keeps its last value.

Two readings. The first finds the last offset of each key of the dirty part, from the columns `key` and `offset` alone.
The second decides file by file what stays, again from these columns, and rewrites only files that lose a record. Memory
is bounded: when the keys of the dirty part exceed the buffer, the pass ends there and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.clock import Clock
from kafkalike.errors import KafkaTimeoutError
from kafkalike.log.maintenance import NOT_COMMITTED, Change, publish
from kafkalike.log.rewrite import Mask, codec_of, read_segment, rewrite
from kafkalike.log.tail import open_table
from kafkalike.model.compaction import CLEANER_APP, HOLES, Cleaned, CompactionPlan, cleaner_app
from kafkalike.model.segments import Segment

if TYPE_CHECKING:
    from kafkalike.log.commits import Add
    from kafkalike.log.storage import Files
    from kafkalike.log.topic_log import DeltaTopicLog

Longs = np.ndarray[tuple[int], np.dtype[np.int64]]

CHUNK_ROWS: Final = 1_000_000
CHUNK_BYTES: Final = 64 * 1024 * 1024
"""Rows, and bytes of their keys, that are looked at in one go."""

GROUP_BYTES: Final = 128 * 1024 * 1024
"""Bytes of files that one table version replaces at most, and so roughly the size of a compacted file."""

_KEYS: Final = ("key", "offset")
_CHECKPOINT: Final = ("dirty", "horizon", "horizon_ms", "settled")


@dataclass(slots=True, kw_only=True)
class Compacted:
    """What a pass over one partition has done, or would do."""

    records_before: int = 0
    """Records of the clean and the dirty part."""
    shadowed: int = 0
    """Records that went because a later one has their key."""
    tombstones: int = 0
    """Tombstones that went."""
    keyless: int = 0
    """Records without key that went; Kafka's cleaner drops them too."""
    segments: int = 0
    """Files that were rewritten or dropped."""
    files: int = 0
    """Files that took their place."""
    bytes_before: int = 0
    bytes_after: int = 0
    complete: bool = True
    """False when the keys did not fit into the buffer, or time ran out: the next run goes on."""
    clean_end: int = 0
    """Everything below it is clean now."""
    cleaned: Cleaned = field(default_factory=Cleaned)

    @property
    def gone(self) -> int:
        """Records that went."""
        return self.shadowed + self.tombstones + self.keyless


def checkpoints_of(log: DeltaTopicLog) -> dict[int, Cleaned]:
    """The cleaner's checkpoint of each partition, as of the last `refresh`.

    They lie in the topic's own table as versions of Delta applications, so that they change with the data or not at all
    and outlive every checkpoint of its log.
    """
    table = open_table(log.files.uri, log.version)
    return {
        p: Cleaned(**{name: int(table.transaction_version(cleaner_app(p, name)) or 0) for name in _CHECKPOINT})
        for p in log.info.partitions
    }


def _checkpoint(partition: int, cleaned: Cleaned) -> dict[str, int]:
    return {cleaner_app(partition, name): getattr(cleaned, name) for name in _CHECKPOINT}


def compact(
    log: DeltaTopicLog,
    files: Files,
    plan: CompactionPlan,
    run_id: str,
    *,
    cleaned: Cleaned,
    clock: Clock,
    buffer_bytes: int,
    stop: Callable[[], bool] = lambda: False,
    dry_run: bool = False,
) -> Compacted:
    """Clean one partition.

    Each table version is right by itself: it only takes records away that a live one with the same key follows, or
    tombstones that have been readable for long enough. A pass that is cut off is made again from the old checkpoint.

    Args:
        log: the topic.
        files: its files.
        plan: what to look at.
        run_id: id of the maintenance run.
        cleaned: the checkpoint that the plan was made from.
        clock: says when the pass ended, from which tombstones count.
        buffer_bytes: memory for the keys of the dirty part.
        stop: asked between two table versions; True ends the pass early.
        dry_run: only count.

    Raises:
        CorruptRecordError: a file cannot be read; what was done before stays.
        KafkaStorageError: the storage refused.
    """
    latest = _latest(files, plan.dirty, max(cleaned.dirty, log.log_start(plan.partition)), buffer_bytes)
    done = Compacted(complete=latest.complete, clean_end=latest.end)
    looked_at = [*plan.clean, *(s for s in plan.dirty if s.start < latest.end)]
    pass_ = _Pass(log, files, plan, latest, done)
    for group in _groups(looked_at):
        if stop():
            done.complete = False
            return done
        for run, masks in pass_.affected(group):
            pass_.replace(run, masks, run_id, dry_run=dry_run)
    done.cleaned = cleaned.after(latest.end, clock.now_ms(), plan.tombstones_below)
    if not dry_run and done.cleaned != cleaned:
        txns = _checkpoint(plan.partition, done.cleaned)
        publish(log, Change(work="compaction", txns=txns, facts={"partition": plan.partition}), run_id)
    return done


@dataclass(frozen=True, slots=True)
class _Latest:
    """The last offset of each key of the dirty part."""

    keys: pa.Array
    offsets: Longs
    """Sorted; the records of the dirty part that stay."""
    end: int
    """Offset up to which the dirty part was looked at."""
    start: int
    """Offset from which on it is dirty."""
    complete: bool


def _latest(files: Files, dirty: Sequence[Segment], start: int, buffer_bytes: int) -> _Latest:
    known: pa.Table | None = None
    end = start
    complete = True
    for chunk in _key_chunks(files, dirty):
        end = int(chunk.column("offset")[-1].as_py()) + 1
        fresh = chunk.filter(pc.and_(pc.is_valid(chunk["key"]), pc.greater_equal(chunk["offset"], start)))
        known = _grouped(fresh if known is None else pa.concat_tables([known, fresh]))
        if known.nbytes > buffer_bytes:
            complete = end >= dirty[-1].stop
            break
    if dirty and complete:
        end = dirty[-1].stop
    if known is None:
        return _Latest(pa.array([], pa.binary()), np.array([], np.int64), end, start, complete)
    return _Latest(
        known.column("key").combine_chunks(), np.sort(known.column("offset").to_numpy()), end, start, complete
    )


def _grouped(table: pa.Table) -> pa.Table:
    grouped = table.group_by("key").aggregate([("offset", "max")])
    return pa.Table.from_arrays([grouped.column("key"), grouped.column("offset_max")], schema=table.schema)


def _key_chunks(files: Files, segments: Sequence[Segment]) -> Iterator[pa.Table]:
    parts: list[pa.Table] = []
    rows = size = 0
    for segment in segments:
        for table in read_segment(files, segment, _KEYS):
            parts.append(table)
            rows += table.num_rows
            size += table.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield pa.concat_tables(parts)
                parts, rows, size = [], 0, 0
    if parts:
        yield pa.concat_tables(parts)


def _groups(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    group: list[Segment] = []
    size = rows = 0
    for segment in segments:
        if group and (size + segment.size_bytes > GROUP_BYTES or rows + segment.num_records > CHUNK_ROWS):
            yield group
            group, size, rows = [], 0, 0
        group.append(segment)
        size += segment.size_bytes
        rows += segment.num_records
    if group:
        yield group


_Masks = dict[str, Mask]


class _Pass:
    """One pass over a partition: decides what stays, and puts it in place."""

    def __init__(
        self, log: DeltaTopicLog, files: Files, plan: CompactionPlan, latest: _Latest, done: Compacted
    ) -> None:
        self._log = log
        self._files = files
        self._plan = plan
        self._latest = latest
        self._done = done

    def affected(self, group: Sequence[Segment]) -> Iterator[tuple[list[Segment], _Masks]]:
        """Runs of neighbouring segments that lose records, with the rows that stay of each of them."""
        tables = [pa.concat_tables(read_segment(self._files, s, _KEYS)) for s in group]
        mask = self._mask(pa.concat_tables(tables))
        masks: _Masks = {}
        at = 0
        for segment in group:
            kept = mask[at : at + segment.num_records]
            at += segment.num_records
            masks[segment.path] = kept & ~self._old_tombstones(segment, kept)
        self._done.records_before += at
        run: list[Segment] = []
        for segment in group:
            if masks[segment.path].all():
                if run:
                    yield run, masks
                run = []
            else:
                run.append(segment)
        if run:
            yield run, masks

    def _mask(self, table: pa.Table) -> Mask:
        """Which rows no later record of the dirty part shadows."""
        offsets = table.column("offset").to_numpy()
        keyed = pc.is_valid(table.column("key")).to_numpy()
        latest = self._latest
        kept = np.ones(len(offsets), np.bool_)
        below = offsets < latest.end
        dirty = below & (offsets >= latest.start)
        if dirty.any():
            kept[dirty] = _among(offsets[dirty], latest.offsets)
        clean = below & ~dirty & keyed
        if clean.any() and len(latest.keys):
            shadowed = pc.is_in(table.column("key"), value_set=latest.keys).to_numpy()
            kept[clean] = ~shadowed[clean]
        kept[below & ~keyed] = False
        keyless = int((below & ~keyed).sum())
        self._done.keyless += keyless
        self._done.shadowed += int((~kept).sum()) - keyless
        return kept

    def _old_tombstones(self, segment: Segment, kept: Mask) -> Mask:
        """Which of the rows that are kept so far are tombstones whose time is over."""
        none = np.zeros(len(kept), np.bool_)
        below = self._plan.tombstones_below
        if segment.start >= below or not self._has_nulls(segment):
            return none
        table = pa.concat_tables(read_segment(self._files, segment, ("offset", "value")))
        old: Mask = pc.is_null(table.column("value")).to_numpy() & (table.column("offset").to_numpy() < below) & kept
        self._done.tombstones += int(old.sum())
        return old

    def _has_nulls(self, segment: Segment) -> bool:
        """Whether the footer allows a value to be null."""
        with self._files.parquet(segment.path) as file:
            groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
            columns = [group.column(at) for group in groups for at in range(group.num_columns)]
            found = [column.statistics for column in columns if column.path_in_schema == "value"]
        return any(stats is None or not stats.has_null_count or stats.null_count for stats in found)

    def replace(self, run: Sequence[Segment], masks: _Masks, run_id: str, *, dry_run: bool) -> None:
        """Put what stays of a run of segments into one file, in one table version."""
        done = self._done
        done.segments += len(run)
        done.bytes_before += sum(s.size_bytes for s in run)
        if dry_run:
            done.files += any(masks[s.path].any() for s in run)
            return
        added: Add | None = None
        if any(masks[s.path].any() for s in run):
            codec = codec_of(self._files, self._log.config, run[-1])
            added = rewrite(self._files, run, codec, lambda s: masks[s.path], data_change=True)
        adds = [] if added is None else [added]
        partition = self._plan.partition
        # An earlier pass that was cut off may have taken records further up.
        holes = max(self._latest.end, self._log.cleaned_below(partition))
        txns = {CLEANER_APP: self._log.clock.now_ms(), cleaner_app(partition, HOLES): holes}
        before, after = sum(s.num_records for s in run), sum(int(masks[s.path].sum()) for s in run)
        facts = {"partition": self._plan.partition, "records_before": before, "records_after": after}
        try:
            landed = publish(
                self._log, Change(work="compaction", removes=run, adds=adds, txns=txns, facts=facts), run_id
            )
        except NOT_COMMITTED:
            self._discard(adds)
            raise
        if landed is None:
            self._discard(adds)
            message = f"{self._log.info.name}-{self._plan.partition}: another run has been at its files; try again"
            raise KafkaTimeoutError(message)
        done.files += len(adds)
        done.bytes_after += sum(a.size for a in adds)

    def _discard(self, adds: Sequence[Add]) -> None:
        for add in adds:
            self._files.discard(add.path)


def _among(values: Longs, ordered: Longs) -> Mask:
    """Which values are in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), np.bool_)
    at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: Mask = ordered[at] == values
    return found
