"""Compaction: the segments of a partition in, which of them are to be cleaned out; Kafka's rules without any I/O.

Kafka's log cleaner (`LogCleanerManager`, `Cleaner`): the part below the cleaner's checkpoint is clean, the part above
it dirty, and the segment that is still written to is not touched. Here files take the place of Kafka's record batches:
they are rolled into segments by `segment.bytes` and `segment.ms` as Kafka's log would roll them, and the last of these
is the active one (decision 015).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from kafkalike.model.maintenance.retention import RetentionClock, segment_times
from kafkalike.model.segments import Segment

CLEANER_APP: Final = "kafkalike.cleaner"
"""Delta application under which the cleaner keeps what it has done in a topic's table. A table that has a version of
it was compacted at least once."""

HOLES: Final = "holes"
"""What `cleaner_app` calls the offset below which a pass, finished or not, may have taken records."""


def cleaner_app(partition: int, what: str) -> str:
    """Delta application whose version is a fact about one partition: a field of `Cleaned`, or `HOLES`."""
    return f"{CLEANER_APP}/{partition}/{what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When a topic is compacted, and what stays."""

    compact: bool
    """Whether `cleanup.policy` has `compact`."""
    min_dirty_ratio: float
    """Compaction is worth it when dirty bytes are more than this share of clean and dirty bytes."""
    min_lag_ms: int
    """A record younger than this, ms, is not compacted, nor is anything above it."""
    max_lag_ms: int
    """A dirty record older than this, ms, is compacted whatever the ratio."""
    delete_retention_ms: int
    """How long, ms, a tombstone stays after the pass that cleaned it first."""
    segment_bytes: int
    segment_ms: int
    """Size and age at which Kafka would roll the active segment."""
    clock: RetentionClock = "record"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """How far a partition is cleaned: the cleaner's checkpoint."""

    dirty: int = 0
    """First offset that no pass has cleaned."""
    horizon: int = 0
    """Tombstones below this offset are clean since `horizon_ms` at least."""
    horizon_ms: int = 0
    settled: int = 0
    """Tombstones below this offset are gone."""

    def tombstones_below(self, now_ms: int, delete_retention_ms: int) -> int:
        """Offset below which tombstones have been readable for long enough after they were cleaned."""
        return self.horizon if now_ms - self.horizon_ms >= delete_retention_ms else self.settled

    def after(self, clean_end: int, now_ms: int, gone_below: int) -> Cleaned:
        """The checkpoint after a pass.

        Args:
            clean_end: everything below it is clean now.
            now_ms: when the pass ended, ms.
            gone_below: tombstones below it were dropped.
        """
        dirty = max(self.dirty, clean_end)
        settled = max(self.settled, gone_below)
        if self.horizon > settled:
            # Tombstones that wait keep their time; those cleaned since then wait for the next horizon.
            return replace(self, dirty=dirty, settled=settled)
        return Cleaned(dirty=dirty, horizon=dirty, horizon_ms=now_ms, settled=settled)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What a pass over one partition looks at."""

    partition: int
    clean: tuple[Segment, ...]
    """Cleaned before; may hold older values of keys of the dirty part."""
    dirty: tuple[Segment, ...]
    """To be cleaned."""
    untouched: tuple[Segment, ...]
    """The active segment, and what is too young."""
    tombstones_below: int
    """Tombstones below this offset go."""
    reason: str = ""
    """Why the pass is due, for people; empty when it is not."""

    @property
    def due(self) -> bool:
        """Whether there is something to do."""
        return bool(self.reason)


def active_start(segments: Sequence[Segment], segment_bytes: int, segment_ms: int) -> int:
    """Index of the first file of the segment that Kafka would still write to.

    Kafka's `LogSegment.shouldRoll`: a batch begins a new segment when the old one would become larger than
    `segment.bytes`, or when the batch's newest time is more than `segment.ms` after that of the segment's first batch.
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
    """Decide whether and how far a partition is to be cleaned.

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
    # A file below the checkpoint is clean, even when rolling would now count it to the active segment.
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
