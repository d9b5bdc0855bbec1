"""Kept: something that a call of a storage opens, and that is let go whatever happens.

The call may end when nobody waits for it any more, and an interrupt may come before its caller has what it returned.
So the call itself notes what it has opened; whoever has let it go does not get it, however late the call ends.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from functools import partial

from kafkalike.model.forks import inherited
from kafkalike.storage.bounded.calls import BoundedCalls
from kafkalike.storage.bounded.carried import carry


class Kept:
    """One descriptor. Used by one thread, and by those that make its calls.

    Args:
        calls: make the calls of the storage.
        make: opens it, within such a call; None where it cannot be had.
        free: closes it, within such a call.
    """

    def __init__(
        self, calls: BoundedCalls, make: Callable[[], int | None], free: Callable[[int], object] = os.close
    ) -> None:
        self._calls = calls
        self._make = make
        self._free = free
        self._mutex = threading.Lock()
        self._over = False
        self.handle: int | None = None
        """The descriptor; None where it is not had."""

    def take(self, after: Callable[[], object] | None = None) -> bool:
        """Whether it is had now.

        Args:
            after: makes other calls in the same hand-over, once it is had.

        Raises:
            OSError: it cannot be opened, or the storage gives no answer.
        """
        if after is None:
            return self._calls.call(self._take)

        def take() -> bool:
            taken = self._calls.call(self._take)
            if taken:
                after()
            return taken

        try:
            return carry(take)
        except OSError:
            # One of the others may hang.
            if self.handle is None:
                raise
            return True

    def _take(self) -> bool:
        # Before it is opened, so that a child that is forked then finds it.
        inherited.add(self)
        handle = self._make()
        if handle is None:
            return False
        with self._mutex:
            if not self._over:
                self.handle = handle
                return True
        self._free(handle)
        return False

    def let_go(self) -> None:
        """See that it is not had, whether it was or not."""
        try:
            with self._mutex:
                self._over = True
            if self.handle is not None:
                self._calls.call(self._let_go)
        except OSError:
            # It hangs, or the file cannot be closed, which frees it all the same.
            return
        finally:
            if self.handle is not None:
                # It hangs, or an interrupt came.
                self._calls.see_to(self._let_go)

    def _let_go(self) -> None:
        with self._mutex:
            handle, self.handle = self.handle, None
        inherited.discard(self)
        if handle is not None:
            self._free(handle)

    def in_child(self) -> None:
        """A forked child has nothing of its parent's."""
        handle, self.handle, self._mutex = self.handle, None, threading.Lock()
        if handle is not None:
            # Only closed, so that the parent has what it has. That may fail, or hang.
            with contextlib.suppress(OSError, RuntimeError):
                self._calls.call(partial(os.close, handle))
