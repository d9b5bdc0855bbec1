"""Timeouts: calls to a root that may never answer, made so that the caller waits for a limited time only.

A system call on a network file system, or on FUSE, can hang, and nothing can abort it. So each call to such a root runs
in a worker thread of that root, and the caller gives up after a timeout. The call may still take effect later, like a
request whose answer was lost. While a call hangs, the circuit is open: other calls to the root fail at once, so that
few threads hang. Every few seconds one call is let through to find out whether the root answers again.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import queue
import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.concurrency import OnError, inherited

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 3.0
"""Default timeout of a call."""

SHORTEST_TIMEOUT_SECONDS: Final = 1.0
"""Timeout of a call where `replica.lag.time.max.ms` is short."""

RETRY_SECONDS: Final = 10.0
"""Time between two calls that are let through to a hung root."""

MAX_HUNG_CALLS: Final = 8
"""Maximum number of hung calls of one root; above it, none is let through."""

SUSPECT_SECONDS: Final = 0.3
"""When a call takes this long, all roots are probed, so that all hung roots are known at the same time."""

IDLE_SECONDS: Final = 60.0
"""A worker thread ends after this idle time."""

PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes per read or write; each part has the timeout of a call."""


class _Call:
    """A call in progress."""

    __slots__ = ("allowed", "calls", "done", "error", "result", "until", "work")

    def __init__(self, calls: TimedCalls, work: Callable[[], Any], allowed: float) -> None:
        self.calls = calls
        self.work = work
        self.done = threading.Lock()
        self.done.acquire()
        self.result: Any = None
        self.error: BaseException | None = None
        self.allowed = allowed
        self.until = SYSTEM_CLOCK.monotonic() + allowed


class _Here(threading.local):
    """The call that this thread makes, if it is a worker."""

    call: _Call | None = None


_here: Final = _Here()


