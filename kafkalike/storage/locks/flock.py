"""Flock: the lock of a table that nobody holds and nobody queues for, taken with a few system calls.

It locks the same two files as `lock.TableLock`, which takes over whenever this fails. filelock resolves the path and
guards forks at each attempt, which takes 0.15 ms per file: a quarter of the time of an append.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import FileIO

from kafkalike.model.concurrency import inherited


class Flock:
    """One attempt to take the lock, and the lock itself if that succeeded. Belongs to one thread.

    Call `free` when it is over, twice if an interrupt may hit the first call.

    Args:
        queue: path of the file that writers queue for.
        table: path of the lock's file.
    """

    __slots__ = ("__weakref__", "_files", "_queue", "_table")

    def __init__(self, queue: str, table: str) -> None:
        self._queue = queue
        self._table = table
        self._files: list[FileIO] = []

    def take(self) -> bool:
        """Take the lock if that is possible at once, without a place in the queue for others to see.

        Returns:
            False if it is not: somebody holds it or queues for it, its files do not exist yet, or the file system has
            no `flock`. Nothing is created, since where `flock` is missing a lock is a file that exists.
        """
        # Before anything is opened, so that a child forked meanwhile finds it.
        inherited.add(self)
        if not (self._lock(self._queue) and self._lock(self._table)):
            self.free()
            return False
        _free(self._files[0])
        return True

    def _lock(self, path: str) -> bool:
        try:
            # Stored first and opened then: an interrupt in between would leave an open file that nobody closes.
            file = FileIO.__new__(FileIO)
            self._files.append(file)
            FileIO.__init__(file, path, "r+")
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A file whose name was removed before it was locked excludes nobody.
            return os.fstat(file.fileno()).st_nlink > 0
        except OSError:
            return False

    def free(self) -> None:
        """Release what is held, if anything."""
        for file in self._files:
            _free(file)
        inherited.discard(self)

    def in_child(self) -> None:
        """Close the parent's files in a forked child, without releasing the parent's lock."""
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def _free(file: FileIO) -> None:
    if file.closed:
        return
    # Closing is not enough: a child forked meanwhile may have the file open, too.
    with contextlib.suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    with contextlib.suppress(OSError):
        file.close()
