"""Shared root: state that the storages of one root in an object store share in this process.

It holds the client, the result of the probe, threads for parallel requests, known objects, the write queues of this
process's threads, and heartbeats. An object store reports write times in whole seconds, so two heartbeats may have the
same time; a counter in each tells them apart.
"""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.impatient_client import ImpatientClient
from kafkalike.storage.leases import lease_name
from kafkalike.storage.object_client import ObjectClient, check_process
from kafkalike.storage.object_root import ObjectRoot
from kafkalike.storage.probe import Proof, probe
from kafkalike.storage.shared_poll import Looks

LEASES: Final = "__leases"
"""Folder of the heartbeats of group members."""

CLOCK_SECONDS: Final = 600.0
"""How long a measured difference between the two clocks is used."""

THREADS: Final = 32
"""Maximum number of parallel requests of one process to one root; the process's own threads may make more."""

FETCHED_BYTES: Final = 64 * 1024 * 1024
"""Maximum bytes of prefetched objects of one process."""

KNOWN_TAGS: Final = 4096
"""Number of objects whose ETags are remembered: callers need them right after the put."""

T = TypeVar("T")


class _Fetched:
    """Prefetched objects, each until it is read once; the oldest are evicted first. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._size = 0

    def put(self, name: str, content: bytes) -> None:
        """Add a prefetched object."""
        self.pop(name)
        with self._mutex:
            self._held[name] = content
            self._size += len(content)
            while self._size > FETCHED_BYTES:
                self._size -= len(self._held.pop(next(iter(self._held))))

    def pop(self, name: str) -> bytes | None:
        """Remove and return an object; None if it was not prefetched."""
        with self._mutex:
            content = self._held.pop(name, None)
            self._size -= len(content or b"")
            return content


class _Tags:
    """The latest ETags of objects that this process has put, see `Entry.tag`. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known: dict[str, str] = {}

    def put(self, name: str, tag: str) -> None:
        """Remember the ETag of an object."""
        with self._mutex:
            self._known.pop(name, None)
            self._known[name] = tag
            if len(self._known) > KNOWN_TAGS:
                del self._known[next(iter(self._known))]

    def get(self, name: str) -> str:
        """Return an object's ETag; empty if it is unknown."""
        return self._known.get(name, "")


class SharedRoot:
    """State that the storages of one root share in this process.

    Args:
        root: the place.
        options: options of its client.
        impatient: True if other roots can be asked instead: see `ImpatientClient`.
    """

    def __init__(self, root: ObjectRoot, options: StorageOptions, *, impatient: bool = False) -> None:
        self.impatient = impatient
        self.client = ImpatientClient(root, options, self.started) if impatient else ObjectClient(root, options)
        self.place = root
        self.options = options
        self.queues = Queues()
        self.leases = ObjectLeases(self.client, LEASES)
        self.looks = Looks()
        self.fetched = _Fetched()
        self.tags = _Tags()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="kafkalike-requests")
        self._mutex = threading.Lock()
        self._shared: WeakValueDictionary[Hashable, Any] = WeakValueDictionary()
        self._shared_mutex = threading.Lock()
        self._proof: Proof | None = None
        self._looked = 0.0

    def shared(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the shared object of a name, and make it if nobody uses one; see `Scheduler.shared`."""
        with self._shared_mutex:
            found: T | None = self._shared.get(name)
            if found is None:
                found = self._shared[name] = make()
            return found

    def started(self, call: Callable[[], T]) -> Future[T] | None:
        """Start a call in another thread; None if no thread can be started, as at the interpreter's end."""
        check_process()
        try:
            # The call inherits the caller's deadline.
            return self._threads.submit(copy_context().run, call)
        except RuntimeError:
            return None

    def prove(self) -> Proof:
        """Probe the storage, unless an earlier probe succeeded.

        Raises:
            UnsafeStorageError, KafkaConnectionError, PermissionError: see `probe`.
        """
        proof = self._proof
        if proof is None:
            with self._mutex:
                proof = self._proof
                if proof is None:
                    proof = self._tried(whole=False)
        return proof

    def _tried(self, *, whole: bool) -> Proof:
        """Probe the storage now."""
        begun = SYSTEM_CLOCK.monotonic()
        proof = probe(self.client, whole=whole)
        if proof.ahead_ns is not None:
            self._looked = begun
        self._proof = proof
        return proof

    def _ahead_ns(self) -> int:
        """Return how far the storage's clock is ahead, by a recent probe."""
        with self._mutex:
            proof = self._proof
            if proof is None or proof.ahead_ns is None or SYSTEM_CLOCK.monotonic() - self._looked > CLOCK_SECONDS:
                proof = self._tried(whole=True)
            assert proof.ahead_ns is not None
            return proof.ahead_ns

    def now_ns(self) -> int:
        """Return the storage's time: the machine's clock plus the difference that the last probe measured."""
        try:
            ahead_ns = self._ahead_ns()
        except PermissionError:
            # Clients without write access only display the storage's time.
            ahead_ns = 0
        return SYSTEM_CLOCK.now_ms() * 1_000_000 + ahead_ns


_roots: dict[tuple[str, StorageOptions, bool], SharedRoot] = {}
_roots_mutex = threading.Lock()


def shared_root(root: ObjectRoot, options: StorageOptions, *, impatient: bool = False) -> SharedRoot:
    """Return this process's shared state of a root, so that a root is probed once."""
    key = root.uri, options, impatient
    with _roots_mutex:
        found = _roots.get(key)
        if found is None:
            found = _roots[key] = SharedRoot(root, options, impatient=impatient)
        return found


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


LOOK_SECONDS: Final = 0.25
"""Time between two calls of `meanwhile` by a waiting thread."""


class Queues:
    """Queues by name; the first thread of a queue has its turn. Thread-safe, but not reentrant."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Wait for the caller's turn and hold it.

        Raises:
            KafkaTimeoutError: other threads held the turn until the deadline.
        """
        mine = threading.Event()
        try:
            with self._mutex:
                queue = self._waiting.setdefault(name, deque())
                queue.append(mine)
                if queue[0] is mine:
                    mine.set()
            if not mine.is_set():
                meanwhile()
            while not mine.wait(min(deadline.remaining(), LOOK_SECONDS)):
                if deadline.expired():
                    raise KafkaTimeoutError(f"other writers held {name!r} until time ran out; nothing was written")
                meanwhile()
            yield
        finally:
            self._leave(name, mine)

    def _leave(self, name: str, mine: threading.Event) -> None:
        with self._mutex:
            queue = self._waiting.get(name, deque())
            if mine in queue:
                queue.remove(mine)
            if queue:
                queue[0].set()
            else:
                self._waiting.pop(name, None)
