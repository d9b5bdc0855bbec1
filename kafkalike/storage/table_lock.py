"""Table lock: the order in which threads and processes write to a table of a local root.

Offsets do not depend on it: the compare-and-set is `Storage.put_if_absent` of a version's file, and a writer that
continues without the lock does no harm. The lock saves writers from planning in vain, and none of them starves. The
kernel drops the lock when its holder dies, `kill -9` included.

The lock has two files, one for the queue and one for the table. A writer waits for the queue first and releases it only
when it has the table, so a writer that has just finished queues behind the waiting ones instead of taking the table
again. The longer a writer has queued, the more often it tries, so that no writer among many waits very long.

A free lock without a queue is taken with a few system calls (`Flock`), because filelock resolves the path and guards
forks at each attempt, which takes 0.15 ms per file: a quarter of the time of an append. On a root that may hang,
`try_lock` does the same within one call of the root. `TableLock` locks the same two files, takes over whenever either
fails, and reports errors.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, TopicAuthorizationFailedError
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import OnError, inherited

if TYPE_CHECKING:
    # Imported where a lock is not free, because it takes 6 ms, a fiftieth of a process that sends one record.
    from filelock import FileLock

TURN: Final = ".turn"
"""Suffix of the queue's file."""

LONGEST_NAME: Final = 200
"""Most characters of a table's name that are used in its lock's name."""

POLL_SECONDS: Final = 0.001
"""Time between two tries of the next writer in line, and of writers that have waited for `LONG_SECONDS`; short compared
with the few ms that an append holds the lock."""

FIRST_POLL_SECONDS: Final = 0.016
"""Time between two tries of a writer that has just begun to queue. Meanwhile the current holder may take the table
several times. That is cheaper than passing it on each time, because each writer must first read the commits of the
others."""

LONG_SECONDS: Final = 0.1
"""A writer that has waited this long was overtaken by others, or is behind many."""

Within = Callable[[Callable[[], object]], object]


def _plain(work: Callable[[], object]) -> object:
    return work()


def file_of_lock(name: str) -> str:
    """Return the file name of a table's lock."""
    return f"{name if len(name) <= LONGEST_NAME else _short(name)}.lock"


def _short(name: str) -> str:
    """Shorten a name that is too long for a file with the suffixes; topics may have 249 characters."""
    return f"{name[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"


class Flock:
    """One attempt to take the lock, and the lock itself if the attempt succeeded. Belongs to one thread.

    Call `free` at the end, twice if an interrupt may hit the first call.

    Args:
        queue: path of the queue's file.
        table: path of the lock's file.
    """

    __slots__ = ("__weakref__", "_files", "_queue", "_table")

    def __init__(self, queue: str, table: str) -> None:
        self._queue = queue
        self._table = table
        self._files: list[FileIO] = []

    def take(self) -> bool:
        """Take the lock if that is possible at once, without a visible place in the queue.

        Returns:
            False if another writer holds it or queues for it, its files do not exist yet, or the file system lacks
                `flock`. Nothing is created, because without `flock` the existence of a file is the lock.
        """
        # Register before opening, so that a child forked meanwhile finds it.
        inherited.add(self)
        if not (self._lock(self._queue) and self._lock(self._table)):
            self.free()
            return False
        _free(self._files[0])
        return True

    def _lock(self, path: str) -> bool:
        try:
            # Store first, then open: an interrupt in between would leak an open file.
            file = FileIO.__new__(FileIO)
            self._files.append(file)
            FileIO.__init__(file, path, "r+")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A file that was unlinked before it was locked excludes nobody.
            return os.fstat(file.fileno()).st_nlink > 0
        except OSError:
            return False

    def free(self) -> None:
        """Release the lock, if it is held."""
        for file in self._files:
            if not file.closed:
                _free(file)
        inherited.discard(self)

    def in_child(self) -> None:
        """Close the parent's files in a forked child, without releasing the parent's lock."""
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def _free(file: FileIO) -> None:
    # Closing is not enough: a child forked meanwhile may have the file open, too.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        file.close()


