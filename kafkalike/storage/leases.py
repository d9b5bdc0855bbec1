"""Leases: heartbeats of group members, with the time of the last one; one small file per member.

Heartbeats in the offsets table would make a table version every few seconds and member. A lease only decides which
members are *presumed* dead; the end of a membership is written to the table (decision 007). An object store reports
write times in whole seconds, so two heartbeats may have the same time; a counter in each tells them apart.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaStorageError

if TYPE_CHECKING:
    from kafkalike.storage.object_client import ObjectClient

NAME_CHARACTERS: Final = 40
"""Length of the hash in a lease's file name: group and member ids may contain any character."""


def lease_name(group_id: str, member_id: str) -> str:
    """Return the file name of a member's lease."""
    return hashlib.sha256(f"{group_id}\0{member_id}".encode()).hexdigest()[:NAME_CHARACTERS]


class LocalLeases:
    """Leases in a folder of a local disk; a heartbeat sets the file's time. Thread-safe. See `Leases` for the methods.

    Args:
        folder: created at the first heartbeat.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._was_there = False

    def renew(self, group_id: str, member_id: str) -> None:
        """Record a heartbeat of a member. The folder is created once: if it vanishes, its root has vanished, too."""
        path = f"{self._folder}/{lease_name(group_id, member_id)}"
        try:
            try:
                os.utime(path)
            except FileNotFoundError:
                if not self._was_there:
                    os.makedirs(self._folder, mode=0o700, exist_ok=True)  # noqa: PTH103
                with open(path, "ab"):  # noqa: PTH123
                    os.utime(path)
            self._was_there = True
        except OSError as cause:
            raise KafkaStorageError(f"the lease {path} of member {member_id!r} cannot be written: {cause}") from cause

    def read(self, group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        """Return the time of the last heartbeat of each member."""
        found = {}
        for member_id in member_ids:
            path = f"{self._folder}/{lease_name(group_id, member_id)}"
            try:
                found[member_id] = os.stat(path).st_mtime_ns  # noqa: PTH116
            except FileNotFoundError:
                continue
            except OSError as cause:
                raise KafkaStorageError(f"the lease {path} of member {member_id!r} cannot be read: {cause}") from cause
        return found

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member; a leftover lease is harmless."""
        with contextlib.suppress(OSError):
            os.unlink(f"{self._folder}/{lease_name(group_id, member_id)}")  # noqa: PTH108


class MemoryLeases:
    """Leases in memory. Thread-safe.

    Args:
        now_ms: the time.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._stamps: dict[tuple[str, str], int] = {}
        self._count = 0
        self._lock = threading.Lock()

    def renew(self, group_id: str, member_id: str) -> None:
        """Record a heartbeat of a member."""
        with self._lock:
            self._count += 1
            self._stamps[group_id, member_id] = self._now_ms() * 1_000_000 + self._count % 1_000_000

    def read(self, group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        """Return the time of the last heartbeat of each member."""
        with self._lock:
            return {i: self._stamps[group_id, i] for i in member_ids if (group_id, i) in self._stamps}

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget the lease of a member."""
        with self._lock:
            self._stamps.pop((group_id, member_id), None)


_WRAP = 1_000_000_000


class ObjectLeases:
    """Heartbeats of group members as objects in a folder. Thread-safe.

    Args:
        client: makes the requests.
        folder: the folder.
    """

    def __init__(self, client: ObjectClient, folder: str) -> None:
        self._client = client
        self._folder = folder
        # A process that takes over a member must not reuse a counter that others have seen.
        self._count = secrets.randbelow(_WRAP)
        self._mutex = threading.Lock()

    def renew(self, group_id: str, member_id: str) -> None:
        """Record a heartbeat of a member."""
        with self._mutex:
            self._count = (self._count + 1) % _WRAP
            content = str(self._count).encode()
        name = f"{self._folder}/{lease_name(group_id, member_id)}"
        try:
            self._client.put(name, content)
        except OSError as cause:
            raise KafkaStorageError(f"the lease {name} of member {member_id!r} cannot be written: {cause}") from cause

    def read(self, group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        """Return the last heartbeat of each member: the storage's time in whole seconds, plus the counter as ns."""
        found = {}
        for member_id in member_ids:
            name = f"{self._folder}/{lease_name(group_id, member_id)}"
            try:
                content, written_ns = self._client.get_with_time(name)
                found[member_id] = written_ns + int(content)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as cause:
                raise KafkaStorageError(f"the lease {name} of member {member_id!r} cannot be read: {cause}") from cause
        return found

    def drop(self, group_id: str, member_id: str) -> None:
        """Forget a member; a leftover lease is harmless."""
        with contextlib.suppress(OSError):
            self._client.delete(f"{self._folder}/{lease_name(group_id, member_id)}")
