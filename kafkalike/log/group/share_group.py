"""ShareGroup: the share partitions of one group in the table of groups, changed by compare-and-set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kafkalike.errors import InvalidRecordStateError
from kafkalike.log.group.assignors import SHARE_SCHEME
from kafkalike.log.group.group_config import HEARTBEAT, RESET, SERVER_DEFAULTS, SESSION, group_setting
from kafkalike.log.group.membership import MemberSettings
from kafkalike.log.share_exchange import ExchangeResult, ShareExchange, ShareSource, share_of
from kafkalike.model.config.consumer_config import reset_ms
from kafkalike.model.frozen_map import FrozenMap
from kafkalike.model.group_rows import SHARE, GroupRow, share_row
from kafkalike.model.group_state import GroupsState, Shares
from kafkalike.model.shares import share_partition as rules
from kafkalike.model.shares.share_partition import (
    Acknowledgement,
    Acknowledgements,
    RecordRun,
    RecordVerdict,
    ShareLimits,
    SharePartition,
)
from kafkalike.model.shares.share_runs import gaps, merged_offsets
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import GroupsLog
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.clock import Clock
    from kafkalike.model.config.consumer_config import ShareConsumerConfig
    from kafkalike.model.config.server_config import ServerProperties


MOST_AHEAD: Final = 20_000
"""Records to acquire among which files of scheduled records are found in advance; others are opened and returned."""


def limits_of(
    server: ServerProperties, configs: Mapping[str, str], own: ShareConsumerConfig | None = None
) -> ShareLimits:
    """Return the limits of a group: by a member's settings, else the group's, else the server's.

    Args:
        server: the server's settings.
        configs: the group's settings.
        own: the member's settings.
    """

    def limit(name: str) -> int:
        mine = getattr(own, name.replace(".", "_"), None)
        if mine is not None:
            return int(mine)
        return int(configs[name] if name in configs else server.get(SERVER_DEFAULTS[name]))

    return ShareLimits(
        lock_ms=limit("share.record.lock.duration.ms"),
        deliveries=limit("share.delivery.count.limit"),
        locks=limit("share.partition.max.record.locks"),
    )


def member_settings(own: ShareConsumerConfig, configs: Mapping[str, str]) -> MemberSettings:
    """Return the settings of a membership: by a member's settings, else the group's."""
    session_ms, beat_ms = own.session_timeout_ms, own.heartbeat_interval_ms
    return MemberSettings(
        group_id=str(own.group_id),
        schemes={SHARE: SHARE_SCHEME},
        client_id=own.client_id,
        session_timeout_ms=group_setting(configs, SESSION) if session_ms is None else session_ms,
        heartbeat_interval_ms=group_setting(configs, HEARTBEAT) if beat_ms is None else beat_ms,
        max_poll_interval_ms=own.max_poll_interval_ms,
    )


def start_of(log: TopicLog, partition: int, reset: str | None, clock: Clock) -> int:
    """Return where a group begins in a partition, by `share.auto.offset.reset`; None stands for `latest`."""
    back_ms = reset_ms(reset or "latest")
    if back_ms is not None:
        found = log.offset_for_time(partition, max(0, clock.now_ms() - back_ms))
        return log.log_end(partition) if found is None else found.offset
    return log.log_start(partition) if reset == "earliest" else log.log_end(partition)


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """One share group. Thread-safe, as the table of groups is."""

    groups: GroupsLog
    group_id: str
    clock: Clock
    limits: ShareLimits

    def sources(self, state: GroupsState, partitions: Iterable[int], log: TopicLog) -> list[ShareSource]:
        """Return the partitions of a topic that exist; a partition added later begins at its first record."""
        name, topic_id = str(log.info.name), log.info.topic_id
        started = any(tp.topic == name and share.topic_id == topic_id for tp, share in self.shares(state).items())
        found = []
        for p in partitions:
            if p in log.info.partitions:
                tp = TopicPartition(name, p)
                share = share_of(state, self.group_id, tp, topic_id)
                initial = 0
                if share is None and not started:
                    initial = start_of(log, p, state.configs.get(self.group_id, {}).get(RESET), self.clock)
                end = initial if share is None else share.end
                later = later_ranges(log, p, end, self.clock.now_ms(), min(self.limits.locks, MOST_AHEAD))
                found.append(ShareSource(tp, topic_id, log.log_start(p), log.log_end(p), initial, later))
        return found

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

    def fair_share(self, state: GroupsState, sources: Sequence[ShareSource]) -> int:
        """Return how many records a member may acquire at once, so that the others get as many."""
        left = 0
        for source in sources:
            share = share_of(state, self.group_id, source.tp, source.topic_id)
            left += source.log_end - (source.initial if share is None else share.start)
        members = len(state.group(self.group_id).members)
        return min(left, self.limits.locks * len(sources)) // max(1, members)

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
    ) -> ExchangeResult:
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
        wanted = ShareExchange(
            group_id=self.group_id,
            member_id=member_id,
            acknowledgements=acknowledgements,
            limits=self.limits,
            now_ms=self.clock.now_ms(),
            sources=tuple(sources),
            most=most,
            known=known,
            whole=whole,
        )
        if known is None and self.groups.combines:
            before = self.groups.state
            # A staged exchange that waits longer would start with locks that have ended.
            limit = self.limits.lock_ms / 2 if timeout_ms is None else min(timeout_ms, self.limits.lock_ms / 2)
            with suppress(InvalidRecordStateError):
                self.groups.transact(wanted, limit)
                return ExchangeResult(taken=wanted.taken(before, self.groups.state))
        done = ExchangeResult()

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal done
            done, rows = replace(wanted, now_ms=self.clock.now_ms()).applied(state)
            return rows

        self.groups.transact_together(plan, timeout_ms)
        return done

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


def later_ranges(log: TopicLog, partition: int, start: int, now_ms: int, most: int) -> tuple[tuple[int, int, int], ...]:
    """Return the ranges of records whose files say that none is due: first, last, and earliest time in ms.

    Args:
        log: the topic.
        partition: its number.
        start: offset to begin with.
        now_ms: the time, ms since the epoch.
        most: number of other records after which to stop, because no more are acquired.
    """
    found: list[tuple[int, int, int]] = []
    at, end = start, log.log_end(partition)
    while at < end and most > 0:
        segment = log.segment_at_or_after(partition, at)
        if segment is None:
            break
        if segment.due_ms > now_ms:
            found.append((max(at, segment.start), segment.stop - 1, segment.due_ms))
        else:
            most -= segment.num_records
        at = segment.stop
    return tuple(found)


def ranges(offsets: Iterable[int]) -> Iterable[tuple[int, int, tuple[()]]]:
    """Merge sorted offsets to ranges: first, last, and nothing else."""
    return merged_offsets((offset, ()) for offset in offsets)


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
