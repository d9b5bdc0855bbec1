"""Consumer members: clients that join groups and stay by ConsumerGroupHeartbeat, the protocol of KIP-848."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kafkalike import errors
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import NONE, heartbeat_answer
from kafkalike.gateway.gateway_cluster import Call, Handler
from kafkalike.gateway.group_sessions import SESSION_MS, GroupSession, GroupSessions
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.groups.wire_member import ClientView, is_unclear, permitted, released_by_heartbeat
from kafkalike.model.structs import TopicPartition

STABLE_BEAT_MS: Final = 1000
MOVING_BEAT_MS: Final = 200
"""Time between two heartbeats, ms: usually, and while partitions move."""

CONSUMER_ASSIGNORS: Final = {
    None: ("cooperative-sticky", "range", "roundrobin", "sticky"),
    "uniform": ("cooperative-sticky", "range", "roundrobin", "sticky"),
    "range": ("range", "cooperative-sticky", "roundrobin", "sticky"),
}
"""Assignors of a member by the server-side assignor that it names, the preferred one first."""

CLIENT_NAMES_SINCE: Final = 1
"""Version from which members make their ids themselves."""

LEAVING: Final = -1
LEAVING_STATIC: Final = -2
"""Epochs by which members leave, for good or keeping their place."""


class ConsumerMembers:
    """Answers the requests of the consumer group protocol.

    Args:
        sessions: the clients.
    """

    def __init__(self, sessions: GroupSessions) -> None:
        self._sessions = sessions

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        return {keys.CONSUMER_GROUP_HEARTBEAT: self._sessions.home.in_thread(self._heartbeat)}

    def _heartbeat(self, call: Call) -> Answer:
        return heartbeat_answer(self._beaten, call)

    def _beaten(self, call: Call) -> Answer:
        body = call.body
        epoch = int(body.member_epoch)
        member_id = body.member_id
        _check(call, epoch)
        if epoch in {LEAVING, LEAVING_STATIC}:
            if epoch == LEAVING:
                self._sessions.leave(body.group_id, member_id, None)
            else:
                self._sessions.pause(body.group_id, member_id)
            return {"error_code": NONE, "member_id": member_id, "member_epoch": epoch}
        if call.field("subscribed_topic_regex"):
            raise errors.InvalidRequestError("subscriptions by a pattern on the server's side are not supported")
        session = self._session(call, epoch)
        with session.lock:
            session.consumer_protocol = True
            session.use(call)
            if body.subscribed_topic_names is not None:
                session.subscription = tuple(sorted(set(body.subscribed_topic_names)))
            if epoch == 0:
                # It holds nothing, whatever it held before.
                session.view = ClientView(given=None, reported=frozenset())
            elif body.topic_partitions is not None:
                session.view = replace(session.view, reported=self._with_names(body.topic_partitions))
            roster, me = self._roster(session, epoch)
            held = permitted(roster, me)
            changed = session.view.given is None or set(held) != set(session.view.given) or epoch == 0
            session.view = replace(session.view, given=held)
            moving = roster.rebalancing or changed
            told = changed or body.topic_partitions is not None
            return {
                "error_code": NONE,
                "member_id": me.member_id,
                "member_epoch": roster.generation,
                "heartbeat_interval": MOVING_BEAT_MS if moving else STABLE_BEAT_MS,
                "assignment": {"topic_partitions": self._with_ids(held)} if told else None,
            }

    def _session(self, call: Call, epoch: int) -> GroupSession:
        """Return the session of a heartbeat; a new one for a member that joins.

        Raises:
            UnknownMemberIdError: it is not a member, and does not join.
        """
        body = call.body
        try:
            return self._sessions.session(body.group_id, body.member_id)
        except errors.UnknownMemberIdError:
            if epoch:
                raise
        assignor = call.field("server_assignor")
        rebalance_ms = body.rebalance_timeout.total_seconds() * 1000
        names = CONSUMER_ASSIGNORS[assignor]
        return self._sessions.new(call, names, SESSION_MS, rebalance_ms, body.member_id or str(uuid.uuid4()))

    def _roster(self, session: GroupSession, epoch: int) -> tuple[Roster, Member]:
        """Join or look, and record what the client has given up."""
        member = session.member
        if member.membership is None:
            if epoch:
                raise errors.FencedMemberEpochError("the member has to join again")
            roster = member.try_join(session.subscription)
            if roster is None:
                raise errors.CoordinatorLoadInProgressError(
                    "members that have no assignor in common may be dead; retry"
                )
            self._sessions.keep(session)
            self._sessions.poke()
            return roster, roster.members[member.member_id]
        roster, me = self._sessions.look(session, alive=False)
        if epoch > roster.generation:
            raise errors.FencedMemberEpochError(f"the group is in epoch {roster.generation}, not {epoch}")
        if is_unclear(roster, me, session.view):
            raise errors.FencedMemberEpochError(f"{me.member_id!r} has to join again after a change of its gateway")
        given_up = released_by_heartbeat(roster, me, session.view)
        if given_up:
            roster, me = self._sessions.release(session, given_up)
        if set(permitted(roster, me)) >= (session.view.reported or frozenset()):
            # It holds nothing that it should give up. A member that keeps such partitions is removed after its timeout.
            member.polled(self._sessions.home.clock.monotonic())
        return roster, me

    def _with_names(self, by_topic: Iterable[Any]) -> frozenset[TopicPartition]:
        # A new look: a topic that this gateway did not know would count as given up.
        self._sessions.home.cluster.topics()
        found = set()
        for one in by_topic:
            name = self._sessions.home.topic_name(one)
            found |= {TopicPartition(name, int(p)) for p in one.partitions} if name is not None else set()
        return frozenset(found)

    def _with_ids(self, partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
        topics = self._sessions.home.cluster.topics()
        by_topic: dict[str, list[int]] = {}
        for tp in partitions:
            if tp.topic in topics:
                by_topic.setdefault(tp.topic, []).append(tp.partition)
        return [{"topic_id": topics[name].topic_id, "partitions": numbers} for name, numbers in by_topic.items()]


def _check(call: Call, epoch: int) -> None:
    """Check a heartbeat without a look at the group.

    Raises:
        InvalidRequestError, UnsupportedAssignorError: it lacks what its epoch requires, or has invalid fields.
    """
    body = call.body
    joins, names = epoch == 0, body.subscribed_topic_names
    rules = {
        "the group's name is empty": bool(body.group_id),
        "the member's id is empty": bool(body.member_id or (joins and call.version < CLIENT_NAMES_SINCE)),
        "the static name is empty": body.instance_id != "",
        f"the epoch {epoch} has no meaning": epoch >= LEAVING_STATIC,
        "only static members keep their place": epoch != LEAVING_STATIC or body.instance_id is not None,
        "a member that joins needs a rebalance timeout": not joins or body.rebalance_timeout.total_seconds() >= 0,
        "a member that joins must name no partitions": not joins or body.topic_partitions == (),
        "a member that joins needs topics": not joins or bool(names or call.field("subscribed_topic_regex")),
    }
    if wrong := [rule for rule, kept in rules.items() if not kept]:
        raise errors.InvalidRequestError(f"group {body.group_id!r}: {', '.join(wrong)}")
    if body.server_assignor not in CONSUMER_ASSIGNORS:
        raise errors.UnsupportedAssignorError(
            f"assignor {body.server_assignor!r} is not known; known are uniform and range"
        )
