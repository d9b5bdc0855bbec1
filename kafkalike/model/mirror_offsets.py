"""Offsets: committed offsets of a source and of its copy in; those that the copy is to be given out.

A position that the copy has from its mirror gives way to a newer one of the source. One that somebody has committed in
the copy's own cluster since the mirror began stays, and so do all of a group that has members there: it is at work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalike.model.group_state import OFFSET, GroupRow, GroupsState
from kafkalike.model.structs import CommittedOffset, TopicPartition

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
