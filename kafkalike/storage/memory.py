"""MemoryStorage: a dictionary as a store, for tests and simulations."""

from __future__ import annotations

import copy
import io
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.groups.sessions import Leases
from kafkalike.storage.leases import MemoryLeases
from kafkalike.storage.near import NearStore
from kafkalike.storage.port import Entry, Reach, Storage

if TYPE_CHECKING:
    from kafkalike.model.clock import Deadline


@dataclass(slots=True)
class _Disk:
    """What all stores of one root share."""

    files: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    mutex: threading.RLock = field(default_factory=threading.RLock)
    leases: MemoryLeases = field(default_factory=lambda: MemoryLeases(SYSTEM_CLOCK.now_ms))
    turns: dict[str, threading.RLock] = field(default_factory=dict)


class MemoryStorage(NearStore):
    """Files in memory, seen by this process alone; `Storage` says what each method guarantees.

    Args:
        uri: what the root is called in messages.
        now_ns: its clock.
    """

    def __init__(self, uri: str = "memory://", *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self.uri = uri
        self._now_ns = now_ns
        self._disk = _Disk()
        self._prefix = ""

    @property
    def reach(self) -> Reach:
        """This process."""
        return "process"

    def check_writable(self) -> None:
        """Anything may be written here."""

    def try_out(self) -> None:
        """What is known of it beforehand is enough."""

    def at(self, folder: str) -> MemoryStorage:
        """The store of a folder below."""
        below = copy.copy(self)
        below.uri = f"{self.uri}/{folder}"
        below._prefix = f"{self._prefix}{folder}/"  # noqa: SLF001 - another of the same class
        return below

    def for_tasks(self) -> MemoryStorage:
        """It does not leave the process."""
        return self

    def sent_options(self) -> SentOptions | None:
        """None."""
        return None

    def hadoop_settings(self) -> Mapping[str, str]:
        """Nothing."""
        return {}

    def read(self, name: str) -> bytes:
        """Content of a file."""
        found = self._disk.files.get(self._prefix + name)
        if found is None:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return found[0]

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        """Create a file unless there is one."""
        del durable
        with self._disk.mutex:
            if self._prefix + name in self._disk.files:
                return False
            self.replace(name, content)
            return True

    def replace(self, name: str, content: bytes) -> None:
        """Write a file."""
        with self._disk.mutex:
            self._disk.files[self._prefix + name] = bytes(content), self.now_ns()

    def open_input(self, name: str, buffer_size: int = 0) -> pa.NativeFile:
        """Open a file for reading."""
        del buffer_size
        return pa.BufferReader(self.read(name))

    def read_range(self, name: str, start: int, stop: int) -> pa.Buffer:
        """Bytes of a file."""
        return pa.py_buffer(self.read(name)[start:stop])

    def open_output(self, name: str) -> pa.NativeFile:
        """A stream that makes a new file when it is closed."""
        return pa.PythonFile(_Output(self, name), "w")

    def size(self, name: str) -> int:
        """Bytes of a file."""
        return len(self.read(name))

    def list(self, folder: str = "", *, deep: bool = False, after: str = "") -> list[Entry]:
        """Files of a folder."""
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        with self._disk.mutex:
            found = [(n.removeprefix(prefix), c, t) for n, (c, t) in self._disk.files.items() if n.startswith(prefix)]
        shallow = [f for f in found if "/" not in f[0] or (deep and "_delta_log/" not in f[0])]
        return [Entry(n, len(c), t // 1_000_000, _tag(c)) for n, c, t in shallow if n > after]

    def tag(self, name: str) -> str:
        """A checksum of what it holds."""
        found = self._disk.files.get(self._prefix + name)
        return "" if found is None else _tag(found[0])

    def folders(self) -> Sequence[str]:
        """Names of the folders below."""
        with self._disk.mutex:
            below = [n.removeprefix(self._prefix) for n in self._disk.files if n.startswith(self._prefix)]
        return sorted({name.partition("/")[0] for name in below if "/" in name})

    def make_folder(self, folder: str) -> None:
        """There are no folders."""

    def copy(self, source: str, target: Storage, name: str) -> bool:
        """Copy a file."""
        target.replace(name, self.read(source))
        return False

    def discard(self, name: str) -> None:
        """Remove a file."""
        self.remove(name)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._disk.mutex:
            self._disk.files.pop(self._prefix + name, None)

    def sync(self, name: str) -> None:
        """Memory does not outlive the process."""

    def turn(
        self, name: str, deadline: Deadline, meanwhile: Callable[[], object] = lambda: None
    ) -> AbstractContextManager[None]:
        """Queue behind other threads."""
        return self._turn(name, deadline, meanwhile)

    @contextmanager
    def _turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        with self._disk.mutex:
            lock = self._disk.turns.setdefault(name, threading.RLock())
        meanwhile()
        if not lock.acquire(timeout=min(deadline.remaining(), threading.TIMEOUT_MAX)):
            raise KafkaTimeoutError(f"other writers held {name!r} until time ran out; nothing was written")
        try:
            yield
        finally:
            lock.release()

    def forget_turns(self, names: Iterable[str]) -> int:
        """Nothing is left behind."""
        del names
        return 0

    def leases(self) -> Leases:
        """Heartbeats in memory."""
        return self._disk.leases

    def now_ns(self) -> int:
        """The clock that the store was made with."""
        return self._now_ns()


def _tag(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


class _Output(io.BytesIO):
    """A file that is being written."""

    def __init__(self, store: MemoryStorage, name: str) -> None:
        super().__init__()
        self._store = store
        self._name = name

    def close(self) -> None:
        """Make the file visible."""
        if not self.closed:
            self._store.replace(self._name, self.getvalue())
        super().close()
