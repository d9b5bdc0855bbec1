"""Client-led members: clients that compute the assignments of their group themselves, such as Kafka Connect's workers.

The rules are in `kafkalike.model.groups.client_led`. Here a request is one look or one change of the group's row.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from kafkalike.errors import InconsistentGroupProtocolError
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.gateway_cluster import Call
from kafkalike.gateway.group_sessions import GroupSession, GroupSessions
from kafkalike.log.group.membership import GroupStore
from kafkalike.model.groups import client_led
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.structs import GroupState

if TYPE_CHECKING:
    from kafkalike.model.groups.group_protocol import GroupFacts


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
