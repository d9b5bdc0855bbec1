"""Groups: consumer groups and their committed offsets, as the offsets table has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from kafkalike.admin.base import BROKER_ID, AdminBase
from kafkalike.errors import IllegalArgumentError
from kafkalike.model.group_state import Group
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import GroupState, GroupType, OffsetAndMetadata, TopicPartition

PROTOCOL_TYPE = "consumer"

E = TypeVar("E", GroupState, GroupType)


class GroupOperations(AdminBase):
    """Look at groups."""

    def list_groups(
        self,
        broker_ids: Sequence[int] | None = None,
        states_filter: Sequence[GroupState | str] | None = None,
        types_filter: Sequence[GroupType | str] | None = None,
    ) -> list[dict[str, Any]]:
        """Groups that have members or committed offsets, sorted by id.

        Args:
            broker_ids: only the one broker there is knows groups.
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
        groups = self._cluster.groups.refresh().groups
        return [
            {
                "group_id": group_id,
                "protocol_type": PROTOCOL_TYPE,
                "group_state": _state(group).value,
                "group_type": GroupType.CLASSIC.value,
            }
            for group_id, group in sorted(groups.items())
            if not states or _state(group) in states
        ]

    def list_consumer_groups(self, broker_ids: Sequence[int] | None = None) -> list[tuple[str, str]]:
        """Groups in the form of kafka-python 2: `[(group_id, protocol_type)]`."""
        return [(group["group_id"], group["protocol_type"]) for group in self.list_groups(broker_ids)]

    def list_group_offsets(
        self, group_specs: Mapping[str, Sequence[TopicPartition] | None] | Sequence[str] | str
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Committed offsets of groups.

        Args:
            group_specs: `{group_id: [TopicPartition] or None for all}`, or group ids.

        Returns:
            `{group_id: {TopicPartition: OffsetAndMetadata}}`. A partition that was asked for and has no committed
            offset has offset -1. Offsets of a topic that was deleted, or deleted and created again, are not there.
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
        """Committed offsets of one group, as in kafka-python 2; `group_coordinator_id` has no effect."""
        del group_coordinator_id
        return self._committed(group_id, partitions)

    def _committed(
        self, group_id: str, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        group = self._cluster.groups.refresh().group(check_group_id(group_id))
        topics = self._cluster.topics()
        live = {
            where: commit.position
            for where, commit in group.offsets.items()
            if where.topic in topics and commit.topic_id in {"", topics[where.topic].topic_id}
        }
        if partitions is None:
            return live
        return {TopicPartition(*p): live.get(TopicPartition(*p), OffsetAndMetadata(-1)) for p in partitions}


def _state(group: Group) -> GroupState:
    return group.state


def _member_of(kind: type[E], given: E | str) -> E:
    text = (given.value if isinstance(given, kind) else str(given)).lower().replace("-", "").replace("_", "")
    for member in kind:
        if member.value.lower() == text:
            return member
    message = f"unknown {kind.__name__} {given!r}; one of {', '.join(m.value for m in kind)} is needed"
    raise IllegalArgumentError(message)
