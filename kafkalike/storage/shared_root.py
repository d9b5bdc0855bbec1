"""Shared root: what the storages of one root in an object store share in this process.

Its client, what was proved of the storage, threads for requests side by side, what is known of objects, the queues of
this process's threads, and heartbeats. An object store tells when an object was written in whole seconds, so two
heartbeats may have one time; a counter in each tells them apart.
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
"""How long the distance between the clocks is taken to be what it was."""

THREADS: Final = 32
"""Requests of one process to one root that are made side by side, at most, beside those of its own threads."""

FETCHED_BYTES: Final = 64 * 1024 * 1024
"""What one process holds of objects that it has fetched ahead, at most."""

KNOWN_TAGS: Final = 4096
"""Objects of which it is remembered what the storage called their contents: they are asked for right after the put."""

T = TypeVar("T")


class _Fetched:
    """Objects that were fetched ahead, each until it is read once; the oldest ones go first. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held: dict[str, bytes] = {}
        self._size = 0

    def put(self, name: str, content: bytes) -> None:
        """Hold an object."""
        self.pop(name)
        with self._mutex:
            self._held[name] = content
            self._size += len(content)
            while self._size > FETCHED_BYTES:
                self._size -= len(self._held.pop(next(iter(self._held))))

    def pop(self, name: str) -> bytes | None:
        """Give an object away."""
        with self._mutex:
            content = self._held.pop(name, None)
            self._size -= len(content or b"")
            return content


class _Tags:
    """What the storage calls contents that this process has put, see `Entry.tag`; the latest ones. Thread-safe."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._known: dict[str, str] = {}

    def put(self, name: str, tag: str) -> None:
        """Note one."""
        with self._mutex:
            self._known.pop(name, None)
            self._known[name] = tag
            if len(self._known) > KNOWN_TAGS:
                del self._known[next(iter(self._known))]

    def get(self, name: str) -> str:
        """One; empty where it is not known."""
        return self._known.get(name, "")


class SharedRoot:
    """What the stores of one root share in this process.

    Args:
        root: the place.
        options: what its client is made with.
        impatient: whether there are others that can be asked instead: see `ImpatientClient`.
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
        """See `Scheduler.shared`."""
        with self._shared_mutex:
            found: T | None = self._shared.get(name)
            if found is None:
                found = self._shared[name] = make()
            return found

    def started(self, call: Callable[[], T]) -> Future[T] | None:
        """Begin a call in another thread; None where there can be none, as at the interpreter's end."""
        check_process()
        try:
            # With the caller's deadline.
            return self._threads.submit(copy_context().run, call)
        except RuntimeError:
            return None

    def prove(self) -> Proof:
        """Try the storage out, unless that was done and went well.

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
        """Try it out now."""
        begun = SYSTEM_CLOCK.monotonic()
        proof = probe(self.client, whole=whole)
        if proof.ahead_ns is not None:
            self._looked = begun
        self._proof = proof
        return proof

    def _ahead_ns(self) -> int:
        """How far the storage's clock is ahead, by a trial that is not too old."""
        with self._mutex:
            proof = self._proof
            if proof is None or proof.ahead_ns is None or SYSTEM_CLOCK.monotonic() - self._looked > CLOCK_SECONDS:
                proof = self._tried(whole=True)
            assert proof.ahead_ns is not None
            return proof.ahead_ns

    def now_ns(self) -> int:
        """The storage's time, by the machine's clock and how far the two were apart a while ago."""
        try:
            ahead_ns = self._ahead_ns()
        except PermissionError:
            # Who may not write has no use for the storage's time but to show it.
            ahead_ns = 0
        return SYSTEM_CLOCK.now_ms() * 1_000_000 + ahead_ns


_roots: dict[tuple[str, StorageOptions, bool], SharedRoot] = {}
_roots_mutex = threading.Lock()


def shared_root(root: ObjectRoot, options: StorageOptions, *, impatient: bool = False) -> SharedRoot:
    """The one of this process: a root that was tried out need not be tried again."""
    key = root.uri, options, impatient
    with _roots_mutex:
        found = _roots.get(key)
        if found is None:
            found = _roots[key] = SharedRoot(root, options, impatient=impatient)
        return found


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


LOOK_SECONDS: Final = 0.25
"""Time between two calls of what a waiting thread does meanwhile."""


class Queues:
    """Queues by name. Who is first in one has its turn. Thread-safe; a turn is not for the same thread twice."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Wait for one's turn and have it.

        Raises:
            KafkaTimeoutError: others had it until the deadline.
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
