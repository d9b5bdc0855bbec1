"""Group operations: describe consumer groups, their members and their committed offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from kafkalike.admin.admin_base import BROKER_ID, AdminBase, as_names
from kafkalike.errors import GroupIdNotFoundError, IllegalArgumentError
from kafkalike.log.group.group_expiry import silent_members, without
from kafkalike.model.group_state import Group
from kafkalike.model.groups.partition_split import holds
from kafkalike.model.groups.roster import Member
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import GroupState, GroupType, OffsetAndMetadata, TopicPartition

E = TypeVar("E", GroupState, GroupType)


class MemberInformation(NamedTuple):
    """A member of a group, as in kafka-python 2."""

    member_id: str
    client_id: str
    client_host: str
    member_metadata: dict[str, Any]
    """The member's subscription: `{topics, user_data, owned_partitions, generation_id, rack_id}`."""
    member_assignment: dict[str, Any]
    """The member's partitions: `{assigned_partitions: [{topic, partitions}], user_data}`."""


class GroupInformation(NamedTuple):
    """A consumer group, as in kafka-python 2."""

    error_code: int
    group: str
    state: str
    protocol_type: str
    protocol: str
    members: list[MemberInformation]
    authorized_operations: None


class GroupOperations(AdminBase):
    """Describe groups. Members with an expired session are omitted, even before they are removed from the group."""

    def list_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Sequence[GroupState | str] | None = None,
        types_filter: Sequence[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the groups with members or committed offsets, sorted by id.

        Args:
            broker_ids: return nothing unless this contains the id of the only broker, 1.
            states_filter: only groups in these states (`GroupState` or text).
            types_filter: only groups of these types; all groups are `classic`.

        Returns:
            `[{group_id, protocol_type, group_state, group_type}]`.
        """
        if broker_ids is not None and BROKER_ID not in broker_ids:
            return []
        states = [_member_of(GroupState, s) for s in states_filter or ()]
        types = [_member_of(GroupType, t) for t in types_filter or ()]
        if types and GroupType.CLASSIC not in types:
            return []
        return [
            {
                "group_id": group_id,
                "protocol_type": group.roster.protocol_type,
                "group_state": group.state.value,
                "group_type": GroupType.CLASSIC.value,
            }
            for group_id, group in sorted(self._live_groups().items())
            if not states or group.state in states
        ]

    def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """Return the groups as in kafka-python 2: `[(group_id, protocol_type)]`."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def describe_groups(
        self,
        group_ids: Sequence[str],
        group_coordinator_id: int | None = None,
        include_authorized_operations: bool = False,  # noqa: FBT001, FBT002 - kafka-python's signature
    ) -> dict[str, dict[str, Any]]:
        """Return state and members of groups.

        Args:
            group_ids: group ids; a str is a single id.
            group_coordinator_id: no effect, because there is one broker.
            include_authorized_operations: no effect, because there are no ACLs.

        Returns:
            By group: `{group_id, error, group_state, protocol_type, protocol_data, generation_id, members,
            authorized_operations}`. `protocol_data` is the assignor. A group that does not exist has an `error` and the
            state `Dead`. A member is `{member_id, group_instance_id, client_id, client_host, member_metadata: {topics,
            ...}, member_assignment: {assigned_partitions: [{topic, partitions}], ...}, target_assignment}`; the last
            two have the same form.

        Raises:
            InvalidGroupIdError: a group id is invalid.
        """
        del group_coordinator_id, include_authorized_operations
        names = [group_ids] if isinstance(group_ids, str) else as_names(group_ids, "group_ids")
        groups = self._live_groups({str(check_group_id(name)) for name in names})
        return {name: _described(name, groups.get(name)) for name in names}

    def describe_consumer_groups(
        self, group_ids: Sequence[str], group_coordinator_id: int | None = None
    ) -> list[GroupInformation]:
        """Return state and members of groups as in kafka-python 2, but with subscriptions and assignments as dicts."""
        return [_information(group) for group in self.describe_groups(group_ids, group_coordinator_id).values()]

    def list_group_offsets(
        self, group_specs: Mapping[str, Sequence[TopicPartition] | None] | Sequence[str] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return committed offsets of groups.

        Args:
            group_specs: `{group_id: [TopicPartition] or None for all}`, or group ids.

        Returns:
            `{group_id: {TopicPartition: OffsetAndMetadata}}`. A requested partition without a committed offset has the
            offset -1. Offsets of topics that were deleted, or deleted and created again, are omitted.
        """
        if isinstance(group_specs, str):
            group_specs = {group_specs: None}
        elif not isinstance(group_specs, Mapping):
            group_specs = dict.fromkeys(group_specs)
        return {group_id: self._committed(group_id, wanted) for group_id, wanted in group_specs.items()}

    def list_consumer_group_offsets(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        group_coordinator_id: int | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return committed offsets of a group, as in kafka-python 2; `group_coordinator_id` has no effect."""
        del group_coordinator_id
        return self._committed(group_id, partitions)

    def _live_groups(self, wanted: set[str] | None = None) -> dict[str, Group]:
        """Return groups without members whose session has expired."""
        known = self._cluster.groups.refresh().consumer_groups
        groups = dict(known) if wanted is None else {name: known[name] for name in wanted if name in known}
        now_ms = self._clock.now_ms()
        for group_id, dead in silent_members(self._cluster, groups, now_ms * 1_000_000).items():
            groups[group_id] = replace(groups[group_id], roster=without(groups[group_id], dead, now_ms))
        return {name: group for name, group in groups.items() if group.members or group.offsets}

    def _committed(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        state = self._cluster.groups.refresh()
        group = state.group(check_group_id(group_id))
        topics = self._cluster.topics()
        live = {
            where: commit.position
            for where, commit in group.offsets.items()
            if where.topic in topics and holds(state.groups, commit.topic_id, where.topic, topics[where.topic].topic_id)
        }
        if partitions is None:
            return live
        return {TopicPartition(*p): live.get(TopicPartition(*p), OffsetAndMetadata(-1)) for p in partitions}


def _described(group_id: str, group: Group | None) -> dict[str, Any]:
    roster = None if group is None else group.roster
    state = GroupState.DEAD if group is None else group.state
    return {
        "group_id": group_id,
        "error": str(GroupIdNotFoundError(f"group {group_id!r} does not exist")) if group is None else None,
        "group_state": state.value,
        "protocol_type": "" if roster is None else roster.protocol_type,
        "protocol_data": "" if roster is None else roster.protocol,
        "generation_id": -1 if roster is None else roster.generation,
        "members": [] if roster is None else [_member(member) for member in roster],
        "authorized_operations": None,
    }


def _member(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": {
            "topics": list(member.subscription),
            "user_data": None,
            "owned_partitions": _by_topic(member.assignment),
            "generation_id": member.since,
            "rack_id": None,
        },
        "member_assignment": {"assigned_partitions": _by_topic(member.assignment), "user_data": None},
        "target_assignment": {"assigned_partitions": _by_topic(member.target), "user_data": None},
    }


def _by_topic(partitions: Sequence[TopicPartition]) -> list[dict[str, Any]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        found.setdefault(tp.topic, []).append(tp.partition)
    return [{"topic": topic, "partitions": numbers} for topic, numbers in found.items()]


def _information(group: Mapping[str, Any]) -> GroupInformation:
    members = [
        MemberInformation(
            member["member_id"],
            member["client_id"],
            member["client_host"],
            member["member_metadata"],
            member["member_assignment"],
        )
        for member in group["members"]
    ]
    return GroupInformation(
        error_code=0 if group["error"] is None else GroupIdNotFoundError.errno,
        group=group["group_id"],
        state=group["group_state"],
        protocol_type=group["protocol_type"],
        protocol=group["protocol_data"],
        members=members,
        authorized_operations=None,
    )


def _member_of(kind: type[E], given: E | str) -> E:
    text = (given.value if isinstance(given, kind) else str(given)).lower().replace("-", "").replace("_", "")
    for member in kind:
        if member.value.lower() == text:
            return member
    raise IllegalArgumentError(f"unknown {kind.__name__} {given!r}; known are {', '.join(m.value for m in kind)}")
