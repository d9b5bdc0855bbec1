"""Share partition: which records of a partition a share group has delivered, to whom, and how often; as a value.

The state is a start offset and runs of equal offsets, so a million records that one member has locked are one run.
All rules are pure. They take the time as an argument: a lock ends by time alone, and the next acquisition finds that
out. A member that acknowledges must still own the record in the same delivery. So a wrong clock may cause a second
delivery, but never lets two members acknowledge one delivery.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum, StrEnum
from itertools import chain, pairwise
from operator import attrgetter
from typing import Final, NamedTuple, TypeVar

from kafkalike.model.structs import TopicPartition

MAX_RUNS: Final = 10_000
"""Runs of one state from which on no further offsets become in-flight, so that a row stays below 300 kB."""

MAX_SCHEDULED_RUNS: Final = 1_000
"""Runs of one state from which on neighboring scheduled records that were never delivered share their earliest time.
A member that meets such a record too early returns it with its own time."""


class RecordState(IntEnum):
    """State of a record in a share partition, with Kafka's names and ids."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class RecordVerdict(StrEnum):
    """A member's verdict on an acquired record."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renew"
    RETURN = "return"
    """The application never got the record, so the delivery does not count."""


class RecordRun(NamedTuple):
    """Consecutive offsets with the same state."""

    first: int
    last: int
    state: RecordState
    deliveries: int = 0
    """How often the records were delivered; 0 in final states."""
    member_id: str = ""
    """Owner of the lock."""
    since_ms: int = 0
    """Time of the acquisition, ms since the epoch."""
    until_ms: int = 0
    """ACQUIRED: end of the lock. AVAILABLE: time from which on the records may be delivered; 0 for any time."""

    @property
    def size(self) -> int:
        """Number of offsets in the run."""
        return self.last - self.first + 1

    @property
    def is_final(self) -> bool:
        """True if the records are never delivered again."""
        return self.state >= RecordState.ACKNOWLEDGED


class Acknowledgement(NamedTuple):
    """A member's verdict on consecutive offsets."""

    first: int
    last: int
    verdict: RecordVerdict
    deliveries: int | None = None
    """The delivery that it is about; None for any delivery to this member."""
    due_ms: int = 0
    """RELEASE, RETURN: time from which on the records may be delivered again, ms since the epoch; 0 for any time."""


R = TypeVar("R", RecordRun, Acknowledgement)

_FIRST: Final = attrgetter("first")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareLimits:
    """The settings of a share group that its rules need."""

    lock_ms: int = 30_000
    """Duration of a lock, ms."""
    deliveries: int = 5
    """Most deliveries of a record; after them it is archived."""
    locks: int = 100_000
    """Most records of a partition that are in flight: delivered, but not finished."""
    archives: bool = True
    """False if records that were delivered too often stay available, for a member that writes their dead letters."""


@dataclass(frozen=True, slots=True)
class SharePartition:
    """The state of one partition in one share group. Runs cover `start` to `end` without gaps."""

    topic_id: str
    start: int = 0
    """All records below are finished: acknowledged, archived, or deleted by retention."""
    runs: tuple[RecordRun, ...] = ()

    @property
    def end(self) -> int:
        """The first offset that was never delivered."""
        return self.runs[-1].last + 1 if self.runs else self.start

    @property
    def in_flight(self) -> int:
        """Number of unfinished records below `end`; scheduled records do not count."""
        return sum(r.size for r in self.runs if not r.is_final and not is_deferred(r))

    @property
    def finished(self) -> int:
        """Number of finished records from `start` on."""
        return sum(r.size for r in self.runs if r.is_final)

    def lag(self, log_end: int) -> int:
        """Return the number of records that are not finished."""
        return max(0, max(log_end, self.end) - self.start - self.finished)


class Acquisition(NamedTuple):
    """Result of `acquire`: the new state and its ranges."""

    after: SharePartition
    taken: tuple[RecordRun, ...]
    """Runs that the member has locked."""
    archived: tuple[RecordRun, ...]
    """Runs that have reached the limit of deliveries, as they were before."""


def is_deferred(run: RecordRun) -> bool:
    """Return whether records are scheduled for a later time."""
    return run.state is RecordState.AVAILABLE and run.until_ms > 0


def is_ready(run: RecordRun, now_ms: int) -> bool:
    """Return whether a run may be delivered: it is available and due, or its lock has ended."""
    return run.state < RecordState.ACKNOWLEDGED and run.until_ms <= now_ms


