"""Share exchange: a member's acknowledgements and its wish for records as a value, and the rows that it writes.

Any process can apply the value to the state that it finds, so in object stores one commit takes the exchanges of many
members (`waiting_appends.Unit`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkalike.errors import InvalidRecordStateError
from kafkalike.model.frozen_map import FrozenMap
from kafkalike.model.group_rows import GroupRow, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.row_value import INT64, checked_int, checked_list, checked_text
from kafkalike.model.shares import share_partition as rules
from kafkalike.model.shares.share_partition import (
    Acknowledgement,
    Acknowledgements,
    RecordRun,
    RecordVerdict,
    ShareLimits,
    SharePartition,
)
from kafkalike.model.shares.share_runs import gaps
from kafkalike.model.structs import TopicPartition

KIND: Final = "shares"
"""Kind of a staged unit; see `load_unit`."""

_OFFSET: Final = range(INT64.stop)


class ShareSource(NamedTuple):
    """A partition from which a member acquires records, as its log was at the last look."""

    tp: TopicPartition
    topic_id: str
    log_start: int
    log_end: int
    initial: int
    """Start offset if the group has no state of the partition."""
    later: tuple[tuple[int, int, int], ...] = ()
    """Ranges of records that are not due by the statistics of their files: first, last, earliest time in ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeResult:
    """Result of one exchange between a member and its group."""

    taken: Mapping[TopicPartition, Sequence[RecordRun]] = field(default_factory=dict)
    """Runs that the member has acquired, in the order of the sources."""
    refused: Acknowledgements = field(default_factory=dict)
    """Acknowledgements that do not count, because the member does not own the records in that delivery."""
    archived: Mapping[TopicPartition, Sequence[RecordRun]] = field(default_factory=dict)
    """Runs that were archived after their last delivery."""


def share_of(state: GroupsState, group_id: str, tp: TopicPartition, topic_id: str) -> SharePartition | None:
    """Return the state of a partition; None if the group has none, or only that of a deleted topic of that name."""
    shares = state.shares.get(group_id)
    found = None if shares is None else shares.get(tp)
    return found if found is not None and found.topic_id == topic_id else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareExchange:
    """Acknowledgements of a member and its wish for records, to be applied in one commit; see `Unit`."""

    group_id: str
    member_id: str
    acknowledgements: Acknowledgements
    limits: ShareLimits
    now_ms: int
    sources: tuple[ShareSource, ...] = ()
    """Partitions to acquire from, in order."""
    most: int = 0
    """Most records to acquire."""
    known: Mapping[TopicPartition, Sequence[tuple[int, int]]] | None = None
    """Ranges of offsets that the member knows to own. Its other locks are returned first: they are of a call that was
    interrupted. None keeps them."""
    whole: bool = False
    """A refusal leaves all records of its partition as they are, as in Kafka."""

    def applied(self, state: GroupsState) -> tuple[ExchangeResult, list[GroupRow]]:
        """Return the result in a state, and the rows to append."""
        shares = state.shares.get(self.group_id, FrozenMap())
        now_ms, limits = self.now_ms, self.limits
        changed, refused = rules.acknowledge_all(
            shares, self.member_id, self.acknowledgements, now_ms=now_ms, limits=limits
        )
        if self.whole:
            changed = {tp: share for tp, share in changed.items() if tp not in refused}
        taken: dict[TopicPartition, Sequence[RecordRun]] = {}
        archived: dict[TopicPartition, Sequence[RecordRun]] = {}
        room = self.most
        for source in self.sources:
            before = share_of(state, self.group_id, source.tp, source.topic_id)
            share = changed.get(source.tp, before)
            if share is None or share.topic_id != source.topic_id:
                share = rules.reset(source.topic_id, source.initial)
            if self.known is not None:
                share = self._without_unknown(share, self.known.get(source.tp, ()))
            found = rules.acquire(
                share,
                self.member_id,
                most=room,
                now_ms=now_ms,
                log_start=source.log_start,
                log_end=source.log_end,
                later=source.later,
                limits=limits,
            )
            room -= sum(run.size for run in found.taken)
            if found.taken:
                taken[source.tp] = found.taken
            if found.archived:
                archived[source.tp] = found.archived
            if found.after != before:
                changed[source.tp] = found.after
        rows = [
            share_row(state.seq + nth, self.group_id, tp, share, now_ms=now_ms, by=self.member_id)
            for nth, (tp, share) in enumerate(sorted(changed.items()), start=1)
        ]
        return ExchangeResult(taken=taken, refused=refused, archived=archived), rows

    def _without_unknown(self, share: SharePartition, known: Sequence[tuple[int, int]]) -> SharePartition:
        unknown = [
            Acknowledgement(first, last, RecordVerdict.RETURN)
            for run in rules.owned(share, self.member_id)
            for first, last in gaps(run.first, run.last, known)
        ]
        if not unknown:
            return share
        return rules.acknowledge(share, self.member_id, unknown, now_ms=self.now_ms, limits=self.limits)[0]

    def __call__(self, state: GroupsState) -> Sequence[GroupRow]:
        """Return the rows to append to a state, if the result can be read from the state after them.

        Raises:
            InvalidRecordStateError: an acknowledgement is refused, or records are archived. Nothing is written, and the
                member applies the exchange itself.
        """
        done, rows = self.applied(state)
        if done.refused or done.archived:
            raise InvalidRecordStateError(f"share group {self.group_id!r}: not all records are as the member knew them")
        return rows

    def taken(self, before: GroupsState, after: GroupsState) -> dict[TopicPartition, Sequence[RecordRun]]:
        """Return the runs that this exchange has acquired, from the group's states before and after its commit."""
        found: dict[TopicPartition, Sequence[RecordRun]] = {}
        for source in self.sources:
            share = share_of(after, self.group_id, source.tp, source.topic_id)
            if share is None:
                continue
            earlier = share_of(before, self.group_id, source.tp, source.topic_id)
            if earlier is not None:
                said = self.acknowledgements.get(source.tp, ())
                earlier, _ = rules.acknowledge(earlier, self.member_id, said, now_ms=self.now_ms, limits=self.limits)
            kept = () if earlier is None else rules.owned(earlier, self.member_id)
            held: dict[int, list[tuple[int, int]]] = {}
            for run in kept:
                if run.since_ms == self.now_ms:
                    held.setdefault(run.deliveries, []).append((run.first, run.last))
            new = [
                run._replace(first=first, last=last)
                for run in rules.owned(share, self.member_id)
                if run.since_ms == self.now_ms
                for first, last in gaps(run.first, run.last, held.get(run.deliveries, ()))
            ]
            if new:
                found[source.tp] = new
        return found

    def dumped(self) -> dict[str, Any]:
        """Return the exchange as JSON; without `known`, with which it is never staged."""
        limits = self.limits
        return {
            "kind": KIND,
            "group": self.group_id,
            "member": self.member_id,
            "time": self.now_ms,
            "most": self.most,
            "whole": self.whole,
            "limits": [limits.lock_ms, limits.deliveries, limits.locks, limits.archives],
            "sources": [[*s.tp, s.topic_id, s.log_start, s.log_end, s.initial, s.later] for s in self.sources],
            "acks": [
                [*tp, [[a.first, a.last, a.verdict.value, a.deliveries, a.due_ms] for a in said]]
                for tp, said in self.acknowledgements.items()
            ],
        }


