"""Group expiry: remove members without a heartbeat, and expired offsets, from the table of groups."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafkalike.model.clock import Clock
from kafkalike.model.group_rows import GroupRow, roster_row, share_row
from kafkalike.model.group_state import Group, GroupsState
from kafkalike.model.groups.group_protocol import GroupFacts, leave
from kafkalike.model.groups.roster import Roster
from kafkalike.model.groups.sessions import Leases
from kafkalike.model.names import REPARTITIONS_GROUP
from kafkalike.model.offset_commit import MINUTE_MS, deletion_rows, expired, orphaned
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


NS_PER_MS: Final = 1_000_000

SILENT: Final = "no heartbeat"
"""Reason for removing a member, in the row's `metadata`."""

NOBODY: Final = ""
"""Group id of probe leases; no group has this id, so a probe never meets a member's lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredOffsets:
    """The members and offsets that `expire_offsets` removed."""

    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Dead members, by group."""
    expired: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    """Offsets older than `offsets.retention.minutes`, by group."""
    orphaned: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    """Offsets and share partitions of deleted topics, by group."""


def silent_members(cluster: Cluster, groups: Mapping[str, Group], now_ns: int) -> dict[str, frozenset[str]]:
    """Return the members whose last heartbeat is older than their session timeout, by group, without empty groups.

    For display only, because two clocks may be compared here. Use `dead_members` before a removal.

    Args:
        cluster: the cluster of the leases.
        groups: groups to look at, by id.
        now_ns: the time, ns since the epoch.

    Raises:
        KafkaStorageError: leases cannot be read.
    """
    found = {}
    for group_id, group in groups.items():
        stamps = cluster.leases.read(group_id, group.members) if group.members else {}
        silent = frozenset(
            member_id
            for member_id, member in group.members.items()
            if now_ns - stamps.get(member_id, member.joined_ms * NS_PER_MS) > member.session_timeout_ms * NS_PER_MS
        )
        if silent:
            found[group_id] = silent
    return found


def dead_members(cluster: Cluster, groups: Mapping[str, Group], clock: Clock) -> dict[str, frozenset[str]]:
    """Return the members that may be removed, by group.

    Their last heartbeat is older than their session by the clock of the storage that stamps it, and none came during
    two more heartbeat intervals, which this call waits. So a clock that was set forward, or a machine that slept,
    removes no member.

    Args:
        cluster: the cluster of the leases.
        groups: groups to look at, by id.
        clock: waits.

    Raises:
        KafkaStorageError: leases cannot be read or written.
    """
    peopled = {group_id: group for group_id, group in groups.items() if group.members}
    if not peopled:
        return {}
    silent = silent_members(cluster, peopled, _storage_time_ns(cluster.leases))
    if not silent:
        return {}
    before = {group_id: cluster.leases.read(group_id, members) for group_id, members in silent.items()}
    beats = [peopled[group_id].members[i].heartbeat_interval_ms for group_id, ids in silent.items() for i in ids]
    clock.sleep(2 * max(beats) / 1000)
    dead = {}
    for group_id, members in silent.items():
        after = cluster.leases.read(group_id, members)
        still = frozenset(i for i in members if after.get(i) == before[group_id].get(i))
        if still:
            dead[group_id] = still
    return dead


def _storage_time_ns(leases: Leases) -> int:
    probe = uuid.uuid4().hex
    leases.renew(NOBODY, probe)
    try:
        return leases.read(NOBODY, [probe])[probe]
    finally:
        leases.drop(NOBODY, probe)


def without(group: Group, dead: Collection[str], now_ms: int) -> Roster:
    """Return the roster of a group without some members; the remaining ones compute new targets at their next look."""
    nothing = GroupFacts(schemes={}, topics={}, metadata_seq=group.roster.metadata_seq, now_ms=now_ms)
    return leave(group.roster, dead, nothing)


