"""Latch: opened once by one thread, waited for by others, whose waiting may be interrupted at any moment."""

from __future__ import annotations

import threading
from contextlib import suppress
from queue import Empty, SimpleQueue

from kafkalike.model.clock import SYSTEM_CLOCK, Deadline


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
        limit = Deadline(SYSTEM_CLOCK, None if seconds is None else seconds * 1000)
        told: SimpleQueue[None] = SimpleQueue()
        self._waiting.append(told)
        try:
            while not self.is_open and not limit.expired():
                with suppress(Empty):
                    told.get(timeout=min(limit.remaining(), threading.TIMEOUT_MAX))
        finally:
            self._waiting.remove(told)
        return self.is_open
