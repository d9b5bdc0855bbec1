"""GroupsState: rows of `__consumer_offsets` in, committed offsets and members of each group out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kafkalike.model.group_roster import PROTOCOL_TYPE, Member, Roster, dump_roster, load_roster
from kafkalike.model.structs import GroupState, OffsetAndMetadata, TopicPartition

__all__ = [
    "MEMBER",
    "OFFSET",
    "PROTOCOL_TYPE",
    "CommittedOffset",
    "Group",
    "GroupRow",
    "GroupsState",
    "Member",
    "Roster",
    "roster_row",
]

OFFSET: Final = "offset"
MEMBER: Final = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One row of `__consumer_offsets`; `seq` orders the rows of the table."""

    seq: int
    kind: str
    """`offset`: a committed offset. `member`: who is in the group and owns what, from this row on."""
    group_id: str
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    """Next offset to read; None in an `offset` row means that the commit is deleted."""
    leader_epoch: int = -1
    metadata: str = ""
    generation: int = -1
    """-1 for commits from outside the group's membership."""
    member_id: str = ""
    """Who committed; in a `member` row, whose doing the change was."""
    client_id: str = ""
    value: str = ""
    """`member` rows: the roster as JSON, see `kafkalike.model.group_roster`."""
    time_ms: int


def roster_row(seq: int, group_id: str, roster: Roster, by: str = "", why: str = "") -> GroupRow:
    """The row that says who is in a group from now on.

    Args:
        seq: number of the row.
        group_id: the group.
        roster: its members; the row's time is `roster.changed_ms`.
        by: id of the member whose doing the change was.
        why: what happened, for people; stands in the row's `metadata`.
    """
    client = roster.members.get(by)
    return GroupRow(
        seq=seq,
        kind=MEMBER,
        group_id=group_id,
        generation=roster.generation,
        member_id=by,
        client_id="" if client is None else client.client_id,
        metadata=why,
        value=dump_roster(roster),
        time_ms=roster.changed_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset and whose it is."""

    position: OffsetAndMetadata
    topic_id: str
    time_ms: int
    member_id: str
    client_id: str


@dataclass(slots=True, kw_only=True)
class Group:
    """One consumer group."""

    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    roster: Roster = field(default_factory=Roster)
    """Members, what they own, generation."""

    @property
    def members(self) -> Mapping[str, Member]:
        """By member id."""
        return self.roster.members

    @property
    def generation(self) -> int:
        """Rises with every change of who is a member or who owns what."""
        return self.roster.generation

    @property
    def state(self) -> GroupState:
        """`Empty`, `PreparingRebalance` or `Stable`; a group that `GroupsState.groups` does not have is `Dead`."""
        return self.roster.state

    @property
    def protocol(self) -> str:
        """Name of the assignor in use; empty without members."""
        return self.roster.protocol


class GroupsState:
    """All groups, as of the rows applied so far. Caller: the control log, row by row in `seq` order."""

    __slots__ = ("_generations", "groups", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.groups: dict[str, Group] = {}
        """Groups that have members or committed offsets, by id."""
        self._generations: dict[str, int] = {}
        """Where groups that are gone stopped: generations of a group never fall, so nobody of its past can commit."""

    def apply(self, row: GroupRow) -> None:
        """Take in one row; rows that were applied before change nothing."""
        if row.seq <= self.seq:
            return
        group = self.groups.get(row.group_id) or self.group(row.group_id)
        if row.kind == MEMBER:
            group.roster = load_roster(row.value, row.generation, row.time_ms)
        elif row.topic is not None and row.partition is not None:
            where = TopicPartition(row.topic, row.partition)
            if row.offset is None:
                group.offsets.pop(where, None)
            else:
                group.offsets[where] = CommittedOffset(
                    position=OffsetAndMetadata(row.offset, row.metadata, row.leader_epoch),
                    topic_id=row.topic_id or "",
                    time_ms=row.time_ms,
                    member_id=row.member_id,
                    client_id=row.client_id,
                )
        if group.offsets or group.members:
            self.groups[row.group_id] = group
        else:
            self.groups.pop(row.group_id, None)
            self._generations[row.group_id] = group.generation
        self.seq = row.seq

    def group(self, group_id: str) -> Group:
        """The group of that id; an empty one when it is not known."""
        known = self.groups.get(group_id)
        return Group(roster=Roster(generation=self._generations.get(group_id, 0))) if known is None else known
