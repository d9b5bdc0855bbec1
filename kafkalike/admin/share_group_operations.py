"""Share group operations: describe share groups, and set or delete the offsets from which they deliver records."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafkalike import errors
from kafkalike.admin.admin_base import AdminBase, as_names
from kafkalike.log.group.group_expiry import dead_members, removal, silent_members, without
from kafkalike.model.group_rows import GroupRow, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.names import check_group_id
from kafkalike.model.shares.share_partition import RecordState, SharePartition, is_deferred, reset
from kafkalike.model.structs import GroupState, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


@dataclass(frozen=True, slots=True)
class SharePartitionReport:
    """A share partition of a group, with the log that it delivers."""

    group_id: str
    tp: TopicPartition
    share: SharePartition
    log_end: int

    @property
    def start_offset(self) -> int:
        """The first offset that is not finished."""
        return self.share.start

    @property
    def lag(self) -> int:
        """Number of records that are not finished."""
        return self.share.lag(self.log_end)

    @property
    def acquired(self) -> int:
        """Number of records that members have locked."""
        return sum(run.size for run in self.share.runs if run.state is RecordState.ACQUIRED)

    @property
    def scheduled(self) -> int:
        """Number of records that wait for a time."""
        return sum(run.size for run in self.share.runs if is_deferred(run))

    @property
    def oldest_lock_ms(self) -> int | None:
        """Time of the oldest lock, ms since the epoch; None without locks."""
        return min((run.since_ms for run in self.share.runs if run.state is RecordState.ACQUIRED), default=None)


def share_partitions(
    cluster: Cluster, group_ids: Sequence[str] | None = None, without_topics: Container[str] = ()
) -> Iterator[SharePartitionReport]:
    """Yield the share partitions of groups, without partitions of deleted topics; sorted.

    Args:
        cluster: the cluster.
        group_ids: the groups; None for all.
        without_topics: topics to leave out.

    Raises:
        KafkaError: a topic's table cannot be read.
    """
    state, topics = cluster.groups.refresh(), cluster.topics()
    ends: dict[str, Callable[[int], int]] = {}
    for group_id in sorted(state.shares) if group_ids is None else group_ids:
        for tp, share in sorted(_shares(state, group_id).items()):
            info = topics.get(tp.topic)
            if info is None or info.topic_id != share.topic_id or tp.topic in without_topics:
                continue
            if tp.topic not in ends:
                ends[tp.topic] = cluster.open(info).log_end
            yield SharePartitionReport(group_id, tp, share, ends[tp.topic](tp.partition))


def _shares(state: GroupsState, group_id: str) -> Mapping[TopicPartition, SharePartition]:
    found: Mapping[TopicPartition, SharePartition] = state.shares.get(group_id) or {}
    return found


class ShareGroupOperations(AdminBase):
    """Operations on share groups, with the names of Kafka's `Admin`."""

    def list_share_groups(self, states_filter: Sequence[GroupState | str] = ()) -> list[dict[str, str]]:
        """Return the share groups, sorted by id.

        Args:
            states_filter: only groups in these states, such as `Empty` and `Stable`.

        Returns:
            `[{group_id, group_state}]`.
        """
        wanted = {str(getattr(state, "value", state)).lower() for state in states_filter}
        described = self.describe_share_groups(self._cluster.groups.refresh().share_groups)
        return [
            {"group_id": group_id, "group_state": found["group_state"]}
            for group_id, found in described.items()
            if not wanted or found["group_state"].lower() in wanted
        ]

    def describe_share_groups(self, group_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return state and members of share groups. Members with an expired session are left out.

        Returns:
            By group: `{group_id, group_state, group_epoch, members}`; the state of a missing group is `Dead`. A member
            is `{member_id, client_id, client_host, topics, assignment}`; it may acquire records of all partitions of
            its topics, which `assignment` lists.

        Raises:
            InvalidGroupIdError: a group id is invalid.
        """
        names = [str(check_group_id(name)) for name in as_names(group_ids, "group_ids")]
        state, topics = self._cluster.groups.refresh(), self._cluster.topics()
        now_ms = self._clock.now_ms()
        found = {}
        for name in names:
            group = state.group(name)
            dead = silent_members(self._cluster, {name: group}, now_ms * 1_000_000).get(name, frozenset())
            roster = without(group, dead, now_ms) if dead else group.roster
            known = state.is_share_group(name)
            kind = (GroupState.STABLE if roster.members else GroupState.EMPTY) if known else GroupState.DEAD
            members = [
                {
                    "member_id": member.member_id,
                    "client_id": member.client_id,
                    "client_host": member.client_host,
                    "topics": list(member.subscription),
                    "assignment": [
                        TopicPartition(topic, p)
                        for topic in member.subscription
                        if topic in topics
                        for p in topics[topic].partitions
                    ],
                }
                for member in roster
                if known
            ]
            found[name] = {
                "group_id": name,
                "group_state": kind.value,
                "group_epoch": roster.generation,
                "members": members,
            }
        return found

    def list_share_group_offsets(
        self, group_ids: Sequence[str]
    ) -> dict[str, dict[TopicPartition, SharePartitionReport]]:
        """Return the share partitions of groups, with their start offsets and lags, by group and partition."""
        found: dict[str, dict[TopicPartition, SharePartitionReport]] = {name: {} for name in group_ids}
        for report in share_partitions(self._cluster, list(found)):
            found[report.group_id][report.tp] = report
        return found

    def alter_share_group_offsets(self, group_id: str, offsets: Mapping[TopicPartition, Any]) -> None:
        """Let a share group without members deliver everything from these offsets on, and nothing below them.

        Counts of deliveries and locks of these partitions are forgotten.

        Raises:
            NonEmptyGroupError: the group has live members, or members that are not share consumers.
            UnknownTopicOrPartitionError: a partition does not exist.
            IllegalArgumentError: a negative offset.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        topics = self._cluster.topics()
        for tp, offset in offsets.items():
            if isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
                raise errors.IllegalArgumentError(f"{tp}: an offset from 0 on is needed, not {offset!r}")
            if tp.topic not in topics or tp.partition not in topics[tp.topic].partitions:
                raise errors.UnknownTopicOrPartitionError(f"{tp.topic}-{tp.partition} does not exist")
        self._change_shares(
            group_id,
            lambda _: {tp: reset(topics[tp.topic].topic_id, offset) for tp, offset in offsets.items()},
            must_exist=False,
        )

    def delete_share_group_offsets(self, group_id: str, topics: Sequence[str]) -> None:
        """Forget the state of topics in a share group without members; it starts over by its `share_auto_offset_reset`.

        Raises:
            GroupIdNotFoundError: it is not a share group.
            UnknownTopicOrPartitionError: the group has no state of a topic.
            NonEmptyGroupError: the group has live members.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        wanted = set(as_names(topics, "topics"))

        def forget(known: Mapping[TopicPartition, SharePartition]) -> dict[TopicPartition, None]:
            missing = wanted - {tp.topic for tp in known}
            if missing:
                raise errors.UnknownTopicOrPartitionError(
                    f"share group {group_id!r} has no state of {', '.join(sorted(missing))}"
                )
            return {tp: None for tp in known if tp.topic in wanted}

        self._change_shares(group_id, forget)

    def delete_share_groups(self, group_ids: Sequence[str]) -> dict[str, errors.KafkaError | None]:
        """Delete share groups without members; return by group None, or the error: it does not exist, or has members.

        Raises:
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        done: dict[str, errors.KafkaError | None] = {}
        for group_id in as_names(group_ids, "group_ids"):
            try:
                self._change_shares(group_id, dict.fromkeys)
                done[group_id] = None
            except (errors.GroupIdNotFoundError, errors.NonEmptyGroupError) as error:
                done[group_id] = error
        return done

    def _change_shares(
        self,
        group_id: str,
        change: Callable[[Mapping[TopicPartition, SharePartition]], Mapping[TopicPartition, SharePartition | None]],
        *,
        must_exist: bool = True,
    ) -> None:
        """Change the partitions of a group without live members, and remove its dead members, in one commit."""
        check_group_id(group_id)
        groups = self._cluster.groups
        group = groups.refresh().group(group_id)
        dead = dead_members(self._cluster, {group_id: group}, self._clock).get(group_id, frozenset())

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            if must_exist and not state.is_share_group(group_id):
                raise errors.GroupIdNotFoundError(f"share group {group_id!r} does not exist")
            now_ms = self._clock.now_ms()
            gone, roster = removal(state, group_id, dead, now_ms)
            if roster.members or (state.group(group_id).offsets and not state.is_share_group(group_id)):
                what = f"members: {', '.join(sorted(roster.members))}" if roster.members else "offsets of consumers"
                raise errors.NonEmptyGroupError(f"share group {group_id!r} was not changed, because it has {what}")
            changed = change(_shares(state, group_id))
            first = state.seq + len(gone)
            return [
                *gone,
                *(
                    share_row(first + nth, group_id, tp, share, now_ms=now_ms)
                    for nth, (tp, share) in enumerate(sorted(changed.items()), start=1)
                ),
            ]

        groups.transact(plan)
        for member_id in dead:
            self._cluster.leases.drop(group_id, member_id)
