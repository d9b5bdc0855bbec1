"""Classic members: clients that join groups by JoinGroup and SyncGroup, and stay by Heartbeat.

Clients with assignors that the roster has are its members: JoinGroup answers that "kafkalike" leads, so every client is
a follower and takes the assignment that the roster has. Other clients, such as Kafka Connect's workers, compute the
assignments of their group themselves: `ClientLedMembers`, whose rules are in `kafkalike.model.groups.client_led_group`.
There a request is one look or one change of the group's row.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalike import errors
from kafkalike.errors import InconsistentGroupProtocolError
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import NONE, Outcome, attempt
from kafkalike.gateway.gateway_cluster import Call, Handler, Reply
from kafkalike.gateway.group_sessions import MAX_SESSIONS, GroupSession, GroupSessions, check_session_timeout
from kafkalike.log.group.assignors import BY_NAME
from kafkalike.log.group.membership import GroupStore, KnownTopics
from kafkalike.model.groups import client_led_group as client_led
from kafkalike.model.groups.consumer_protocol import assignment_bytes, parse_subscription
from kafkalike.model.groups.roster import PROTOCOL_TYPE, Member, Roster
from kafkalike.model.groups.wire_member import ClientView, may_answer_join, must_rejoin, permitted, released_by_join
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import GroupState, TopicPartition

if TYPE_CHECKING:
    from kafkalike.model.groups.group_protocol import GroupFacts


LEADER: Final = "kafkalike"
"""Id of the leader in answers to JoinGroup. No client has it, so none computes an assignment."""

PARKED_SECONDS: Final = 1.0
"""Longest time after which a parked JoinGroup looks at its group and sends the member's heartbeat."""

MEMBER_ID_VERSION: Final = 4
"""Version of JoinGroup from which a client asks for an id first, so that a lost answer leaves no member behind."""


@dataclass(frozen=True, slots=True)
class _Joined:
    """The result of JoinGroup."""

    outcome: Outcome
    member_id: str
    roster: Roster | None = None


