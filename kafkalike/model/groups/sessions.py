"""Sessions: which members of groups have been silent for too long, judged by their heartbeats (leases)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafkalike.model.groups.roster import Member

NS_PER_MS = 1_000_000

TICK_MS = 20
"""A storage's clock may advance in steps, so that a heartbeat looks older than it is."""


@dataclass(slots=True)
class _Seen:
    stamp: int | None
    """The last heartbeat seen; None if there was none."""
    since: float
    """Time since when it has been the last one; seconds of the observer's monotonic clock."""


@dataclass(frozen=True, slots=True)
class Silence:
    """A member without heartbeats whose session has not expired."""

    member_id: str
    quiet_ms: float
    """Time since its last heartbeat, as far as the observer knows."""
    left_ms: float
    """Time until its session expires, if no heartbeat comes."""


class Sessions:
    """Finds other members that gave no heartbeat for `session_timeout_ms`.

    A session expires when its last heartbeat stayed the same for that long *on the observer's monotonic clock*: clocks
    of two machines are never compared, and setting one forward or back expires no session. To avoid waiting for a group
    that died an hour ago, a heartbeat that is older than the session by the storage's own clock counts after two
    heartbeat intervals without another one. Not thread-safe.

    Args:
        interval_s: usual seconds between two looks.
    """

    def __init__(self, interval_s: float) -> None:
        self._longest_gap = 3 * interval_s
        self._seen: dict[str, _Seen] = {}
        self._observed: float | None = None
        self._own_stamp: int | None = None
        self.lively = False
        """True if any watched member has sent a heartbeat."""

    def observe(
        self,
        now: float,
        others: Iterable[Member],
        stamps: Mapping[str, int],
        own_stamp: int | None,
        *,
        read_by: float | None = None,
    ) -> list[str]:
        """Look at all other members once.

        Args:
            now: time when reading the heartbeats began, seconds of the monotonic clock.
            others: the other members.
            stamps: their last heartbeats, ns of the storage's clock.
            own_stamp: the observer's own heartbeat, made just now, which tells the storage's time. None to ignore the
                age of heartbeats.
            read_by: time when all had been read; None for `now`. The observer may be delayed in between, so silence
                counts from this time up to the next look's `now`.

        Returns:
            Ids of the members whose session has expired.
        """
        stopped = self._observed is not None and now - self._observed > self._longest_gap
        self._observed, self._own_stamp = now, own_stamp
        seen: dict[str, _Seen] = {}
        over = []
        for member in others:
            stamp = stamps.get(member.member_id)
            known = self._seen.get(member.member_id)
            if known is not None and known.stamp != stamp:
                self.lively = True
            # An observer that was stopped itself has seen nothing meanwhile, so it starts over.
            if known is None or known.stamp != stamp or stopped:
                known = _Seen(stamp, now if read_by is None else read_by)
            elif self._over(member, known, now, own_stamp):
                over.append(member.member_id)
            seen[member.member_id] = known
        self._seen = seen
        return over

    @staticmethod
    def _over(member: Member, known: _Seen, now: float, own_stamp: int | None) -> bool:
        quiet_ms = (now - known.since) * 1000
        if quiet_ms >= member.session_timeout_ms:
            return True
        if quiet_ms < 2 * member.heartbeat_interval_ms or own_stamp is None:
            return False
        return known.stamp is None or (own_stamp - known.stamp) / NS_PER_MS >= member.session_timeout_ms + TICK_MS

    def silences(self, others: Iterable[Member]) -> list[Silence]:
        """Return which of these members, as of the last look, gave no heartbeat for two of their intervals."""
        now, own, found = self._observed or 0.0, self._own_stamp, []
        for member in others:
            known = self._seen.get(member.member_id)
            if known is None or (quiet_ms := (now - known.since) * 1000) < 2 * member.heartbeat_interval_ms:
                continue
            left_ms = member.session_timeout_ms - quiet_ms
            if own is not None and known.stamp is not None:
                age_ms = (own - known.stamp) / NS_PER_MS
                quiet_ms, left_ms = max(quiet_ms, age_ms), min(left_ms, member.session_timeout_ms + TICK_MS - age_ms)
            if left_ms > 0:
                found.append(Silence(member.member_id, quiet_ms, left_ms))
        return found

    def next_check(self, others: Iterable[Member]) -> float | None:
        """Return when the next session could expire, s of the monotonic clock; None without other members."""
        ends = [
            self._seen[m.member_id].since + m.session_timeout_ms / 1000 for m in others if m.member_id in self._seen
        ]
        return min(ends, default=None)


class Leases(Protocol):
    """Heartbeats of group members, stored outside of the table of groups. Thread-safe."""

    def renew(self, group_id: str, member_id: str) -> None:
        """Write a heartbeat.

        Raises:
            KafkaStorageError: the storage failed.
        """
        ...

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """Return the last heartbeat of each member: ns of the storage's own clock; members without one are missing.

        Raises:
            KafkaStorageError: the storage failed.
        """
        ...

    def drop(self, group_id: str, member_id: str) -> None:
        """Delete a member's heartbeat; never fails."""
        ...
