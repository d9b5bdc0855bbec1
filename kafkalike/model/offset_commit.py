"""Offset commit: the offsets that a group member commits and the rows it writes, and which committed offsets expire.

An `OffsetCommit` is a value that can wait in a file and be written by another process, so it carries the facts for its
check. Expiry follows KIP-211: offsets are kept for `offsets.retention.minutes` after the group lost its last member.
For a topic that no member of a live group reads, and for a group that never had members, the time of the commit counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import Group, GroupsState
from kafkalike.model.groups.partition_split import check_open, family, holds
from kafkalike.model.groups.roster import check_commit
from kafkalike.model.names import REPARTITIONS_GROUP
from kafkalike.model.row_value import INT32, checked_int, checked_list, checked_text
from kafkalike.model.segments import MAX_OFFSET
from kafkalike.model.structs import GroupState, TopicPartition
from kafkalike.model.topic import RepartitionTarget, TopicInfo

KIND: Final = "offsets"

_COUNT: Final = range(MAX_OFFSET + 1)
_FIELDS: Final = ("group", "member", "client")


@dataclass(frozen=True, slots=True)
class Position:
    """A committed position in one partition."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    """Next offset to read."""
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets of one group to commit; see `Unit`."""

    group_id: str
    generation: int
    """Generation that the member knows; -1 for a commit from outside the group."""
    member_id: str
    """Empty for a commit from outside the group."""
    group_instance_id: str | None
    client_id: str
    time_ms: int
    positions: tuple[Position, ...]

    def __call__(self, state: GroupsState) -> Sequence[GroupRow]:
        """Return the rows to append to a state.

        Raises:
            GroupIdNotFoundError: it is a share group.
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: see `check_commit`, and
                `partition_split.check_open`.
        """
        state.check_type(self.group_id, share=False)
        roster = state.group(self.group_id).roster
        # Most commits come from outside a group without members, where there is nothing to check.
        if roster.members or self.generation >= 0:
            check_commit(roster, self.group_id, self.member_id, self.generation, self.group_instance_id)
        if REPARTITIONS_GROUP in state.groups:
            for topic, topic_id in {(at.topic, at.topic_id) for at in self.positions}:
                check_open(state.groups, topic, topic_id)
        generation = -1 if self.generation < 0 else roster.generation
        return [
            GroupRow(
                seq=state.seq + nth,
                kind=OFFSET,
                group_id=self.group_id,
                topic=at.topic,
                topic_id=at.topic_id,
                partition=at.partition,
                offset=at.offset,
                leader_epoch=at.leader_epoch,
                metadata=at.metadata,
                generation=generation,
                member_id=self.member_id,
                client_id=self.client_id,
                time_ms=self.time_ms,
            )
            for nth, at in enumerate(self.positions, start=1)
        ]

    def dumped(self) -> dict[str, Any]:
        """Return the commit as JSON."""
        return {
            "kind": KIND,
            "group": self.group_id,
            "generation": self.generation,
            "member": self.member_id,
            "instance": self.group_instance_id,
            "client": self.client_id,
            "time": self.time_ms,
            "offsets": [
                [at.topic, at.topic_id, at.partition, at.offset, at.leader_epoch, at.metadata] for at in self.positions
            ],
        }


def load_commit(found: Mapping[str, Any]) -> OffsetCommit:
    """Parse a waiting commit. Any process may have written it, so the type and bounds of each value are checked.

    Raises:
        ValueError, TypeError, LookupError: it is not a commit, or only a newer release can read it.
    """
    if found["kind"] != KIND:
        raise ValueError("another kind of unit")
    group_id, member_id, client_id = (checked_text(found[name]) for name in _FIELDS)
    instance = found["instance"]
    return OffsetCommit(
        group_id=group_id,
        generation=checked_int(found["generation"], INT32),
        member_id=member_id,
        group_instance_id=None if instance is None else checked_text(instance),
        client_id=client_id,
        time_ms=checked_int(found["time"], range(2**48)),
        positions=tuple(_position(each) for each in checked_list(found["offsets"])),
    )


def _position(found: Any) -> Position:  # noqa: ANN401 - any JSON
    topic, topic_id, partition, offset, leader_epoch, metadata = checked_list(found)
    return Position(
        checked_text(topic),
        checked_text(topic_id),
        checked_int(partition, range(INT32.stop)),
        checked_int(offset, _COUNT),
        checked_int(leader_epoch, INT32),
        checked_text(metadata),
    )


MINUTE_MS: Final = 60_000


def expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Return the partitions whose committed offset has expired, sorted.

    Unlike in Kafka, the retention of an empty group restarts for an offset that an administrator has set since.

    Args:
        group: a group without dead members.
        now_ms: the time, ms since the epoch.
        retention_ms: how long offsets are kept, ms.
    """
    if group.members and (group.state is not GroupState.STABLE or group.roster.led is not None):
        # The rebalance that decides which member reads which topic has not ended, or only the clients know.
        return []
    read = {topic for member in group.members.values() for topic in member.subscription}
    empty_since = 0 if group.members else group.roster.changed_ms
    return sorted(
        tp
        for tp, committed in group.offsets.items()
        if tp.topic not in read and now_ms - max(empty_since, committed.time_ms) >= retention_ms
    )


def orphaned(group: Group, topic_ids: Mapping[str, str], groups: Mapping[str, Group]) -> list[TopicPartition]:
    """Return the partitions whose committed offset is for a deleted topic, even if a new one has its name; sorted.

    Args:
        group: the group.
        topic_ids: current id by topic, looked up after the group's offsets.
        groups: all groups, which know the successors of topics that are being repartitioned.
    """
    offsets = group.offsets.items()
    return sorted(tp for tp, at in offsets if not holds(groups, at.topic_id, tp.topic, topic_ids.get(tp.topic)))


def deletion_rows(
    state: GroupsState, group_id: str, partitions: Iterable[TopicPartition], now_ms: int, after: int = 0
) -> list[GroupRow]:
    """Return the rows that delete committed offsets of a group.

    Args:
        state: the current groups.
        group_id: the group.
        partitions: partitions whose offsets to delete; partitions without an offset are ignored.
        now_ms: time of the rows.
        after: number of rows before these in the same transaction.
    """
    known = state.group(group_id).offsets
    return [
        GroupRow(
            seq=state.seq + after + nth,
            kind=OFFSET,
            group_id=group_id,
            topic=tp.topic,
            topic_id=known[tp].topic_id,
            partition=tp.partition,
            time_ms=now_ms,
        )
        for nth, tp in enumerate((tp for tp in partitions if tp in known), start=1)
    ]


def moved_offsets(state: GroupsState, info: TopicInfo, target: RepartitionTarget, now_ms: int) -> list[GroupRow]:
    """Return the rows that move the committed offsets of a topic to its successor, and end commits for the topic.

    Each offset is written for all partitions of the family, with the time of its commit, so it expires as before.

    Args:
        state: the groups.
        info: the topic.
        target: its successor.
        now_ms: the time, ms.
    """
    rows = [
        GroupRow(
            seq=state.seq + 1,
            kind=OFFSET,
            group_id=REPARTITIONS_GROUP,
            topic=info.name,
            topic_id=info.topic_id,
            # Each repartition of a topic has a row of its own.
            partition=len(info.ancestors),
            offset=0,
            metadata=target.topic_id,
            time_ms=now_ms,
        )
    ]
    for group_id, group in sorted(state.groups.items()):
        for tp, known in sorted(group.offsets.items()):
            if tp.topic != info.name or tp.partition not in info.partitions or group_id == REPARTITIONS_GROUP:
                continue
            if not holds(state.groups, known.topic_id, info.name, info.topic_id):
                continue
            rows += [
                GroupRow(
                    seq=state.seq + len(rows) + nth,
                    kind=OFFSET,
                    group_id=group_id,
                    topic=info.name,
                    topic_id=target.topic_id,
                    partition=partition,
                    offset=known.position.offset,
                    leader_epoch=known.position.leader_epoch,
                    metadata=known.position.metadata,
                    generation=known.generation,
                    member_id=known.member_id,
                    client_id=known.client_id,
                    time_ms=known.time_ms,
                )
                for nth, partition in enumerate(family(tp.partition, info.num_partitions, target.num_partitions), 1)
            ]
    return rows


def shifted(
    committed: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition], by: int
) -> dict[TopicPartition, int]:
    """Move the committed offsets of a group by a number of offsets; results may lie outside of the log.

    Args:
        committed: the group's offsets.
        partitions: partitions to move.
        by: number of offsets; negative to move back.

    Raises:
        IllegalArgumentError: a partition has no committed offset.
    """
    moved = {}
    for tp in partitions:
        if tp not in committed:
            where = f"{tp.topic}-{tp.partition}"
            raise IllegalArgumentError(
                f"Cannot shift offset for partition {where} since there is no current committed offset"
            )
        moved[tp] = committed[tp] + by
    return moved


def storable(offset: int) -> int:
    """Return the nearest offset that a table can store: offsets outside the range are outside of every log."""
    return min(max(offset, 0), MAX_OFFSET)
