"""Quick lock: the lock of a table that nobody has and nobody queues for, taken by one call of the root's storage.

It is the lock of `lock.TableLock`, by the same two files: whoever cannot have it at once queues there. What goes wrong
here is met again there, and told.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final

from kafkalike.log.store.bounded.calls import BoundedCalls
from kafkalike.log.store.bounded.carried import carry
from kafkalike.log.store.bounded.foreseen import planned
from kafkalike.log.store.lock import TURN, file_of_lock

FLAGS: Final = os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
"""How its files are opened. They are not made here: where there is no `flock`, a file is a lock by being there."""


class QuickLock:
    """One try to have a lock at once. However late it ends, nobody has the lock when it was let go.

    Args:
        calls: make the calls of the root's storage.
        name: the table's name.
        open_folder: opens the folder of locks; only within such a call.
    """

    def __init__(self, calls: BoundedCalls, name: str, open_folder: Callable[[], int]) -> None:
        self._calls = calls
        self._file = file_of_lock(name)
        self._open_folder = open_folder
        self._mutex = threading.Lock()
        self._over = False
        self._handle: int | None = None

    def take(self) -> bool:
        """Whether it is had now.

        Raises:
            OSError: the root is not there, or gives no answer.
        """
        ask = planned()
        if ask is None:
            return self._calls.call(self._take)

        def take() -> bool:
            taken = self._calls.call(self._take)
            if taken:
                ask()
            return taken

        try:
            return carry(take)
        except OSError:
            # What is asked then may hang, too.
            if self._handle is None:
                raise
            return True

    def _take(self) -> bool:
        folder = self._open_folder()
        try:
            handle = self._taken(folder)
        finally:
            os.close(folder)
        if handle is None:
            return False
        with self._mutex:
            if not self._over:
                self._handle = handle
                _held.add(self)
                return True
        _free(handle)
        return False

    def _taken(self, folder: int) -> int | None:
        """The file of the table, locked while the queue's was."""
        queue = _locked(folder, self._file + TURN)
        if queue is None:
            return None
        try:
            return _locked(folder, self._file)
        finally:
            os.close(queue)

    def let_go(self) -> None:
        """See that nobody has it, whether it was had or not."""
        try:
            with self._mutex:
                self._over = True
            if self._handle is not None:
                self._calls.call(self._release)
        except OSError:
            # It hangs, or the file cannot be closed, which frees it all the same.
            return
        finally:
            if self._handle is not None:
                # It hangs, or an interrupt came.
                self._calls.see_to(self._release)

    def _release(self) -> None:
        with self._mutex:
            handle, self._handle = self._handle, None
        _held.discard(self)
        if handle is not None:
            _free(handle)

    def in_child(self) -> None:
        """A forked child has no locks of its parent's."""
        handle, self._handle, self._mutex = self._handle, None, threading.Lock()
        if handle is not None:
            os.close(handle)


_held: Final[weakref.WeakSet[QuickLock]] = weakref.WeakSet()


def _in_child() -> None:
    for lock in tuple(_held):
        lock.in_child()
    _held.clear()


os.register_at_fork(after_in_child=_in_child)


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
