"""Threads: something to do in, done by a thread that had nothing to do, or by a new one."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final, Protocol

IDLE_SECONDS: Final = 60.0
"""A thread that had nothing to do for so long ends."""


class Work(Protocol):
    """What a thread is given to do."""

    def __call__(self, free: Callable[[], None], /) -> None:
        """Do it.

        Args:
            free: to be called before anybody hears that it is done, who may have the next thing to do.
        """
        ...


class Threads:
    """Threads that wait for something to do. Thread-safe."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []

    def begin(self, work: Work, name: str) -> None:
        """Have a thread do something.

        Args:
            work: see `Work`.
            name: what a new thread is called.
        """
        try:
            worker = self._idle.pop()
        except IndexError:
            worker = _Worker(self, name)
            worker.start()
        worker.inbox.put(work)

    def free(self, worker: _Worker) -> None:
        """Take a thread that has nothing to do."""
        self._idle.append(worker)

    def took(self, worker: _Worker) -> bool:
        """Whether somebody has given a thread something to do; else it is nobody's any more."""
        try:
            self._idle.remove(worker)
        except ValueError:
            return True
        return False

    def forget(self) -> None:
        """Forget all of them: a forked child has none."""
        self._idle = []


class _Worker(threading.Thread):
    def __init__(self, threads: Threads, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: queue.SimpleQueue[Work] = queue.SimpleQueue()
        self._threads = threads

    def run(self) -> None:
        promised = False
        while True:
            try:
                work = self.inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if self._threads.took(self) and not promised:
                    # Who took it may have been interrupted before it said what is to be done.
                    promised = True
                    continue
                return
            promised = False
            work(self._free)
            del work

    def _free(self) -> None:
        self._threads.free(self)
