"""Concurrency: what holds when an interrupt comes at any line, and what a forked child has to give up.

CPython runs a signal's handler, which may raise, between any two bytecodes of the main thread. What rests on that:

* Several values are replaced by one assignment: nothing comes between its parts, where they are attributes and sums.
* A step that must be done is done in `finally`, and where it may itself be what is interrupted, in two nested ones with
  the same body, which must do no harm the second time. A `with` block does not do: an interrupt may come before the
  first line of `__exit__`.
* `Latch` stands for `threading.Event`, `OnError` for a step back, `ActiveBlock` for a flag.

A child inherits descriptors, and with them what they stand for: a lock stays held until the child has closed it, too.
"""

from __future__ import annotations

import inspect
import logging
import math
import os
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType, TracebackType
from typing import Final, Protocol, Self

from kafkalike.model.clock import SYSTEM_CLOCK


class OnError:
    """Call a function when the block ends by an error or an interrupt; the error goes on.

    The function takes back what the block has begun. It must be right at any point of the block, as an interrupt may
    come at any. It is not called for a block that has reached its end, even if an interrupt comes just then: a block
    that must also catch that needs `except BaseException` around its `return`.

    Args:
        undo: the function.
    """

    __slots__ = ("_undo",)

    def __init__(self, undo: Callable[[], object]) -> None:
        self._undo = undo

    def __enter__(self) -> None:
        """Begin the block."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Undo, unless the block has reached its end."""
        if kind is not None:
            self._undo()


class ReportErrors:
    """Log an error of the user's code that the caller must survive; interrupts go on.

    Args:
        log: where it is told, with its traceback.
        message: what failed; `args` are its values, as in `Logger.exception`.
    """

    def __init__(self, log: logging.Logger, message: str, *args: object) -> None:
        self._log = log
        self._told = (message, *args)
        self.error: Exception | None = None
        """What the block raised."""

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        """Log an error; True if there was one."""
        if not isinstance(error, Exception):
            return False
        self.error = error
        self._log.error(*self._told, exc_info=error)
        return True


class Latch:
    """Closed until `open`; then open for ever.

    `threading.Event` and `Thread.join` are not safe here. An exception (Ctrl-C) in the middle of `Event.wait` can free
    a lock that the thread in `set` holds; one in `Thread.join` marks a thread that runs as ended, before Python 3.13.
    Here each one who waits has a queue of its own, whose operations are single steps.
    """

    __slots__ = ("_waiting", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._waiting: list[SimpleQueue[None]] = []

    def open(self) -> None:
        """Open it, and wake those who wait."""
        self.is_open = True
        # Who comes to the list after the copy was made looks at `is_open` after that.
        for waiter in list(self._waiting):
            waiter.put(None)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until it is open.

        Args:
            seconds: how long at most; None without end.

        Returns:
            Whether it is open.
        """
        monotonic = SYSTEM_CLOCK.monotonic
        end = math.inf if seconds is None else monotonic() + seconds
        told: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(told)
        try:
            while not self.is_open and (left := end - monotonic()) > 0:
                with suppress(Empty):
                    told.get(timeout=min(left, threading.TIMEOUT_MAX))
        finally:
            self._waiting.remove(told)
        return self.is_open


class ActiveBlock:
    """Whether a `with` block is being run by this thread, as the stack shows.

    A flag would stay set when an interrupt hits the line that resets it: Python runs signal handlers between any two
    bytecodes of the main thread, also between the end of a block and the first line of `__exit__`.
    """

    __slots__ = ("_frame",)

    def __init__(self) -> None:
        self._frame: FrameType | None = None

    def __enter__(self) -> None:
        here = inspect.currentframe()
        self._frame = None if here is None else here.f_back

    def __exit__(self, *exc_info: object) -> None:
        self._frame = None

    @property
    def now(self) -> bool:
        """Whether the block is further up in the stack."""
        frame = None if self._frame is None else inspect.currentframe()
        while frame is not None and frame is not self._frame:
            frame = frame.f_back
        return frame is not None


class Inherited(Protocol):
    """An object that a forked child must not use."""

    def in_child(self) -> None:
        """Close its descriptors without ending what they stand for. Called in the child; must not raise."""
        ...


inherited: Final[weakref.WeakSet[Inherited]] = weakref.WeakSet()
"""All that have something open. An object adds itself before it opens anything, so that a fork in between finds it."""


def _in_child() -> None:
    for each in tuple(inherited):
        each.in_child()
    inherited.clear()


os.register_at_fork(after_in_child=_in_child)
