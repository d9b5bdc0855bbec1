"""GroupMember: a member of a consumer group, and its heartbeat thread.

The protocol's rules are in `kafkalike.model.groups.group_protocol`. This module applies them to the table of groups,
the leases and the clock.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kafkalike.errors import FencedInstanceIdError, InconsistentGroupProtocolError, KafkaError, NonEmptyGroupError
from kafkalike.log.group import membership
from kafkalike.model.clock import Clock, SystemClock
from kafkalike.model.concurrency import ReportErrors
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.groups.sessions import Leases
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


_log = logging.getLogger(__name__)

JOIN: Final = group_protocol.join

SHORTEST_BEAT: Final = 0.01
"""Shortest wait, seconds, between two heartbeats."""


class GroupMember:
    """A member of one group. `beat` may be called by another thread; all other methods belong to the owner's thread.

    Args:
        store: the group's roster.
        leases: storage of heartbeats.
        topics: looks at the cluster's topics.
        settings: the member's settings.
        clock: time.
        new_id: makes the end of a member id.
        member_id: the whole id, if the client has chosen it; empty to make one when it joins.
    """

    def __init__(
        self,
        store: membership.RosterStore,
        leases: Leases,
        topics: Callable[[], membership.KnownTopics],
        settings: membership.MemberSettings,
        *,
        clock: Clock,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
        member_id: str = "",
    ) -> None:
        self.settings = settings
        self.membership: membership.Membership | None = None
        """None unless, as far as this client knows, it is a member."""
        self._store = store
        self._leases = leases
        self._clock = clock
        self._new_id = new_id
        self._id = member_id
        # Not a bound method, which would keep the member alive after its consumer was garbage-collected.
        self._known: Callable[[], GroupFacts] = lambda: _known_of(topics(), settings, clock)
        self._expiry = membership.SessionExpiry(store, leases, self._known, settings, clock)
        self._polled = clock.monotonic()
        self._due = self._polled
        self._silent = ""
        """Id of the member whose missing polls were logged."""
        self.lease_end = -math.inf
        """Time until which no other member may treat this one as dead, seconds of the monotonic clock: one session
        after the last heartbeat that was in time. After it, `look` checks the membership."""
        self._beating = threading.Lock()

    @classmethod
    def of(
        cls, cluster: Cluster, settings: membership.MemberSettings, clock: Clock, *, member_id: str = ""
    ) -> GroupMember:
        """Return a member of a cluster's group that has not joined yet."""

        def topics() -> membership.KnownTopics:
            state = cluster.metadata.refresh()
            return membership.KnownTopics(state.topics, state.seq)

        store = membership.GroupStore(cluster.groups, settings.group_id)
        return cls(store, cluster.leases, topics, settings, clock=clock, member_id=member_id)

    # --- the owner's thread ------------------------------------------------------------------

    @property
    def member_id(self) -> str:
        """Id in the group; empty before it joins."""
        return self._id

    def polled(self, now: float) -> None:
        """Restart `max_poll_interval_ms` at a time, s of the monotonic clock."""
        self._polled = now

    @property
    def lapsed(self) -> bool:
        """True if its session may have expired unnoticed: call `look` before using its partitions."""
        return self.membership is not None and self._clock.monotonic() >= self.lease_end

    def join(
        self, subscription: tuple[str, ...], timeout_ms: float | None = 60_000, rule: membership.JoinRule = JOIN
    ) -> Roster:
        """Join the group under an id of its own; the group rebalances.

        After an unknown outcome, a retry uses the same id and changes nothing if the member has joined.

        Raises:
            InconsistentGroupProtocolError: the group's members have no assignor in common with it.
            NonEmptyGroupError: it wants the group exclusively, and the group has other members.
            KafkaError: as `RosterStore.change`.
        """
        settings = self.settings
        if not self._id:
            self._id = f"{settings.group_instance_id or settings.client_id}-{self._new_id()}"
        known = self._known()
        member = Member(
            member_id=self._id,
            group_instance_id=settings.group_instance_id,
            client_id=settings.client_id,
            client_host=settings.host,
            subscription=subscription,
            protocols=tuple(settings.schemes),
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            joined_ms=known.now_ms,
        )
        # Before the row, so that no other member finds this one without a heartbeat.
        begun = self._clock.monotonic()
        self._leases.renew(settings.group_id, self._id)
        self._due = self._clock.monotonic() + settings.heartbeat_interval_ms / 1000
        joined = self._store.change(lambda now: rule(now, member, known), self._id, "joined", timeout_ms)
        self.lease_end = begun + settings.session_timeout_ms / 1000
        roster = self._adopt(joined)
        _log.info("group %s: %s joined in generation %s", settings.group_id, self._id, roster.generation)
        return roster

    def resume(self, roster: Roster) -> None:
        """Take over a member that another process has joined for the same client.

        The next `look` sends a heartbeat, and makes sure that it precedes any removal of the member.

        Args:
            roster: the newest roster, which has the member.
        """
        self._adopt(roster)

    def try_join(self, subscription: tuple[str, ...], rule: membership.JoinRule = JOIN) -> Roster | None:
        """Join, or find out whether the members that prevent it are alive.

        Returns:
            None if they may be dead: retry within a heartbeat interval. They are removed when their sessions expire.

        Raises:
            InconsistentGroupProtocolError, NonEmptyGroupError: as `join`, and such a member has sent a heartbeat.
            KafkaError: as `join`.
        """
        try:
            return self.join(subscription, rule=rule)
        except (InconsistentGroupProtocolError, NonEmptyGroupError):
            if self._expiry.has_seen_heartbeat:
                self._leases.drop(self.settings.group_id, self._id)
                raise
            with self._beating:
                self._expiry.expire(self._id, self._store.read())
            return None

    def look(self, roster: Roster | None = None) -> Roster | None:
        """Return the roster; None if this member was removed because its session expired or it did not poll in time.

        Args:
            roster: the roster that the caller has just read; None reads it.

        Raises:
            FencedInstanceIdError: another process has taken over its static name; raised at each call until `forget`.
            KafkaError: as `RosterStore.change`; only after a session without heartbeat.
        """
        if self.membership is None:
            return None
        if roster is None:
            roster = self._store.read()
        if self._id in roster.members and self.lapsed:
            roster = self._revive()
        if self._id in roster.members:
            return self._adopt(roster)
        owner = roster.instance(self.settings.group_instance_id)
        if owner is not None:
            raise FencedInstanceIdError(
                f"group {self.settings.group_id!r}: {owner.member_id!r} has taken over as "
                f"{self.settings.group_instance_id!r}; {self._id!r} was removed from the group"
            )
        self.forget()
        return None

    def _revive(self) -> Roster:
        """Send a late heartbeat, and make sure that it precedes any removal of this member.

        This writes a row. A concurrent removal was planned on the roster before that row, so it fails, and its writer
        reads the heartbeats again.
        """
        begun = self._clock.monotonic()
        self._leases.renew(self.settings.group_id, self._id)
        now_ms = self._clock.now_ms()
        roster = self._store.change(
            lambda now: replace(now, changed_ms=now_ms) if self._id in now.members else now,
            self._id,
            "gave no heartbeat for its session",
        )
        if self._id in roster.members:
            self.lease_end = begun + self.settings.session_timeout_ms / 1000
        return roster

    def follow(
        self, roster: Roster, subscription: tuple[str, ...], topics: membership.KnownTopics | None = None
    ) -> Roster | None:
        """Record this member's subscription, and have the targets recomputed if topics changed.

        Args:
            roster: the group's roster that the caller has just read.
            subscription: the topics to subscribe to.
            topics: topics that the caller has just seen; None looks. A row is always written from a new look.

        Returns:
            The new roster; None if this member was removed.
        """
        me = roster.members[self._id]
        if me.subscription != subscription:
            known = self._known()
            return self._mine(
                lambda now: (
                    group_protocol.join(now, replace(now.members[self._id], subscription=subscription), known)
                    if self._id in now.members
                    else now
                ),
                "subscribes to other topics",
            )
        return self._renew(roster, topics)

    def _renew(self, roster: Roster, topics: membership.KnownTopics | None) -> Roster | None:
        seen = self._known() if topics is None else _known_of(topics, self.settings, self._clock)
        if not roster.pending and not group_protocol.topics_differ(roster, seen):
            return roster
        known = seen if topics is None else self._known()
        return self._mine(lambda now: group_protocol.renew(now, known), "topics changed")

    def release(self, given_up: Iterable[TopicPartition]) -> Roster | None:
        """Record that the member has given up partitions. Called after the rebalance listener.

        Args:
            given_up: partitions to be given up as of its last look; there may be more in the meantime.

        Returns:
            The new roster; None if this member was removed.
        """
        known, given = self._known(), tuple(given_up)
        return self._mine(lambda now: group_protocol.release(now, self._id, given, known), "gave up partitions")

    def leave(self, timeout_ms: float | None = 60_000, why: str = "left") -> None:
        """Leave the group. Its partitions are reassigned at once.

        The member keeps its id until it is removed, so that an interrupted call can be repeated.
        """
        self.membership = None
        if self._id:
            self._expiry.take_out([self._id], self._id, why, timeout_ms)
            self._id = ""

    def saw(self, generation: int) -> None:
        """Record the generation of a commit; -1 is none."""
        if self.membership is not None and generation > self.membership.generation:
            self.membership = replace(self.membership, generation=generation)

    def forget(self) -> None:
        """Drop the membership on this side only.

        A static member keeps its place in the group until its session expires.
        """
        self._id, self.membership = "", None

    # --- heartbeats -----------------------------------------------------------------------

    def beat(self, roster: Roster | None = None) -> float:
        """Send a heartbeat if it is due, and expire other members.

        Called by the heartbeat thread, or by poll without one.

        Args:
            roster: the roster that the caller has just read; None reads it.

        Returns:
            Seconds until the next one is due.
        """
        if not self._beating.acquire(blocking=False):
            return SHORTEST_BEAT
        try:
            now = self._clock.monotonic()
            if self.membership is not None and now >= self._due:
                self._due = now + self.settings.heartbeat_interval_ms / 1000
                try:
                    self._beat(self.membership.member_id, now, roster)
                except KafkaError as cause:
                    _log.warning("group %s: no heartbeat: %s", self.settings.group_id, cause)
            return max(SHORTEST_BEAT, self._due - self._clock.monotonic())
        finally:
            self._beating.release()

    def _beat(self, member_id: str, now: float, roster: Roster | None) -> None:
        settings = self.settings
        if (now - self._polled) * 1000 > settings.max_poll_interval_ms:
            self._leave_for_silence(member_id)
            return
        self._leases.renew(settings.group_id, member_id)
        # A late heartbeat does not extend the lease, because others may have acted on its absence; `look` finds out.
        if self._clock.monotonic() < self.lease_end:
            self.lease_end = now + settings.session_timeout_ms / 1000
        if roster is None:
            roster = self._store.read()
        if member_id not in roster.members:
            if self.membership is not None and self.membership.member_id == member_id:
                self.lease_end = -math.inf
            self._leases.drop(settings.group_id, member_id)
            return
        soonest = self._expiry.expire(member_id, (m for m in roster if m.member_id != member_id))
        self._expiry.warn_of_silent_owners(member_id, roster)
        if soonest is not None:
            self._due = min(self._due, max(soonest, now + SHORTEST_BEAT))

    def _leave_for_silence(self, member_id: str) -> None:
        """Leave the group once, for any number of heartbeats before the application polls again."""
        settings = self.settings
        if self._silent != member_id:
            _log.warning(
                "group %s: %s did not poll for max_poll_interval_ms=%s, and leaves",
                settings.group_id,
                member_id,
                settings.max_poll_interval_ms,
            )
            self._silent = member_id
        self.lease_end = -math.inf
        if member_id in self._store.read().members:
            # Only the table changes here; the owner's thread learns of it at its next look.
            self._expiry.take_out([member_id], member_id, "did not poll in time")
        self.lease_end = -math.inf  # once more: the owner's thread may have looked meanwhile

    # --- both --------------------------------------------------------------------------------

    def _mine(self, change: Callable[[Roster], Roster], why: str) -> Roster | None:
        roster = self._adopt(self._store.change(change, self._id, why))
        return roster if self._id in roster.members else None

    def _adopt(self, roster: Roster) -> Roster:
        """Use the roster's generation for later commits."""
        known = self.membership
        if self._id in roster.members and (known is None or known.generation != roster.generation):
            self.membership = membership.Membership(
                group_id=self.settings.group_id,
                generation=roster.generation,
                member_id=self._id,
                client_id=self.settings.client_id,
                group_instance_id=self.settings.group_instance_id,
            )
        return roster


