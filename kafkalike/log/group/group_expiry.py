"""Group expiry: members without a heartbeat, and offsets that nobody needs any more, out of the offsets table."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from kafkalike.model.clock import Clock
from kafkalike.model.group_state import Group, GroupRow, GroupsState, roster_row
from kafkalike.model.groups.group_protocol import GroupFacts, leave
from kafkalike.model.groups.roster import Leases, Roster
from kafkalike.model.offset_commit import MINUTE_MS, deletion_rows, expired, orphaned
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


NS_PER_MS: Final = 1_000_000

SILENT: Final = "no heartbeat"
"""Why members were taken out; stands in the row's `metadata`."""

NOBODY: Final = ""
"""No group has this id, so a probe lease under it meets no member's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredOffsets:
    """The members and offsets that `expire_offsets` removed."""

    members: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """By group: members that were dead."""
    expired: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    """By group: offsets past `offsets.retention.minutes`."""
    orphaned: Mapping[str, Sequence[TopicPartition]] = field(default_factory=dict)
    """By group: offsets of topics that were deleted."""


def silent_members(cluster: Cluster, groups: Mapping[str, Group], now_ns: int) -> dict[str, frozenset[str]]:
    """Members whose last heartbeat is older than their session timeout, by group; groups without any are left out.

    For showing who is there: two clocks may be compared here. `dead_members` is for taking somebody out.

    Args:
        cluster: whose leases are asked.
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
    """Members that may be taken out, by group.

    Their last heartbeat is older than their session by the clock of the storage that stamps it, and none came for
    two heartbeats more, which this waits: a clock that was set forward, or a machine that slept, takes nobody out.

    Args:
        cluster: whose leases are asked.
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
    """The roster of a group once members are taken out; those that stay make new targets when they look."""
    nothing = GroupFacts(schemes={}, topics={}, metadata_seq=group.roster.metadata_seq, now_ms=now_ms)
    return leave(group.roster, dead, nothing)


def removal(
    state: GroupsState, group_id: str, dead: Collection[str], now_ms: int, *, after: int = 0, why: str = SILENT
) -> tuple[list[GroupRow], Roster]:
    """The row that takes members out of a group, and the roster that is left.

    Args:
        state: the groups now.
        group_id: the group.
        dead: members to take out; those that are none are passed over.
        now_ms: the row's time.
        after: rows that go before in the same transaction.
        why: for people.

    Returns:
        No row when there is nobody to take out.
    """
    group = state.group(group_id)
    if not group.members.keys() & dead:
        return [], group.roster
    roster = without(group, dead, now_ms)
    return [roster_row(state.seq + after + 1, group_id, roster, why=why)], roster


def expire_offsets(cluster: Cluster, clock: Clock, seen: GroupsState | None = None) -> ExpiredOffsets:
    """Take out dead members, offsets past `offsets.retention.minutes` and offsets of deleted topics, all at once.

    A group that is left without members and offsets is gone. Running it twice at the same time is harmless.

    Args:
        cluster: whose groups; its server settings say how long offsets are kept.
        clock: where the time comes from; waits for two heartbeats when somebody seems to be dead.
        seen: the groups as the caller has just seen them; None looks at them.

    Raises:
        KafkaTimeoutError: others changed the table faster; nothing was written.
        UnknownOutcomeError: it may have been written; calling again is harmless.
    """
    retention_ms = int(cluster.server.get("offsets.retention.minutes")) * MINUTE_MS
    groups = cluster.groups.refresh() if seen is None else seen
    dead = dead_members(cluster, groups.groups, clock)
    done = ExpiredOffsets()
    cluster.metadata.look_once()
    known = {name: str(info.topic_id) for name, info in cluster.metadata.state.topics.items()}
    if not dead and not _plan(groups, {}, known, clock.now_ms(), retention_ms)[1]:
        # Nothing is due by what was seen, so the table is not locked and not asked again.
        return done

    def plan(state: GroupsState) -> Sequence[GroupRow]:
        nonlocal done
        # One that has given a heartbeat meanwhile goes on reading.
        groups = {group_id: state.group(group_id) for group_id in dead}
        silent = silent_members(cluster, groups, _storage_time_ns(cluster.leases)) if dead else {}
        out = {group_id: members & silent.get(group_id, frozenset()) for group_id, members in dead.items()}
        # After the state: a topic that somebody has committed for was there before.
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
        gone = orphaned(group, topic_ids)
        past = [tp for tp in expired(replace(group, roster=roster), now_ms, retention_ms) if tp not in gone]
        rows += deletion_rows(state, group_id, [*gone, *past], now_ms, after=len(rows))
        if gone:
            lost[group_id] = gone
        if past:
            old[group_id] = past
    return ExpiredOffsets(members=members, expired=old, orphaned=lost), rows
