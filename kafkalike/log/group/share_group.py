"""ShareGroup: the share partitions of one group in the table of groups, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalike.model.frozen_map import FrozenMap
from kafkalike.model.group_state import GroupRow, GroupsState, Shares, share_row
from kafkalike.model.shares import share_partition as rules
from kafkalike.model.shares.share_partition import (
    Acknowledgement,
    Acknowledgements,
    RecordRun,
    RecordVerdict,
    ShareLimits,
    SharePartition,
    merged_offsets,
)
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import GroupsLog
    from kafkalike.model.clock import Clock
    from kafkalike.model.config.server_config import ServerProperties


class ShareSource(NamedTuple):
    """A partition from which a member acquires records, as its log was at the last look."""

    tp: TopicPartition
    topic_id: str
    log_start: int
    log_end: int
    initial: int
    """Start offset if the group has no state of the partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareExchange:
    """Result of one exchange between a member and its group."""

    taken: Mapping[TopicPartition, Sequence[RecordRun]] = field(default_factory=dict)
    """Runs that the member has acquired, in the order of the sources."""
    refused: Acknowledgements = field(default_factory=dict)
    """Acknowledgements that do not count, because the member does not own the records in that delivery."""
    archived: Mapping[TopicPartition, Sequence[RecordRun]] = field(default_factory=dict)
    """Runs that were archived after their last delivery."""


def limits_of(
    server: ServerProperties, lock_ms: int | None = None, deliveries: int | None = None, locks: int | None = None
) -> ShareLimits:
    """Return the limits of a group: a client's own, otherwise the server's."""
    return ShareLimits(
        lock_ms=int(server.get("group.share.record.lock.duration.ms")) if lock_ms is None else lock_ms,
        deliveries=int(server.get("group.share.delivery.count.limit")) if deliveries is None else deliveries,
        locks=int(server.get("group.share.partition.max.record.locks")) if locks is None else locks,
    )


def share_of(state: GroupsState, group_id: str, tp: TopicPartition, topic_id: str) -> SharePartition | None:
    """Return the state of a partition; None if the group has none, or only that of a deleted topic of that name."""
    shares = state.shares.get(group_id)
    found = None if shares is None else shares.get(tp)
    return found if found is not None and found.topic_id == topic_id else None


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """One share group. Thread-safe, as the table of groups is."""

    groups: GroupsLog
    group_id: str
    clock: Clock
    limits: ShareLimits

    def is_ready(self, state: GroupsState, sources: Sequence[ShareSource]) -> bool:
        """Return whether `exchange` would acquire or archive records, or store the start of a partition."""
        now_ms = self.clock.now_ms()
        for source in sources:
            share = share_of(state, self.group_id, source.tp, source.topic_id)
            if share is None or source.log_start > share.start:
                return True
            if rules.has_ready(share, now_ms=now_ms, log_end=source.log_end, limits=self.limits):
                return True
        return False

    def next_change_ms(self, state: GroupsState, sources: Sequence[ShareSource]) -> int | None:
        """Return when a lock ends or a scheduled record is due, ms since the epoch; None for never."""
        now_ms = self.clock.now_ms()
        shares = [share_of(state, self.group_id, source.tp, source.topic_id) for source in sources]
        found = [rules.next_change_ms(share, now_ms) for share in shares if share is not None]
        return min((at for at in found if at is not None), default=None)

    def exchange(
        self,
        member_id: str,
        acknowledgements: Acknowledgements,
        sources: Sequence[ShareSource] = (),
        *,
        most: int = 0,
        known: Mapping[TopicPartition, Sequence[tuple[int, int]]] | None = None,
        whole: bool = False,
        timeout_ms: float | None = 60_000,
    ) -> ShareExchange:
        """Acknowledge a member's records and acquire others, in one commit of the table.

        Args:
            member_id: the member.
            acknowledgements: its verdicts by partition. Verdicts that the state refuses are left out; the others count.
            sources: partitions to acquire from, in order.
            most: most records to acquire.
            known: ranges of offsets that the member knows to own. Its other locks are returned first: they are of a
                call that was interrupted. None keeps them.
            whole: a refusal leaves all records of its partition as they are, as in Kafka.
            timeout_ms: how long concurrent writers may delay it; None waits without limit.

        Raises:
            KafkaTimeoutError, KafkaStorageError: nothing was written.
            UnknownOutcomeError: it may have been written.
        """
        done = ShareExchange()

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal done
            now_ms = self.clock.now_ms()
            changed, refused = rules.acknowledge_all(
                self.shares(state), member_id, acknowledgements, now_ms=now_ms, limits=self.limits
            )
            if whole:
                changed = {tp: share for tp, share in changed.items() if tp not in refused}
            taken: dict[TopicPartition, Sequence[RecordRun]] = {}
            archived: dict[TopicPartition, Sequence[RecordRun]] = {}
            room = most
            for source in sources:
                before = share_of(state, self.group_id, source.tp, source.topic_id)
                share = changed.get(source.tp, before)
                if share is None or share.topic_id != source.topic_id:
                    share = rules.reset(source.topic_id, source.initial)
                if known is not None:
                    share = self._without_unknown(share, member_id, known.get(source.tp, ()))
                found = rules.acquire(
                    share,
                    member_id,
                    most=room,
                    now_ms=now_ms,
                    log_start=source.log_start,
                    log_end=source.log_end,
                    limits=self.limits,
                )
                room -= sum(run.size for run in found.taken)
                if found.taken:
                    taken[source.tp] = found.taken
                if found.archived:
                    archived[source.tp] = found.archived
                if found.after != before:
                    changed[source.tp] = found.after
            done = ShareExchange(taken=taken, refused=refused, archived=archived)
            return self._rows(state, changed, now_ms, member_id)

        self.groups.transact(plan, timeout_ms)
        return done

    def _without_unknown(
        self, share: SharePartition, member_id: str, known: Sequence[tuple[int, int]]
    ) -> SharePartition:
        unknown = [
            Acknowledgement(first, last, RecordVerdict.RETURN)
            for run in rules.owned(share, member_id)
            for first, last in gaps(run.first, run.last, known)
        ]
        if not unknown:
            return share
        return rules.acknowledge(share, member_id, unknown, now_ms=self.clock.now_ms(), limits=self.limits)[0]

    def leave(self, member_id: str, acknowledgements: Acknowledgements, timeout_ms: float | None = 60_000) -> None:
        """Acknowledge a member's records, and release all others that it has locked.

        Raises: as `exchange`.
        """

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            now_ms = self.clock.now_ms()
            changed, _ = rules.acknowledge_all(
                self.shares(state), member_id, acknowledgements, now_ms=now_ms, limits=self.limits
            )
            for tp, share in self.shares(state).items():
                before = changed.get(tp, share)
                after = rules.release_member(before, member_id, self.limits)
                if after != before:
                    changed[tp] = after
            return self._rows(state, changed, now_ms, member_id)

        self.groups.transact(plan, timeout_ms)

    def shares(self, state: GroupsState) -> Shares:
        """Return the group's share partitions."""
        return state.shares.get(self.group_id, FrozenMap())

    def _rows(
        self, state: GroupsState, changed: Mapping[TopicPartition, SharePartition], now_ms: int, by: str
    ) -> list[GroupRow]:
        return [
            share_row(state.seq + nth, self.group_id, tp, share, now_ms=now_ms, by=by)
            for nth, (tp, share) in enumerate(sorted(changed.items()), start=1)
        ]


