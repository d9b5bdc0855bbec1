"""Membership: a member's settings and generation, the store of the group's roster, and the expiry of sessions.

A change of a roster is one row of `__consumer_offsets`, written by compare-and-set.
"""

from __future__ import annotations

import logging
import math
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafkalike.model.clock import Clock
from kafkalike.model.group_rows import SHARE, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts, Scheme
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.groups.sessions import Leases, Sessions
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.cluster.control_logs import GroupsLog


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The member that commits offsets."""

    group_id: str
    generation: int = -1
    """Generation of the group; -1 for a client outside the group's membership (manual assignment, admin)."""
    member_id: str = ""
    """Empty outside the group's membership."""
    client_id: str = ""
    """Name of the client, shown to operators."""
    group_instance_id: str | None = None
    """Static name of the member; None without one."""


class SessionWatch:
    """The heartbeats of a group as one process has seen them. Its members may share it, so that one looks for all.

    Args:
        interval_s: usual seconds between two looks.
    """

    def __init__(self, interval_s: float) -> None:
        self.sessions = Sessions(interval_s)
        self.lock = threading.Lock()
        """Held during a look."""
        self.by = ""
        """Id of the member that looked last."""
        self.until = -math.inf
        """Time from which another member looks if that one does not, s of the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSettings:
    """Settings of one group member."""

    group_id: str
    schemes: Mapping[str, Scheme]
    """Its assignors by name, the preferred one first."""
    client_id: str = ""
    group_instance_id: str | None = None
    session_timeout_ms: float = 45_000
    heartbeat_interval_ms: float = 3000
    max_poll_interval_ms: float = 300_000
    host: str = field(default_factory=socket.gethostname)
    watch: SessionWatch | None = None
    """Shared by the members of the group in this process; None for a private one."""


@dataclass(frozen=True, slots=True)
class KnownTopics:
    """All topics of a cluster at one moment."""

    infos: Mapping[str, TopicInfo]
    seq: int


class PartitionCounts(Mapping[str, tuple[str, int]]):
    """Topic ids and partition counts, looked up on access because a cluster may have very many topics."""

    __slots__ = ("_infos",)

    def __init__(self, infos: Mapping[str, TopicInfo]) -> None:
        self._infos = infos

    def __getitem__(self, topic: str) -> tuple[str, int]:
        info = self._infos[topic]
        return info.topic_id, info.num_partitions

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)


RosterChange = Callable[[Roster], Roster]
"""Returns the next roster for a roster, or the same object for no change. May be called several times."""


JoinRule = Callable[[Roster, Member, GroupFacts], Roster]
"""Returns the roster with a member that joins."""


class RosterStore(Protocol):
    """The store of one group's roster."""

    def read(self) -> Roster:
        """Return the newest roster of the group."""
        ...

    def change(self, change: RosterChange, by: str, why: str, timeout_ms: float | None = 60_000) -> Roster:
        """Write the result of `change`; if the roster changed meanwhile, call `change` again.

        Args:
            change: makes the next roster. If it raises an error, nothing changes.
            by: id of the member that makes the change.
            why: reason, shown to operators.
            timeout_ms: how long concurrent writers may delay it; None waits without limit.

        Returns:
            The new roster.

        Raises:
            GroupIdNotFoundError: a member joined a group of another type; nothing was written.
            KafkaTimeoutError, KafkaStorageError: nothing was written.
            UnknownOutcomeError: it may have been written.
        """
        ...


@dataclass(frozen=True, slots=True)
class GroupStore:
    """The roster of one group in the table of groups. Thread-safe, as the table is."""

    groups: GroupsLog
    group_id: str

    def read(self) -> Roster:
        """Return the newest roster; costs a file look-up if nothing changed. A member calls it at each poll."""
        return self.groups.refresh(waiting=True).group(self.group_id).roster

    def change(self, change: RosterChange, by: str, why: str, timeout_ms: float | None = 60_000) -> Roster:
        """Write the result of `change`; see `RosterStore.change`."""
        after = Roster()

        def plan(state: GroupsState) -> Sequence[GroupRow]:
            nonlocal after
            before = state.group(self.group_id).roster
            after = change(before)
            if after.members.keys() - before.members.keys():
                state.check_type(self.group_id, share=after.protocol == SHARE)
            return [] if after is before else [roster_row(state.seq + 1, self.group_id, after, by, why)]

        self.groups.transact(plan, timeout_ms)
        return after


_log = logging.getLogger(__name__)


class SessionExpiry:
    """Watches the heartbeats of other members, and removes expired ones. One thread at a time.

    Args:
        store: the group's roster.
        leases: storage of heartbeats.
        known: returns the facts for the member's decisions.
        settings: the member's settings.
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
        self._interval = settings.heartbeat_interval_ms / 1000
        self._watch = settings.watch or SessionWatch(self._interval)
        self._told: set[str] = set()
        """Ids of the silent owners that were logged in this wait."""

    @property
    def has_seen_heartbeat(self) -> bool:
        """True if any watched member has sent a heartbeat."""
        return self._watch.sessions.lively

    def expire(self, by: str, others: Iterable[Member]) -> float | None:
        """Remove members whose session has expired, unless another member that shares the watch has just looked.

        Args:
            by: id of the member that watches.
            others: members to watch.

        Returns:
            When the next session could expire, seconds of the monotonic clock; None if this member need not look then.

        Raises:
            KafkaError: as `RosterStore.change`.
        """
        watch, begun = self._watch, self._clock.monotonic()
        if not watch.lock.acquire(blocking=False):
            return None
        try:
            if watch.by != by and begun < watch.until:
                return None
            watch.by, watch.until = by, begun + self._interval
            return self._look(by, list(others), begun)
        finally:
            watch.lock.release()

    def _look(self, by: str, watched: list[Member], begun: float) -> float | None:
        stamps = self._leases.read(self._group_id, [by, *(m.member_id for m in watched)])
        read_by = self._clock.monotonic()
        over = self._watch.sessions.observe(begun, watched, stamps, stamps.get(by), read_by=read_by)
        if over:
            _log.warning("group %s: sessions have expired: %s", self._group_id, ", ".join(over))
            self.take_out(over, by, f"sessions over: {', '.join(over)}", stamps=stamps)
        return self._watch.sessions.next_check(m for m in watched if m.member_id not in over)

    def warn_of_silent_owners(self, by: str, roster: Roster) -> None:
        """Log once that a member has no partitions because their owners have been silent since before the last look.

        Args:
            by: id of the member that watches.
            roster: the roster of the last look.
        """
        silences = self._watch.sessions.silences(group_protocol.owners_awaited(roster, by))
        new = [silence for silence in silences if silence.member_id not in self._told]
        self._told = {silence.member_id for silence in silences}
        for silence in new:
            _log.warning(
                "group %s: %s has no partitions: %s owns some and gave no heartbeat for %.0f s; without one it will be "
                "removed in %.0f s",
                self._group_id,
                by,
                silence.member_id,
                silence.quiet_ms / 1000,
                silence.left_ms / 1000,
            )

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
            by: id of the member that removes them.
            why: reason, shown to operators.
            timeout_ms: how long concurrent writers may delay it.
            stamps: their last heartbeats; a member with a newer heartbeat at the time of the write stays.

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
