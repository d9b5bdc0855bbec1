"""Session expiry: heartbeats of a group's members in; members whose session is over leave its roster."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping

from kafkalike.log.group.membership import MemberSettings, RosterStore
from kafkalike.model.clock import Clock
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.groups.sessions import Leases, Sessions

_log = logging.getLogger(__name__)


class SessionExpiry:
    """Watches the heartbeats of other members, and removes expired ones. One thread at a time.

    Args:
        store: the group's roster.
        leases: where heartbeats are.
        known: what the member knows now.
        settings: what it is like.
        clock: time.
    """

    def __init__(
        self,
        store: RosterStore,
        leases: Leases,
        known: Callable[[], GroupFacts],
        settings: MemberSettings,
        clock: Clock,
    ) -> None:
        self._store = store
        self._leases = leases
        self._known = known
        self._group_id = settings.group_id
        self._clock = clock
        self._sessions = Sessions(settings.heartbeat_interval_ms / 1000)

    @property
    def has_seen_heartbeat(self) -> bool:
        """True if any watched member has sent a heartbeat."""
        return self._sessions.lively

    def expire(self, by: str, others: Iterable[Member]) -> float | None:
        """Remove members whose session is over.

        Args:
            by: id of the member that watches.
            others: whom it watches.

        Returns:
            When the next session could be over, seconds of the monotonic clock; None when nobody is left.

        Raises:
            KafkaError: as `RosterStore.change`.
        """
        watched = list(others)
        begun = self._clock.monotonic()
        stamps = self._leases.read(self._group_id, [by, *(m.member_id for m in watched)])
        read_by = self._clock.monotonic()
        over = self._sessions.observe(begun, watched, stamps, stamps.get(by), read_by=read_by)
        if over:
            _log.warning("group %s: sessions are over: %s", self._group_id, ", ".join(over))
            self.take_out(over, by, f"sessions over: {', '.join(over)}", stamps=stamps)
        return self._sessions.next_check(m for m in watched if m.member_id not in over)

    def take_out(
        self,
        gone: list[str],
        by: str,
        why: str,
        timeout_ms: float | None = 60_000,
        stamps: Mapping[str, int] | None = None,
    ) -> None:
        """Remove members from the roster.

        Args:
            gone: their ids.
            by: whose doing it is.
            why: for people.
            timeout_ms: how long concurrent writers may hold it up.
            stamps: their last heartbeats; one that has given another one when it is written stays.

        Raises:
            KafkaError: as `RosterStore.change`.
        """
        known, out = self._known(), gone

        def change(now: Roster) -> Roster:
            nonlocal out
            if stamps is not None:
                latest = self._leases.read(self._group_id, gone)
                out = [i for i in gone if latest.get(i) == stamps.get(i)]
            return group_protocol.leave(now, out, known)

        self._store.change(change, by, why, timeout_ms)
        for member_id in out:
            self._leases.drop(self._group_id, member_id)
