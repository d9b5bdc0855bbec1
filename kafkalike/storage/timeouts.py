"""Timeouts: calls to the storage of a root that may never answer, made so that their callers wait for a limited time.

A system call on a network file system, or on FUSE, can hang for ever, and nothing can end it. Each call of such a root
therefore runs in a worker thread of that root, and its caller gives up after a timeout. The call may still take effect
later, like a request whose answer was lost. While one call hangs, the circuit is open: other calls of the root fail at
once, so that few threads hang, and every few seconds one is let through to find out whether the root answers again.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import queue
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.concurrency import OnError, inherited

T = TypeVar("T")

TIMEOUT_SECONDS: Final = 3.0
"""Timeout of a call, unless somebody sets another one."""

RETRY_SECONDS: Final = 10.0
"""Time between two calls that are let through to a root that hangs."""

MAX_HUNG_CALLS: Final = 8
"""Calls of one root that hang, at most; with so many none is let through."""

SUSPECT_SECONDS: Final = 0.3
"""When a call takes so long, all roots are asked for something, so that those that hang are known at the same time."""

IDLE_SECONDS: Final = 60.0
"""A worker thread that had nothing to do for so long ends."""

PART_BYTES: Final = 4 * 1024 * 1024
"""Bytes that are read or written at a time; each part has the timeout of a call."""


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
    """The call that this thread makes, where it is a worker."""

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
        self._waiting: queue.SimpleQueue[_Call] = queue.SimpleQueue()
        self._idle: list[None] = []
        """One for each worker that waits for a call. An interrupt may lose one; workers correct that as they end."""
        self._running: set[_Call] = set()
        self._lost: set[_Call] = set()
        """Calls that still hang though later ones were answered."""
        self._next_try = 0.0
        self._deferred.clear()

    def set_lag(self, lag_ms: int) -> None:
        """Set the timeout to a tenth of `replica.lag.time.max.ms`, at least one second and at most three."""
        self.seconds = min(TIMEOUT_SECONDS, max(1.0, lag_ms / 10_000))

    @property
    def hangs(self) -> bool:
        """Whether the root gives no answer, as far as is known."""
        return bool(self._late())

    def silent_seconds(self) -> float:
        """For how long a call has hung that is past its timeout; 0 where none is."""
        return max((SYSTEM_CLOCK.monotonic() - call.until + call.allowed for call in self._late()), default=0.0)

    def _late(self) -> list[_Call]:
        now = SYSTEM_CLOCK.monotonic()
        # A copy, made in one step.
        return [call for call in tuple(self._running) if call.until < now]

    def call(self, work: Callable[[], T], times: float = 1.0) -> T:
        """Make a call.

        Args:
            work: the call. It may take effect though this raises.
            times: how many times as long as others it may take.

        Raises:
            OSError: it took too long, or another one still does.
            Exception: what the call raises.
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
                # It holds this frame, which holds it.
                call.error = None
        return call.result  # type: ignore[no-any-return]

    def _begin(self, call: _Call) -> None:
        with OnError(partial(self._running.discard, call)):
            self._running.add(call)
            try:
                self._idle.pop()
            except IndexError:
                work = (self._waiting, self._idle)
                threading.Thread(target=_work, args=work, name=f"kafkalike calls of {self.uri}", daemon=True).start()
            self._waiting.put(call)

    def defer(self, work: Callable[[], object]) -> None:
        """Make a call and do not wait for it; while others hang, it is made when one of them ends."""
        # First: a call that hangs may end just now, and makes those that it finds.
        self._deferred.append(work)
        if not self.hangs:
            self._begin_deferred()

    def suspect(self) -> None:
        """Ask the root for something, unless somebody waits for an answer already."""
        if not self._running:
            call = _Call(self, lambda: os.path.lexists(self.uri), self.seconds)
            # If that hangs, others need not wait to know it.
            self._next_try = call.until + RETRY_SECONDS
            self._begin(call)

    def _refuse_late(self) -> None:
        """Refuse a call while another one hangs, except for one every `RETRY_SECONDS`.

        Raises:
            OSError: it is refused.
        """
        if not self._running or not (late := self._late()):
            return
        now = SYSTEM_CLOCK.monotonic()
        if now < self._next_try or len(late) + len(self._lost) >= MAX_HUNG_CALLS:
            raise self._no_answer()
        self._next_try = now + RETRY_SECONDS

    def timed_out(self) -> OSError:
        """Note that nobody waits for a call any more; returns the error of its caller."""
        self._next_try = SYSTEM_CLOCK.monotonic() + RETRY_SECONDS
        return self._no_answer()

    def _no_answer(self) -> OSError:
        return OSError(errno.ETIMEDOUT, "it gives no answer", self.uri)

    def ended(self, call: _Call) -> None:
        """Note that a call has ended. Caller: the thread that made it."""
        self._running.discard(call)
        self._lost.discard(call)
        if call.error is None and self._running:
            # The root answers again; calls that hang may do so for ever.
            late = self._late()
            self._lost.update(late)
            self._running.difference_update(late)
        if self._deferred and (call.error is None or not self.hangs):
            self._begin_deferred()
        call.done.release()

    def _begin_deferred(self) -> None:
        # Where no thread can be had, the next call that ends makes them.
        with contextlib.suppress(RuntimeError):
            self._begin(_Call(self, self._make_deferred, self.seconds))

    def _make_deferred(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                work = self._deferred.pop()
                with contextlib.suppress(OSError):
                    work()


def _work(waiting: queue.SimpleQueue[_Call], idle: list[None]) -> None:
    """Make calls, one after the other. It holds no root that nobody has open."""
    promised = False
    while True:
        try:
            call = waiting.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            try:
                idle.pop()
            except IndexError:
                # Somebody is about to bring a call; or was, and an interrupt came between.
                if not promised:
                    promised = True
                    continue
            return
        promised = False
        _here.call = call
        try:
            call.result = call.work()
        except BaseException as error:  # noqa: BLE001 - its caller raises it
            call.error = error
        _here.call = None
        call.work = _nothing
        # Before its caller hears of it, who may bring the next one.
        idle.append(None)
        call.calls.ended(call)
        del call


def _nothing() -> None:
    """A call that has ended holds nothing."""


def suspect_all() -> None:
    """Ask all roots for something, so that those that hang are known at the same time."""
    for calls in tuple(_known.values()):
        calls.suspect()


def extend_timeout() -> None:
    """Restart the timeout of the call that this thread makes, if any: a part of it is done."""
    call = _here.call
    if call is not None:
        call.until = SYSTEM_CLOCK.monotonic() + call.allowed


_known: weakref.WeakValueDictionary[str, TimedCalls] = weakref.WeakValueDictionary()
"""Those of roots that somebody has open, or whose calls are in progress."""


def calls_of(uri: str) -> TimedCalls:
    """The calls of the root at a place, in this process."""
    found = _known.get(uri)
    return _known.setdefault(uri, TimedCalls(uri)) if found is None else found


def _in_child() -> None:
    for calls in tuple(_known.values()):
        calls.reset()


os.register_at_fork(after_in_child=_in_child)


class Handle:
    """A descriptor that a call opens, and that is closed whatever happens. Used by one thread, and by its calls.

    The call may end when nobody waits for it any more, and an interrupt may come before its caller has the result. So
    the call itself notes the descriptor; once it is released, a call that ends late closes what it has opened.

    Args:
        calls: of the root.
        make: opens it, within a call; None where that is not possible.
        free: closes it, within a call.
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
        """None where it is not open."""

    def take(self) -> bool:
        """Open it; returns whether that was possible.

        Raises:
            OSError: it cannot be opened, or the root gives no answer.
        """
        return self._calls.call(self._take)

    def _take(self) -> bool:
        # Before it is opened, so that a child that is forked then finds it.
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
        """Close it, or see that it does not get open. Call it twice if an interrupt may hit the first call."""
        try:
            with self._mutex:
                self._over = True
            if self.descriptor is not None:
                self._calls.call(self._close)
        except OSError:
            # It hangs, or the file cannot be closed, which frees it all the same.
            return
        finally:
            if self.descriptor is not None:
                # It hangs, or an interrupt came.
                self._calls.defer(self._close)

    def _close(self) -> None:
        with self._mutex:
            descriptor, self.descriptor = self.descriptor, None
        inherited.discard(self)
        if descriptor is not None:
            self._free(descriptor)

    def in_child(self) -> None:
        """A forked child has nothing of its parent's."""
        descriptor, self.descriptor, self._mutex = self.descriptor, None, threading.Lock()
        if descriptor is not None:
            # None of the parent's threads is here.
            self._calls.reset()
            # Only closed, so that the parent has what it has. That may fail, or hang.
            with contextlib.suppress(OSError, RuntimeError):
                self._calls.call(partial(os.close, descriptor))


class TimedFile(io.RawIOBase):
    """A file of a root that may hang, for reading part by part, so that a large one does not time out.

    Args:
        calls: the root's.
        path: the file.

    Raises:
        OSError: it cannot be opened.
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
        """Whether it can be read: always."""
        return True

    def seekable(self) -> bool:
        """Whether it can be read anywhere: always."""
        return True

    def tell(self) -> int:
        """Position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position of the next read."""
        self._at = offset + (self._at if whence == os.SEEK_CUR else self._size if whence == os.SEEK_END else 0)
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        """Read bytes from the position on."""
        stop = self._size if size is None or size < 0 else min(self._size, self._at + size)
        descriptor = self._file.descriptor
        if descriptor is None:
            raise ValueError(f"{self._path} is closed")
        content = self._calls.call(lambda: pread(descriptor, self._at, stop))
        self._at += len(content)
        return content

    def close(self) -> None:
        """Close it; a root that hangs is not waited for."""
        if not self.closed:
            super().close()
            self._file.release()


def pread(handle: int, start: int, stop: int) -> bytes:
    """Read bytes of an open file, part by part; fewer where it ends before."""
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
