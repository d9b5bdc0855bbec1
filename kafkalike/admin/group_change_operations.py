"""Group change operations: set, reset and delete offsets of groups, delete groups, remove members.

Groups with live members are never deleted and their offsets are not set. Members with an expired session do not count:
the admin client watches for their heartbeats for two heartbeat intervals, then removes them in the same transaction.
Each change of a group is one atomic table commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.admin.admin_base import AdminBase, as_names
from kafkalike.admin.offset_operations import look_up
from kafkalike.log.group.group_expiry import dead_members, removal
from kafkalike.log.group.group_offsets import check_position
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.partition_split import check_open
from kafkalike.model.groups.roster import Roster
from kafkalike.model.names import check_group_id
from kafkalike.model.offset_commit import deletion_rows
from kafkalike.model.structs import MemberToRemove, OffsetAndMetadata, OffsetSpec, OffsetTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


Outcome = type[errors.BrokerResponseError]
"""Outcome for a partition or member; `NoError` means success, as in kafka-python."""

REMOVED: Final = "removed by an administrator"


class GroupChangeOperations(AdminBase):
    """Operations that change groups."""

    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group_coordinator_id: int | None = None,
        *,
        topic_ids: Mapping[str, str] | None = None,
    ) -> dict[TopicPartition, Outcome]:
        """Set committed offsets of a group without members; the group need not exist.

        Args:
            group_id: the group.
            offsets: by partition, the next offset to read, at least 0; an offset beyond the log end is accepted, as in
                Kafka.
            group_coordinator_id: no effect.
            topic_ids: by topic, the topic id that the offsets belong to; None for the current topics.

        Returns:
            By partition: `NoError`; `UnknownTopicOrPartitionError` if the partition does not exist;
            `OffsetMetadataTooLargeError` if the metadata is too long; `TopicDeletedError` if the topic's id differs
            from `topic_ids`. For all partitions `UnknownMemberIdError` if the group has members, and
            `GroupIdNotFoundError` if it is a share group; then nothing is written.

        Raises:
            InvalidGroupIdError, TypeError, IllegalArgumentError: an argument is invalid; nothing was written.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        del group_coordinator_id
        limit = int(self._cluster.server.get("offset.metadata.max.bytes"))
        checked: dict[TopicPartition, OffsetAndMetadata] = {}
        refused: dict[TopicPartition, Outcome] = {}
        for tp, at in offsets.items():
            try:
                checked[tp] = check_position(tp, at, limit)
            except errors.BrokerResponseError as error:
                refused[tp] = type(error)
        done = self._set_offsets(check_group_id(group_id), checked, topic_ids)
        return {tp: refused.get(tp) or done[tp] for tp in offsets}

    def reset_group_offsets(
        self,
        group_id: str,
        offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int],
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, dict[str, Any]]:
        """Set committed offsets of a group without members to resolved offsets.

        Offsets are clamped to the live log: an offset below the log start becomes the log start, and an offset beyond
        the log end, or a time after the last record, becomes the log end. Existing metadata is kept. Nothing is written
        for a topic that is deleted, or deleted and created again, during the call.

        Args:
            group_id: the group; it need not exist.
            offset_specs: by partition an `OffsetSpec`, an `OffsetTimestamp` (ms), or an offset.
            group_coordinator_id: no effect.

        Returns:
            By partition `{"error": an outcome as in `alter_group_offsets`, "offset": the resolved offset}`.

        Raises:
            TypeError: a specification has another type.
            UnknownTopicOrPartitionError: a partition does not exist; nothing was written.
            KafkaStorageError: the log end is unknown because the leader is unreachable; nothing was written.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        del group_coordinator_id
        targets, ids = self._resolve(offset_specs)
        known = self._cluster.groups.refresh(surely=True).group(check_group_id(group_id)).offsets
        positions = {
            tp: known[tp].position._replace(offset=offset)
            if tp in known and known[tp].topic_id == ids[tp.topic]
            else OffsetAndMetadata(offset)
            for tp, offset in targets.items()
        }
        outcomes = self._set_offsets(group_id, positions, ids)
        return {tp: {"error": outcomes[tp], "offset": targets[tp]} for tp in targets}

    def resolve_offsets(
        self, offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int]
    ) -> dict[TopicPartition, int]:
        """Return the offsets that `reset_group_offsets` would set, without changing anything.

        Raises:
            TypeError, UnknownTopicOrPartitionError, KafkaStorageError: as in `reset_group_offsets`.
        """
        return self._resolve(offset_specs)[0]

    def _resolve(
        self, offset_specs: Mapping[TopicPartition, OffsetSpec | OffsetTimestamp | int]
    ) -> tuple[dict[TopicPartition, int], dict[str, str]]:
        """Return the resolved offsets, and the ids of the topics in which they were resolved."""
        logs: dict[str, TopicLog] = {}
        found = {}
        for tp, spec in offset_specs.items():
            if isinstance(spec, bool) or not isinstance(spec, int):
                raise TypeError(f"{tp}: an OffsetSpec, an OffsetTimestamp or an offset is needed, not {spec!r}")
            if tp.topic not in logs:
                logs[tp.topic] = self._cluster.log(tp.topic)
                # Offsets are clamped to the current log end, not to a cached one.
                logs[tp.topic].refresh(surely=True)
            found[tp] = _target(logs[tp.topic], tp, spec)
        return found, {name: log.info.topic_id for name, log in logs.items()}

    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], group_coordinator_id: int | None = None
    ) -> dict[TopicPartition, Outcome]:
        """Delete committed offsets, except for topics that a live member is subscribed to.

        Args:
            group_id: the group.
            partitions: the partitions; a partition without a committed offset counts as done.
            group_coordinator_id: no effect.

        Returns:
            By partition: `NoError`, `UnknownTopicOrPartitionError`, or `GroupSubscribedToTopicError`.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            NonEmptyGroupError: its members compute the assignments themselves, so stop them first.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        del group_coordinator_id
        wanted = [TopicPartition(*p) for p in partitions]
        outcomes: dict[TopicPartition, Outcome] = {}

        def plan(state: GroupsState, roster: Roster, taken: int) -> list[GroupRow]:
            if group_id not in state.groups:
                raise errors.GroupIdNotFoundError(f"group {group_id!r} does not exist")
            if roster.led is not None:
                raise errors.NonEmptyGroupError(f"group {group_id!r}: only its members know which topics they read")
            read = {topic for member in roster for topic in member.subscription}
            outcomes.update(
                {tp: errors.GroupSubscribedToTopicError if tp.topic in read else errors.NoError for tp in wanted}
            )
            outcomes.update(dict.fromkeys(self._unknown(wanted), errors.UnknownTopicOrPartitionError))
            gone = [tp for tp in wanted if outcomes[tp] is errors.NoError]
            return deletion_rows(state, group_id, gone, self._clock.now_ms(), taken)

        self._change(check_group_id(group_id), plan)
        return outcomes

    def delete_groups(self, group_ids: Sequence[str], group_coordinator_id: int | None = None) -> dict[str, str]:
        """Delete groups without members, with their committed offsets.

        Returns:
            By group: `OK`, `NonEmptyGroupError` or `GroupIdNotFoundError`.

        Raises:
            InvalidGroupIdError: a group id is invalid; nothing was deleted.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        return {
            name: "OK" if error is errors.NoError else error.__name__
            for name, error in self.delete_consumer_groups(group_ids, group_coordinator_id)
        }

    def delete_consumer_groups(
        self, group_ids: Sequence[str], group_coordinator_id: int | None = None
    ) -> list[tuple[str, Outcome]]:
        """Delete groups as `delete_groups`; return the result as in kafka-python 2: `[(group_id, error class)]`."""
        del group_coordinator_id
        names = [check_group_id(name) for name in as_names(group_ids, "group_ids")]
        return [(name, self._delete_group(name)) for name in names]

    def _delete_group(self, group_id: str) -> Outcome:
        def plan(state: GroupsState, roster: Roster, taken: int) -> list[GroupRow]:
            if group_id not in state.groups:
                raise errors.GroupIdNotFoundError(f"group {group_id!r} does not exist")
            if roster.members:
                raise errors.NonEmptyGroupError(f"group {group_id!r} has members")
            return deletion_rows(state, group_id, state.groups[group_id].offsets, self._clock.now_ms(), taken)

        try:
            self._change(group_id, plan)
        except (errors.GroupIdNotFoundError, errors.NonEmptyGroupError) as refused:
            return type(refused)
        return errors.NoError

    def remove_group_members(
        self, group_id: str, members: Iterable[MemberToRemove], group_coordinator_id: int | None = None
    ) -> dict[str, Outcome]:
        """Remove members from a group: their commits are rejected, and the other members take over their partitions.

        A live member rejoins as a new member when it notices.

        Args:
            group_id: the group.
            members: members by id or by static name.
            group_coordinator_id: no effect.

        Returns:
            By member id, or static name if given: `NoError` or `UnknownMemberIdError`.

        Raises:
            GroupIdNotFoundError: the group does not exist.
            IllegalArgumentError: a member has neither an id nor a static name.
            KafkaTimeoutError, UnknownOutcomeError: see `ControlLog.transact`.
        """
        del group_coordinator_id
        wanted = list(members)
        if not all(m.member_id or m.group_instance_id for m in wanted):
            raise errors.IllegalArgumentError("a member to remove needs a member_id or a group_instance_id")
        outcomes: dict[str, Outcome] = {}
        gone: set[str] = set()
        now_ms = self._clock.now_ms()

        def plan(state: GroupsState) -> list[GroupRow]:
            if group_id not in state.groups:
                raise errors.GroupIdNotFoundError(f"group {group_id!r} does not exist")
            roster = state.groups[group_id].roster
            gone.clear()
            for member in wanted:
                found = roster.instance(member.group_instance_id)
                member_id = found.member_id if found else member.member_id or ""
                known = member_id in roster.members
                outcomes[member.member_id or member.group_instance_id or ""] = (
                    errors.NoError if known else errors.UnknownMemberIdError
                )
                if known:
                    gone.add(member_id)
            why = next((m.reason for m in wanted if m.reason), REMOVED)
            return removal(state, group_id, gone, now_ms, why=why)[0]

        self._cluster.groups.transact(plan)
        for member_id in gone:
            self._cluster.leases.drop(group_id, member_id)
        return outcomes

    # --- shared by the operations ---------------------------------------------------------------

    def _change(self, group_id: str, plan: Callable[[GroupsState, Roster, int], list[GroupRow]]) -> None:
        """Change a group in one transaction that first removes its dead members.

        Args:
            group_id: the group.
            plan: returns rows for the state, its live members, and the number of rows before its own.
        """
        state = self._cluster.groups.refresh()
        dead = dead_members(self._cluster, {group_id: state.group(group_id)}, self._clock).get(group_id, frozenset())

        def whole(state: GroupsState) -> list[GroupRow]:
            removed, roster = removal(state, group_id, dead, self._clock.now_ms())
            return [*removed, *plan(state, roster, len(removed))]

        self._cluster.groups.transact(whole)
        for member_id in dead:
            self._cluster.leases.drop(group_id, member_id)

    def _set_offsets(
        self,
        group_id: str,
        positions: Mapping[TopicPartition, OffsetAndMetadata],
        topic_ids: Mapping[str, str] | None,
    ) -> dict[TopicPartition, Outcome]:
        topics = self._cluster.topics()
        outcomes: dict[TopicPartition, Outcome] = dict.fromkeys(positions, errors.NoError)
        for tp in positions:
            info = topics.get(tp.topic)
            if topic_ids is not None and (info is None or info.topic_id != topic_ids.get(tp.topic)):
                outcomes[tp] = errors.TopicDeletedError
            elif info is None or tp.partition not in info.partitions:
                outcomes[tp] = errors.UnknownTopicOrPartitionError
        # If a topic is deleted from here on, its rows carry its id and do not apply to a new topic of the same name.
        taken_in = [(tp, at) for tp, at in positions.items() if outcomes[tp] is errors.NoError]

        def plan(state: GroupsState, roster: Roster, taken: int) -> list[GroupRow]:
            state.check_type(group_id, share=False)
            if roster.members:
                raise errors.UnknownMemberIdError(f"group {group_id!r} has members")
            for tp, _ in taken_in:
                check_open(state.groups, tp.topic, topics[tp.topic].topic_id)
            return [
                GroupRow(
                    seq=state.seq + taken + nth,
                    kind=OFFSET,
                    group_id=group_id,
                    topic=tp.topic,
                    topic_id=topics[tp.topic].topic_id,
                    partition=tp.partition,
                    offset=at.offset,
                    leader_epoch=at.leader_epoch,
                    metadata=at.metadata,
                    client_id=self._client_id,
                    time_ms=self._clock.now_ms(),
                )
                for nth, (tp, at) in enumerate(taken_in, start=1)
            ]

        try:
            self._change(group_id, plan)
        except (errors.UnknownMemberIdError, errors.GroupIdNotFoundError) as refused:
            return dict.fromkeys(positions, type(refused))
        return outcomes

    def _unknown(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that do not exist."""
        topics = self._cluster.topics()
        return {tp for tp in partitions if tp.topic not in topics or tp.partition not in topics[tp.topic].partitions}


def _target(log: TopicLog, tp: TopicPartition, spec: int) -> int:
    """Return the offset of a specification, clamped to the live log."""
    if tp.partition not in log.info.partitions:
        raise errors.UnknownTopicOrPartitionError(
            f"{tp.topic}-{tp.partition} does not exist: the topic's partitions: {log.info.num_partitions}"
        )
    start, end = log.log_start(tp.partition), log.log_end(tp.partition)
    wanted = look_up(log, tp.partition, int(spec)).offset if isinstance(spec, (OffsetSpec, OffsetTimestamp)) else spec
    if wanted < 0:
        return end
    return min(max(wanted, start), end)