class ClassicMembers:
    """Answers the requests of the classic group protocol.

    Args:
        sessions: the clients.
    """

    def __init__(self, sessions: GroupSessions) -> None:
        self._sessions = sessions
        self._led = ClientLedMembers(sessions)
        self._promised: dict[tuple[str, str], float] = {}
        """Member ids that clients were given, and have not joined with; with the time until which they may."""
        self._lock = threading.Lock()

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._sessions.home
        return {
            keys.JOIN_GROUP: self._join,
            keys.SYNC_GROUP: self._sync,
            keys.HEARTBEAT: home.in_batches(self._sessions.topics, self._heartbeat),
            keys.LEAVE_GROUP: home.in_thread(self._leave),
        }

    async def _join(self, call: Call) -> Reply | asyncio.Task[Reply]:
        return asyncio.create_task(self._joined(call))

    async def _joined(self, call: Call) -> Reply:
        """Join or join again, and wait until the member may be told its generation."""
        outcome, entered = await self._sessions.home.run(attempt, self._entered, call)
        if entered is None:
            return _join_answer(_Joined(outcome.of_group, call.body.member_id))
        if isinstance(entered, str):
            return _join_answer(_Joined(Outcome(errors.MemberIdRequiredError.errno, None), entered))
        session, owned = entered
        parked = ParkedRequest(call, session)
        settings = session.member.settings
        loop = asyncio.get_running_loop()
        end = loop.time() + settings.max_poll_interval_ms / 1000
        interval = min(PARKED_SECONDS, settings.heartbeat_interval_ms / 1000)
        with self._sessions.parked(call.body.group_id) as event:
            while True:
                event.clear()
                outcome, roster = await self._sessions.home.run(attempt, self._join_step, parked, owned)
                member_id = session.member.member_id or call.body.member_id
                if outcome.code or roster is not None:
                    return _join_answer(_Joined(outcome.of_group, member_id, roster))
                if loop.time() >= end:
                    return _join_answer(_Joined(Outcome(errors.RebalanceInProgressError.errno, None), member_id))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), interval)

    def _entered(self, call: Call) -> tuple[GroupSession, frozenset[TopicPartition] | None] | str:
        """Return the session of a JoinGroup, and the partitions that the client says it holds; or an id to join with.

        The partitions are None in a client-led group.

        Raises:
            InconsistentGroupProtocolError: the client has no assignor.
            UnknownMemberIdError: it names an id that it was not given.
        """
        body = call.body
        offered = {p.name: p for p in body.protocols if p.name in BY_NAME}
        if not body.protocol_type or not body.protocols:
            raise errors.InconsistentGroupProtocolError(
                f"group {body.group_id!r}: the client names no protocol type or no assignor"
            )
        led = body.protocol_type != PROTOCOL_TYPE or not offered
        if not led:
            # It may have an assignor in common with the clients that lead the group.
            led = self._sessions.home.cluster.groups.refresh(waiting=True).group(body.group_id).roster.led is not None
        if led:
            offered = {}
        wanted = None if led else parse_subscription(bytes(next(iter(offered.values())).metadata))
        session_ms = body.session_timeout.total_seconds() * 1000
        rebalance_ms = call.field("rebalance_timeout", body.session_timeout).total_seconds() * 1000
        key = body.group_id, body.member_id
        dynamic = call.field("group_instance_id") is None
        if not body.member_id and dynamic and call.version >= MEMBER_ID_VERSION:
            check_session_timeout(session_ms)
            member_id = f"{call.client_id}-{uuid.uuid4()}"
            self._promise((check_group_id(body.group_id), member_id), session_ms)
            return member_id
        with self._lock:
            promised = self._promised.pop(key, None) is not None
        if body.member_id and not promised:
            session = self._sessions.session(*key)
            if tuple(offered) != tuple(session.member.settings.schemes):
                # The client was restarted with other assignors: the roster's member gets them when it joins again.
                changed = self._sessions.new(call, list(offered), session_ms, rebalance_ms, body.member_id)
                session.member = changed.member
        else:
            session = self._sessions.new(call, list(offered), session_ms, rebalance_ms, body.member_id)
        if wanted is None:
            return session, None
        session.subscription = wanted.topics
        return session, wanted.owned

    def _promise(self, key: tuple[str, str], session_ms: float) -> None:
        now = time.monotonic()
        with self._lock:
            self._promised = {known: until for known, until in self._promised.items() if until > now}
            if len(self._promised) >= MAX_SESSIONS:
                raise errors.GroupMaxSizeReachedError(f"this gateway has promised {MAX_SESSIONS} member ids")
            self._promised[key] = now + session_ms / 1000

    def _join_step(self, parked: ParkedRequest, owned: frozenset[TopicPartition] | None) -> Roster | None:
        """Join or look; return the roster once JoinGroup may be answered, None before."""
        if owned is None:
            return self._led.joined(parked)
        session = parked.session
        with session.lock:
            member = session.member
            session.seen = time.monotonic()
            if member.membership is None:
                roster = member.try_join(session.subscription)
                if roster is None:
                    return None
                self._sessions.keep(session)
                self._sessions.poke()
                me = roster.members[member.member_id]
            else:
                roster, me = self._sessions.look(session, alive=True)
            while given_up := released_by_join(roster, me, owned):
                roster, me = self._sessions.release(session, given_up)
            return roster if may_answer_join(roster, me) else None

    async def _sync(self, call: Call) -> Reply | asyncio.Task[Reply]:
        return asyncio.create_task(self._synced(call))

    async def _synced(self, call: Call) -> Reply:
        """Return the assignment; a follower in a client-led group waits for its leader."""
        home = self._sessions.home
        outcome, session = await home.run(attempt, self._sessions.session, call.body.group_id, call.body.member_id)
        if session is None:
            return {"error_code": outcome.of_group.code}
        parked = ParkedRequest(call, session)
        interval = min(PARKED_SECONDS, session.member.settings.heartbeat_interval_ms / 1000)
        with self._sessions.parked(call.body.group_id) as event:
            while True:
                event.clear()
                outcome, synced = await home.run(attempt, self._sync_step, parked)
                if synced is not None:
                    roster, assignment = synced
                    return {
                        "error_code": NONE,
                        "protocol_type": roster.protocol_type,
                        "protocol_name": roster.protocol,
                        "assignment": assignment,
                    }
                if outcome.code:
                    return {"error_code": outcome.of_group.code}
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(event.wait(), interval)

    def _sync_step(self, parked: ParkedRequest) -> tuple[Roster, bytes] | None:
        session, call = parked.session, parked.call
        with session.lock:
            roster, me = self._sessions.look(session, alive=True)
            check_protocol_type(call, roster)
            if roster.led is not None:
                return self._led.synced(parked, roster, me)
            check_generation(call, roster)
            wanted = call.field("protocol_name")
            if not may_answer_join(roster, me) or wanted not in {None, roster.protocol}:
                raise errors.RebalanceInProgressError("the group is being rebalanced")
            session.use(call)
            session.view = ClientView(given=permitted(roster, me))
            return roster, assignment_bytes(permitted(roster, me))

    def _heartbeat(self, call: Call, topics: KnownTopics | None) -> Answer:
        return {"error_code": attempt(self._beaten, call, topics)[0].of_group.code}

    def _beaten(self, call: Call, topics: KnownTopics | None) -> None:
        session = self._sessions.session(call.body.group_id, call.body.member_id)
        if not session.lock.acquire(blocking=False):
            # The client joins over another connection at this moment.
            return
        try:
            session.use(call)
            roster, me = self._sessions.look(session, alive=False, topics=topics)
            if roster.led is not None:
                client_led.check_member(roster, me.member_id, int(call.body.generation_id))
                session.member.polled(self._sessions.home.clock.monotonic())
                return
            check_generation(call, roster)
            if call.field("group_instance_id") not in {None, me.group_instance_id}:
                raise errors.UnknownMemberIdError(f"{me.member_id!r} does not have this static name")
            if session.view.given is None and roster.generation == call.body.generation_id:
                # Nothing has changed since another gateway answered.
                session.view = ClientView(given=permitted(roster, me))
            if must_rejoin(roster, me, session.view):
                raise errors.RebalanceInProgressError("the group is being rebalanced")
            session.member.polled(self._sessions.home.clock.monotonic())
        finally:
            session.lock.release()

    def _leave(self, call: Call) -> Answer:
        body = call.body
        leaving = getattr(body, "members", None)
        if leaving is None:
            return {"error_code": attempt(self._sessions.leave, body.group_id, body.member_id, None)[0].of_group.code}
        members = []
        for one in leaving:
            instance = getattr(one, "group_instance_id", None)
            outcome, _ = attempt(self._sessions.leave, body.group_id, one.member_id, instance)
            members.append(
                {"member_id": one.member_id, "group_instance_id": instance, "error_code": outcome.of_group.code}
            )
        return {"error_code": NONE, "members": members}