class TableLock:
    """The lock of one table.

    Args:
        folder: the root's folder of locks; created if missing.
        name: the table's name.
        called: the folder's name in errors; None: `folder`.
        within: makes each call of the root's storage, and may raise `OSError` instead.
    """

    def __init__(self, folder: str, name: str, called: str | None = None, within: Within = _plain) -> None:
        file = file_of_lock(name)
        self.name = name
        self._called = f"{called or folder}/{file}"
        self._within = within
        self._folder = folder
        self._path = f"{folder}/{file}"

    @property
    def files(self) -> frozenset[str]:
        """Names of the lock's files."""
        name = Path(self._path).name
        return frozenset({name, name + TURN})

    def discard(self) -> bool:
        """Remove the lock's files if no writer has the lock or queues for it. For a removed table.

        The lock never has two owners: the files are removed as the last step under the lock. A process that opened one
        before sees, when it gets the lock, that the file was removed, and opens the new one.

        Returns:
            False if a writer has the lock or the files cannot be removed: try again later.
        """
        try:
            from filelock import FileLock

            queue, table = FileLock(self._path + TURN), FileLock(self._path)
            if not os.path.isdir(self._folder):  # noqa: PTH112
                return True
            with queue.acquire(timeout=0), table.acquire(timeout=0):
                Path(self._path).unlink()
                Path(self._path + TURN).unlink()
        except OSError:
            # filelock's `Timeout` is an OSError as well.
            return False
        return True

    @contextmanager
    def held(self, deadline: Deadline | None = None, meanwhile: Callable[[], object] = lambda: None) -> Iterator[None]:
        """Hold the lock.

        Args:
            deadline: end of the wait; None waits without end.
            meanwhile: called between two tries; its errors end the wait.

        Raises:
            KafkaTimeoutError: other writers held the lock until the deadline; the message names the holder. Nothing was
                done.
            TopicAuthorizationFailedError: the root may not be written; nothing was done.
            KafkaStorageError: the lock's file cannot be created or opened; nothing was done.
        """
        # A root with timeouts uses `try_lock`.
        at_once, taken = Flock(self._path + TURN, self._path), False
        try:
            try:
                taken = self._within is _plain and at_once.take()
                # Python skips a `finally` if an interrupt hits a `return` in its block.
                if taken:
                    yield
            finally:
                at_once.free()
        finally:
            # An interrupt may have hit the first `free`.
            at_once.free()
        if taken:
            return
        try:
            from filelock import FileLock
        except OSError as cause:
            # There are too many open files.
            raise KafkaStorageError(
                f"the lock {self._called} cannot be taken, so nothing was written: {cause}"
            ) from cause
        limit = deadline or Deadline(SYSTEM_CLOCK, None)
        queue = FileLock(self._path + TURN, thread_local=False)
        table = FileLock(self._path, thread_local=False)
        try:
            try:
                self._acquire(queue, table, limit, meanwhile)
                yield
            finally:
                self._free(queue, table)
        finally:
            # An interrupt may have hit the first `_free`, and its traceback keeps both locks alive.
            self._free(queue, table)

    def _free(self, *locks: FileLock) -> None:
        for lock in locks:
            if lock.is_locked:
                self._let_go(lock)

    def _acquire(self, queue: FileLock, table: FileLock, limit: Deadline, meanwhile: Callable[[], object]) -> None:
        """Queue, and take the lock; see `held` for the errors."""
        from filelock import Timeout

        try:
            self._take(queue, limit, meanwhile, FIRST_POLL_SECONDS)
            try:
                self._take(table, limit, meanwhile, POLL_SECONDS)
            finally:
                self._let_go(queue)
        except Timeout as cause:
            # The next writer in line may have been stopped while it queued.
            holder = holder_of(self._path) or holder_of(self._path + TURN)
            message = f"other writers held {self.name!r} until time ran out; nothing was written"
            raise KafkaTimeoutError(message if holder is None else f"{message}; {holder}") from cause
        except PermissionError as cause:
            raise TopicAuthorizationFailedError(f"the lock {self._called} may not be taken: {cause}") from cause
        except OSError as cause:
            if cause.errno == errno.EROFS:
                raise TopicAuthorizationFailedError(f"the root is read-only: {cause}") from cause
            raise KafkaStorageError(
                f"the lock {self._called} cannot be taken, so nothing was written: {cause}"
            ) from cause

    def _take(self, lock: FileLock, limit: Deadline, meanwhile: Callable[[], object], pause: float) -> None:
        """Retry until the lock is taken; the longer the wait, the more often.

        Raises:
            Timeout: the time is over.
            FileNotFoundError: the folder of locks has vanished.
        """
        from filelock import Timeout

        # A test's manual clock does not advance during this wait.
        begun, left = SYSTEM_CLOCK.monotonic(), limit.remaining()
        while True:
            try:
                self._try(lock)
            except Timeout:
                waited = SYSTEM_CLOCK.monotonic() - begun
                if waited >= left:
                    raise
            else:
                return
            meanwhile()
            if not self._within(lambda: os.path.isdir(self._folder)):  # noqa: PTH112
                # The folder existed and vanished with its root. Creating it again could create it below a mount point.
                raise FileNotFoundError(errno.ENOENT, "the folder of locks has vanished", self._folder)
            rest = max(0.0, 1 - waited / LONG_SECONDS)
            SYSTEM_CLOCK.sleep(min(POLL_SECONDS + (pause - POLL_SECONDS) * rest, left - waited))

    def _try(self, lock: FileLock) -> None:
        attempt = _Try(lock)
        with OnError(partial(self._give_up, attempt, lock)):
            self._within(attempt)

    def _give_up(self, attempt: _Try, lock: FileLock) -> None:
        # The storage may still lock the file later, and then nobody would unlock it.
        if attempt.give_up():
            self._let_go(lock)

    def _let_go(self, lock: FileLock) -> None:
        try:
            self._within(partial(_release, lock))
        except OSError as cause:
            # The lock ends with the hung thread, or with this process.
            if cause.errno != errno.ETIMEDOUT:
                raise


