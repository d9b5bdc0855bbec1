"""Committed offsets: the commit of a group member and the rows it writes, expiry, and the offsets that a mirror copies.

An `OffsetCommit` is a value that can wait in a file and be written by another process, so it carries what is needed to
check it. Expiry follows KIP-211: offsets are kept for `offsets.retention.minutes` after the group lost its last member.
For a topic that no member of a live group reads, and for a group that never had members, the time of the commit counts.

A mirror replaces an offset that it has copied before by a newer one of the source. It does not change an offset that a
client of the copy's own cluster has committed since the mirror was created, nor any offset of a group with members
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkalike.model.group_state import OFFSET, Group, GroupRow, GroupsState
from kafkalike.model.groups.group_protocol import check_commit
from kafkalike.model.row_value import INT32, checked_int, checked_list, checked_text
from kafkalike.model.segments import MAX_OFFSET
from kafkalike.model.structs import CommittedOffset, GroupState, TopicPartition

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


CLIENT: Final = "kafkalike-mirror"
"""Client id of the rows that a mirror has written."""

MEMBER: Final = "source-version-"
"""Beginning of their member id: then comes the version of the source's table."""


class MirroredOffset(NamedTuple):
    """A committed offset of the source, for the copy."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncedTopic:
    """A topic of the pass."""

    topic_id: str
    began_ms: int
    """When it became a mirror."""
    ends: Mapping[int, int]
    """Log ends of its partitions that the pass brings; 0 for those that are missing."""
    source_id: str | None = None
    """Id of the topic at the source, where that is not `topic_id`."""


@dataclass(slots=True)
class OffsetsDue:
    """What is to be done."""

    offsets: list[MirroredOffset] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """Groups of which something stays as it is in the copy's cluster, as they are at work there."""
    ahead: list[str] = field(default_factory=list)
    """Groups with positions beyond the log end, which come when the records do."""


def offsets_due(
    source: GroupsState, target: GroupsState, topics: Mapping[str, SyncedTopic], groups: Iterable[str], version: int
) -> OffsetsDue:
    """Committed offsets that a pass has to bring.

    Args:
        source: the groups as of the pass.
        target: the copy's groups now.
        topics: the topics of the pass, by name.
        groups: ids of the groups that are mirrored.
        version: of the source's table, which `source` is of.
    """
    due = OffsetsDue()
    for group_id in sorted(groups):
        held = ahead = False
        for tp, committed in sorted(source.group(group_id).offsets.items()):
            copied = topics.get(tp.topic)
            if copied is None or committed.topic_id != (copied.source_id or copied.topic_id):
                continue
            found = _offset(group_id, tp, committed, copied.topic_id)
            known = target.group(group_id).offsets.get(tp)
            if known is not None and known.topic_id == found.topic_id and known.position == committed.position:
                continue
            if committed.position.offset > copied.ends.get(tp.partition, 0):
                ahead = True
            elif may_take(target, found, copied.began_ms, version):
                due.offsets.append(found)
            else:
                held = True
        due.held += [group_id] if held else []
        due.ahead += [group_id] if ahead else []
    return due


def _offset(group_id: str, tp: TopicPartition, committed: CommittedOffset, topic_id: str) -> MirroredOffset:
    at = committed.position
    return MirroredOffset(
        group_id, tp.topic, topic_id, tp.partition, at.offset, at.leader_epoch, at.metadata, committed.time_ms
    )


def may_take(target: GroupsState, offset: MirroredOffset, began_ms: int, version: int) -> bool:
    """Whether a position may be written over what the copy's cluster has.

    Args:
        target: the copy's groups.
        offset: the position.
        began_ms: when the topic became a mirror.
        version: of the source's table that has it.
    """
    group = target.group(offset.group_id)
    if group.members:
        return False
    known = group.offsets.get(TopicPartition(offset.topic, offset.partition))
    if known is None or known.topic_id != offset.topic_id:
        return True
    if known.client_id != CLIENT:
        return known.time_ms < began_ms
    return _version_of(known) < version


def _version_of(known: CommittedOffset) -> int:
    """The version of the source's table that a position of a mirror came with; -1 when it does not say."""
    number = known.member_id.removeprefix(MEMBER)
    return int(number) if number.isdecimal() else -1


def offset_rows(
    target: GroupsState, offsets: Iterable[MirroredOffset], began_ms: Mapping[str, int], version: int
) -> list[GroupRow]:
    """The rows that bring positions of a pass, as far as they are still wanted.

    Args:
        target: the copy's groups, which the rows go on from.
        offsets: the positions.
        began_ms: by id of a topic that is still a mirror, when it became one; positions of others are left out.
        version: of the source's table that has them.
    """
    wanted = [o for o in offsets if o.topic_id in began_ms and may_take(target, o, began_ms[o.topic_id], version)]
    return [
        GroupRow(
            seq=target.seq + nth,
            kind=OFFSET,
            group_id=o.group_id,
            topic=o.topic,
            topic_id=o.topic_id,
            partition=o.partition,
            offset=o.offset,
            leader_epoch=o.leader_epoch,
            metadata=o.metadata,
            member_id=f"{MEMBER}{version}",
            client_id=CLIENT,
            time_ms=o.time_ms,
        )
        for nth, o in enumerate(wanted, start=1)
    ]
