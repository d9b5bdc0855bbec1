"""Carried: several calls of storages that may hang, made one after the other by one thread, while their caller waits.

To hand a call to another thread takes longer than the call: a core has to be woken, and then the caller's. So calls
that follow upon each other, of one root or of several, are handed over together. Each has its own time, and counts for
its own root: where one hangs, that root is taken for one that gives no answer, and the caller goes on with the others.

What is carried out may be a row of acts with rules in between. All but the calls themselves happens under the task's
mutex, so whoever gives a task up knows that it does nothing any more but the call that hangs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.bounded.calls import SUSPECT_SECONDS, BoundedCalls, Job, mine, nothing, suspect_all
from kafkalike.storage.bounded.threads import Threads

T = TypeVar("T")

NAME: Final = "kafkalike calls of several roots"
"""What the threads are called."""

_threads: Final = Threads()


class GivenUpError(BaseException):
    """Nobody waits for what a thread carries out: it is to end."""


class Task:
    """What a thread carries out. One caller waits for it.

    Args:
        work: calls, and what is between them: that waits for nothing, and takes no lock that others may hold.
    """

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._mutex = threading.Lock()
        """Held by the thread, but for the time of a call."""
        self._given_up = False
        self._done = threading.Lock()
        self._done.acquire()
        self._calls: BoundedCalls | None = None
        self._job: Job | None = None
        """The call under way, and whose it is."""
        self._error: BaseException | None = None
        self._result: Any = None

    def run(self, free: Callable[[], None]) -> None:
        """Carry it out. Caller: a thread of this module."""
        with self._mutex:
            mine.task = self
            try:
                if not self._given_up:
                    self._result = self._work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                self._error = error
            mine.task = None
            self._work = nothing
        free()
        self._done.release()

    def step(self, calls: BoundedCalls, work: Callable[[], T], times: float) -> T:
        """Make a call. Caller: the thread that carries this out.

        Raises:
            OSError: others of that storage hang.
            GivenUpError: nobody waits for it any more.
            Exception: what the call raises.
        """
        if self._given_up:
            # It ends already; what it does as it ends may be calls, too.
            raise GivenUpError
        job = calls.begun(times)
        self._calls, self._job = calls, job
        mine.calls, mine.job = calls, job
        self._mutex.release()
        try:
            return work()
        except BaseException as error:
            job.error = error
            raise
        finally:
            calls.ended(job)
            mine.calls = mine.job = None
            self._mutex.acquire()
            self._job = job.error = None
            if self._given_up:
                raise GivenUpError

    def wait(self) -> Any:  # noqa: ANN401 - what the work returns
        """Wait until it is done, or one of its calls takes longer than it may.

        Raises:
            OSError: that.
            Exception: what the work raises.
        """
        suspected: Job | None = None
        pause = SUSPECT_SECONDS
        while not self._done.acquire(timeout=pause):
            pause, job = SUSPECT_SECONDS, self._job
            if job is None:
                continue
            left = job.until - SYSTEM_CLOCK.monotonic()
            if left <= 0 and self._gives_up(job):
                assert self._calls is not None
                raise self._calls.given_up()
            if suspected is not job and job.allowed - left >= SUSPECT_SECONDS:
                suspected = job
                suspect_all()
            pause = min(pause, max(left, 0.001))
        if self._error is not None:
            try:
                raise self._error
            finally:
                # It holds this frame, which holds it.
                self._error = None
        return self._result

    def _gives_up(self, job: Job) -> bool:
        """Give it up in a call, unless that has ended meanwhile."""
        with self._mutex:
            self._given_up = self._job is job
            return self._given_up

    def give_up(self) -> None:
        """See that it does nothing any more but the call that is under way; that may happen still."""
        with self._mutex:
            self._given_up = True


def carry(work: Callable[[], T]) -> T:
    """Carry several calls out in one other thread, and wait for it.

    Args:
        work: calls, and what is between them; see `Task`.

    Raises:
        OSError: one of them took too long. That may happen still, and none after it will.
        Exception: what the work raises.
    """
    if mine.task is not None or mine.calls is not None:
        return work()
    if mine.foreseen is not None:
        mine.foreseen.forget()
    task = Task(work)
    try:
        _threads.begin(task.run, NAME)
        found: T = task.wait()
    except BaseException:
        task.give_up()
        raise
    return found


def is_carried() -> bool:
    """Whether this thread carries calls out for another one, which may hold locks."""
    return mine.task is not None


os.register_at_fork(after_in_child=_threads.forget)
