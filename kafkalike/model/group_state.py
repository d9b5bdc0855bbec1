"""GroupsState: rows of `__consumer_offsets` in, committed offsets and generations of each group out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

OFFSET: Final = "offset"
MEMBER: Final = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """One row of `__consumer_offsets`; `seq` orders the rows of the table."""

    seq: int
    kind: str
    """`offset`: a committed offset. `member`: who holds the group from this generation on."""
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
    client_id: str = ""
    time_ms: int


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
    generation: int = 0
    member_id: str = ""
    """The member that holds the group; empty when nobody does."""
    client_id: str = ""


class GroupsState:
    """All groups, as of the rows applied so far. Caller: the control log, row by row in `seq` order."""

    __slots__ = ("groups", "seq")

    def __init__(self) -> None:
        self.seq = 0
        self.groups: dict[str, Group] = {}

    def apply(self, row: GroupRow) -> None:
        """Take in one row; rows that were applied before change nothing."""
        if row.seq <= self.seq:
            return
        self.seq = row.seq
        group = self.groups.setdefault(row.group_id, Group())
        if row.kind == MEMBER:
            group.generation = row.generation
            group.member_id = row.member_id
            group.client_id = row.client_id
        elif row.topic is not None and row.partition is not None:
            where = TopicPartition(row.topic, row.partition)
            if row.offset is None:
                group.offsets.pop(where, None)
                if not group.offsets and not group.member_id:
                    del self.groups[row.group_id]
                return
            group.offsets[where] = CommittedOffset(
                position=OffsetAndMetadata(row.offset, row.metadata, row.leader_epoch),
                topic_id=row.topic_id or "",
                time_ms=row.time_ms,
                member_id=row.member_id,
                client_id=row.client_id,
            )

    def group(self, group_id: str) -> Group:
        """The group of that id; an empty one when it is not known."""
        return self.groups.get(group_id) or Group()
