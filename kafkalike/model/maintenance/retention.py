"""Retention: the segments of a partition in, how far its log may begin later out; Kafka's rule without any I/O.

A segment is a data file, which is sealed the moment it is committed, so records go one append (or one merged file)
after another and not only when Kafka would have rolled a segment (decision 014). The rules are those of Kafka's
`UnifiedLog.deleteOldSegments`: what lies below the log start, then what exceeds `retention.bytes`, then what is older
than `retention.ms`; always a prefix of whole segments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from kafkalike.model.segments import Segment

RetentionClock = Literal["record", "append"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long records of a topic stay."""

    delete: bool
    """Whether `cleanup.policy` has `delete`; without it only what lies below the log start goes."""
    retention_ms: int
    """Age in ms above which a segment goes; -1 keeps it forever."""
    retention_bytes: int
    """Bytes a partition may keep; -1 is no limit."""
    clock: RetentionClock = "record"
    """What age counts from; see `segment_times`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionHold:
    """Groups that retention waits for, and when it stops waiting."""

    offsets: Mapping[str, int]
    """By group: the offset it has committed in this partition; the log start for a group that has committed none."""
    max_ms: int
    """Age in ms above which a segment goes although a group has not read it."""
    max_bytes: int
    """Bytes above which the oldest segments go although a group has not read them; -1 is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What retention does with one partition."""

    partition: int
    log_start: int
    """Where the log begins now."""
    new_log_start: int
    """Where it will begin; the same when nothing expires."""
    expired: tuple[Segment, ...] = ()
    """Segments that are past retention; the log start moves behind the last of them."""
    dead: tuple[Segment, ...] = ()
    """Segments that already lie below the log start: what `delete_records` or a run that was cut off has left."""
    held: tuple[Segment, ...] = ()
    """Segments that would expire if no group had still to read them."""
    held_by: tuple[str, ...] = ()
    """The groups that hold them back."""

    @property
    def moves(self) -> bool:
        """Whether the log start moves."""
        return self.new_log_start > self.log_start

    @property
    def goes(self) -> tuple[Segment, ...]:
        """All segments that leave the table."""
        return self.dead + self.expired


FOREVER: Final = -1


def append_times(segments: Sequence[Segment]) -> list[int]:
    """When each segment was appended, in ms, as far as can be said: the earliest time noted at or after it.

    Offsets rise with time, so a segment was appended no later than those that follow it; one writer whose clock is
    ahead is put right by the next one's. 0 where no time is known.
    """
    times: list[int] = []
    earliest: int | None = None
    for segment in reversed(segments):
        if segment.modification_ms > 0:
            earliest = segment.modification_ms if earliest is None else min(earliest, segment.modification_ms)
        times.append(earliest or 0)
    return times[::-1]


def segment_times(segments: Sequence[Segment], clock: RetentionClock) -> list[int]:
    """What the age of each segment counts from, in ms.

    Args:
        segments: of one partition, in offset order.
        clock: `record`: the newest record's time, as in Kafka, but not later than the append: a record from the far
            future, which would pin its partition for ever in Kafka, ages from its append on. `append`: the append.
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
    """Decide what goes from one partition.

    Args:
        partition: its number.
        segments: all data files of the table for it, in offset order, those below the log start included.
        log_start: first offset that may be read.
        now_ms: the time, ms.
        policy: the topic's settings.
        hold: groups to wait for; None waits for nobody.
    """
    dead = 0
    while dead < len(segments) and segments[dead].stop <= log_start:
        dead += 1
    live = segments[dead:]
    count = _expired(live, now_ms, policy) if policy.delete else 0
    allowed, waiting = count, tuple[str, ...]()
    if hold is not None and count:
        allowed, waiting = _allowed(live, count, now_ms, policy, hold)
    expired = tuple(live[:allowed])
    return RetentionPlan(
        partition=partition,
        log_start=log_start,
        new_log_start=max(log_start, expired[-1].stop) if expired else log_start,
        expired=expired,
        dead=tuple(segments[:dead]),
        held=tuple(live[allowed:count]),
        held_by=waiting,
    )


def _expired(live: Sequence[Segment], now_ms: int, policy: RetentionPolicy) -> int:
    """How many of the oldest segments are past retention; first by size, then by time, as Kafka does it."""
    count = 0
    if policy.retention_bytes != FOREVER:
        excess = sum(s.size_bytes for s in live) - policy.retention_bytes
        # The segment that would bring the partition below its size stays, so the newest one always does.
        while count < len(live) and excess >= live[count].size_bytes:
            excess -= live[count].size_bytes
            count += 1
    if policy.retention_ms != FOREVER:
        times = segment_times(live, policy.clock)
        while count < len(live) and now_ms - times[count] > policy.retention_ms:
            count += 1
    return count


def _allowed(
    live: Sequence[Segment], count: int, now_ms: int, policy: RetentionPolicy, hold: RetentionHold
) -> tuple[int, tuple[str, ...]]:
    """How many of `count` expired segments may go, and which groups hold back the rest."""
    read = {g: sum(1 for s in live[:count] if s.stop <= offset) for g, offset in hold.offsets.items()}
    ceiling = replace(policy, retention_ms=hold.max_ms, retention_bytes=hold.max_bytes)
    allowed = min(count, max(min(read.values(), default=count), _expired(live, now_ms, ceiling)))
    return allowed, tuple(sorted(g for g, n in read.items() if n <= allowed)) if allowed < count else ()
