"""Offset commit: offsets that a member of a group commits in; the rows that say so, if it still may, out.

It is a value, so it can wait in a file and be written by another process: the rule goes with it. Expiry follows Kafka's
rule (KIP-211): offsets are kept for `offsets.retention.minutes`, counted from when the group lost its last member. For
a topic that no member of a live group reads, and a group that never had members, the commit counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kafkalike.model.group_state import OFFSET, Group, GroupRow, GroupsState
from kafkalike.model.groups.group_protocol import check_commit
from kafkalike.model.json_values import INT32, checked_int, checked_list, checked_text
from kafkalike.model.offsets import MAX_OFFSET
from kafkalike.model.structs import GroupState, TopicPartition

KIND: Final = "offsets"

_COUNT: Final = range(MAX_OFFSET + 1)
_FIELDS: Final = ("group", "member", "client")


@dataclass(frozen=True, slots=True)
class Position:
    """An offset of one partition."""

    topic: str
    topic_id: str
    partition: int
    offset: int
    """Next offset to read."""
    leader_epoch: int
    metadata: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommit:
    """Offsets of one group; see `Unit`."""

    group_id: str
    generation: int
    """The one that the member knows; -1 from outside the membership."""
    member_id: str
    """Empty from outside the membership."""
    group_instance_id: str | None
    client_id: str
    time_ms: int
    positions: tuple[Position, ...]

    def __call__(self, state: GroupsState) -> Sequence[GroupRow]:
        """The rows after a state.

        Raises:
            CommitFailedError, FencedInstanceIdError, RebalanceInProgressError: see `check_commit`.
        """
        roster = state.group(self.group_id).roster
        check_commit(roster, self.group_id, self.member_id, self.generation, self.group_instance_id)
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
        """As JSON."""
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
    """A commit that waits. Whoever wrote it, each value is of its type and within its bounds.

    Raises:
        ValueError, TypeError, LookupError: it is none, or only a newer release can read it.
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
    """Partitions whose committed offset has expired, sorted.

    Unlike Kafka's, the time of an empty group begins anew for an offset that an administrator has set since.

    Args:
        group: members that are dead must have been taken out before.
        now_ms: the time, ms since the epoch.
        retention_ms: how long offsets are kept, ms.
    """
    if group.members and group.state is not GroupState.STABLE:
        # Who is to read what is being found out.
        return []
    read = {topic for member in group.members.values() for topic in member.subscription}
    empty_since = 0 if group.members else group.roster.changed_ms
    return sorted(
        tp
        for tp, committed in group.offsets.items()
        if tp.topic not in read and now_ms - max(empty_since, committed.time_ms) >= retention_ms
    )


def orphaned(group: Group, topic_ids: Mapping[str, str]) -> list[TopicPartition]:
    """Partitions whose committed offset is for a topic that was deleted, whatever has its name now; sorted.

    Args:
        group: the group.
        topic_ids: current id by topic, looked up after the group's offsets.
    """
    return sorted(tp for tp, committed in group.offsets.items() if committed.topic_id != topic_ids.get(tp.topic))


def deletion_rows(
    state: GroupsState, group_id: str, partitions: Iterable[TopicPartition], now_ms: int, after: int = 0
) -> list[GroupRow]:
    """Rows that delete committed offsets of a group.

    Args:
        state: the groups now.
        group_id: whose offsets.
        partitions: those to delete; the ones without an offset are passed over.
        now_ms: the rows' time.
        after: rows that go before these in the same transaction.
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
