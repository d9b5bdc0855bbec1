"""Bounded: calls of a storage that may never answer, made so that their callers wait for a while only.

A system call on a network file system, or on FUSE, can hang for ever, and nothing ends it. So it is made in a thread of
its own, and given up after a time: it may still happen, as a request whose answer was lost may. While one hangs, others
are refused at once, so that few threads hang; now and then one is let through, to see whether the storage is back.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar

from kafkalike.clock import SYSTEM_CLOCK

T = TypeVar("T")

SECONDS: Final = 3.0
"""How long a call may take, unless somebody says otherwise."""

RETRY_SECONDS: Final = 10.0
"""How often a storage that hangs is tried again."""

MOST: Final = 8
"""Threads of one storage that are waited for no more, at most; with so many it is not tried again."""

SUSPECT_SECONDS: Final = 0.3
"""When a call takes so long all storages are asked, so that those that hang are known at the same time."""

IDLE_SECONDS: Final = 60.0
"""A thread that had nothing to do for so long ends."""


class _Job:
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


_mine = threading.local()
"""What a thread of this module is at work on: `calls` and `job`."""


class BoundedCalls:
    """Makes the calls of one storage. Thread-safe.

    Args:
        uri: which one: the root's folder.
        seconds: how long a call may take.
    """

    def __init__(self, uri: str, seconds: float = SECONDS) -> None:
        self.uri = uri
        self.seconds = seconds
        self._idle: list[_Worker] = []
        self._running: set[_Job] = set()
        self._lost: set[_Job] = set()
        """Calls that still hang though later ones were answered."""
        self._next_try = 0.0

    def begin_anew(self) -> None:
        """Forget all calls and threads: a forked child has none of them."""
        self._idle, self._running, self._lost, self._next_try = [], set(), set(), 0.0

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

    def _late(self) -> list[_Job]:
        now = SYSTEM_CLOCK.monotonic()
        # A copy, made in one step.
        return [job for job in tuple(self._running) if job.until < now]

    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a call.

        Args:
            work: the call. It may be made though this raises.
            times: how many times as long as others it may take.

        Raises:
            OSError: it took too long, or another one still does.
            Exception: what the call raises.
        """
        if getattr(_mine, "calls", None) is self:
            return work()
        if self._running and (late := self._late()):
            self._refuse(late)
        job = _Job(work, self.seconds * times)
        self._begin(job)
        if not job.done.acquire(timeout=min(SUSPECT_SECONDS, job.allowed)):
            _suspect_all()
            while (left := job.until - SYSTEM_CLOCK.monotonic()) > 0:
                if job.done.acquire(timeout=left):
                    break
            else:
                self._next_try = SYSTEM_CLOCK.monotonic() + RETRY_SECONDS
                raise self._no_answer()
        if job.error is not None:
            try:
                raise job.error
            finally:
                # It holds this frame, which holds it.
                job.error = None
        return job.result  # type: ignore[no-any-return]

    def _begin(self, job: _Job) -> None:
        self._running.add(job)
        try:
            try:
                worker = self._idle.pop()
            except IndexError:
                worker = _Worker(self)
                worker.start()
            worker.inbox.put(job)
        except BaseException:
            self._running.discard(job)
            raise

    def suspect(self) -> None:
        """Ask it for something, unless somebody waits for an answer already."""
        if not self._running:
            self._begin(_Job(lambda: os.path.lexists(self.uri), self.seconds))

    def _refuse(self, late: list[_Job]) -> None:
        now = SYSTEM_CLOCK.monotonic()
        if now < self._next_try or len(late) + len(self._lost) >= MOST:
            raise self._no_answer()
        self._next_try = now + RETRY_SECONDS

    def _no_answer(self) -> OSError:
        return OSError(errno.ETIMEDOUT, "it gives no answer", self.uri)

    def ended(self, job: _Job) -> None:
        """Take note that a call came to an end. Caller: the thread that made it."""
        self._running.discard(job)
        self._lost.discard(job)
        if job.error is None and self._running:
            # It answers again; those that hang may do so for ever.
            late = self._late()
            self._lost.update(late)
            self._running.difference_update(late)
        job.done.release()

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


def _suspect_all() -> None:
    for calls in tuple(_known.values()):
        calls.suspect()


class _Worker(threading.Thread):
    def __init__(self, calls: BoundedCalls) -> None:
        super().__init__(name=f"kafkalike calls of {calls.uri}", daemon=True)
        self.inbox: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        self._calls = calls

    def run(self) -> None:
        calls = _mine.calls = self._calls
        while True:
            try:
                job = self.inbox.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                if calls.took(self):
                    continue
                return
            _mine.job = job
            try:
                job.result = job.work()
            except BaseException as error:  # noqa: BLE001 - it is the caller's
                job.error = error
            _mine.job = None
            job.work = _nothing
            # Before the caller goes on, who may have the next one for it.
            calls.free(self)
            calls.ended(job)
            del job


def _nothing() -> None:
    """What a call that has ended holds no more."""


def go_on() -> None:
    """Say that the call which this thread makes goes on, part by part."""
    job = getattr(_mine, "job", None)
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
