"""Offset expiry: a group and the time in, the committed offsets that nobody needs any more out.

The rule is Kafka's (KIP-211): offsets are kept for `offsets.retention.minutes`, counted from when the group lost its
last member. For a topic that no member of a live group reads, and a group that never had members, the commit counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkalike.model.group_state import OFFSET, Group, GroupRow, GroupsState
from kafkalike.model.structs import GroupState, TopicPartition

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
