"""Write queue: the queue of a table's writers, and how long one of them waits in it.

The queue is for fairness alone: the compare-and-set is that of the version's file, which appears or exists already.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Final

from kafkalike.errors import KafkaTimeoutError
from kafkalike.model.clock import Clock, Deadline
from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

SHORT_PATIENCE_SECONDS: Final = 0.05
"""How long an impatient writer queues after its turn could not be had the last time."""


class WriteQueue:
    """Turns of one client's threads. Thread-safe.

    Args:
        root: the cluster's files.
        location: the table's folder below it.
        clock: time and waiting.
        patience: seconds that a writer queues behind others before it goes on all the same; None waits.
        look: reads what others wrote, so that little is left to do in the turn, and is called again and again while
            one waits; returns a number that has risen if there was something.
    """

    def __init__(
        self,
        root: Storage,
        location: str,
        clock: Clock,
        patience: float | None,
        look: Callable[[], int],
    ) -> None:
        self.patience = patience
        self._root = root
        self._location = location
        self._clock = clock
        self._look = look
        self._holding = threading.local()
        self._impatient = False
        """Whether the turn could not be had the last time."""

    @contextlib.contextmanager
    def held(self, deadline: Deadline) -> Iterator[None]:
        """Have one turn; a thread that has it already goes on.

        Raises:
            KafkaTimeoutError: others held it until the deadline.
        """
        if getattr(self._holding, "now", False):
            yield
            return
        with self._root.coordination.turn(self._location, deadline, self._look):
            self._holding.now = True
            try:
                yield
            finally:
                self._holding.now = False

    @contextlib.contextmanager
    def awaited(self, deadline: Deadline, seen: int | None = None) -> Iterator[None]:
        """Queue behind other writers; but not for ever behind one that was stopped while it had its turn.

        Without patience's end, a member that is stopped in the middle of a commit would stop its whole group, and
        nobody could write that its session is over; a producer that is stopped in an append would stop its topic.

        Args:
            deadline: until when to try.
            seen: what `look` returned a moment ago; None looks before one queues.

        Raises:
            KafkaTimeoutError: the deadline is over.
        """
        if self.patience is None:
            with self.held(deadline):
                yield
            return
        wait = SHORT_PATIENCE_SECONDS if self._impatient else self.patience
        if seen is None:
            seen = self._look()
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(self.held(Deadline(self._clock, min(wait, deadline.remaining()) * 1000)))
                self._impatient = False
            except KafkaTimeoutError:
                if deadline.expired():
                    raise
                # Where rows have come meanwhile, the queue may only be long; after a short wait it says nothing.
                told = self._impatient or self._look() != seen
                self._impatient = True
                if not told:
                    where = f"{self._root.uri}/{self._location}"
                    _log.warning("%s: a writer holds the lock and does nothing; going on without it", where)
            yield


def cleaning_turn(location: str) -> str:
    """What those queue for who write checkpoints to a table's log, and clean it up.

    Processes of other releases use the same name, so it stays; `~` cannot be part of a topic's name.
    """
    return f"condense~{location}"


def maintenance_turn(name: str) -> str:
    """What maintenance runs of a topic, or of something else that has this name, queue for."""
    return f"maintenance~{name}"


def turns_of(location: str) -> list[str]:
    """All that is queued for about a topic whose table has this folder."""
    return [location, cleaning_turn(location), maintenance_turn(location)]
