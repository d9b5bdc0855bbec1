"""Mirror offsets: the committed offsets that a mirror copies, and the rows that it writes for them.

A mirror replaces its own earlier copy of an offset by the source's newer offset. It does not change an offset that a
client of the copy's own cluster has committed since the mirror was created, nor any offset of a group with members
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.structs import CommittedOffset, TopicPartition

CLIENT: Final = "kafkalike-mirror"
"""Client id of rows that a mirror has written."""

MEMBER: Final = "source-version-"
"""Prefix of the member id of a mirror's rows, followed by the version of the source's table."""


class MirroredOffset(NamedTuple):
    """A committed offset of the source to copy."""

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
    """Time when it became a mirror, ms since the epoch."""
    ends: Mapping[int, int]
    """Log ends of the partitions that the pass copies; 0 for missing partitions."""
    source_id: str | None = None
    """Id of the topic at the source if it is not `topic_id`."""


@dataclass(slots=True)
class OffsetsDue:
    """Offsets that a pass copies, and groups whose offsets it does not copy."""

    offsets: list[MirroredOffset] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    """Groups with an offset that stays, because clients of the copy's cluster use the group."""
    ahead: list[str] = field(default_factory=list)
    """Groups with offsets beyond the copy's log end, which are copied after the records."""


def offsets_due(
    source: GroupsState, target: GroupsState, topics: Mapping[str, SyncedTopic], groups: Iterable[str], version: int
) -> OffsetsDue:
    """Return the committed offsets that a pass has to copy.

    Args:
        source: the source's groups as of the pass.
        target: the copy's current groups.
        topics: the topics of the pass, by name.
        groups: ids of the mirrored groups.
        version: version of the source's table in which `source` was read.
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
    """Return whether a copied offset may replace the offset of the copy's cluster.

    Args:
        target: the copy's groups.
        offset: the offset to copy.
        began_ms: time when the topic became a mirror.
        version: version of the source's table that has the offset.
    """
    group = target.group(offset.group_id)
    if group.members or target.is_share_group(offset.group_id):
        return False
    known = group.offsets.get(TopicPartition(offset.topic, offset.partition))
    if known is None or known.topic_id != offset.topic_id:
        return True
    if known.client_id != CLIENT:
        return known.time_ms < began_ms
    return _version_of(known) < version


def _version_of(known: CommittedOffset) -> int:
    """Return the version of the source's table from which a mirror copied an offset; -1 if it is not recorded."""
    number = known.member_id.removeprefix(MEMBER)
    return int(number) if number.isdecimal() else -1


def offset_rows(
    target: GroupsState, offsets: Iterable[MirroredOffset], began_ms: Mapping[str, int], version: int
) -> list[GroupRow]:
    """Return the rows that write copied offsets; offsets that the mirror may not replace are left out.

    Args:
        target: the copy's groups, which the rows continue.
        offsets: the offsets to copy.
        began_ms: by id of a topic that is still a mirror, when it became one; offsets of other topics are dropped.
        version: version of the source's table that has the offsets.
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
