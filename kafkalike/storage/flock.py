"""Flock: one attempt to take a table's lock by system calls alone, without a place in the queue."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Callable
from io import FileIO
from typing import Final

from kafkalike.model.concurrency import inherited
from kafkalike.storage.timeouts import Handle, TimedCalls

TURN: Final = ".turn"
"""Suffix of the queue's file."""

LONGEST_NAME: Final = 200
"""Most characters of a table's name that are used in its lock's name."""


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


FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags for opening the files, which are not created here, because without `flock` the existence of a file is the lock.
"""


def try_lock(calls: TimedCalls, name: str, open_folder: Callable[[], int]) -> Handle:
    """Return a handle that takes a lock if that is possible at once.

    Args:
        calls: the root's calls.
        name: the table's name.
        open_folder: opens the folder of locks; only within a call.
    """
    file = file_of_lock(name)

    def taken() -> int | None:
        folder = open_folder()
        try:
            queue = _locked(folder, file + TURN)
            if queue is None:
                return None
            try:
                return _locked(folder, file)
            finally:
                # Unlock instead of only closing: a child forked meanwhile has the file open, too.
                _unlock(queue)
        finally:
            os.close(folder)

    return Handle(calls, taken, _unlock)


def _locked(folder: int, name: str) -> int | None:
    """Open and lock a file of a folder; None if that is not possible at once."""
    try:
        descriptor = os.open(name, FLAGS, dir_fd=folder)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        # A file that was unlinked before it was locked excludes nobody.
    os.close(descriptor)
    return None


def _unlock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
