"""Shared changes: changes that threads of one process bring in; one of the threads writes all of them at a time.

Whoever comes while one is at work waits, and goes along with the next one: a process makes one append where its
threads would make many, each with requests of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from kafkalike.errors import KafkaTimeoutError, UnknownOutcomeError
from kafkalike.model.clock import Deadline

LOOK_SECONDS: Final = 1.0
"""How often who waits looks whether anybody is at work still: who was interrupted may have told nobody."""

U = TypeVar("U")


class PendingChange(Generic[U]):
    """A change of one thread."""

    __slots__ = ("_told", "deadline", "error", "settled", "unit")

    def __init__(self, unit: U, deadline: Deadline) -> None:
        self.unit = unit
        self.deadline = deadline
        self.settled = False
        self.error: BaseException | None = None
        """Why nothing was written, or why that is not known; None when it was."""
        self._told: SimpleQueue[None] = SimpleQueue()

    def settle(self, error: BaseException | None = None) -> None:
        """Say what became of it."""
        self.error, self.settled = error, True
        self.tell()

    def tell(self) -> None:
        """Wake its thread up."""
        self._told.put(None)

    def wait(self) -> None:
        """Until it is told something, or its time is over, or it is to look whether anybody is at work still."""
        left = min(LOOK_SECONDS, self.deadline.remaining()) or LOOK_SECONDS
        with suppress(Empty):
            self._told.get(timeout=left)


class SharedChanges(Generic[U]):
    """The changes of one process to one table. Thread-safe.

    Who writes holds a lock, which an interrupt cannot leave behind. All else that an interrupted thread leaves undone
    is found by the next one that has the lock, and that may be any of those who wait.

    Args:
        write: writes changes, and settles each of them, or leaves it: then it is written again.
        choose: how many of those that wait go together, from the first one on; one at least.
    """

    def __init__(
        self, write: Callable[[Sequence[PendingChange[U]]], None], choose: Callable[[Sequence[U]], int]
    ) -> None:
        self._write = write
        self._choose = choose
        self._at_work = threading.Lock()
        self._mutex = threading.Lock()
        self._waiting: list[PendingChange[U]] = []
        self._in_hand: list[PendingChange[U]] = []
        """Those that are being written. One that waits, too, was not begun."""

    def bring(self, unit: U, deadline: Deadline) -> None:
        """Have a change written, with those of other threads.

        Raises:
            KafkaTimeoutError: time ran out; nothing was written.
            UnknownOutcomeError: it may have been written.
            Exception: what it was refused with; nothing was written.
        """
        mine = PendingChange(unit, deadline)
        try:
            with self._mutex:
                self._waiting.append(mine)
            while not mine.settled:
                if not self._at_work.locked():
                    with self._at_work:
                        self._go(mine)
                elif deadline.expired() and self._leave(mine):
                    raise KafkaTimeoutError(
                        "others of this process were written until time ran out; nothing was written"
                    )
                else:
                    mine.wait()
        finally:
            self._leave(mine)
            self._wake_next()
        if mine.error is not None:
            raise mine.error

    def _leave(self, mine: PendingChange[U]) -> bool:
        """Wait no longer; whether nobody had it in hand."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return True
            return False

    def _wake_next(self) -> None:
        """Whoever waits is to write, or to find out what an interrupted thread had in hand."""
        with self._mutex:
            # Whoever is at work tells them.
            for each in () if self._at_work.locked() else (*self._waiting[:1], *self._in_hand):
                each.tell()

    def _go(self, mine: PendingChange[U]) -> None:
        """Write what waits, until the own change is settled. Caller: who has the lock."""
        self._give_up()
        while not mine.settled:
            taken = self._take()
            try:
                self._write(taken)
            except Exception as cause:  # noqa: BLE001 - each of them is told
                for each in taken:
                    if not each.settled:
                        each.settle(cause)
            self._put_back(taken)

    def _take(self) -> list[PendingChange[U]]:
        with self._mutex:
            taken = self._waiting[: self._choose([each.unit for each in self._waiting])]
            self._in_hand = taken
            del self._waiting[: len(taken)]
            return taken

    def _put_back(self, taken: Sequence[PendingChange[U]]) -> None:
        """What is not settled waits again, before those that came later."""
        with self._mutex:
            again = [each for each in taken if not each.settled]
            self._waiting[:0] = again
            self._in_hand = []
            for each in again:
                # Its time may be over.
                each.tell()

    def _give_up(self) -> None:
        """Tell those that an interrupted thread had in hand."""
        with self._mutex:
            for each in self._in_hand:
                if not each.settled and each not in self._waiting:
                    each.settle(UnknownOutcomeError("change of a control table", "of an interrupted thread"))
            self._in_hand = []
