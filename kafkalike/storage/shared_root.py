"""Shared root: state that the storages of one root in an object store share in this process.

It holds the client, the result of the probe, threads for parallel requests, known objects, heartbeats, the write queues
of this process's threads, and their looks for files that may not exist yet. A look at an object store costs money and
time. A thread that polls for news accepts a recent answer of another thread; the longer nothing new has arrived, the
older it may be. Files that this process puts are known at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.storage_options import StorageOptions
from kafkalike.storage.impatient_client import ImpatientClient
from kafkalike.storage.leases import ObjectLeases
from kafkalike.storage.object_client import ObjectClient, check_process
from kafkalike.storage.object_root import ObjectRoot
from kafkalike.storage.probe import Proof, probe
from kafkalike.storage.scheduler import Pace

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


KNOWN_SECONDS: Final = 10.0
"""How long polling threads rely on a found file; other threads ask again."""

QUIET_SECONDS: Final = 5.0
"""Longest quiet time before a listing that is credited to a folder: then polling threads look after a second."""

KNOWN_FILES: Final = 32
KNOWN_BYTES: Final = 64 * 1024
"""Number and maximum size of the found files of a folder that are kept: the commits that other readers poll for."""

MOST_FOLDERS: Final = 4096
"""Number of remembered folders; the least recently used one is evicted."""


@dataclass(slots=True)
class _Answer:
    content: bytes | None
    """Content of the file; None if it did not exist."""
    at: float
    """The answer holds for this time or later."""


@dataclass(slots=True)
class _Folder:
    """Known files of one folder."""

    changed: float
    """Time of the last new file."""
    asking: threading.Lock = field(default_factory=threading.Lock)
    """Held by the polling thread of this process that asks the storage."""
    missing: tuple[str, _Answer] | None = None
    """The last missing file."""
    found: OrderedDict[str, _Answer] = field(default_factory=OrderedDict)

    def answer(self, name: str, since: float) -> _Answer | None:
        """Return the answer for a file, if it is from this time or later."""
        answer = self.found.get(name)
        if answer is None and self.missing is not None and self.missing[0] == name:
            answer = self.missing[1]
        return None if answer is None or answer.at < since else answer


class Looks:
    """The looks of one process at one root. Thread-safe.

    Args:
        monotonic: time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = SYSTEM_CLOCK.monotonic) -> None:
        self._monotonic = monotonic
        self._mutex = threading.Lock()
        self._folders: OrderedDict[str, _Folder] = OrderedDict()

    def look(self, name: str, pace: Pace, ask: Callable[[], bytes | None]) -> bytes | None:
        """Return the content of a file; None if it does not exist.

        Args:
            name: the file.
            pace: which answers of other threads are accepted.
            ask: asks the storage.
        """
        folder = self._folder(name)
        if not pace.waits:
            known = self._known(folder, name, pace)
            return self._asked(folder, name, ask) if known is None else known.content
        known = self._known(folder, name, pace)
        if known is None:
            with folder.asking:
                known = self._known(folder, name, pace)
                if known is None:
                    return self._asked(folder, name, ask)
        return known.content

    def has_answer(self, name: str, pace: Pace) -> bool:
        """Return True if a look needs no request."""
        return self._known(self._folder(name), name, pace) is not None

    def made(self, name: str, content: bytes) -> None:
        """Record a file that this process has just created."""
        folder, now = self._folder(name), self._monotonic()
        with self._mutex:
            self._note_found(folder, name, _Answer(content, now), now)

    def missed(self, name: str, since: float, quiet_seconds: float) -> None:
        """Record that a listing did not show a file.

        Args:
            name: the file.
            since: time of the listing.
            quiet_seconds: time since the last new file of the folder; at most `QUIET_SECONDS` are used.
        """
        folder = self._folder(name)
        with self._mutex:
            folder.changed = min(folder.changed, since - max(0.0, min(quiet_seconds, QUIET_SECONDS)))
            known = folder.missing
            if name not in folder.found and (known is None or known[0] != name or known[1].at < since):
                folder.missing = name, _Answer(None, since)

    def forget(self, name: str) -> None:
        """Forget a file that was removed or replaced."""
        with self._mutex:
            folder = self._folders.get(name.rpartition("/")[0])
            if folder is not None:
                folder.found.pop(name, None)
                folder.missing = None

    def _folder(self, name: str) -> _Folder:
        path = name.rpartition("/")[0]
        with self._mutex:
            folder = self._folders.get(path)
            if folder is None:
                folder = self._folders[path] = _Folder(self._monotonic())
                if len(self._folders) > MOST_FOLDERS:
                    self._folders.popitem(last=False)
            else:
                self._folders.move_to_end(path)
            return folder

    def _known(self, folder: _Folder, name: str, pace: Pace) -> _Answer | None:
        now = self._monotonic()
        with self._mutex:
            if not pace.waits:
                return folder.answer(name, pace.since)
            pause = KNOWN_SECONDS if name in folder.found else pause_seconds(now - folder.changed, pace.longest)
            return folder.answer(name, min(now - pause, pace.since))

    def _asked(self, folder: _Folder, name: str, ask: Callable[[], bytes | None]) -> bytes | None:
        begun = self._monotonic()
        answer = _Answer(ask(), begun)
        with self._mutex:
            if answer.content is not None:
                self._note_found(folder, name, answer, self._monotonic())
            elif name not in folder.found or folder.found[name].at < begun:
                # A file that was found after this look began exists, whatever this look returned.
                folder.found.pop(name, None)
                if folder.missing is None or folder.missing[0] != name or folder.missing[1].at < begun:
                    folder.missing = name, answer
        return answer.content

    @staticmethod
    def _note_found(folder: _Folder, name: str, answer: _Answer, now: float) -> None:
        if name not in folder.found:
            folder.changed = now
        if answer.content is None or len(answer.content) > KNOWN_BYTES:
            folder.found.pop(name, None)
            return
        folder.found[name] = answer
        folder.found.move_to_end(name)
        while len(folder.found) > KNOWN_FILES:
            folder.found.popitem(last=False)


SHORTEST_SECONDS: Final = 0.05
"""Time between two looks right after a new file."""

SHARE: Final = 5.0
"""A look follows after this fraction of the quiet time, so a record waits for at most a fifth of the pause before it,
and some twenty looks lead from the fastest pace to one per second."""


def pause_seconds(idle: float, longest: float) -> float:
    """Return the seconds between two looks for new files.

    Args:
        idle: seconds since the last new file.
        longest: maximum result, even below `SHORTEST_SECONDS`.
    """
    return min(longest, max(SHORTEST_SECONDS, idle / SHARE))
