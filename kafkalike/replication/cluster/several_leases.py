"""SeveralLeases: heartbeats of group members in; at several roots, as any one of them may go, out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from kafkalike.errors import KafkaStorageError
from kafkalike.model.groups.sessions import Leases

MOST_LEASES: Final = 3
"""Roots that get a heartbeat: any one of them that both see is enough."""


class SeveralLeases:
    """Heartbeats of group members at several roots: the latest that any of them has counts. Thread-safe.

    Args:
        alive: the brokers whose roots answer, in order.
        leases_at: a broker id → the heartbeats at its root.
    """

    def __init__(self, alive: Callable[[], Sequence[int]], leases_at: Callable[[int], Leases]) -> None:
        self._alive = alive
        self._leases_at = leases_at
        self._leases: dict[int, Leases] = {}

    def _asked(self) -> list[Leases]:
        found = []
        for broker in self._alive()[:MOST_LEASES]:
            if broker not in self._leases:
                self._leases[broker] = self._leases_at(broker)
            found.append(self._leases[broker])
        if not found:
            raise KafkaStorageError("no root answers")
        return found

    def renew(self, group_id: str, member_id: str) -> None:
        """Give a heartbeat."""
        failed: KafkaStorageError | None = None
        done = False
        for leases in self._asked():
            try:
                leases.renew(group_id, member_id)
                done = True
            except KafkaStorageError as cause:
                failed = cause
        if failed is not None and not done:
            raise failed

    def read(self, group_id: str, member_ids: Iterable[str]) -> Mapping[str, int]:
        """When members gave their last heartbeat."""
        wanted = list(member_ids)
        latest: dict[str, int] = {}
        for leases in self._asked():
            for member, seen in leases.read(group_id, wanted).items():
                latest[member] = max(seen, latest.get(member, 0))
        return latest

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member."""
        with contextlib.suppress(KafkaStorageError):
            for leases in self._asked():
                leases.drop(group_id, member_id)
