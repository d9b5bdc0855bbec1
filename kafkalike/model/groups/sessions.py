"""Sessions: heartbeats of members in, whose session is over out; and where members leave their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from kafkalike.model.groups.roster import Member

NS_PER_MS = 1_000_000

TICK_MS = 20
"""A storage's clock may go in steps, so that a heartbeat looks older than it is."""


@dataclass(slots=True)
class _Seen:
    stamp: int | None
    """The heartbeat seen last; None when there was none."""
    since: float
    """Since when it has been the last one; seconds of the observer's monotonic clock."""


class Sessions:
    """Who of the others gave no heartbeat for `session_timeout_ms`.

    A member is dead when its last heartbeat stayed the same for so long *on the observer's monotonic clock*: clocks
    of two machines are never compared, and one that is set forward or back kills nobody. So that a group that
    was left for dead an hour ago is not waited for again, a heartbeat that is older than the session by the
    storage's own clock counts after two heartbeat intervals without another one. Not thread-safe.

    Args:
        interval_s: seconds between two looks, as a rule.
    """

    def __init__(self, interval_s: float) -> None:
        self._longest_gap = 3 * interval_s
        self._seen: dict[str, _Seen] = {}
        self._observed: float | None = None
        self.lively = False
        """Whether anybody gave a heartbeat while he was watched."""

    def observe(
        self,
        now: float,
        others: Iterable[Member],
        stamps: Mapping[str, int],
        own_stamp: int | None,
        *,
        read_by: float | None = None,
    ) -> list[str]:
        """Look at everybody once.

        Args:
            now: when the heartbeats began to be read, seconds of the monotonic clock.
            others: the other members.
            stamps: their last heartbeats, ns of the storage's clock.
            own_stamp: the observer's own one, made just now: what time it is by that clock. None leaves its age out.
            read_by: when they had been read; None for at once. An observer may be held up in between, so a silence
                counts from here, and up to the next look's `now`.

        Returns:
            Ids of the members whose session is over.
        """
        stopped = self._observed is not None and now - self._observed > self._longest_gap
        self._observed = now
        seen: dict[str, _Seen] = {}
        over = []
        for member in others:
            stamp = stamps.get(member.member_id)
            known = self._seen.get(member.member_id)
            if known is not None and known.stamp != stamp:
                self.lively = True
            # An observer that was stopped itself saw nothing meanwhile: it begins anew.
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

    def next_check(self, others: Iterable[Member]) -> float | None:
        """When the next session could be over, seconds of the monotonic clock; None when nobody is watched."""
        ends = [
            self._seen[m.member_id].since + m.session_timeout_ms / 1000 for m in others if m.member_id in self._seen
        ]
        return min(ends, default=None)


class Leases(Protocol):
    """Heartbeats of group members, outside the table of groups. Thread-safe."""

    def renew(self, group_id: str, member_id: str) -> None:
        """Give a heartbeat.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """When members gave their last heartbeat: ns by the storage's own clock; who never gave one is missing.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member; never fails."""
        ...
