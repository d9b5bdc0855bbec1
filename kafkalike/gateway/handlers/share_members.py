"""Share members: clients that join share groups, and the description of the groups and their start offsets."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from kafkalike import errors
from kafkalike.admin.share_group_operations import SharePartitionReport
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import DONE, NONE, Outcome, attempt, heartbeat_answer
from kafkalike.gateway.gateway_cluster import Call, Handler
from kafkalike.gateway.group_sessions import GroupSession, GroupSessions
from kafkalike.gateway.handlers.share_sessions import FINAL_EPOCH
from kafkalike.log.group.assignors import SHARE_SCHEME
from kafkalike.log.group.group_config import HEARTBEAT, SESSION, group_setting
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import MemberSettings
from kafkalike.model.group_rows import SHARE
from kafkalike.model.groups.wire_member import WIRE_HOST
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import TopicPartition


class ShareMembers:
    """Answers the heartbeats of members, and requests about share groups.

    Args:
        sessions: the members.
    """

    def __init__(self, sessions: GroupSessions) -> None:
        self._members = sessions
        self._home = sessions.home

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.SHARE_GROUP_HEARTBEAT: home.in_thread(self._heartbeat),
            keys.SHARE_GROUP_DESCRIBE: home.in_thread(self._describe),
            keys.DESCRIBE_SHARE_GROUP_OFFSETS: home.in_thread(self._offsets),
            keys.ALTER_SHARE_GROUP_OFFSETS: home.in_thread(self._alter),
            keys.DELETE_SHARE_GROUP_OFFSETS: home.in_thread(self._delete),
        }

    # --- membership ----------------------------------------------------------------------------

    def _heartbeat(self, call: Call) -> Answer:
        return heartbeat_answer(self._beaten, call)

    def _beaten(self, call: Call) -> Answer:
        body, epoch = call.body, int(call.body.member_epoch)
        named = body.group_id and body.member_id and body.rack_id != ""
        if not named or epoch < FINAL_EPOCH or (epoch == 0 and not body.subscribed_topic_names):
            raise errors.InvalidRequestError("a member of a share group needs a group, an id, and topics when it joins")
        check_group_id(body.group_id)
        if epoch == FINAL_EPOCH:
            self._home.share_group(body.group_id).leave(body.member_id, {})
            self._members.leave(body.group_id, body.member_id, None)
            return {"error_code": NONE, "member_id": body.member_id, "member_epoch": epoch}
        session = self._member(call, epoch)
        with session.lock:
            session.use(call)
            if body.subscribed_topic_names is not None:
                session.subscription = tuple(sorted(set(body.subscribed_topic_names)))
            if session.member.membership is None:
                roster = session.member.try_join(session.subscription)
                if roster is None:
                    raise errors.CoordinatorLoadInProgressError("members of another kind may be dead; retry")
                self._members.keep(session)
            else:
                roster, _ = self._members.look(session, alive=True)
                if epoch > roster.generation:
                    raise errors.FencedMemberEpochError(f"the group is in epoch {roster.generation}, not {epoch}")
        topics = self._home.cluster.topics()
        assigned = [
            {"topic_id": topics[name].topic_id, "partitions": list(topics[name].partitions)}
            for name in session.subscription
            if name in topics and call.may_read(name)
        ]
        return {
            "error_code": NONE,
            "member_id": body.member_id,
            "member_epoch": roster.generation,
            "heartbeat_interval": int(session.member.settings.heartbeat_interval_ms),
            "assignment": {"topic_partitions": assigned},
        }

    def _member(self, call: Call, epoch: int) -> GroupSession:
        try:
            return self._members.session(call.body.group_id, call.body.member_id)
        except errors.UnknownMemberIdError:
            if epoch:
                raise
        configs = self._home.cluster.groups.state.configs.get(call.body.group_id, {})
        session_ms = group_setting(configs, SESSION)
        settings = MemberSettings(
            group_id=call.body.group_id,
            schemes={SHARE: SHARE_SCHEME},
            client_id=call.client_id,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=group_setting(configs, HEARTBEAT),
            max_poll_interval_ms=session_ms,
            host=f"{WIRE_HOST}{call.host}",
        )
        member = GroupMember.of(self._home.cluster, settings, self._home.clock, member_id=call.body.member_id)
        return GroupSession(member, consumer_protocol=True)

    # --- groups ----------------------------------------------------------------------------------------

    def _describe(self, call: Call) -> Answer:
        ids = self._home.topic_ids()
        groups = []
        for group_id in call.body.group_ids:
            outcome, found = attempt(self._home.admin().describe_share_groups, [group_id])
            group = {} if found is None else found[group_id]
            if group.get("group_state") == "Dead":
                group = {}
                outcome = Outcome.of(errors.GroupIdNotFoundError(f"share group {group_id!r} does not exist"))
            epoch = group.get("group_epoch", 0)
            groups.append(
                {
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                    "group_id": group_id,
                    "group_state": group.get("group_state", ""),
                    "group_epoch": epoch,
                    "assignment_epoch": epoch,
                    "assignor_name": "simple" if group else "",
                    "members": [_member(one, epoch, ids) for one in group.get("members", ())],
                }
            )
        return {"groups": groups}

    def _offsets(self, call: Call) -> Answer:
        ids = self._home.topic_ids()
        groups = []
        for asked in call.body.groups:
            outcome, found = attempt(self._home.admin().list_share_group_offsets, [asked.group_id])
            reports = {} if found is None else found[asked.group_id]
            wanted = (
                sorted(reports)
                if asked.topics is None
                else [TopicPartition(topic.topic_name, int(p)) for topic in asked.topics for p in topic.partitions]
            )
            by_topic: dict[str, list[dict[str, Any]]] = {}
            for tp in wanted:
                by_topic.setdefault(tp.topic, []).append(_offset(tp, reports.get(tp)))
            topics = [
                {"topic_name": name, "topic_id": ids.get(name), "partitions": parts} for name, parts in by_topic.items()
            ]
            groups.append(
                {
                    "group_id": asked.group_id,
                    "topics": topics,
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                }
            )
        return {"groups": groups}

    def _alter(self, call: Call) -> Answer:
        ids = self._home.topic_ids()
        offsets = {
            TopicPartition(topic.topic_name, int(p.partition_index)): int(p.start_offset)
            for topic in call.body.topics
            for p in topic.partitions
        }
        outcome, _ = attempt(self._home.admin().alter_share_group_offsets, call.body.group_id, offsets)
        return {
            "error_code": outcome.code,
            "error_message": outcome.message,
            "responses": [
                {
                    "topic_name": topic.topic_name,
                    "topic_id": ids.get(topic.topic_name),
                    "partitions": [
                        {
                            "partition_index": p.partition_index,
                            "error_code": outcome.code,
                            "error_message": outcome.message,
                        }
                        for p in topic.partitions
                    ],
                }
                for topic in call.body.topics
            ],
        }

    def _delete(self, call: Call) -> Answer:
        ids = self._home.topic_ids()
        responses, whole = [], DONE
        for topic in call.body.topics:
            outcome, _ = attempt(self._home.admin().delete_share_group_offsets, call.body.group_id, [topic.topic_name])
            if outcome.code in {errors.GroupIdNotFoundError.errno, errors.NonEmptyGroupError.errno}:
                whole = outcome
            responses.append(
                {
                    "topic_name": topic.topic_name,
                    "topic_id": ids.get(topic.topic_name),
                    "error_code": outcome.code,
                    "error_message": outcome.message,
                }
            )
        return {"error_code": whole.code, "error_message": whole.message, "responses": responses}


def _member(member: Mapping[str, Any], epoch: int, ids: Mapping[str, uuid.UUID]) -> dict[str, Any]:
    by_topic: dict[str, list[int]] = {}
    for tp in member["assignment"]:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    assigned = [
        {"topic_id": ids.get(topic), "topic_name": topic, "partitions": numbers} for topic, numbers in by_topic.items()
    ]
    return {
        "member_id": member["member_id"],
        "rack_id": None,
        "member_epoch": epoch,
        "client_id": member["client_id"],
        "client_host": "/" + str(member["client_host"]).removeprefix(WIRE_HOST),
        "subscribed_topic_names": member["topics"],
        "assignment": {"topic_partitions": assigned},
    }


def _offset(tp: TopicPartition, found: SharePartitionReport | None) -> dict[str, Any]:
    return {
        "partition_index": tp.partition,
        "start_offset": -1 if found is None else found.start_offset,
        "leader_epoch": -1,
        "lag": -1 if found is None else found.lag,
        "error_code": NONE,
        "error_message": None,
    }
