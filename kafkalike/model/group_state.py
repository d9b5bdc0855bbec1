"""GroupsState: the offsets, members, share partitions and transactions that the rows of `__consumer_offsets` describe.

A state is a value: applying rows returns a new state. The cost of a row hardly depends on the number of offsets and
groups. A row that cannot be read raises the same error every time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kafkalike.errors import GroupIdNotFoundError
from kafkalike.model import group_rows
from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.group_rows import GroupRow
from kafkalike.model.groups.roster import Member, Roster, load_roster
from kafkalike.model.names import CONSUMER_OFFSETS, GATEWAYS_GROUP, REPARTITIONS_GROUP, RESERVED_GROUPS
from kafkalike.model.row_value import UNREADABLE, damaged, row_value
from kafkalike.model.structs import CommittedOffset, GroupState, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    # Functions that need transactions or share groups import them, because most clusters have none and each process
    # would pay for the import.
    from kafkalike.model.shares.share_partition import SharePartition
    from kafkalike.model.transactions.transaction_views import PendingDecisions, UnsettledDraft
    from kafkalike.model.transactions.transactional_id import TransactionalIdState


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group with its committed offsets and its roster."""

    offsets: FrozenMap[TopicPartition, CommittedOffset] = field(default_factory=FrozenMap)
    roster: Roster = field(default_factory=Roster)
    """Members and their partitions, and the generation."""

    @property
    def members(self) -> Mapping[str, Member]:
        """The group's members by member id."""
        return self.roster.members

    @property
    def generation(self) -> int:
        """Increases with every change of the members or their partitions."""
        return self.roster.generation

    @property
    def state(self) -> GroupState:
        """`Empty`, `PreparingRebalance` or `Stable`; groups missing in `GroupsState.groups` are `Dead`."""
        return self.roster.state

    @property
    def protocol(self) -> str:
        """Name of the assignor in use; empty without members."""
        return self.roster.protocol


_UNKNOWN: Final = Group()
"""A group without a past."""

Shares = FrozenMap[TopicPartition, "SharePartition"]
"""The share partitions of a group."""


@dataclass(frozen=True, slots=True)
class GroupsState:
    """All groups after the rows applied so far. The control log applies rows in `seq` order."""

    seq: int = 0
    """Number of the last row applied."""
    groups: FrozenMap[str, Group] = field(default_factory=FrozenMap)
    """Groups with members or committed offsets, by id."""
    generations: FrozenMap[str, int] = field(default_factory=FrozenMap)
    """Last generations of deleted groups. A former member continues from there. After compaction has removed the group,
    a new client starts at 0 again; member ids are never reused, so no former member can commit."""
    transactions: FrozenMap[str, TransactionalIdState] = field(default_factory=FrozenMap)
    """State of each transactional id that has not expired."""
    unsettled: FrozenMap[str, PendingDecisions] = field(default_factory=FrozenMap, compare=False)
    """By topic id, the decisions in `transactions` that a topic may lack; topics without one are missing."""
    shares: FrozenMap[str, Shares] = field(default_factory=FrozenMap)
    """Share partitions by id of their share group."""
    configs: FrozenMap[str, Mapping[str, str]] = field(default_factory=FrozenMap)
    """Settings of groups that have some, by group id."""

    def applied(self, rows: Iterable[GroupRow]) -> GroupsState:
        """Return the state after applying more rows; rows that are already applied are ignored.

        Raises:
            UnsupportedVersionError: a newer release wrote one.
            LogCorruptError: one is damaged.
        """
        draft = _Draft(self)
        for row in rows:
            if row.seq > draft.seq:
                draft.apply(row)
        return draft.state()

    @property
    def consumer_groups(self) -> Mapping[str, Group]:
        """The groups of consumers, by id, without share groups and reserved groups."""
        if GATEWAYS_GROUP not in self.groups and REPARTITIONS_GROUP not in self.groups and not self.shares:
            return self.groups
        return {
            group_id: group
            for group_id, group in self.groups.items()
            if group_id not in RESERVED_GROUPS and not self.is_share_group(group_id)
        }

    @property
    def share_groups(self) -> list[str]:
        """The ids of all share groups, sorted."""
        return sorted({*self.shares, *(group_id for group_id in self.groups if self.is_share_group(group_id))})

    def is_share_group(self, group_id: str) -> bool:
        """Return whether a group has share partitions, or members that share records."""
        return group_id in self.shares or self.group(group_id).protocol == group_rows.SHARE

    def check_type(self, group_id: str, *, share: bool) -> None:
        """Reject a change that would give a group offsets and share partitions, because a group has one type.

        Args:
            group_id: the group.
            share: True for a share consumer, False for a consumer or committed offsets.

        Raises:
            GroupIdNotFoundError: the group has the other type.
        """
        is_other = bool(self.group(group_id).offsets) if share else self.is_share_group(group_id)
        if is_other:
            kinds = ("a consumer group", "a share group")
            raise GroupIdNotFoundError(
                f"group {group_id!r} is {kinds[not share]}, not {kinds[share]}: use another group id, or delete the "
                "group first"
            )

    def group(self, group_id: str) -> Group:
        """Return the group with that id; an empty one if it is unknown."""
        known = self.groups.get(group_id)
        if known is not None:
            return known
        generation = self.generations.get(group_id, 0)
        return Group(roster=Roster(generation=generation)) if generation else _UNKNOWN


