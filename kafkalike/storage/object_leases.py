"""ObjectLeases: heartbeats of group members as small objects, each with a counter in it.

An object store tells when an object was written in whole seconds, so two heartbeats may have one time; the counter
tells them apart.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Iterable

from kafkalike.errors import KafkaStorageError
from kafkalike.storage.leases import lease_name
from kafkalike.storage.object_client import ObjectClient

_WRAP = 1_000_000_000


class ObjectLeases:
    """Leases below a folder of an object store. Thread-safe.

    Args:
        client: makes the requests.
        folder: their folder.
    """

    def __init__(self, client: ObjectClient, folder: str) -> None:
        self._client = client
        self._folder = folder
        # Another process that takes a member's place must not begin at a number that was seen.
        self._count = secrets.randbelow(_WRAP)
        self._mutex = threading.Lock()

    def renew(self, group_id: str, member_id: str) -> None:
        """Give a heartbeat."""
        with self._mutex:
            self._count = (self._count + 1) % _WRAP
            content = str(self._count).encode()
        name = f"{self._folder}/{lease_name(group_id, member_id)}"
        try:
            self._client.put(name, content)
        except OSError as cause:
            raise KafkaStorageError(f"the lease {name} of member {member_id!r} cannot be written: {cause}") from cause

    def read(self, group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        """When members gave their last heartbeat: the storage's time in whole seconds, and the counter as ns."""
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
        """Forget a member; a lease that stays behind is harmless."""
        with contextlib.suppress(OSError):
            self._client.delete(f"{self._folder}/{lease_name(group_id, member_id)}")
