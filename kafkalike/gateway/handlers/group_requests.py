"""Group requests: committed offsets, and the description and deletion of groups."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import DONE, NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.log.group.membership import Membership
from kafkalike.model.groups.consumer_protocol import assignment_bytes, subscription_bytes
from kafkalike.model.groups.roster import Roster
from kafkalike.model.groups.wire_member import WIRE_HOST
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kafkalike.model.topic import TopicInfo

GROUP_ERRORS_FROM: Final = 6
"""Version of DescribeGroups from which a missing group is an error."""

CLASSIC_MEMBER: Final = 0
"""Kafka's type of members that join with the classic protocol."""

Topics = Mapping[str, "TopicInfo"]


class GroupRequests:
    """Answers requests about groups, except those by which members join and stay.

    Args:
        home: the cluster.
        has_epochs: returns whether a member of a group uses KIP-848.
    """

    def __init__(self, home: GatewayCluster, has_epochs: Callable[[str, str], bool]) -> None:
        self._home = home
        self._has_epochs = has_epochs
        self._offsets = GroupOffsets.of(home.cluster, home.clock)

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.OFFSET_COMMIT: home.in_thread(self._commit),
            keys.OFFSET_FETCH: home.in_thread(self._committed),
            keys.OFFSET_DELETE: home.in_thread(self._delete_offsets),
            keys.LIST_GROUPS: home.in_thread(self._list),
            keys.DESCRIBE_GROUPS: home.in_thread(self._describe),
            keys.CONSUMER_GROUP_DESCRIBE: home.in_thread(self._describe_consumers),
            keys.DELETE_GROUPS: home.in_thread(self._delete),
        }

    # --- committed offsets ---------------------------------------------------------------------

    def _commit(self, call: Call) -> Answer:
        topics = self._home.cluster.topics()
        named = [(item, self._home.topic_name(item)) for item in call.body.topics]
        offsets = {
            TopicPartition(name, int(p.partition_index)): OffsetAndMetadata(
                int(p.committed_offset), p.committed_metadata or "", int(getattr(p, "committed_leader_epoch", -1))
            )
            for item, name in named
            if name is not None and name in topics
            for p in item.partitions
            if int(p.partition_index) in topics[name].partitions
        }
        membership = Membership(
            group_id=call.body.group_id,
            generation=int(call.field("generation_id_or_member_epoch", call.field("generation_id", -1))),
            member_id=call.body.member_id,
            client_id=call.client_id,
            group_instance_id=call.field("group_instance_id"),
        )
        outcome = DONE
        try:
            check_group_id(membership.group_id)
            self._offsets.commit(membership, offsets, {tp.topic: topics[tp.topic].topic_id for tp in offsets})
        except (errors.KafkaError, OSError) as error:
            outcome = Outcome.of(error).of_group
            if outcome.code == errors.IllegalGenerationError.errno and self._has_epochs(
                membership.group_id, membership.member_id
            ):
                outcome = Outcome(errors.StaleMemberEpochError.errno, outcome.message)
        return {"topics": [_named(item, name, _codes(item, name, topics, outcome)) for item, name in named]}

    def _committed(self, call: Call) -> Answer:
        groups = getattr(call.body, "groups", None)
        if groups is not None:
            return {"groups": [self._group_offsets(group.group_id, group.topics, group) for group in groups]}
        return self._group_offsets(call.body.group_id, call.body.topics)

    def _group_offsets(self, group_id: str, asked: Sequence[Any] | None, member: Any = None) -> dict[str, Any]:  # noqa: ANN401
        topics = self._home.cluster.topics()
        ids = {name: str(info.topic_id) for name, info in topics.items()}
        named: list[tuple[Any, str | None, list[int]]]
        try:
            if getattr(member, "member_id", None) and int(member.member_epoch) >= 0:
                self._check_member(group_id, member.member_id, int(member.member_epoch))
            if asked is None:
                known = self._offsets.groups.refresh(surely=True).group(group_id).offsets
                wanted: dict[str, list[int]] = {}
                for tp in sorted(known):
                    wanted.setdefault(tp.topic, []).append(tp.partition)
                named = [(None, name, numbers) for name, numbers in wanted.items()]
            else:
                named = [(item, self._home.topic_name(item), list(item.partition_indexes)) for item in asked]
            partitions = [TopicPartition(name, int(p)) for _, name, numbers in named if name for p in numbers]
            found = self._offsets.committed(group_id, partitions, ids)
        except (errors.KafkaError, OSError) as error:
            return {"group_id": group_id, "error_code": Outcome.of(error).of_group.code, "topics": ()}
        return {
            "group_id": group_id,
            "error_code": NONE,
            "topics": [
                {
                    "name": name or "",
                    "topic_id": ids.get(name or "", getattr(item, "topic_id", None)),
                    "partitions": [_position(int(p), name, found) for p in numbers],
                }
                for item, name, numbers in named
                if asked is not None or name in ids
            ],
        }

    def _check_member(self, group_id: str, member_id: str, epoch: int) -> None:
        roster = self._offsets.groups.refresh(surely=True).group(group_id).roster
        if not roster.members:
            return
        if member_id not in roster.members:
            raise errors.UnknownMemberIdError(f"group {group_id!r}: {member_id!r} is not a member")
        if epoch > roster.generation:
            raise errors.StaleMemberEpochError(f"group {group_id!r} is in epoch {roster.generation}, not {epoch}")

    def _delete_offsets(self, call: Call) -> Answer:
        asked = [TopicPartition(t.name, int(p.partition_index)) for t in call.body.topics for p in t.partitions]
        outcome, codes = attempt(self._home.admin().delete_group_offsets, call.body.group_id, asked)
        found = {} if codes is None else {tp: kind.errno for tp, kind in codes.items()}
        if outcome.code:
            return {"error_code": outcome.code, "topics": ()}
        return {
            "error_code": NONE,
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [
                        {
                            "partition_index": p.partition_index,
                            "error_code": found.get(TopicPartition(topic.name, int(p.partition_index)), NONE),
                        }
                        for p in topic.partitions
                    ],
                }
                for topic in call.body.topics
            ],
        }

    # --- groups --------------------------------------------------------------------------------

    def _list(self, call: Call) -> Answer:
        states, types = call.field("states_filter"), call.field("types_filter")
        shares = not types or "share" in {str(kind).lower() for kind in types}
        others = [kind for kind in types or () if str(kind).lower() != "share"]
        outcome, groups = DONE, None
        if others or not types:
            outcome, groups = attempt(
                self._home.admin().list_groups, states_filter=states or None, types_filter=others or None
            )
        found = list(groups or ())
        if shares and not outcome.code:
            outcome, queues = attempt(self._home.admin().list_share_groups, states or ())
            found += [{**group, "protocol_type": "share", "group_type": "share"} for group in queues or ()]
        return {"error_code": outcome.code, "groups": found}

    def _described(self, group_id: str) -> tuple[Outcome, dict[str, Any]]:
        outcome, found = attempt(self._home.admin().describe_groups, [group_id])
        if found is None:
            return outcome, {"group_state": "", "protocol_type": "", "protocol_data": "", "members": []}
        group = found[group_id]
        missing = Outcome(errors.GroupIdNotFoundError.errno, group["error"])
        return (DONE if group["error"] is None else missing), group

    def _describe(self, call: Call) -> Answer:
        groups = []
        state = self._home.cluster.groups.state
        for group_id in call.body.groups:
            outcome, group = self._described(group_id)
            if outcome.code == errors.GroupIdNotFoundError.errno and call.version < GROUP_ERRORS_FROM:
                outcome = DONE
            members = [
                {
                    **_common(member),
                    "client_host": _host(member),
                    **_opaque(state.group(group_id).roster, member),
                }
                for member in group["members"]
            ]
            groups.append(
                {
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                    "group_id": group_id,
                    "group_state": group["group_state"],
                    "protocol_type": group["protocol_type"],
                    "protocol_data": group["protocol_data"],
                    "members": members,
                }
            )
        return {"groups": groups}

    def _describe_consumers(self, call: Call) -> Answer:
        topics = self._home.cluster.topics()
        groups = []
        for group_id in call.body.group_ids:
            outcome, group = self._described(group_id)
            epoch = group.get("generation_id", -1)
            members = [
                {
                    **_common(member),
                    "instance_id": member["group_instance_id"],
                    "member_epoch": epoch,
                    "client_host": _host(member),
                    "subscribed_topic_names": member["member_metadata"]["topics"],
                    "assignment": {"topic_partitions": _with_ids(member["member_assignment"], topics)},
                    "target_assignment": {"topic_partitions": _with_ids(member["target_assignment"], topics)},
                    "member_type": CLASSIC_MEMBER,
                }
                for member in group["members"]
            ]
            groups.append(
                {
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                    "group_id": group_id,
                    "group_state": group["group_state"],
                    "group_epoch": epoch,
                    "assignment_epoch": epoch,
                    "assignor_name": group["protocol_data"],
                    "members": members,
                }
            )
        return {"groups": groups}

    def _delete(self, call: Call) -> Answer:
        results = []
        for group_id in call.body.groups_names:
            if self._home.cluster.groups.refresh().is_share_group(group_id):
                outcome, gone = attempt(self._home.admin().delete_share_groups, [group_id])
                error = None if gone is None else gone[group_id]
                code = outcome.code if error is None else Outcome.of(error).code
                results.append({"group_id": group_id, "error_code": code})
                continue
            outcome, done = attempt(partial(self._home.admin().delete_consumer_groups, [group_id]))
            code = outcome.code if done is None else done[0][1].errno
            results.append({"group_id": group_id, "error_code": code})
        return {"results": results}


