"""Queues: the turns of one process's threads among themselves, in the order in which they came."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import Deadline

LOOK_SECONDS: Final = 0.25
"""Time between two calls of what a waiting thread does meanwhile."""


class Queues:
    """Queues by name. Who is first in one has its turn. Thread-safe; a turn is not for the same thread twice."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[str, deque[threading.Event]] = {}

    @contextmanager
    def turn(self, name: str, deadline: Deadline, meanwhile: Callable[[], object]) -> Iterator[None]:
        """Wait for one's turn and have it.

        Raises:
            KafkaTimeoutError: others had it until the deadline.
        """
        mine = threading.Event()
        try:
            with self._mutex:
                queue = self._waiting.setdefault(name, deque())
                queue.append(mine)
                if queue[0] is mine:
                    mine.set()
            if not mine.is_set():
                meanwhile()
            while not mine.wait(min(deadline.remaining(), LOOK_SECONDS)):
                if deadline.expired():
                    raise KafkaTimeoutError(f"other writers held {name!r} until time ran out; nothing was written")
                meanwhile()
            yield
        finally:
            self._leave(name, mine)

    def _leave(self, name: str, mine: threading.Event) -> None:
        with self._mutex:
            queue = self._waiting.get(name, deque())
            if mine in queue:
                queue.remove(mine)
            if queue:
                queue[0].set()
            else:
                self._waiting.pop(name, None)
