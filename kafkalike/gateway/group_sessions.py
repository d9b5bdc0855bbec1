"""Group sessions: clients of Kafka's two group protocols as members of the rosters of their groups.

A member that this gateway does not know may have joined through another gateway: it is adopted from the roster.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafkalike import errors
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster
from kafkalike.log.group.assignors import BY_NAME, SHARE_SCHEME, schemes_of
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import KnownTopics, MemberSettings, SessionWatch
from kafkalike.model.group_rows import SHARE
from kafkalike.model.groups.group_protocol import Scheme
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.groups.wire_member import WIRE_HOST, ClientView
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import TopicPartition

logger = logging.getLogger(__name__)

MAX_SESSIONS: Final = 10_000
"""Members of all groups at one gateway."""

PARKED_LOOK_SECONDS: Final = (0.02, 0.2)
"""Shortest and longest time between two looks at the groups of parked JoinGroups."""

WATCH_SECONDS: Final = 3.0
"""Time between two looks at the heartbeats of a group."""

SESSION_MS: Final = 45_000.0
"""Session timeout of members of consumer and share groups, which do not choose it; Kafka's default."""

MAX_SESSION_MS: Final = 1_800_000.0
"""Longest session timeout; Kafka's default of `group.max.session.timeout.ms`."""


@dataclass(slots=True)
class GroupSession:
    """One client at this gateway."""

    member: GroupMember
    consumer_protocol: bool
    """True for KIP-848."""
    subscription: tuple[str, ...] = ()
    view: ClientView = field(default_factory=ClientView)
    lock: threading.Lock = field(default_factory=threading.Lock)
    """`GroupMember` belongs to one thread at a time."""
    seen: float = 0.0
    """Time of the last request, s of the monotonic clock."""
    connection: int = 0
    """Connection of the last request."""

    def use(self, call: Call) -> None:
        """Forget the view of a client that comes over another connection; its lock is held.

        Another gateway may have served it in between, so this one no longer knows its partitions.
        """
        if call.connection != self.connection:
            self.connection, self.view = call.connection, ClientView()


def check_session_timeout(session_ms: float) -> None:
    """Check a session timeout.

    Raises:
        InvalidSessionTimeoutError: it is not allowed.
    """
    if not 0 < session_ms <= MAX_SESSION_MS:
        raise errors.InvalidSessionTimeoutError(
            f"a session of {session_ms:.0f} ms: at most {MAX_SESSION_MS:.0f} are allowed"
        )


