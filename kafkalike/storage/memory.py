"""MemoryStorage: a storage in a dictionary, for tests and simulations."""

from __future__ import annotations

import copy
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.groups.sessions import Leases
from kafkalike.storage.leases import MemoryLeases
from kafkalike.storage.port import Coordination, Entry, Reach, Storage
from kafkalike.storage.scheduler import Scheduler


@dataclass(slots=True)
class _Disk:
    """State that all storages of one root share."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)


class MemoryCoordination(Coordination):
    """Coordinates the threads of this process.

    Args:
        now_ns: the root's clock.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._now_ns = now_ns
        self._mutex = threading.RLock()
        self._leases = MemoryLeases(SYSTEM_CLOCK.now_ms)
        self._turns: dict[str, threading.RLock] = {}

    @property
    def reach(self) -> Reach:
        """The threads of this process."""
        return "process"

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Queue behind other threads."""
        with self._mutex:
            lock = self._turns.setdefault(name, threading.RLock())
        meanwhile()
        if not lock.acquire(timeout=min(deadline.remaining(), threading.TIMEOUT_MAX)):
            raise KafkaTimeoutError(f"other writers held {name!r} until time ran out; nothing was written")
        try:
            yield
        finally:
            lock.release()

    def leases(self) -> Leases:
        """Return heartbeats in memory."""
        return self._leases

    def now_ns(self) -> int:
        """Return the time of the clock given at construction."""
        return self._now_ns()


class MemoryScheduler(Scheduler):
    """Returns the checksums of files in memory. Tests derive remote storages from it.

    Args:
        storage: the files.
    """

    def __init__(self, storage: MemoryStorage) -> None:
        self.storage = storage

    def tag(self, name: str) -> str:
        """Return a checksum of a file."""
        return self.storage.tag(name)


class MemoryStorage(Storage):
    """Files in memory that only this process sees; `Storage` documents the guarantees of each method.

    Args:
        uri: the root's name in messages.
        now_ns: its clock.
    """

    uri: str = ""
    scheduler: MemoryScheduler

    def __init__(self, uri: str = "memory://", *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.uri = uri
        self.coordination = MemoryCoordination(now_ns)
        self.scheduler = MemoryScheduler(self)
        self._disk = _Disk()
        self._prefix = ""

    def at(self, folder: str) -> MemoryStorage:
        """Return the storage of a folder below."""
        below = copy.copy(self)
        below.uri = f"{self.uri}/{folder}"
        below._prefix = f"{self._prefix}{folder}/"  # noqa: SLF001 - another of the same class
        below.scheduler = copy.copy(self.scheduler)
        below.scheduler.storage = below
        return below

    def tag(self, name: str) -> str:
        """Return a checksum of a file; empty if it does not exist."""
        found = self._disk.files.get(self._prefix + name)
        return "" if found is None else _tag(found[0])

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        found = self._disk.files.get(self._prefix + name)
        if found is None:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return found[0]

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file unless it exists."""
        del durable
        with self._disk.mutex:
            if self._prefix + name in self._disk.files:
                return False
            self.replace(name, content)
            return True

    def replace(self, name: str, content: bytes) -> None:
        """Create or overwrite a file."""
        with self._disk.mutex:
            self._disk.files[self._prefix + name] = bytes(content), self.coordination.now_ns()

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        return len(self.read(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """List the files of a folder."""
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        with self._disk.mutex:
            found = [(n.removeprefix(prefix), c, t) for n, (c, t) in self._disk.files.items() if n.startswith(prefix)]
        shallow = [f for f in found if "/" not in f[0] or (deep and "_delta_log/" not in f[0])]
        return [Entry(n, len(c), t // 1_000_000, _tag(c)) for n, c, t in shallow if n > after]

    def folders(self) -> Sequence[str]:
        """List the names of the folders below."""
        with self._disk.mutex:
            below = [n.removeprefix(self._prefix) for n in self._disk.files if n.startswith(self._prefix)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def remove(self, name: str, *, quietly: bool = False) -> None:
        """Remove a file, if it exists."""
        del quietly
        with self._disk.mutex:
            self._disk.files.pop(self._prefix + name, None)


def _tag(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"