def check_generation(call: Call, roster: Roster) -> None:
    """Check the generation that a client names. Earlier ones pass: members keep reading while others move.

    Raises:
        IllegalGenerationError: the group has not reached it.
    """
    generation = int(call.body.generation_id)
    if generation > roster.generation:
        raise errors.IllegalGenerationError(f"the group is in generation {roster.generation}, not {generation}")


def check_protocol_type(call: Call, roster: Roster) -> None:
    """Check the protocol type that a client names, if it names one.

    Raises:
        InconsistentGroupProtocolError: the group has another one.
    """
    if call.field("protocol_type") not in {None, roster.protocol_type}:
        raise InconsistentGroupProtocolError(f"the group has the protocol type {roster.protocol_type!r}")


def _join_answer(joined: _Joined) -> Answer:
    roster, code = joined.roster, joined.outcome.code
    return {
        # Kafka's code for a group of another type.
        "error_code": InconsistentGroupProtocolError.errno if code == errors.GroupIdNotFoundError.errno else code,
        "generation_id": -1 if roster is None else roster.generation,
        "protocol_type": PROTOCOL_TYPE if roster is None else roster.protocol_type,
        "protocol_name": "" if roster is None else roster.protocol,
        "leader": "" if roster is None else LEADER if roster.led is None else roster.led.leader,
        "member_id": joined.member_id,
        "members": () if roster is None else members_for_leader(roster, joined.member_id),
    }


@dataclass(slots=True)
class ParkedRequest:
    """A request to join or to get an assignment, which waits for other members."""

    call: Call
    session: GroupSession
    done: bool = False
    """True when the member's own change is written."""
    phase: tuple[int, GroupState] | None = None
    """Generation and phase of the group at the last look."""
    since: float = field(default_factory=time.monotonic)
    """Time when this request first saw the phase, s of the monotonic clock."""


