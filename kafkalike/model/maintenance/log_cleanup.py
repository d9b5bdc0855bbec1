"""Log cleanup: plan which segments of a partition retention deletes, compaction cleans and merging joins; no I/O.

Retention: a segment is a data file, which is sealed when it is committed, so records are deleted one append (or one
merged file) at a time and not only when Kafka would have rolled a segment (decision 014). The rules are Kafka's
(`UnifiedLog.deleteOldSegments`): first segments below the log start, then segments in excess of `retention.bytes`, then
segments older than `retention.ms`; always a prefix of whole segments.

Compaction: as in Kafka's log cleaner (`LogCleanerManager`, `Cleaner`), the part below the cleaner's checkpoint is
clean, the part above it is dirty, and the active segment is left alone. Files take the place of Kafka's record batches:
they are rolled into segments by `segment.bytes` and `segment.ms` as Kafka would roll them, and the last of these
segments is the active one (decision 015).

Merging is tiered, so that a byte is rewritten only a few times however many small appends follow: a run of small files
is merged when the result is at least twice as large as its largest part, or when nothing more can join it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from kafkalike.model.segments import Segment

RetentionClock = Literal["record", "append"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long records of a topic are kept."""

    delete: bool
    """True if `cleanup.policy` has `delete`; otherwise only segments below the log start are deleted."""
    retention_ms: int
    """Age in ms above which a segment is deleted; -1 keeps it forever."""
    retention_bytes: int
    """Most bytes of a partition; -1 for no limit."""
    clock: RetentionClock = "record"
    """Time from which the age counts; see `segment_times`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionHold:
    """Groups that retention waits for, and the limits of the wait."""

    offsets: Mapping[str, int]
    """By group: its committed offset in this partition; the log start for a group without one."""
    max_ms: int
    """Age in ms above which a segment is deleted although a group has not read it."""
    max_bytes: int
    """Bytes above which the oldest segments are deleted although a group has not read them; -1 for no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The effect of retention on one partition."""

    partition: int
    log_start: int
    """Current start of the log."""
    new_log_start: int
    """New start of the log; the same if nothing expires."""
    goes: tuple[Segment, ...] = ()
    """All segments below the new log start, which leave the table: expired segments, and segments that `delete_records`
    or an interrupted run has left."""
    held: tuple[Segment, ...] = ()
    """Segments that would expire if all groups had read them."""
    held_by: tuple[str, ...] = ()
    """Groups that have not read the held segments."""
    next_ms: int | None = None
    """Time, ms, from which the oldest segment that has not expired is too old; None if age expires none."""

    @property
    def moves(self) -> bool:
        """True if the log start moves."""
        return self.new_log_start > self.log_start


FOREVER: Final = -1


def append_times(segments: Sequence[Segment]) -> list[int]:
    """Return the time in ms when each segment was appended: the earliest time recorded at or after it.

    Times rise with offsets, so a segment was appended no later than the segments after it. A writer whose clock is
    ahead is corrected by the next one. 0 for an unknown time.
    """
    times = [segment.modification_ms for segment in segments]
    earliest = 0
    for at in range(len(times) - 1, -1, -1):
        if times[at] > 0:
            earliest = min(times[at], earliest or times[at])
        times[at] = earliest
    return times


def segment_times(segments: Sequence[Segment], clock: RetentionClock) -> list[int]:
    """Return the time in ms from which the age of each segment counts.

    Args:
        segments: segments of one partition, in offset order.
        clock: `record`: the newest record's time, as in Kafka, but at most the time of the append. A record from the
            far future, which would pin its partition permanently in Kafka, ages from its append on. `append`: the time
            of the append.
    """
    appended = append_times(segments)
    if clock == "append":
        return [at or s.max_timestamp for at, s in zip(appended, segments, strict=True)]
    return [min(at or s.max_timestamp, s.max_timestamp) for at, s in zip(appended, segments, strict=True)]


def plan_retention(
    partition: int,
    segments: Sequence[Segment],
    *,
    log_start: int,
    now_ms: int,
    policy: RetentionPolicy,
    hold: RetentionHold | None = None,
) -> RetentionPlan:
    """Plan retention of one partition.

    Args:
        partition: its number.
        segments: all data files of the partition in offset order, including those below the log start.
        log_start: first readable offset.
        now_ms: the time, ms.
        policy: the topic's settings.
        hold: groups to wait for; None for no groups.
    """
    every = list(segments)
    # A foreign writer's dead segment may lie behind a live segment that it overlaps.
    live = [s for s in every if s.stop > log_start]
    has_age = policy.delete and (policy.retention_ms != FOREVER or hold is not None)
    times = segment_times(live, policy.clock) if has_age else []
    count = _expired(live, times, now_ms, policy) if policy.delete else 0
    allowed, waiting = count, tuple[str, ...]()
    if hold is not None and count:
        allowed, waiting = _allowed(live, times, count, now_ms, policy, hold)
    by_age = policy.retention_ms != FOREVER and count < len(times)
    new_log_start = live[allowed - 1].stop if allowed else log_start
    return RetentionPlan(
        partition=partition,
        log_start=log_start,
        new_log_start=new_log_start,
        goes=tuple(s for s in every if s.stop <= new_log_start),
        held=tuple(live[allowed:count]),
        held_by=waiting,
        next_ms=times[count] + policy.retention_ms + 1 if by_age else None,
    )


def _expired(live: Sequence[Segment], times: Sequence[int], now_ms: int, policy: RetentionPolicy) -> int:
    """Return how many of the oldest segments exceed retention; first by size, then by time, as in Kafka."""
    count = 0
    if policy.retention_bytes != FOREVER:
        excess = sum(s.size_bytes for s in live) - policy.retention_bytes
        # A segment whose deletion would bring the partition below the limit stays, so the newest one always does.
        while count < len(live) and excess >= live[count].size_bytes:
            excess -= live[count].size_bytes
            count += 1
    if policy.retention_ms != FOREVER:
        while count < len(live) and now_ms - times[count] > policy.retention_ms:
            count += 1
    return count


def _allowed(  # noqa: PLR0917
    live: Sequence[Segment],
    times: Sequence[int],
    count: int,
    now_ms: int,
    policy: RetentionPolicy,
    hold: RetentionHold,
) -> tuple[int, tuple[str, ...]]:
    """Return how many of `count` expired segments may be deleted, and the groups that hold the rest."""
    read = {g: sum(1 for s in live[:count] if s.stop <= offset) for g, offset in hold.offsets.items()}
    ceiling = replace(policy, retention_ms=hold.max_ms, retention_bytes=hold.max_bytes)
    allowed = min(count, max(min(read.values(), default=count), _expired(live, times, now_ms, ceiling)))
    return allowed, tuple(sorted(g for g, n in read.items() if n <= allowed)) if allowed < count else ()


MIN_RUN: Final = 4
"""Minimum files of a run that may still grow; fewer are not worth a table commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MergePolicy:
    """Limits that define small and old enough files."""

    target_bytes: int
    """Most bytes of a merged file, as the sum of its parts."""
    max_span_ms: int
    """Longest time between the appends of the first and the last part (`segment.ms`), ms, because retention deletes a
    merged file as a whole."""
    min_age_ms: int
    """Age of a file, ms since its append, before it may be merged."""
    min_run: int = MIN_RUN