@contextmanager
def _plainly() -> Iterator[None]:
    """Raise an interrupt of filelock without its exception group.

    If filelock's clean-up fails after an interrupt, as it may for a lock of another process, filelock raises a group of
    both errors, which `except KeyboardInterrupt` would not catch.
    """
    try:
        yield
    except BaseExceptionGroup as several:
        found: BaseException = several
        while isinstance(found, BaseExceptionGroup):
            found = min(found.exceptions, key=lambda each: isinstance(each, Exception))
        raise found from several


class _Try:
    """One try to take a lock. A caller that has given up does not get the lock, however late the try ends.

    Args:
        lock: the lock.
    """

    def __init__(self, lock: FileLock) -> None:
        self._lock = lock
        self._mutex = threading.Lock()
        self._given_up = self._taken = False

    def __call__(self) -> None:
        with _plainly():
            self._lock.acquire(timeout=0)
        with self._mutex:
            self._taken = True
            given_up = self._given_up
        if given_up:
            _release(self._lock)

    def give_up(self) -> bool:
        """Return True if the lock is taken already and must be released."""
        with self._mutex:
            self._given_up = True
            return self._taken


def _release(lock: FileLock) -> None:
    with _plainly():
        lock.release()


_LOCKS: Final = Path("/proc/locks")
"""Linux's list of locks; a process sees the locks of its own container."""

_STATES: Final = {"T": "stopped", "t": "stopped by a debugger", "D": "waiting for the disk", "Z": "dead"}

_LONGEST: Final = 120
"""Maximum number of characters of a command line in a message."""


def holder_of(path: str) -> str | None:
    """Describe the holder of a lock, and how to free the lock.

    Args:
        path: the lock's file.

    Returns:
        A sentence without a full stop; None if the lock is free.
    """
    try:
        pids = sorted(set(_holders(path)))
    except (OSError, ValueError):
        return f"`lsof {shlex.quote(path)}` on {socket.gethostname()} names the process that holds it"
    if not pids:
        return None
    if os.getpid() in pids:
        return f"another thread of this process (pid {os.getpid()} on {socket.gethostname()}) holds it"
    return _told(pids[0])


def _holders(path: str) -> Iterator[int]:
    """Yield the ids of the processes that hold a lock; 0 for one outside this container."""
    status = Path(path).stat()
    for line in _LOCKS.read_text(encoding="ascii").splitlines():
        # `3: FLOCK  ADVISORY  WRITE 1929 fe:00:9982220 0 EOF`; a line with `->` is a waiting process.
        match = re.match(r"\d+: FLOCK +\w+ +\w+ +(-?\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", line)
        if match is None or int(match[4]) != status.st_ino:
            continue
        if (int(match[2], 16), int(match[3], 16)) == (os.major(status.st_dev), os.minor(status.st_dev)):
            yield max(0, int(match[1]))


def _told(pid: int) -> str:
    host = socket.gethostname()
    if pid == 0:
        return f"a process outside this container, on {host}, holds it; resume or end it, and the kernel frees the lock"
    state, command = _state(pid), _command(pid)
    about = ", ".join(text for text in (command, state) if text)
    resume = f"resume it with `kill -CONT {pid}`, or end" if state.startswith("stopped") else "if it hangs, end"
    return (
        f"process {pid} on {host} holds it{f' ({about})' if about else ''}; {resume} it with `kill -KILL {pid}`: the "
        "kernel then frees the lock, and an append that was not committed is not there"
    )


def _state(pid: int) -> str:
    try:
        # The second field is a name in parentheses, with any characters.
        return _STATES.get(Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0], "")
    except (OSError, IndexError):
        return ""


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    text = shlex.join(word for word in words if word)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