class TimedCalls:
    """Makes the calls of one root. Thread-safe.

    Args:
        uri: the root's folder.
        seconds: timeout of a call.
    """

    def __init__(self, uri: str, seconds: float = TIMEOUT_SECONDS) -> None:
        self.uri = uri
        self.seconds = seconds
        self._deferred: list[Callable[[], object]] = []
        self.reset()

    def reset(self) -> None:
        """Forget all calls and threads: a forked child has none of them."""
        self._waiting: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        """Calls to make; None ends the workers."""
        self._idle: list[None] = []
        """One entry per waiting worker. An interrupt may lose an entry; workers correct that when they end."""
        self._running: set[_Call] = set()
        self._lost: set[_Call] = set()
        """Calls that still hang though later ones were answered."""
        self._next_try = 0.0
        self._deferred.clear()

    def __del__(self) -> None:
        """End the idle workers. The garbage collector may still close files of this root, by new workers."""
        ended = self._waiting
        self._waiting, self._idle = queue.SimpleQueue(), []
        ended.put(None)

    def set_lag(self, lag_ms: int) -> None:
        """Set the timeout to a tenth of `replica.lag.time.max.ms`, at least one second and at most three."""
        self.seconds = max(SHORTEST_TIMEOUT_SECONDS, min(TIMEOUT_SECONDS, lag_ms / 10_000))

    @property
    def hangs(self) -> bool:
        """True if the root is known not to answer."""
        return bool(self._late())

    def silent_seconds(self) -> float:
        """Return how long a call has hung that is past its timeout; 0 if there is none."""
        return max((SYSTEM_CLOCK.monotonic() - call.until + call.allowed for call in self._late()), default=0.0)

    def _late(self) -> list[_Call]:
        now = SYSTEM_CLOCK.monotonic()
        # The copy is made in one step.
        return [call for call in tuple(self._running) if call.until < now]

    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a call and wait for it.

        Args:
            work: the call. It may take effect though this raises.
            times: factor of the timeout.

        Raises:
            OSError: the call timed out, or another one hangs.
            Exception: the call's own error.
        """
        if _here.call is not None and _here.call.calls is self:
            return work()
        self._refuse_late()
        call = _Call(self, work, self.seconds * times)
        self._begin(call)
        if not call.done.acquire(timeout=min(SUSPECT_SECONDS, call.allowed)):
            suspect_all()
            while (left := call.until - SYSTEM_CLOCK.monotonic()) > 0:
                if call.done.acquire(timeout=left):
                    break
            else:
                raise self.timed_out()
        if call.error is not None:
            try:
                raise call.error
            finally:
                # The error refers to this frame, which refers to the error.
                call.error = None
        return call.result  # type: ignore[no-any-return]

    def _begin(self, call: _Call) -> None:
        if sys.is_finalizing():  # no thread runs any more, and none can be started
            raise OSError(errno.ECANCELED, "the process ends", self.uri)
        with OnError(partial(self._running.discard, call)):
            self._running.add(call)
            try:
                self._idle.pop()
            except IndexError:
                work = (self._waiting, self._idle)
                threading.Thread(target=_work, args=work, name=f"kafkalike calls of {self.uri}", daemon=True).start()
            self._waiting.put(call)

    def defer(self, work: Callable[[], object]) -> None:
        """Make a call without waiting for it; while other calls hang, first let one end."""
        # Append first: a hung call may end at this moment and run the deferred calls.
        self._deferred.append(work)
        if not self.hangs:
            self._begin_deferred()

    def suspect(self) -> None:
        """Probe the root, unless a call is running already."""
        if not self._running:
            call = _Call(self, lambda: os.path.lexists(self.uri), self.seconds)
            # If the probe hangs, others need not wait to find out.
            self._next_try = call.until + RETRY_SECONDS
            self._begin(call)

    def _refuse_late(self) -> None:
        """Refuse a call while another one hangs, except for one every `RETRY_SECONDS`.

        Raises:
            OSError: the call is refused.
        """
        if not self._running or not (late := self._late()):
            return
        now = SYSTEM_CLOCK.monotonic()
        if now < self._next_try or len(late) + len(self._lost) >= MAX_HUNG_CALLS:
            raise self._no_answer()
        self._next_try = now + RETRY_SECONDS

    def timed_out(self) -> OSError:
        """Record that a caller has given up; return its error."""
        self._next_try = SYSTEM_CLOCK.monotonic() + RETRY_SECONDS
        return self._no_answer()

    def _no_answer(self) -> OSError:
        return OSError(errno.ETIMEDOUT, "it gives no answer", self.uri)

    def ended(self, call: _Call) -> None:
        """Record that a call has ended. Caller: the thread that made it."""
        self._running.discard(call)
        self._lost.discard(call)
        if call.error is None and self._running:
            # The root answers again, but earlier calls may hang forever.
            late = self._late()
            self._lost.update(late)
            self._running.difference_update(late)
        if self._deferred and (call.error is None or not self.hangs):
            self._begin_deferred()
        call.done.release()

    def _begin_deferred(self) -> None:
        with contextlib.suppress(RuntimeError, OSError):  # without a thread, the next call that ends runs them
            self._begin(_Call(self, self._make_deferred, self.seconds))

    def _make_deferred(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                work = self._deferred.pop()
                with contextlib.suppress(OSError):
                    work()


def _work(waiting: queue.SimpleQueue[_Call | None], idle: list[None]) -> None:
    """Make calls one after the other, without keeping a closed root alive."""
    promised = False
    while True:
        try:
            call = waiting.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            try:
                idle.pop()
            except IndexError:
                # A caller is about to submit a call, or an interrupt stopped it.
                if not promised:
                    promised = True
                    continue
            return
        if call is None:
            # The next worker needs it, too.
            waiting.put(None)
            return
        promised = False
        _here.call = call
        try:
            call.result = call.work()
        except BaseException as error:  # noqa: BLE001 - its caller raises it
            call.error = error
        _here.call = None
        call.work = _nothing
        # Before the caller is woken, because it may submit the next call.
        idle.append(None)
        call.calls.ended(call)
        del call


def _nothing() -> None:
    """Replace the work of an ended call, so that it keeps nothing alive."""


def suspect_all() -> None:
    """Probe all roots, so that all hung roots are known at the same time."""
    for calls in tuple(_known.values()):
        calls.suspect()


def extend_timeout() -> None:
    """Restart the timeout of this thread's call, if any: a part of it is done."""
    call = _here.call
    if call is not None:
        call.until = SYSTEM_CLOCK.monotonic() + call.allowed


_known: weakref.WeakValueDictionary[str, TimedCalls] = weakref.WeakValueDictionary()
"""Calls of roots that are open or have calls in progress, by URI."""


