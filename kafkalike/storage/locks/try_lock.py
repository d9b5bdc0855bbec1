"""Try lock: the lock of a table that nobody holds and nobody queues for, taken by one call of a root that may hang.

It locks the same two files as `lock.TableLock`, which takes over whenever this fails and reports what goes wrong.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Final

from kafkalike.storage.locks.table_lock import TURN, file_of_lock
from kafkalike.storage.timeouts import Handle, TimedCalls

FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""How its files are opened. They are not made here: where there is no `flock`, a file is a lock by being there."""


def try_lock(calls: TimedCalls, name: str, open_folder: Callable[[], int]) -> Handle:
    """Return a handle that takes a lock if that is possible at once.

    Args:
        calls: of the root.
        name: of the table.
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
                # Not only closed: a child that was forked meanwhile has it open, too.
                _unlock(queue)
        finally:
            os.close(folder)

    return Handle(calls, taken, _unlock)


def _locked(folder: int, name: str) -> int | None:
    """Open and lock a file of a folder; None where that is not possible at once."""
    try:
        descriptor = os.open(name, FLAGS, dir_fd=folder)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink:
            return descriptor
        # A file whose name was removed before it was locked excludes nobody.
    os.close(descriptor)
    return None


def _unlock(descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)
