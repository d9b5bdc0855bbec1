"""SharedRoot: what the stores of one root in an object store share in this process.

Its client, what was proved of the storage, threads for requests side by side, and what is known of objects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.impatient_client import ImpatientClient
from kafkalike.storage.object_client import ObjectClient, check_process
from kafkalike.storage.object_leases import ObjectLeases
from kafkalike.storage.object_root import ObjectRoot
from kafkalike.storage.probe import Proof, probe
from kafkalike.storage.shared_poll import Looks
from kafkalike.storage.thread_queue import Queues

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