class GroupSessions:
    """The clients of this gateway that are members of groups. Thread-safe.

    Args:
        home: the cluster.
    """

    def __init__(self, home: GatewayCluster) -> None:
        self.home = home
        self._sessions: dict[tuple[str, str], GroupSession] = {}
        self._lock = threading.Lock()
        self._watches = weakref.WeakValueDictionary[str, SessionWatch]()
        """By group; the members hold them."""
        self._parked: dict[str, set[asyncio.Event]] = {}
        """Events of the JoinGroups that wait, by group."""
        self._rosters: dict[str, Roster] = {}
        """Rosters of these groups when the task looked last."""
        self._task: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()

    @property
    def count(self) -> int:
        """Number of members at this gateway."""
        return len(self._sessions)

    def has_epochs(self, group_id: str, member_id: str) -> bool:
        """Return whether a member uses KIP-848, whose errors of commits differ."""
        session = self._sessions.get((group_id, member_id))
        return session is not None and session.consumer_protocol

    def session(self, group_id: str, member_id: str) -> GroupSession:
        """Return a client's session; adopt the member if another gateway has let it join.

        Raises:
            UnknownMemberIdError: it is not a member.
        """
        found = self._sessions.get((group_id, member_id))
        if found is None:
            found = self._adopted(group_id, member_id)
        found.seen = time.monotonic()
        return found

    def _adopted(self, group_id: str, member_id: str) -> GroupSession:
        roster = self.home.cluster.groups.refresh().group(group_id).roster
        known = roster.members.get(member_id) if member_id else None
        if known is None or not known.client_host.startswith(WIRE_HOST):
            raise errors.UnknownMemberIdError(f"group {group_id!r}: {member_id!r} is not a member")
        settings = MemberSettings(
            group_id=group_id,
            schemes=_schemes_of(known.protocols, led=roster.led is not None),
            client_id=known.client_id,
            group_instance_id=known.group_instance_id,
            session_timeout_ms=known.session_timeout_ms,
            heartbeat_interval_ms=known.heartbeat_interval_ms,
            max_poll_interval_ms=known.rebalance_timeout_ms,
            host=known.client_host,
            watch=self._watch_of(group_id),
        )
        member = GroupMember.of(self.home.cluster, settings, self.home.clock, member_id=member_id)
        member.resume(roster)
        logger.info("gateway: group %s: %s came from another gateway", group_id, member_id)
        return self.keep(GroupSession(member, consumer_protocol=False, subscription=known.subscription))

    def _watch_of(self, group_id: str) -> SessionWatch:
        """Return the watch over a group's sessions, which costs as much for all members here as for one."""
        with self._lock:
            watch = self._watches.get(group_id)
            if watch is None:
                watch = self._watches[group_id] = SessionWatch(WATCH_SECONDS)
            return watch

    def keep(self, session: GroupSession) -> GroupSession:
        """Add a session, unless another request of the client was faster."""
        now = time.monotonic()
        with self._lock:
            gone = [
                key
                for key, old in self._sessions.items()
                if old.seen and now - old.seen > 2 * old.member.settings.session_timeout_ms / 1000
            ]
            for key in gone:
                del self._sessions[key]
            if len(self._sessions) >= MAX_SESSIONS:
                raise errors.GroupMaxSizeReachedError(f"this gateway has {MAX_SESSIONS} members of groups")
            session.seen = now
            key = session.member.settings.group_id, session.member.member_id
            return self._sessions.setdefault(key, session)

    def drop(self, session: GroupSession) -> None:
        """Forget a client that has left or was removed."""
        with self._lock:
            for key in [key for key, known in self._sessions.items() if known is session]:
                del self._sessions[key]

    def new(
        self, call: Call, names: Sequence[str], session_ms: float, rebalance_ms: float, member_id: str
    ) -> GroupSession:
        """Return the session of a client that has not joined yet, and is not kept yet.

        Args:
            call: its request to join.
            names: its assignors, the preferred one first; empty in a client-led group.
            session_ms: its session timeout.
            rebalance_ms: its rebalance timeout.
            member_id: its id; empty to make one.

        Raises:
            InvalidGroupIdError, InvalidSessionTimeoutError: the request is invalid.
        """
        check_session_timeout(session_ms)
        instance = call.field("group_instance_id", call.field("instance_id"))
        settings = MemberSettings(
            group_id=check_group_id(call.body.group_id),
            schemes=schemes_of(list(names)) if names else {},
            client_id=call.client_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            heartbeat_interval_ms=min(3000.0, session_ms / 3),
            max_poll_interval_ms=max(rebalance_ms, session_ms),
            host=f"{WIRE_HOST}{call.host}",
            watch=self._watch_of(call.body.group_id),
        )
        member = GroupMember.of(self.home.cluster, settings, self.home.clock, member_id=member_id)
        return GroupSession(member, consumer_protocol=False)

    def poke(self) -> None:
        """Look at the groups of parked JoinGroups at once, because this gateway has changed a roster."""
        loop = self.home.loop
        if loop is not None:
            loop.call_soon_threadsafe(self._poked.set)

    @contextlib.contextmanager
    def parked(self, group_id: str) -> Iterator[asyncio.Event]:
        """Yield an event that is set after each change of a group's roster. One task looks at all such groups."""
        event = asyncio.Event()
        self._parked.setdefault(group_id, set()).add(event)
        if self._task is None:
            self._task = asyncio.create_task(self._watch())
        try:
            yield event
        finally:
            self._parked[group_id].discard(event)
            if not self._parked[group_id]:
                del self._parked[group_id]
                self._rosters.pop(group_id, None)

    async def _watch(self) -> None:
        shortest, longest = PARKED_LOOK_SECONDS
        interval = shortest
        try:
            while self._parked:
                self._poked.clear()
                changed = await self.home.run(self._changed, list(self._parked))
                for group_id in changed:
                    for event in self._parked.get(group_id, ()):
                        event.set()
                interval = shortest if changed else min(2 * interval, longest)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._poked.wait(), interval)
        finally:
            self._task = None

    def _changed(self, group_ids: Sequence[str]) -> list[str]:
        """Return the groups with another roster than at the last look; all of them if the storage fails."""
        try:
            state = self.home.cluster.groups.refresh(waiting=True)
        except errors.KafkaError:
            # The waiting requests find out why.
            return list(group_ids)
        found = {group_id: state.group(group_id).roster for group_id in group_ids}
        changed = [group_id for group_id, roster in found.items() if self._rosters.get(group_id) is not roster]
        self._rosters = found
        return changed

    def topics(self) -> KnownTopics | None:
        """Look at the groups and the topics for several calls of `look`; None if the storage fails."""
        try:
            self.home.cluster.groups.refresh(waiting=True)
            state = self.home.cluster.metadata.refresh()
        except errors.KafkaError:
            # Each call finds out why.
            return None
        return KnownTopics(state.topics, state.seq)

    def look(self, session: GroupSession, *, alive: bool, topics: KnownTopics | None = None) -> tuple[Roster, Member]:
        """Send the member's heartbeat if it is due, and look at the roster.

        Args:
            session: the client; its lock is held.
            alive: the client follows the protocol. A client told to join again and does not is removed after its
                rebalance timeout.
            topics: the result of `topics`, just now; None looks at groups and topics.

        Raises:
            UnknownMemberIdError: it was removed.
            FencedInstanceIdError: another client has taken its static name.
        """
        member = session.member
        groups, group_id = self.home.cluster.groups, member.settings.group_id
        if alive:
            member.polled(self.home.clock.monotonic())
        member.beat(None if topics is None else groups.state.group(group_id).roster)
        member_id = member.member_id
        roster = member.look(None if topics is None else groups.state.group(group_id).roster)
        if roster is not None:
            roster = member.follow(roster, session.subscription, topics)
        return self._still_a_member(session, member_id, roster)

    def release(self, session: GroupSession, given_up: Iterable[TopicPartition]) -> tuple[Roster, Member]:
        """Give up partitions of a client, and let waiting requests look at the group.

        Args:
            session: the client; its lock is held.
            given_up: the partitions.

        Raises:
            UnknownMemberIdError: it was removed.
        """
        member_id = session.member.member_id
        roster = session.member.release(given_up)
        self.poke()
        return self._still_a_member(session, member_id, roster)

    def _still_a_member(self, session: GroupSession, member_id: str, roster: Roster | None) -> tuple[Roster, Member]:
        if roster is None:
            self.drop(session)
            raise errors.UnknownMemberIdError(f"{member_id!r} was removed from the group")
        return roster, roster.members[member_id]

    def pause(self, group_id: str, member_id: str) -> None:
        """Forget a static member, which keeps its place in the group until its session expires."""
        with self._lock:
            self._sessions.pop((group_id, member_id), None)

    def leave(self, group_id: str, member_id: str, instance: str | None) -> None:
        """Let a member leave for good; a static one may be named by its instance id alone.

        Raises:
            UnknownMemberIdError: it is not a member.
            FencedInstanceIdError: another client has taken its static name.
        """
        if instance is not None:
            known = self.home.cluster.groups.refresh().group(group_id).roster.instance(instance)
            if known is not None and member_id not in {"", known.member_id}:
                raise errors.FencedInstanceIdError(
                    f"group {group_id!r}: another client has taken the name {instance!r}"
                )
            member_id = "" if known is None else known.member_id
        session = self.session(group_id, member_id)
        with session.lock:
            session.member.leave()
            self.drop(session)
        self.poke()


def _schemes_of(protocols: Sequence[str], *, led: bool) -> Mapping[str, Scheme]:
    """Return the assignors of a member that another gateway has let join."""
    if SHARE in protocols:
        return {SHARE: SHARE_SCHEME}
    return {} if led else schemes_of([name for name in protocols if name in BY_NAME])