Run = tuple[Segment, ...]


def plan_merges(segments: Sequence[Segment], now_ms: int, policy: MergePolicy, holes_below: int = 0) -> list[Run]:
    """Return runs of adjacent segments of one partition to merge into one file each; in offset order, disjoint.

    Args:
        segments: live data files in offset order, without those below the log start.
        now_ms: the time, ms.
        policy: the limits.
        holes_below: offset below which compaction may have removed records. A hole that ends above it is data loss,
            which readers notice between two files but not inside one, so no run spans it.
    """
    times = append_times(segments)
    cold = 0
    while cold < len(segments) and now_ms - times[cold] >= policy.min_age_ms:
        cold += 1
    runs: list[Run] = []
    start = 0
    while start < cold:
        stop, closed = _grow(segments, times, start, cold, policy, holes_below)
        runs += _worth(segments[start:stop], policy, closed=closed)
        start = stop
    return runs


def _grow(  # noqa: PLR0917
    segments: Sequence[Segment], times: Sequence[int], start: int, cold: int, policy: MergePolicy, holes_below: int
) -> tuple[int, bool]:
    """Return the end of the longest run from `start` that may become one file, and whether a limit ended it."""
    size = segments[start].size_bytes
    stop = start + 1
    while stop < cold:
        size += segments[stop].size_bytes
        if segments[stop].start > max(segments[stop - 1].stop, holes_below):
            return stop, True
        if size > policy.target_bytes or times[stop] - times[start] > policy.max_span_ms:
            return stop, True
        stop += 1
    return stop, False