def load_exchange(found: Mapping[str, Any]) -> ShareExchange:
    """Parse a staged exchange. Any process may have written it, so the type and bounds of each value are checked.

    Raises:
        ValueError, TypeError, LookupError: it is not an exchange.
    """
    lock_ms, deliveries, locks, archives = checked_list(found["limits"])
    return ShareExchange(
        group_id=checked_text(found["group"]),
        member_id=checked_text(found["member"]),
        acknowledgements=dict(_said(each) for each in checked_list(found["acks"])),
        limits=ShareLimits(
            lock_ms=checked_int(lock_ms, _OFFSET),
            deliveries=checked_int(deliveries, _OFFSET),
            locks=checked_int(locks, _OFFSET),
            archives=archives is True,
        ),
        now_ms=checked_int(found["time"], range(2**48)),
        sources=tuple(_source(each) for each in checked_list(found["sources"])),
        most=checked_int(found["most"], _OFFSET),
        whole=found["whole"] is True,
    )


def _source(found: Any) -> ShareSource:  # noqa: ANN401 - any JSON
    topic, partition, topic_id, log_start, log_end, initial, later = checked_list(found)
    low, end, start = _numbers([log_start, log_end, initial])
    ranges = tuple(_numbers(each) for each in checked_list(later))
    return ShareSource(_place(topic, partition), checked_text(topic_id), low, end, start, ranges)


def _said(found: Any) -> tuple[TopicPartition, list[Acknowledgement]]:  # noqa: ANN401 - any JSON
    topic, partition, said = checked_list(found)
    acks = []
    for begin, end, verdict, count, due in map(checked_list, checked_list(said)):
        first, last, due_ms = _numbers([begin, end, due])
        if last < first:
            raise ValueError(f"offsets {first} to {last}")
        deliveries = None if count is None else checked_int(count, _OFFSET)
        acks.append(Acknowledgement(first, last, RecordVerdict(verdict), deliveries, due_ms))
    return _place(topic, partition), acks


def _place(topic: Any, partition: Any) -> TopicPartition:  # noqa: ANN401 - any JSON
    return TopicPartition(checked_text(topic), checked_int(partition, range(2**31)))


def _numbers(found: Any) -> tuple[int, int, int]:  # noqa: ANN401 - any JSON
    first, second, third = (checked_int(n, _OFFSET) for n in checked_list(found))
    return first, second, third
