"""GroupMember: one member's side of the group protocol; what it wants in, what it owns out.

The rules are in `kafkalike.model.group_protocol`; here they meet the table of groups, the leases and the clock.
"""

from __future__ import annotations

import logging
import math
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final

from kafkalike.clock import Clock
from kafkalike.errors import (
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    KafkaError,
    NonEmptyGroupError,
)
from kafkalike.group.membership import Counts, MemberSettings, Membership, Topics
from kafkalike.group.store import GroupStore, RosterStore
from kafkalike.log.port import Cluster
from kafkalike.model import group_protocol as protocol
from kafkalike.model.group_protocol import Known
from kafkalike.model.group_roster import Member, Partitions, Roster
from kafkalike.model.group_sessions import Sessions
from kafkalike.model.leases import Leases
from kafkalike.model.structs import TopicPartition

log = logging.getLogger(__name__)

SHORTEST_BEAT: Final = 0.01
"""Seconds that a heartbeat waits at least for the next one."""


class GroupMember:
    """One member of one group. `beat` may be called by another thread; everything else belongs to the owner's.

    Args:
        store: the group's roster.
        leases: where heartbeats go.
        topics: looks at the cluster's topics.
        settings: what the member is like.
        clock: time.
        new_id: makes the end of a member id.
    """

    def __init__(
        self,
        store: RosterStore,
        leases: Leases,
        topics: Callable[[], Topics],
        settings: MemberSettings,
        *,
        clock: Clock,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        self.settings = settings
        self.membership: Membership | None = None
        """None while it is no member, as far as it knows."""
        self._store = store
        self._leases = leases
        self._topics = topics
        self._clock = clock
        self._new_id = new_id
        self._id = ""
        self._sessions = Sessions(settings.heartbeat_interval_ms / 1000)
        self._polled = clock.monotonic()
        self._due = self._polled
        self.lease_end = -math.inf
        """Until when nobody else may take it for dead: a session from before its last sign of life that came in time;
        seconds of the monotonic clock. Past it, `look` finds out."""
        self._beating = threading.Lock()

    @classmethod
    def of(cls, cluster: Cluster, settings: MemberSettings, clock: Clock) -> GroupMember:
        """A member of a cluster's group, which it has not joined yet."""

        def topics() -> Topics:
            state = cluster.metadata.refresh()
            return Topics(state.topics, state.seq)

        return cls(GroupStore(cluster.groups, settings.group_id), cluster.leases, topics, settings, clock=clock)

    # --- the owner's thread ------------------------------------------------------------------

    def polled(self) -> None:
        """Note that the application works: `max_poll_interval_ms` begins anew."""
        self._polled = self._clock.monotonic()

    @property
    def lapsed(self) -> bool:
        """Whether it may be a member no more without knowing: what it owns is not to be used before a `look`."""
        return self.membership is not None and self._clock.monotonic() >= self.lease_end

    def join(self, subscription: tuple[str, ...], timeout_ms: float | None = 60_000) -> Roster:
        """Become a member, under an id of its own; the group is rebalanced.

        After an unknown outcome the same id is tried again, which changes nothing if it is a member already.

        Raises:
            InconsistentGroupProtocolError: the group's members have no assignor in common with it.
            NonEmptyGroupError: it wants the group for itself, and others are in it.
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
        # Before the row, so that nobody finds a member without a sign of life.
        begun = self._clock.monotonic()
        self._leases.renew(settings.group_id, self._id)
        self._due = self._clock.monotonic() + settings.heartbeat_interval_ms / 1000
        joined = self._store.change(lambda now: protocol.join(now, member, known), self._id, "joined", timeout_ms)
        self.lease_end = begun + settings.session_timeout_ms / 1000
        roster = self._adopt(joined)
        log.info("group %s: %s joined in generation %s", settings.group_id, self._id, roster.generation)
        return roster

    def try_join(self, subscription: tuple[str, ...]) -> Roster | None:
        """Join, or find out whether those who stand in the way are alive.

        Returns:
            None when they may be dead: try again, no later than in a heartbeat interval. They are members no more once
            their sessions are over.

        Raises:
            InconsistentGroupProtocolError, NonEmptyGroupError: as `join`, and one of the members gave a sign of life.
            KafkaError: as `join`.
        """
        try:
            return self.join(subscription)
        except (InconsistentGroupProtocolError, NonEmptyGroupError):
            if self._sessions.lively:
                self._leases.drop(self.settings.group_id, self._id)
                raise
            with self._beating:
                self._watch_from_outside()
            return None

    def _watch_from_outside(self) -> None:
        """Look at those who stand in the way, and take out whose session is over."""
        roster = self._store.read()
        self._bury(self._id, roster)

    def look(self) -> Roster | None:
        """The roster now; None when this is no member any more: its session is over, or it did not poll in time.

        Raises:
            FencedInstanceIdError: another process has taken its static name over.
            KafkaError: as `RosterStore.change`; only for one that was silent for its session.
        """
        if self.membership is None:
            return None
        roster = self._store.read()
        if self._id in roster.members and self.lapsed:
            roster = self._revive()
        if self._id in roster.members:
            return self._adopt(roster)
        lost, self._id, self.membership = self._id, "", None
        owner = roster.instance(self.settings.group_instance_id)
        if owner is not None:
            raise FencedInstanceIdError(
                f"group {self.settings.group_id!r}: {owner.member_id!r} has taken over as "
                f"{self.settings.group_instance_id!r}; {lost!r} is no member any more"
            )
        return None

    def _revive(self) -> Roster:
        """Give a late sign of life, and make sure that it came before anybody acted upon its silence.

        By a row: one that is being written to take this member out was planned on the roster before it, so it fails,
        and its planner looks at the sign of life again.
        """
        begun = self._clock.monotonic()
        self._leases.renew(self.settings.group_id, self._id)
        now_ms = self._clock.now_ms()
        roster = self._store.change(
            lambda now: replace(now, changed_ms=now_ms) if self._id in now.members else now,
            self._id,
            "gave no sign of life for its session",
        )
        if self._id in roster.members:
            self.lease_end = begun + self.settings.session_timeout_ms / 1000
        return roster

    def follow(self, roster: Roster, subscription: tuple[str, ...]) -> Roster | None:
        """Tell the group what this member wants by now, and have the targets made anew when topics changed.

        Returns:
            The roster after it; None when this is no member any more.
        """
        me = roster.members[self._id]
        if me.subscription != subscription:
            known = self._known()
            return self._mine(
                lambda now: (
                    protocol.join(now, replace(now.members[self._id], subscription=subscription), known)
                    if self._id in now.members
                    else now
                ),
                "subscribes to other topics",
            )
        return self._renew(roster)

    def _renew(self, roster: Roster) -> Roster | None:
        known = self._known()
        if not roster.pending and not protocol.topics_differ(roster, known):
            return roster
        return self._mine(lambda now: protocol.renew(now, known), "topics changed")

    def owned(self, roster: Roster) -> Partitions:
        """What it may read."""
        return roster.members[self._id].assignment

    def owes(self, roster: Roster) -> Partitions:
        """What it is to give up."""
        return protocol.owed(roster, roster.members[self._id])

    def waits(self, roster: Roster) -> bool:
        """Whether it waits until others have given up what it is to own."""
        me = roster.members[self._id]
        return roster.rebalancing and me.assignment != me.target

    def release(self, given_up: Iterable[TopicPartition]) -> Roster | None:
        """Say that it holds partitions no more. Caller: after the application has been told.

        Args:
            given_up: what it owed at its last look; it may owe more by now.

        Returns:
            The roster after it; None when this is no member any more.
        """
        known, given = self._known(), tuple(given_up)
        return self._mine(lambda now: protocol.release(now, self._id, given, known), "gave up partitions")

    def leave(self, timeout_ms: float | None = 60_000, why: str = "left") -> None:
        """Be a member no more; does nothing when it is none. What it owned goes to others at once.

        It keeps its id until it is out, so that a call that was interrupted can be made again.
        """
        self.membership = None
        if self._id:
            self._take_out([self._id], self._id, why, timeout_ms)
            self._id = ""

    def saw(self, generation: int) -> None:
        """Take note of the generation that a commit was made in; -1 is none."""
        if self.membership is not None and generation > self.membership.generation:
            self.membership = replace(self.membership, generation=generation)

    def forget(self) -> None:
        """Stop without leaving: a static member's place is kept until its session is over."""
        self._id, self.membership = "", None

    # --- heartbeats -----------------------------------------------------------------------

    def beat(self) -> float:
        """Give a sign of life if it is time, and look after the others. Caller: the pacemaker, or poll without one.

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
                    self._beat(self.membership.member_id, now)
                except KafkaError as cause:
                    log.warning("group %s: no heartbeat: %s", self.settings.group_id, cause)
            return max(SHORTEST_BEAT, self._due - self._clock.monotonic())
        finally:
            self._beating.release()

    def _beat(self, member_id: str, now: float) -> None:
        settings = self.settings
        if (now - self._polled) * 1000 > settings.max_poll_interval_ms:
            # Only the table is changed here: the owner's thread finds out at its next look.
            log.warning(
                "group %s: %s did not poll for max_poll_interval_ms=%s, and leaves",
                settings.group_id,
                member_id,
                settings.max_poll_interval_ms,
            )
            self.lease_end = -math.inf
            self._take_out([member_id], member_id, "did not poll in time")
            self.lease_end = -math.inf  # once more: the owner's thread may have looked meanwhile
            return
        self._leases.renew(settings.group_id, member_id)
        # A sign of life that comes too late may have been missed already; `look` makes that sure.
        if self._clock.monotonic() < self.lease_end:
            self.lease_end = now + settings.session_timeout_ms / 1000
        roster = self._store.read()
        if member_id not in roster.members:
            if self.membership is not None and self.membership.member_id == member_id:
                self.lease_end = -math.inf
            self._leases.drop(settings.group_id, member_id)
            return
        others = [m for m in roster if m.member_id != member_id]
        over = self._bury(member_id, others)
        soonest = self._sessions.next_check(m for m in others if m.member_id not in over)
        if soonest is not None:
            self._due = min(self._due, max(soonest, now + SHORTEST_BEAT))

    def _bury(self, by: str, others: Iterable[Member]) -> list[str]:
        """Take out whose session is over; returns who that is."""
        group_id, watched = self.settings.group_id, list(others)
        begun = self._clock.monotonic()
        stamps = self._leases.read(group_id, [by, *(m.member_id for m in watched)])
        read_by = self._clock.monotonic()
        over = self._sessions.observe(begun, watched, stamps, stamps.get(by), read_by=read_by)
        if over:
            log.warning("group %s: sessions are over: %s", group_id, ", ".join(over))
            self._take_out(over, by, f"sessions over: {', '.join(over)}", stamps=stamps)
        return over

    def _take_out(
        self,
        gone: list[str],
        by: str,
        why: str,
        timeout_ms: float | None = 60_000,
        stamps: Mapping[str, int] | None = None,
    ) -> None:
        """Write that some are members no more.

        Args:
            gone: their ids.
            by: whose doing it is.
            why: for people.
            timeout_ms: how long rivals may hold it up.
            stamps: their last heartbeats; one that has given another one when it is written stays.
        """
        group_id, known, out = self.settings.group_id, self._known(), gone

        def change(now: Roster) -> Roster:
            nonlocal out
            if stamps is not None:
                latest = self._leases.read(group_id, gone)
                out = [i for i in gone if latest.get(i) == stamps.get(i)]
            return protocol.leave(now, out, known)

        self._store.change(change, by, why, timeout_ms)
        for member_id in out:
            self._leases.drop(group_id, member_id)

    # --- both --------------------------------------------------------------------------------

    def _known(self) -> Known:
        topics = self._topics()
        return Known(
            schemes=self.settings.schemes,
            topics=Counts(topics.infos),
            metadata_seq=topics.seq,
            now_ms=self._clock.now_ms(),
        )

    def _mine(self, change: Callable[[Roster], Roster], why: str) -> Roster | None:
        roster = self._adopt(self._store.change(change, self._id, why))
        return roster if self._id in roster.members else None

    def _adopt(self, roster: Roster) -> Roster:
        """Commit under this generation from now on."""
        known = self.membership
        if self._id in roster.members and (known is None or known.generation != roster.generation):
            self.membership = Membership(
                group_id=self.settings.group_id,
                generation=roster.generation,
                member_id=self._id,
                client_id=self.settings.client_id,
                group_instance_id=self.settings.group_instance_id,
            )
        return roster