def _named(item: Any, name: str | None, partitions: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: ANN401
    return {"name": name or "", "topic_id": getattr(item, "topic_id", None), "partitions": partitions}


def _codes(item: Any, name: str | None, topics: Topics, outcome: Outcome) -> list[dict[str, Any]]:  # noqa: ANN401
    unknown = errors.UnknownTopicIdError if name is None else errors.UnknownTopicOrPartitionError
    known = topics[name].partitions if name is not None and name in topics else ()
    return [
        {
            "partition_index": p.partition_index,
            "error_code": outcome.code if int(p.partition_index) in known else unknown.errno,
        }
        for p in item.partitions
    ]


def _position(partition: int, name: str | None, found: Mapping[TopicPartition, OffsetAndMetadata]) -> dict[str, Any]:
    if name is None:
        at, code = None, errors.UnknownTopicIdError.errno
    else:
        at, code = found.get(TopicPartition(name, partition)), NONE
    return {
        "partition_index": partition,
        "committed_offset": -1 if at is None else at.offset,
        "committed_leader_epoch": -1 if at is None else at.leader_epoch,
        "metadata": "" if at is None else at.metadata,
        "error_code": code,
    }


def _host(member: Mapping[str, Any]) -> str:
    return "/" + str(member["client_host"]).removeprefix(WIRE_HOST)


def _common(member: Mapping[str, Any]) -> dict[str, Any]:
    return {name: member[name] for name in ("member_id", "group_instance_id", "client_id")}


def _opaque(roster: Roster, member: Mapping[str, Any]) -> dict[str, bytes]:
    """Return a member's metadata and assignment as bytes; in a client-led group, the clients' own bytes."""
    led, member_id = roster.led, member["member_id"]
    if led is not None and member_id in led.offers:
        return {
            "member_metadata": led.offers[member_id].get(roster.protocol, b""),
            "member_assignment": led.assignments.get(member_id, b""),
        }
    return {
        "member_metadata": subscription_bytes(member["member_metadata"]["topics"]),
        "member_assignment": assignment_bytes(_partitions(member["member_assignment"])),
    }


def _partitions(assigned: Mapping[str, Any]) -> Iterable[TopicPartition]:
    return [TopicPartition(one["topic"], p) for one in assigned["assigned_partitions"] for p in one["partitions"]]


def _with_ids(assigned: Mapping[str, Any], topics: Topics) -> list[dict[str, Any]]:
    return [
        {
            "topic_id": uuid.UUID(topics[one["topic"]].topic_id),
            "topic_name": one["topic"],
            "partitions": one["partitions"],
        }
        for one in assigned["assigned_partitions"]
        if one["topic"] in topics
    ]