class _Draft:
    """A state in preparation."""

    __slots__ = ("_before", "_configs", "_shares", "_touched", "_transactions", "_unsettled", "seq")

    def __init__(self, state: GroupsState) -> None:
        self._before = state
        self.seq = state.seq
        self._touched: dict[str, _GroupDraft] = {}
        self._configs: Draft[str, Mapping[str, str]] | None = None
        """Created for the first row of settings."""
        self._shares: dict[tuple[str, str | None, int | None], GroupRow] = {}
        """The newest row of each share partition. Only these are parsed, because a busy queue writes thousands."""
        self._transactions: Draft[str, TransactionalIdState] | None = None
        """Made for the first row of a transaction."""
        self._unsettled: UnsettledDraft | None = None
        """Created for the first row of a transaction."""

    def apply(self, row: GroupRow) -> None:
        if row.kind == group_rows.TRANSACTION:
            self._stand(row)
            return
        if row.kind == group_rows.SHARE:
            self._shares[row.group_id, row.topic, row.partition] = row
            self.seq = row.seq
            return
        if row.kind == group_rows.CONFIG:
            self._configure(row)
            return
        entry = _entry(row)
        group = self._touched.get(row.group_id)
        if group is None:
            group = self._touched[row.group_id] = _GroupDraft(self._before.group(row.group_id))
        group.apply(entry)
        self.seq = row.seq

    def _configure(self, row: GroupRow) -> None:
        configs = group_rows.configs_of(row)
        draft = self._configs = Draft(self._before.configs) if self._configs is None else self._configs
        if configs:
            draft.put(row.group_id, configs)
        else:
            draft.drop(row.group_id)
        self.seq = row.seq

    def _stand(self, row: GroupRow) -> None:
        standing = group_rows.standing_of(row)
        if self._unsettled is None:
            from kafkalike.model.transactions.transaction_views import UnsettledDraft

            self._unsettled = UnsettledDraft(self._before.unsettled)
        transactions = self._transactions
        if transactions is None:
            transactions = self._transactions = Draft(self._before.transactions)
        self._unsettled.note(row.group_id, transactions.get(row.group_id), standing)
        if standing is None:
            transactions.drop(row.group_id)
        else:
            transactions.put(row.group_id, standing)
        self.seq = row.seq

    def state(self) -> GroupsState:
        before = self._before
        if self.seq == before.seq:
            return before
        groups, generations = self._groups() if self._touched else (before.groups, before.generations)
        unsettled = before.unsettled if self._unsettled is None else self._unsettled.frozen()
        transactions = before.transactions if self._transactions is None else self._transactions.frozen()
        shares = self._share_partitions() if self._shares else before.shares
        configs = before.configs if self._configs is None else self._configs.frozen()
        return GroupsState(self.seq, groups, generations, transactions, unsettled, shares, configs)

    def _share_partitions(self) -> FrozenMap[str, Shares]:
        drafts: dict[str, Draft[TopicPartition, SharePartition]] = {}
        for row in self._shares.values():
            where, share = group_rows.share_of(row)
            if row.group_id not in drafts:
                drafts[row.group_id] = Draft(self._before.shares.get(row.group_id, FrozenMap()))
            if share is None:
                drafts[row.group_id].drop(where)
            else:
                drafts[row.group_id].put(where, share)
        shares = Draft(self._before.shares)
        for group_id, draft in drafts.items():
            if len(draft):
                shares.put(group_id, draft.frozen())
            else:
                shares.drop(group_id)
        return shares.frozen()

    def _groups(self) -> tuple[FrozenMap[str, Group], FrozenMap[str, int]]:
        groups, generations = Draft(self._before.groups), None
        for group_id, group in self._touched.items():
            if group.alive:
                groups.put(group_id, Group(offsets=group.offsets.frozen(), roster=group.roster))
                if not self._before.generations:
                    continue
            else:
                groups.drop(group_id)
            if generations is None:
                generations = Draft(self._before.generations)
            if group.alive:
                generations.drop(group_id)
            else:
                generations.put(group_id, group.roster.generation)
        return groups.frozen(), self._before.generations if generations is None else generations.frozen()


class _GroupDraft:
    """A group in preparation."""

    __slots__ = ("offsets", "roster")

    def __init__(self, group: Group) -> None:
        self.roster = group.roster
        self.offsets = Draft(group.offsets)

    @property
    def alive(self) -> bool:
        return len(self.offsets) > 0 or bool(self.roster.members)

    def apply(self, entry: _Entry) -> None:
        if isinstance(entry, Roster):
            self.roster = entry
        else:
            where, committed = entry
            if committed is not None:
                self.offsets.put(where, committed)
                return
            self.offsets.drop(where)
        if not self.alive:
            # Only the generation of a deleted group is kept.
            self.roster = Roster(generation=self.roster.generation)


_Entry = Roster | tuple[TopicPartition, CommittedOffset | None]
"""Content of a row: the roster, or a partition's offset, with None for a deleted one."""


def _entry(row: GroupRow) -> _Entry:
    """Parse an `offset` or `member` row."""
    try:
        # Most rows are offsets, without a value.
        if row.value or row.kind != group_rows.OFFSET:
            value = row_value(CONSUMER_OFFSETS, row, group_rows.VERSIONS)
            if row.kind == group_rows.MEMBER:
                if not value:
                    return Roster(generation=row.generation, changed_ms=row.time_ms)
                return load_roster(value, row.generation, row.time_ms)
        if row.topic is None or row.partition is None:
            raise ValueError("no topic or partition")
        where = TopicPartition(row.topic, row.partition)
        if row.offset is None:
            return where, None
        return where, CommittedOffset(
            position=OffsetAndMetadata(row.offset, row.metadata, row.leader_epoch),
            topic_id=row.topic_id or "",
            time_ms=row.time_ms,
            member_id=row.member_id,
            client_id=row.client_id,
            generation=row.generation,
        )
    except UNREADABLE as cause:
        raise damaged(CONSUMER_OFFSETS, row, cause) from cause