def acquire(
    before: SharePartition,
    member_id: str,
    *,
    most: int,
    now_ms: int,
    log_start: int,
    log_end: int,
    limits: ShareLimits,
    later: Sequence[tuple[int, int, int]] = (),
) -> Acquisition:
    """Lock records for a member, the lowest offsets first.

    Records whose lock has ended, or whose time has come, are available. Records that have been delivered as often as
    allowed are archived instead.

    Args:
        before: the state.
        member_id: the member.
        most: most records to lock.
        now_ms: the time, ms since the epoch.
        log_start: first offset of the log; lower ones are finished.
        log_end: offset after the last record.
        limits: the group's limits.
        later: sorted ranges of new records that are not due: first, last, and earliest time in ms. They are passed over
            and scheduled for that time.

    Returns:
        The same state if nothing has changed.
    """
    state = advance(before, log_start)
    out: list[RecordRun] = []
    taken: list[RecordRun] = []
    archived: list[RecordRun] = []
    room = most
    for run in state.runs:
        if not is_ready(run, now_ms):
            out.append(run)
        elif limits.archives and run.deliveries >= limits.deliveries:
            archived.append(run)
            out.append(RecordRun(run.first, run.last, RecordState.ARCHIVED))
        elif room > 0:
            last = min(run.last, run.first + room - 1)
            got = _locked(run._replace(last=last), member_id, now_ms, limits)
            taken.append(got)
            out.append(got)
            room -= got.size
            if last < run.last:
                out.append(run._replace(first=last + 1))
        else:
            out.append(run)
    window = limits.locks - sum(r.size for r in out if not r.is_final and not is_deferred(r))
    new = _fresh(state.end, log_end, later, now_ms, min(room, window)) if len(out) < MAX_RUNS else []
    for run in new:
        if is_deferred(run):
            out.append(run)
        else:
            got = _locked(run, member_id, now_ms, limits)
            taken.append(got)
            out.append(got)
    if not taken and not archived and not new:
        return Acquisition(state, (), ())
    return Acquisition(_normal(state, out), tuple(taken), tuple(archived))


def _fresh(start: int, end: int, later: Sequence[tuple[int, int, int]], now_ms: int, room: int) -> list[RecordRun]:
    """Return runs of new records: up to `room` records to lock, and the scheduled ranges before and between them."""
    found: list[RecordRun] = []
    at = start
    for first, last, due_ms in (*later, (end, end, 0)):
        if last < at:
            continue
        stop = min(first, end)
        free = min(room, stop - at)
        if free > 0:
            found.append(RecordRun(at, at + free - 1, RecordState.AVAILABLE))
            at, room = at + free, room - free
        if at < stop or at >= end:
            break
        if due_ms > now_ms:
            past = min(last, end - 1)
            found.append(RecordRun(at, past, RecordState.AVAILABLE, until_ms=due_ms))
            at = past + 1
    return found


def _locked(run: RecordRun, member_id: str, now_ms: int, limits: ShareLimits) -> RecordRun:
    return run._replace(
        state=RecordState.ACQUIRED,
        deliveries=run.deliveries + 1,
        member_id=member_id,
        since_ms=now_ms,
        until_ms=now_ms + limits.lock_ms,
    )


def acknowledge(
    before: SharePartition,
    member_id: str,
    acknowledgements: Iterable[Acknowledgement],
    *,
    now_ms: int,
    limits: ShareLimits,
) -> tuple[SharePartition, tuple[Acknowledgement, ...]]:
    """Apply a member's verdicts to the records that it owns.

    A verdict after the end of the lock counts as long as no other member has acquired the record.

    Args:
        before: the state.
        member_id: the member.
        acknowledgements: its verdicts; ranges must not overlap.
        now_ms: the time.
        limits: the group's limits; a record released in its last delivery is archived.

    Returns:
        The new state, and the parts of `acknowledgements` that were refused, because the member does not own the
        records in that delivery.
    """
    wanted = sorted(acknowledgements, key=_FIRST)
    ends = [(r.first, r.last + 1) for r in before.runs] + [(a.first, a.last + 1) for a in wanted]
    edges = sorted(set(chain.from_iterable(ends)))
    told: dict[int, Acknowledgement] = {}
    refused = [ack for ack in _cut(wanted, edges) if told.setdefault(ack.first, ack) is not ack]
    out: list[RecordRun] = []
    for run in _cut(before.runs, edges):
        said = told.get(run.first)
        if said is not None and _owns(run, member_id, said):
            del told[run.first]
            out.append(_judged(run, said, now_ms, limits))
        else:
            out.append(run)
    return _normal(before, out), tuple(sorted((*refused, *told.values()), key=_FIRST))


def _cut(items: Iterable[R], edges: Sequence[int]) -> Iterator[R]:
    """Yield ranges, each cut at all edges inside it."""
    for item in items:
        inside: Sequence[int] = edges[bisect_right(edges, item.first) : bisect_left(edges, item.last + 1)]
        if inside:
            for first, after in pairwise((item.first, *inside, item.last + 1)):
                yield item._replace(first=first, last=after - 1)
        else:
            yield item


def _owns(run: RecordRun, member_id: str, ack: Acknowledgement) -> bool:
    return (
        run.state is RecordState.ACQUIRED
        and run.member_id == member_id
        and (ack.deliveries is None or ack.deliveries == run.deliveries)
    )