def calls_of(uri: str) -> TimedCalls:
    """Return this process's calls of a root."""
    found = _known.get(uri)
    return _known.setdefault(uri, TimedCalls(uri)) if found is None else found


def _in_child() -> None:
    for calls in tuple(_known.values()):
        calls.reset()


os.register_at_fork(after_in_child=_in_child)


class Handle:
    """A descriptor that a call opens, and that is always closed. Used by one thread, and by its calls.

    The call may end after its caller has given up, and an interrupt may hit the caller before it has the result. So the
    call itself records the descriptor. After `release`, a late call closes the descriptor itself.

    Args:
        calls: the root's calls.
        make: opens the descriptor, within a call; None if that is not possible.
        free: closes the descriptor, within a call.
    """

    def __init__(
        self, calls: TimedCalls, make: Callable[[], int | None], free: Callable[[int], object] = os.close
    ) -> None:
        self._calls = calls
        self._make = make
        self._free = free
        self._mutex = threading.Lock()
        self._over = False
        self.descriptor: int | None = None
        """The descriptor; None while it is not open."""

    def take(self) -> bool:
        """Open the descriptor; return whether that was possible.

        Raises:
            OSError: opening failed, or the root does not answer.
        """
        return self._calls.call(self._take)

    def _take(self) -> bool:
        # Register before opening, so that a child forked meanwhile finds it.
        inherited.add(self)
        descriptor = self._make()
        if descriptor is None:
            return False
        with self._mutex:
            if not self._over:
                self.descriptor = descriptor
                return True
        self._free(descriptor)
        return False

    def release(self) -> None:
        """Close the descriptor, even if it is opened late.

        Call it twice if an interrupt may hit the first call.
        """
        try:
            with self._mutex:
                self._over = True
            if self.descriptor is not None:
                self._calls.call(self._close)
        except OSError:
            # The root hangs, or closing failed, which frees the descriptor all the same.
            return
        finally:
            if self.descriptor is not None:
                # The root hangs, or an interrupt came.
                self._calls.defer(self._close)

    def _close(self) -> None:
        with self._mutex:
            descriptor, self.descriptor = self.descriptor, None
        inherited.discard(self)
        if descriptor is not None:
            self._free(descriptor)

    def in_child(self) -> None:
        """Close the descriptor in a forked child."""
        descriptor, self.descriptor, self._mutex = self.descriptor, None, threading.Lock()
        if descriptor is not None:
            # The parent's threads do not exist here.
            self._calls.reset()
            # Close it without unlocking, so that the parent keeps its lock. That may fail, or hang.
            with contextlib.suppress(OSError, RuntimeError):
                self._calls.call(partial(os.close, descriptor))


class TimedFile(io.RawIOBase):
    """A file of a root that may hang, read part by part, so that a large one does not time out.

    Args:
        calls: the root's calls.
        path: the file.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, calls: TimedCalls, path: str) -> None:
        super().__init__()
        self._calls = calls
        self._path = path
        self._size = 0
        self._at = 0
        self._file = Handle(calls, self._open)
        with OnError(self._file.release):
            self._file.take()

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        with OnError(partial(os.close, descriptor)):
            self._size = os.fstat(descriptor).st_size
        return descriptor

    def readable(self) -> bool:
        """Return True: the file can be read."""
        return True

    def seekable(self) -> bool:
        """Return True: the file can be read anywhere."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read."""
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes from the current position on."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        descriptor = self._file.descriptor
        if descriptor is None:
            raise ValueError(f"{self._path} is closed")
        content = self._calls.call(lambda: pread(descriptor, self._at, stop))
        self._at += len(content)
        return content

    def close(self) -> None:
        """Close the file without waiting for a hung root."""
        if not self.closed:
            super().close()
            self._file.release()


def pread(handle: int, start: int, stop: int) -> bytes:
    """Read bytes of an open file, part by part; fewer at the end of the file."""
    if stop - start <= PART_BYTES:
        return os.pread(handle, max(0, stop - start), start)
    parts = []
    while start < stop:
        part = os.pread(handle, min(PART_BYTES, stop - start), start)
        if not part:
            break
        parts.append(part)
        start += len(part)
        extend_timeout()
    return b"".join(parts)
