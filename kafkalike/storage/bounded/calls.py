"""Bounded: calls of a storage that may never answer, made so that their callers wait for a while only.

A system call on a network file system, or on FUSE, can hang for ever, and nothing ends it. So it is made in a thread of
its own, and given up after a time: it may still happen, as a request whose answer was lost may. While one hangs, others
are refused at once, so that few threads hang; now and then one is let through, to see whether the storage is back.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.storage.bounded.threads import Threads

T = TypeVar("T")

SECONDS: Final = 3.0
"""How long a call may take, unless somebody says otherwise."""

RETRY_SECONDS: Final = 10.0
"""How often a storage that hangs is tried again."""

MOST: Final = 8
"""Threads of one storage that are waited for no more, at most; with so many it is not tried again."""

SUSPECT_SECONDS: Final = 0.3
"""When a call takes so long all storages are asked, so that those that hang are known at the same time."""


class Answers(Protocol):
    """Answers that a thread has already to the calls that it makes next; see `foreseen`."""

    def take(self, calls: BoundedCalls, key: Hashable, /) -> tuple[Any, ...]:
        """The answer to the call that is made now, in a tuple; an empty one where it was not foreseen."""
        ...

    def forget(self) -> None:
        """Forget all of them."""
        ...


class Carrier(Protocol):
    """What a thread carries out, where that is several calls; see `carried`."""

    def step(self, calls: BoundedCalls, work: Callable[[], T], times: float, /) -> T:
        """Make one of them."""
        ...


class Job:
    """A call under way."""

    __slots__ = ("allowed", "done", "error", "result", "until", "work")

    def __init__(self, work: Callable[[], Any], allowed: float) -> None:
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.allowed = allowed
        self.until = SYSTEM_CLOCK.monotonic() + allowed

    def run(self, calls: BoundedCalls, free: Callable[[], None]) -> None:
        """Make it. Caller: a thread of those calls."""
        mine.calls, mine.job = calls, self
        try:
            self.result = self.work()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            self.error = error
        mine.calls = mine.job = None
        self.work = nothing
        free()
        calls.ended(self)


class Mine(threading.local):
    """What a thread is at work on."""

    calls: BoundedCalls | None = None
    """Whose call it makes, where that is its work."""
    job: Job | None = None
    """That call."""
    task: Carrier | None = None
    foreseen: Answers | None = None


mine: Final = Mine()


class BoundedCalls:
    """Makes the calls of one storage. Thread-safe.

    Args:
        uri: which one: the root's folder.
        seconds: how long a call may take.
    """

    def __init__(self, uri: str, seconds: float = SECONDS) -> None:
        self.uri = uri
        self.seconds = seconds
        self._threads = Threads()
        self._running: set[Job] = set()
        self._lost: set[Job] = set()
        """Calls that still hang though later ones were answered."""
        self._owed: list[Callable[[], object]] = []
        """Calls that were put off."""
        self._next_try = 0.0

    def begin_anew(self) -> None:
        """Forget all calls and threads: a forked child has none of them."""
        self._threads.forget()
        self._running, self._lost, self._next_try = set(), set(), 0.0
        self._owed.clear()

    def allow(self, lag_ms: int) -> None:
        """Let calls take a tenth of the time after which a replica is taken out; at least one second, at most three."""
        self.seconds = min(SECONDS, max(1.0, lag_ms / 10_000))

    @property
    def hangs(self) -> bool:
        """Whether it gives no answer, as far as is known."""
        return bool(self._late())

    def silent_seconds(self) -> float:
        """For how long a call has hung that had to end; 0 where none does."""
        return max((SYSTEM_CLOCK.monotonic() - job.until + job.allowed for job in self._late()), default=0.0)

    def _late(self) -> list[Job]:
        now = SYSTEM_CLOCK.monotonic()
        # A copy, made in one step.
        return [job for job in tuple(self._running) if job.until < now]

    def call(self, work: Callable[[], T], times: float = 1.0, key: Hashable = None) -> T:
        """Make a call.

        Args:
            work: the call. It may be made though this raises.
            times: how many times as long as others it may take.
            key: what it asks for, where it may have been foreseen; see `foreseen`.

        Raises:
            OSError: it took too long, or another one still does.
            Exception: what the call raises.
        """
        if mine.calls is self:
            return work()
        if mine.foreseen is not None and (found := mine.foreseen.take(self, key)):
            return found[0]  # type: ignore[no-any-return]
        if mine.task is not None and mine.calls is None:
            return mine.task.step(self, work, times)
        self.refuse_late()
        job = Job(work, self.seconds * times)
        self._begin(job)
        if not job.done.acquire(timeout=min(SUSPECT_SECONDS, job.allowed)):
            suspect_all()
            while (left := job.until - SYSTEM_CLOCK.monotonic()) > 0:
                if job.done.acquire(timeout=left):
                    break
            else:
                raise self.given_up()
        if job.error is not None:
            try:
                raise job.error
            finally:
                # It holds this frame, which holds it.
                job.error = None
        return job.result  # type: ignore[no-any-return]

    def _begin(self, job: Job) -> None:
        self._running.add(job)
        try:
            self._threads.begin(partial(job.run, self), f"kafkalike calls of {self.uri}")
        except BaseException:
            self._running.discard(job)
            raise

    def begun(self, times: float) -> Job:
        """Take note of a call that the caller's thread makes.

        Raises:
            OSError: it is refused.
        """
        self.refuse_late()
        job = Job(nothing, self.seconds * times)
        self._running.add(job)
        return job

    def see_to(self, work: Callable[[], object]) -> None:
        """Make a call, and do not wait for it; while others hang, it is put off until one is answered."""
        # First: what hangs may end just now, and sees to what it finds.
        self._owed.append(work)
        if not self.hangs:
            self._pay_soon()

    def suspect(self) -> None:
        """Ask it for something, unless somebody waits for an answer already."""
        if not self._running:
            job = Job(lambda: os.path.lexists(self.uri), self.seconds)
            # If that hangs, others need not wait to know it.
            self._next_try = job.until + RETRY_SECONDS
            self._begin(job)

    def refuse_late(self) -> None:
        """Refuse a call while another one hangs, but for now and then.

        Raises:
            OSError: it is refused.
        """
        if not self._running or not (late := self._late()):
            return
        now = SYSTEM_CLOCK.monotonic()
        if now < self._next_try or len(late) + len(self._lost) >= MOST:
            raise self._no_answer()
        self._next_try = now + RETRY_SECONDS

    def given_up(self) -> OSError:
        """Take note that a call is not waited for any more; returns what its caller gets."""
        self._next_try = SYSTEM_CLOCK.monotonic() + RETRY_SECONDS
        return self._no_answer()

    def _no_answer(self) -> OSError:
        return OSError(errno.ETIMEDOUT, "it gives no answer", self.uri)

    def ended(self, job: Job) -> None:
        """Take note that a call came to an end. Caller: the thread that made it."""
        self._running.discard(job)
        self._lost.discard(job)
        if job.error is None and self._running:
            # It answers again; those that hang may do so for ever.
            late = self._late()
            self._lost.update(late)
            self._running.difference_update(late)
        if self._owed and (job.error is None or not self.hangs):
            self._pay_soon()
        job.done.release()

    def _pay_soon(self) -> None:
        # Where no thread can be had, the next call that ends sees to it.
        with contextlib.suppress(RuntimeError):
            self._begin(Job(self._pay, self.seconds))

    def _pay(self) -> None:
        """Make the calls that were put off."""
        with contextlib.suppress(IndexError):
            while True:
                work = self._owed.pop()
                with contextlib.suppress(OSError):
                    work()


def suspect_all() -> None:
    """Ask all storages for something, so that those that hang are known at the same time."""
    for calls in tuple(_known.values()):
        calls.suspect()


def nothing() -> None:
    """What a call that has ended holds no more."""


def go_on() -> None:
    """Say that the call which this thread makes goes on, part by part."""
    job = mine.job
    if job is not None:
        job.until = SYSTEM_CLOCK.monotonic() + job.allowed


_known: weakref.WeakValueDictionary[str, BoundedCalls] = weakref.WeakValueDictionary()
"""Those of roots that somebody has open, or whose threads are at work."""


def calls_of(uri: str) -> BoundedCalls:
    """The calls of the storage at a root, in this process."""
    found = _known.get(uri)
    return _known.setdefault(uri, BoundedCalls(uri)) if found is None else found


def _in_child() -> None:
    for calls in tuple(_known.values()):
        calls.begin_anew()


os.register_at_fork(after_in_child=_in_child)