def _judged(run: RecordRun, ack: Acknowledgement, now_ms: int, limits: ShareLimits) -> RecordRun:
    if ack.verdict is RecordVerdict.RENEW:
        return run._replace(until_ms=now_ms + limits.lock_ms)
    counted = run.deliveries - (ack.verdict is RecordVerdict.RETURN)
    state = RecordState.AVAILABLE
    if ack.verdict is RecordVerdict.ACCEPT:
        state = RecordState.ACKNOWLEDGED
    elif ack.verdict is RecordVerdict.REJECT or (limits.archives and counted >= limits.deliveries):
        state = RecordState.ARCHIVED
    if state is not RecordState.AVAILABLE:
        return RecordRun(run.first, run.last, state)
    return RecordRun(run.first, run.last, state, counted, until_ms=max(0, ack.due_ms))


Acknowledgements = Mapping[TopicPartition, Sequence[Acknowledgement]]


def acknowledge_all(
    shares: Mapping[TopicPartition, SharePartition],
    member_id: str,
    acknowledgements: Acknowledgements,
    *,
    now_ms: int,
    limits: ShareLimits,
) -> tuple[dict[TopicPartition, SharePartition], dict[TopicPartition, Sequence[Acknowledgement]]]:
    """Apply a member's verdicts to a group's partitions; return the changed partitions, and the refused verdicts."""
    changed: dict[TopicPartition, SharePartition] = {}
    refused: dict[TopicPartition, Sequence[Acknowledgement]] = {}
    for tp, acks in acknowledgements.items():
        before = shares.get(tp)
        if before is None:
            refused[tp] = acks
            continue
        after, no = acknowledge(before, member_id, acks, now_ms=now_ms, limits=limits)
        if no:
            refused[tp] = no
        if after != before:
            changed[tp] = after
    return changed, refused


def release_member(before: SharePartition, member_id: str, limits: ShareLimits) -> SharePartition:
    """Release everything that a member has locked, because it leaves."""
    acks = [Acknowledgement(run.first, run.last, RecordVerdict.RELEASE) for run in owned(before, member_id)]
    return acknowledge(before, member_id, acks, now_ms=0, limits=limits)[0]


def owned(state: SharePartition, member_id: str) -> list[RecordRun]:
    """Return the runs that a member has locked."""
    return [r for r in state.runs if r.state is RecordState.ACQUIRED and r.member_id == member_id]


def advance(before: SharePartition, log_start: int) -> SharePartition:
    """Return the state after retention has deleted the records below a log start."""
    if log_start <= before.start:
        return before
    kept = [r if r.first >= log_start else r._replace(first=log_start) for r in before.runs if r.last >= log_start]
    return _normal(replace(before, start=log_start), kept)


def reset(topic_id: str, start: int) -> SharePartition:
    """Return a state in which all records from an offset on are available, and none below it."""
    return SharePartition(topic_id, start)


def next_change_ms(state: SharePartition, now_ms: int) -> int | None:
    """Return when the next lock ends or the next scheduled record is due, ms since the epoch; None for never."""
    return min((r.until_ms for r in state.runs if not r.is_final and r.until_ms > now_ms), default=None)


def has_ready(state: SharePartition, *, now_ms: int, log_end: int, limits: ShareLimits) -> bool:
    """Return whether `acquire` would change the state."""
    if any(is_ready(run, now_ms) for run in state.runs):
        return True
    return log_end > state.end and state.in_flight < limits.locks and len(state.runs) < MAX_RUNS


def _normal(about: SharePartition, runs: Sequence[RecordRun]) -> SharePartition:
    """Move the start past finished runs, and merge equal neighbors."""
    finished = next((at for at, run in enumerate(runs) if not run.is_final), len(runs))
    start = runs[finished - 1].last + 1 if finished else about.start
    out = _joined(runs[finished:])
    if len(out) > MAX_SCHEDULED_RUNS:
        out = _joined(_coarse(out))
    return SharePartition(about.topic_id, start, tuple(out))


def _joined(runs: Sequence[RecordRun]) -> list[RecordRun]:
    """Merge equal neighbors; a row with equal neighbors counts as damaged."""
    out: list[RecordRun] = []
    for run in runs:
        if out and out[-1][2:] == run[2:]:
            out[-1] = out[-1]._replace(last=run.last)
        else:
            out.append(run)
    return out


def _coarse(runs: Sequence[RecordRun]) -> list[RecordRun]:
    """Merge neighboring scheduled records that were never delivered, so that half as many runs are left."""
    scheduled = sum(1 for run in runs if _is_new(run))
    others = len(runs) - scheduled
    together = -(-scheduled // max(1, MAX_SCHEDULED_RUNS // 2 - others))
    out: list[RecordRun] = []
    count = 0
    for run in runs:
        if out and _is_new(run) and _is_new(out[-1]) and count < together:
            out[-1] = out[-1]._replace(last=run.last, until_ms=min(out[-1].until_ms, run.until_ms))
            count += 1
        else:
            out.append(run)
            count = 1
    return out


def _is_new(run: RecordRun) -> bool:
    """Return whether records are scheduled and were never delivered, so that their header has their time."""
    return is_deferred(run) and not run.deliveries