class ClientLedMembers:
    """Answers the requests of clients in client-led groups.

    Args:
        sessions: the clients.
    """

    def __init__(self, sessions: GroupSessions) -> None:
        self._sessions = sessions

    def joined(self, parked: ParkedRequest) -> Roster | None:
        """Join or look; return the roster when JoinGroup can be answered, None before.

        Raises:
            InconsistentGroupProtocolError: the group has living members of another kind.
            UnknownMemberIdError, FencedInstanceIdError: the member was removed.
        """
        session, body = parked.session, parked.call.body
        with session.lock:
            session.seen = time.monotonic()
            if parked.done:
                roster, _ = self._sessions.look(session, alive=True)
            else:
                offer = {p.name: bytes(p.metadata) for p in body.protocols}
                rule = partial(_join, protocol_type=body.protocol_type, offer=offer)
                entered = session.member.try_join((), rule)
                if entered is None:
                    return None
                parked.done, roster = True, entered
                self._sessions.keep(session)
                self._sessions.poke()
            if client_led.may_answer_join(roster, session.member.member_id):
                return roster
            self._wait(parked, roster)
            return None

    def synced(self, parked: ParkedRequest, roster: Roster, me: Member) -> tuple[Roster, bytes] | None:
        """Take the leader's assignments, and return the member's; None before the leader has sent them.

        Args:
            parked: the request; its session's lock is held.
            roster: the roster as of a look just now.
            me: the member.

        Raises:
            UnknownMemberIdError, FencedInstanceIdError, IllegalGenerationError, RebalanceInProgressError: the client
                has to join again.
            InconsistentGroupProtocolError: it names another assignor than the group's.
        """
        body = parked.call.body
        generation = int(body.generation_id)
        client_led.check_member(roster, me.member_id, generation)
        if parked.call.field("protocol_name") not in {None, roster.protocol}:
            raise InconsistentGroupProtocolError(f"the group's assignor is {roster.protocol!r}")
        if not parked.done and roster.led is not None and roster.led.leader == me.member_id:
            assignments = {a.member_id: bytes(a.assignment) for a in body.assignments}
            now_ms = self._sessions.home.clock.now_ms()
            roster = self._store(parked.session).change(
                lambda now: client_led.sync(now, me.member_id, generation, assignments, now_ms),
                me.member_id,
                "assigned",
            )
            parked.done = True
            self._sessions.poke()
        if roster.led is None or roster.led.phase is not GroupState.STABLE:
            self._wait(parked, roster)
            return None
        return roster, roster.led.assignments.get(me.member_id, b"")

    def _wait(self, parked: ParkedRequest, roster: Roster) -> None:
        """End the group's phase if this request has waited for the longest rebalance timeout of the members."""
        if roster.led is None:
            return
        now, generation, phase = time.monotonic(), roster.generation, roster.led.phase
        if parked.phase != (generation, phase):
            parked.phase, parked.since = (generation, phase), now
        if (now - parked.since) * 1000 < max(m.rebalance_timeout_ms for m in roster):
            return
        now_ms = self._sessions.home.clock.now_ms()
        self._store(parked.session).change(
            lambda current: client_led.time_out(current, generation, phase, now_ms),
            parked.session.member.member_id,
            "rebalance timed out",
        )
        self._sessions.poke()

    def _store(self, session: GroupSession) -> GroupStore:
        return GroupStore(self._sessions.home.cluster.groups, session.member.settings.group_id)


def _join(roster: Roster, member: Member, known: GroupFacts, *, protocol_type: str, offer: client_led.Offer) -> Roster:
    return client_led.join(roster, member, protocol_type, offer, known.now_ms)


def members_for_leader(roster: Roster, member_id: str) -> list[Answer]:
    """Return the members and their metadata in the answer to the leader's JoinGroup; nothing for followers."""
    led = roster.led
    if led is None or led.leader != member_id:
        return []
    return [
        {
            "member_id": m.member_id,
            "group_instance_id": m.group_instance_id,
            "metadata": led.offers[m.member_id][roster.protocol],
        }
        for m in roster
    ]