def _known_of(now: membership.KnownTopics, settings: membership.MemberSettings, clock: Clock) -> GroupFacts:
    """Return the facts for a member's decisions."""
    return GroupFacts(
        schemes=settings.schemes,
        topics=membership.PartitionCounts(now.infos),
        metadata_seq=now.seq,
        now_ms=clock.now_ms(),
    )


class HeartbeatThread:
    """The heartbeat thread of one member.

    The thread holds its member weakly: if a consumer is garbage-collected without `close`, its session expires and its
    partitions are reassigned. A test's clock does not run by itself, so then no thread is started, and `poll` sends the
    heartbeats.

    Args:
        member: the member; None for a client without a group, which sends no heartbeats.
        clock: the member's clock.
    """

    def __init__(self, member: GroupMember | None, clock: Clock) -> None:
        self._member = None if member is None else weakref.ref(member)
        self._real = isinstance(clock, SystemClock)
        self._begun: tuple[threading.Thread, threading.Event] | None = None
        """The thread, whose start may have been interrupted, and the event that stops it."""

    @property
    def running(self) -> bool:
        """True if the thread runs and was not told to stop."""
        if self._begun is None:
            return False
        thread, stop = self._begun
        return thread.ident is not None and not stop.is_set()

    def start(self) -> None:
        """Start the thread unless it runs."""
        if self._member is None or not self._real or self.running:
            return
        if self._begun is not None:
            # Its start was interrupted. If the thread runs all the same, this stops it.
            self._begun[1].set()
        stop = threading.Event()
        thread = threading.Thread(target=_run, args=(self._member, stop), name="kafkalike-heartbeat", daemon=True)
        self._begun = thread, stop
        thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for a heartbeat in progress."""
        if self._begun is not None:
            thread, stop = self._begun
            stop.set()
            if thread.is_alive():
                thread.join()
            self._begun = None


def _run(reference: weakref.ref[GroupMember], stop: threading.Event) -> None:
    wait = 0.0
    while not stop.wait(wait):
        member = reference()
        if member is None:
            return
        # A user's assignor may fail. This member must stay alive, because another member may compute the assignment.
        with ReportErrors(_log, "group %s: the heartbeat failed", member.settings.group_id) as reported:
            wait = member.beat()
        if reported.error is not None:
            wait = member.settings.heartbeat_interval_ms / 1000
        # Drop both references during the wait, because an error's traceback holds the member.
        del member, reported
