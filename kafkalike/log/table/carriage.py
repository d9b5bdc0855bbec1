"""Carriage: changes that threads of one process bring in; one of the threads carries all of them at a time.

Whoever comes while one is at work waits, and goes along with the next one: a process makes one append where its
threads would make many, each with requests of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final, Generic, TypeVar

from kafkalike.clock import Deadline
from kafkalike.errors import KafkaTimeoutError, UnknownOutcomeError

LOOK_SECONDS: Final = 1.0
"""How long who waits is sure that somebody is at work: a thread may be interrupted before it tells the next one."""

U = TypeVar("U")


class Passenger(Generic[U]):
    """A change of one thread."""

    __slots__ = ("_told", "aboard", "deadline", "error", "settled", "unit")

    def __init__(self, unit: U, deadline: Deadline) -> None:
        self.unit = unit
        self.deadline = deadline
        self.settled = False
        self.error: BaseException | None = None
        """Why nothing was written, or why that is not known; None when it was."""
        self.aboard = False
        """Whether somebody has it in hand."""
        self._told: SimpleQueue[None] = SimpleQueue()

    def settle(self, error: BaseException | None = None) -> None:
        """Say what became of it."""
        self.error, self.settled = error, True
        self.tell()

    def tell(self) -> None:
        """Wake its thread up."""
        self._told.put(None)

    def wait(self) -> None:
        """Until it is told something, for a while; for as long as it may, where nobody has it in hand."""
        left = LOOK_SECONDS if self.aboard else min(LOOK_SECONDS, max(0.0, self.deadline.remaining()))
        try:
            self._told.get(timeout=left)
        except Empty:
            return


class Carriage(Generic[U]):
    """The changes of one process to one table. Thread-safe.

    Args:
        carry: writes changes, and settles each of them, or leaves it: then it is carried again.
        choose: how many of those that wait go together, from the first one on; one at least.
    """

    def __init__(self, carry: Callable[[Sequence[Passenger[U]]], None], choose: Callable[[Sequence[U]], int]) -> None:
        self._carry = carry
        self._choose = choose
        self._mutex = threading.Lock()
        self._carrying = threading.Lock()
        """Held by the thread that carries: however that is interrupted, `with` frees it."""
        self._waiting: list[Passenger[U]] = []
        self._taken: list[Passenger[U]] = []
        """What the thread that carries, or the last one, has in hand."""

    def bring(self, unit: U, deadline: Deadline) -> None:
        """Have a change written, with those of other threads.

        Raises:
            KafkaTimeoutError: time ran out; nothing was written.
            UnknownOutcomeError: it may have been written.
            Exception: what it was refused with; nothing was written.
        """
        mine = Passenger(unit, deadline)
        try:
            with self._mutex:
                self._waiting.append(mine)
            while not mine.settled:
                if not self._carrying.locked():
                    with self._carrying:
                        self._go(mine)
                    self._call_next()
                    continue
                mine.wait()
                if not mine.settled and deadline.expired() and self._leave(mine):
                    raise KafkaTimeoutError(
                        "others of this process were written until time ran out; nothing was written"
                    )
        finally:
            self._leave(mine)
        if mine.error is not None:
            raise mine.error

    def _leave(self, mine: Passenger[U]) -> bool:
        """Wait no longer; whether nobody had it in hand."""
        with self._mutex:
            if mine in self._waiting:
                self._waiting.remove(mine)
                return True
            return False

    def _call_next(self) -> None:
        with self._mutex:
            if self._waiting:
                self._waiting[0].tell()

    def _go(self, mine: Passenger[U]) -> None:
        """Carry what waits, until the own change is settled. Caller: holds `_carrying`."""
        self._give_up()
        while not mine.settled:
            taken = self._take()
            try:
                self._carry(taken)
            except Exception as cause:  # noqa: BLE001 - each of them is told
                for each in taken:
                    if not each.settled:
                        each.settle(cause)
            except BaseException:
                # This thread was interrupted, and the others are not to wait for ever.
                for each in taken:
                    if not each.settled and each is not mine:
                        each.settle(UnknownOutcomeError("change of a control table", "of an interrupted thread"))
                raise
            self._put_back(taken)

    def _give_up(self) -> None:
        """Tell those whom a thread had in hand that was interrupted before it could."""
        with self._mutex:
            for each in self._taken:
                if not each.settled and each not in self._waiting:
                    each.settle(UnknownOutcomeError("change of a control table", "of an interrupted thread"))
            self._taken = []

    def _take(self) -> list[Passenger[U]]:
        with self._mutex:
            taken = self._taken = self._waiting[: self._choose([each.unit for each in self._waiting])]
            for each in taken:
                each.aboard = True
            self._waiting = self._waiting[len(taken) :]
            return taken

    def _put_back(self, taken: Sequence[Passenger[Any]]) -> None:
        """What is not settled waits again, before those that came later."""
        with self._mutex:
            again = [each for each in taken if not each.settled]
            self._waiting[:0] = again
            for each in again:
                each.aboard = False
                # Its time may be over.
                each.tell()