def removal(
    state: GroupsState, group_id: str, dead: Collection[str], now_ms: int, *, after: int = 0, why: str = SILENT
) -> tuple[list[GroupRow], Roster]:
    """Return the row that removes members from a group, and the remaining roster.

    Args:
        state: the current groups.
        group_id: the group.
        dead: ids to remove; other ids are ignored.
        now_ms: the row's time.
        after: number of rows before this one in the same transaction.
        why: reason, shown to operators.

    Returns:
        An empty list instead of the row if the group has none of these members.
    """
    group = state.group(group_id)
    if not group.members.keys() & dead:
        return [], group.roster
    roster = without(group, dead, now_ms)
    return [roster_row(state.seq + after + 1, group_id, roster, why=why)], roster


def expire_offsets(cluster: Cluster, clock: Clock, seen: GroupsState | None = None) -> ExpiredOffsets:
    """Remove dead members, offsets older than `offsets.retention.minutes` and offsets of deleted topics, in one commit.

    A group without members and offsets disappears. Concurrent calls are harmless.

    Args:
        cluster: the groups' cluster; its server settings give the retention of offsets.
        clock: source of the time; waits for two heartbeats if a member seems to be dead.
        seen: groups that the caller has just read; None reads them.

    Raises:
        KafkaTimeoutError: concurrent changes of the table prevented the commit; nothing was written.
        UnknownOutcomeError: it may have been written; calling again is harmless.
    """
    retention_ms = int(cluster.server.get("offsets.retention.minutes")) * MINUTE_MS
    groups = cluster.groups.refresh() if seen is None else seen
    dead = dead_members(cluster, groups.groups, clock)
    done = ExpiredOffsets()
    cluster.metadata.look_once()
    known = {name: str(info.topic_id) for name, info in cluster.metadata.state.topics.items()}
    if not dead and not _plan(groups, {}, known, clock.now_ms(), retention_ms)[1]:
        # Nothing is due in the state that was read, so neither lock nor read the table again.
        return done

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        nonlocal done
        # A member that has sent a heartbeat meanwhile stays.
        groups = {group_id: state.group(group_id) for group_id in dead}
        silent = silent_members(cluster, groups, _storage_time_ns(cluster.leases)) if dead else {}
        out = {group_id: members & silent.get(group_id, frozenset()) for group_id, members in dead.items()}
        # Read after the state, because a topic exists before offsets are committed for it.
        topic_ids = {name: str(info.topic_id) for name, info in cluster.topics().items()}
        done, rows = _plan(state, out, topic_ids, clock.now_ms(), retention_ms)
        return rows

    cluster.groups.transact(plan)
    for group_id, members in done.members.items():
        for member_id in members:
            cluster.leases.drop(group_id, member_id)
    return done


def _plan(
    state: GroupsState,
    dead: Mapping[str, Collection[str]],
    topic_ids: Mapping[str, str],
    now_ms: int,
    retention_ms: int,
) -> tuple[ExpiredOffsets, list[GroupRow]]:
    rows: list[GroupRow] = []
    members: dict[str, Sequence[str]] = {}
    old: dict[str, Sequence[TopicPartition]] = {}
    lost: dict[str, Sequence[TopicPartition]] = {}
    for group_id, group in sorted(state.groups.items()):
        out = dead.get(group_id, ())
        removed, roster = removal(state, group_id, out, now_ms, after=len(rows))
        rows += removed
        if removed:
            members[group_id] = sorted(group.members.keys() & out)
        if group_id == REPARTITIONS_GROUP:
            continue
        gone = orphaned(group, topic_ids, state.groups)
        past = [tp for tp in expired(replace(group, roster=roster), now_ms, retention_ms) if tp not in gone]
        rows += deletion_rows(state, group_id, [*gone, *past], now_ms, after=len(rows))
        if gone:
            lost[group_id] = gone
        if past:
            old[group_id] = past
    for group_id, shares in sorted(state.shares.items()):
        gone = sorted(tp for tp, share in shares.items() if share.topic_id != topic_ids.get(tp.topic))
        rows += [
            share_row(state.seq + len(rows) + nth, group_id, tp, None, now_ms=now_ms)
            for nth, tp in enumerate(gone, start=1)
        ]
        if gone:
            lost[group_id] = gone
    return ExpiredOffsets(members=members, expired=old, orphaned=lost), rows