def _worth(run: Sequence[Segment], policy: MergePolicy, *, closed: bool) -> list[Run]:
    if len(run) < 2 or (not closed and len(run) < policy.min_run):  # noqa: PLR2004 - one file is merged already
        return []
    sizes = [s.size_bytes for s in run]
    largest = max(range(len(run)), key=lambda at: (sizes[at], -at))
    if closed or sum(sizes) >= 2 * sizes[largest]:
        return [tuple(run)]
    # A large file among small ones is left alone; the small ones on each side may be worth merging.
    left = _worth(run[:largest], policy, closed=False)
    return left + _worth(run[largest + 1 :], policy, closed=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When a topic is compacted, and which records are kept."""

    compact: bool
    """True if `cleanup.policy` has `compact`."""
    min_dirty_ratio: float
    """Compaction starts when dirty bytes exceed this share of clean and dirty bytes."""
    min_lag_ms: int
    """A record younger than this, ms, is not compacted, nor is any record above it."""
    max_lag_ms: int
    """A dirty record older than this, ms, is compacted regardless of the ratio."""
    delete_retention_ms: int
    """How long, ms, a tombstone stays after the pass that first cleaned it."""
    segment_bytes: int
    segment_ms: int
    """Size and age at which Kafka would roll the active segment."""
    clock: RetentionClock = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """The cleaner's checkpoint of a partition."""

    dirty: int = 0
    """First offset that no pass has cleaned."""
    horizon: int = 0
    """Tombstones below this offset have been clean since `horizon_ms` at least."""
    horizon_ms: int = 0
    settled: int = 0
    """Tombstones below this offset have been removed."""

    def tombstones_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """Return the offset below which tombstones have been readable for long enough after they were cleaned."""
        return self.horizon if now_ms - self.horizon_ms >= delete_retention_ms else self.settled

    def after(self, clean_end: int, now_ms: int, gone_below: int) -> Cleaned:
        """Return the checkpoint after a pass.

        Args:
            clean_end: offset below which everything is clean.
            now_ms: time when the pass ended, ms.
            gone_below: offset below which tombstones were removed.
        """
        dirty = max(self.dirty, clean_end)
        settled = max(self.settled, gone_below)
        if self.horizon > settled:
            # Waiting tombstones keep their time; those cleaned since then wait for the next horizon.
            return replace(self, dirty=dirty, settled=settled)
        return Cleaned(dirty=dirty, horizon=dirty, horizon_ms=now_ms, settled=settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """Plan of a pass over one partition."""

    partition: int
    clean: tuple[Segment, ...]
    """Cleaned before; may have older values of keys of the dirty part."""
    dirty: tuple[Segment, ...]
    """Segments that the pass cleans."""
    untouched: tuple[Segment, ...]
    """The active segment, and segments that are too young."""
    tombstones_below: int
    """Tombstones below this offset are removed."""
    reason: str = ""
    """Reason for the pass, for people; empty if it is not due."""

    @property
    def due(self) -> bool:
        """True if there is anything to do."""
        return bool(self.reason)


def active_start(segments: Sequence[Segment], segment_bytes: int, segment_ms: int) -> int:
    """Return the index of the first file of the segment that Kafka would still write to.

    Kafka's `LogSegment.shouldRoll`: a batch starts a new segment if the old one would exceed `segment.bytes`, or if the
    batch's newest time is more than `segment.ms` after that of the segment's first batch.
    """
    start, size = 0, 0
    for at, segment in enumerate(segments):
        first = segments[start].max_timestamp
        if size and (size > segment_bytes - segment.size_bytes or segment.max_timestamp - first > segment_ms):
            start, size = at, 0
        size += segment.size_bytes
    return start


def plan_compaction(
    partition: int, segments: Sequence[Segment], cleaned: Cleaned, now_ms: int, policy: CompactionPolicy
) -> CompactionPlan:
    """Plan compaction of one partition.

    Args:
        partition: its number.
        segments: live data files in offset order, without those below the log start.
        cleaned: the checkpoint of earlier passes.
        now_ms: the time, ms.
        policy: the topic's settings.
    """
    active = active_start(segments, policy.segment_bytes, min(policy.segment_ms, policy.max_lag_ms))
    times = segment_times(segments, policy.clock)
    first_dirty = next((at for at, s in enumerate(segments) if s.stop > cleaned.dirty), len(segments))
    end = min(first_dirty, active)
    while end < active and not (policy.min_lag_ms > 0 and times[end] > now_ms - policy.min_lag_ms):
        end += 1
    # A file below the checkpoint is clean, even if rolling would count it to the active segment.
    clean, dirty = tuple(segments[:first_dirty]), tuple(segments[first_dirty:end])
    gone_below = cleaned.tombstones_below(now_ms, policy.delete_retention_ms)
    return CompactionPlan(
        partition=partition,
        clean=clean,
        dirty=dirty,
        untouched=tuple(segments[max(first_dirty, end) :]),
        tombstones_below=gone_below,
        reason=_reason(clean, dirty, now_ms, policy, tombstones=gone_below > cleaned.settled) if policy.compact else "",
    )


def _reason(
    clean: Sequence[Segment], dirty: Sequence[Segment], now_ms: int, policy: CompactionPolicy, *, tombstones: bool
) -> str:
    clean_bytes, dirty_bytes = sum(s.size_bytes for s in clean), sum(s.size_bytes for s in dirty)
    if dirty_bytes:
        ratio = dirty_bytes / (clean_bytes + dirty_bytes)
        if ratio > policy.min_dirty_ratio:
            return f"dirty ratio {ratio:.2f}"
        oldest = min(s.min_timestamp for s in dirty)
        if oldest < now_ms - policy.max_lag_ms:
            return "max.compaction.lag.ms"
    if tombstones and clean:
        return "tombstones past delete.retention.ms"
    return ""
