"""Leases: what a group may ask of the place where its members leave their heartbeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


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
