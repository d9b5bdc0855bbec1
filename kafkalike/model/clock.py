"""Clock: the only module that reads the machine's time or sleeps.

Every time-dependent object takes a clock, so a test can pass a clock that it sets by hand. Timestamps, which other
processes read, come from a `WallClock`. Waits and deadlines, which must not change when the wall clock jumps, come from
a `MonotonicClock`. A `Clock` is both. `SYSTEM_CLOCK` is read directly only for facts of this machine: the duration of a
storage call and the age of its result. Such a time is never compared with that of a clock passed as an argument.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, Protocol

RETRY_BACKOFF_SECONDS: Final = 0.1
"""Wait before another try to settle a commit of unknown outcome: Kafka's default `retry.backoff.ms`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class WallClock(Protocol):
    """Time for timestamps. It may jump, and differs between machines."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...


class MonotonicClock(Protocol):
    """Time for waits and deadlines of one process."""

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes back; only differences have a meaning.

        The clock includes the time in which the machine was suspended, if the operating system supports it.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds."""
        ...


class Clock(WallClock, MonotonicClock, Protocol):
    """Time for timestamps, waits and deadlines."""


def _through_suspend() -> Callable[[], float]:
    """Return the monotonic clock that includes time in suspension, if there is one.

    Other machines clean up logs and expire sessions during a suspension. On Linux `time.monotonic` stops meanwhile.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic
    try:
        time.clock_gettime(clock)
    except OSError:  # a sandbox or an old kernel lacks it
        return time.monotonic
    return partial(time.clock_gettime, clock)


_monotonic: Final = _through_suspend()


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(_monotonic)
    """Return seconds of `CLOCK_BOOTTIME`, or of `time.monotonic` without it. Not a Python function, for speed."""

    def sleep(self, seconds: float) -> None:
        """Sleep; return at once for zero or less."""
        if seconds > 0:
            time.sleep(seconds)


class Deadline:
    """One time budget shared by every step of an operation.

    Args:
        clock: source of the time.
        timeout_ms: the budget in milliseconds; None for no limit.
    """

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: MonotonicClock, timeout_ms: float | None) -> None:
        self._clock = clock
        self._end = None if timeout_ms is None else clock.monotonic() + timeout_ms / 1000

    def remaining(self) -> float:
        """Return the seconds left, never negative; infinity without a limit."""
        if self._end is None:
            return float("inf")
        return max(0.0, self._end - self._clock.monotonic())

    def expired(self) -> bool:
        """Return whether the budget is used up."""
        return self._end is not None and self._end <= self._clock.monotonic()


_bound: Final[ContextVar[Deadline | None]] = ContextVar("kafkalike.deadline", default=None)


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Limit retriable requests that this thread makes in the block by a deadline; see `time_left`."""
    outer = _bound.get()
    nearer = outer if outer is not None and outer.remaining() < deadline.remaining() else deadline
    # If an interrupt skips the reset, the stale deadline aborts later work on this thread. The deadline is therefore
    # set inside the block that resets it, and reset twice, because an interrupt comes at any line, but only once.
    try:
        try:
            _bound.set(nearer)
            yield
        finally:
            _bound.set(outer)
    finally:
        _bound.set(outer)


def time_left() -> float:
    """Return the seconds until the deadline of the enclosing `within`; infinity without one."""
    deadline = _bound.get()
    return float("inf") if deadline is None else deadline.remaining()


def utc_text(time_ms: int) -> str:
    """Format a time for people: ISO 8601 with milliseconds, UTC.

    >>> utc_text(1)
    '1970-01-01T00:00:00.001+00:00'
    """
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")


SYSTEM_CLOCK = SystemClock()