DELIVER_AT: Final = "deliver_at"
"""Header with the time from which on a record may be delivered: ms since the epoch, as decimal text."""


def due_ms(headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Return the time from which on a record may be delivered, ms since the epoch; 0 without a valid header."""
    for name, value in headers:
        if name == DELIVER_AT and value is not None and value.isdigit() and len(value) < 16:  # noqa: PLR2004
            return int(value)
    return 0


def ranges(offsets: Iterable[int]) -> Iterable[tuple[int, int, tuple[()]]]:
    """Merge sorted offsets to ranges: first, last, and nothing else."""
    return merged_offsets((offset, ()) for offset in offsets)


def gaps(first: int, last: int, covered: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of the offsets `first` to `last` that no sorted range covers."""
    at = first
    for begin, end in covered:
        if end < at or begin > last:
            continue
        if begin > at:
            yield at, begin - 1
        at = end + 1
    if at <= last:
        yield at, last


def undelivered(
    run: RecordRun,
    found: Sequence[int],
    after: int,
    error: object,
    undue: Iterable[tuple[int, tuple[int]]],
) -> list[Acknowledgement]:
    """Return the acknowledgements of the part of a run that is not delivered.

    Args:
        run: the acquired offsets.
        found: offsets that have records.
        after: offset up to which the run was read.
        error: the error of the record at `after`.
        undue: offsets of records that are not due, with their times.
    """
    acks = [Acknowledgement(a, b, RecordVerdict.RETURN, None, due) for a, b, (due,) in merged_offsets(undue)]
    # Compaction has removed these.
    removed = gaps(run.first, after - 1, ((a, b) for a, b, _ in ranges(found)))
    acks += [Acknowledgement(a, b, RecordVerdict.REJECT) for a, b in removed]
    if error is not None:
        acks.append(Acknowledgement(after, after, RecordVerdict.RELEASE))
        after += 1
    if after <= run.last:
        acks.append(Acknowledgement(after, run.last, RecordVerdict.RETURN))
    return acks
