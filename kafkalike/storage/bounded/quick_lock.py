"""Quick lock: the lock of a table that nobody has and nobody queues for, taken by one call of the root's storage.

It is the lock of `lock.TableLock`, by the same two files: whoever cannot have it at once queues there. What goes wrong
here is met again there, and told.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable
from typing import Final

from kafkalike.storage.bounded.calls import BoundedCalls
from kafkalike.storage.bounded.kept import Kept
from kafkalike.storage.locks.lock import TURN, file_of_lock

FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""How its files are opened. They are not made here: where there is no `flock`, a file is a lock by being there."""


def quick_lock(calls: BoundedCalls, name: str, open_folder: Callable[[], int]) -> Kept:
    """One try to have a lock at once: what is had is its file.

    Args:
        calls: make the calls of the root's storage.
        name: the table's name.
        open_folder: opens the folder of locks; only within such a call.
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
                _free(queue)
        finally:
            os.close(folder)

    return Kept(calls, taken, _free)


def _locked(folder: int, name: str) -> int | None:
    """A file of a folder, opened and locked; None where that cannot be had at once."""
    try:
        handle = os.open(name, FLAGS, dir_fd=folder)
    except OSError:
        return None
    with contextlib.suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(handle).st_nlink:
            return handle
        # Its name was taken away before it was locked: it keeps nobody out.
    os.close(handle)
    return None


def _free(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
