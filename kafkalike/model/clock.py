"""Clock: the only place that asks the machine for the time or sleeps.

Everything that depends on time takes a clock, so a test can hand in one that it turns by hand. Timestamps, which other
processes read, come from a `WallClock`; waits and deadlines, which a jump of the wall clock must not change, come from
a `MonotonicClock`. A `Clock` is both. `SYSTEM_CLOCK` is asked directly only for facts of this machine: how long a call
of the storage took, and how old a look at it is. Such a time is never compared with one of a clock that was handed in.
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
"""Wait before a commit of unknown outcome is settled again: Kafka's default `retry.backoff.ms`."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class WallClock(Protocol):
    """Time for timestamps. It may jump, and differs between machines."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        ...


class MonotonicClock(Protocol):
    """Time for waits and deadlines of one process."""

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back; only differences mean something.

        It also goes on while the machine is suspended, where the operating system has such a clock.
        """
        ...

    def sleep(self, seconds: float) -> None:
        """Wait this many seconds."""
        ...


class Clock(WallClock, MonotonicClock, Protocol):
    """Time for timestamps, waits and deadlines."""


def _through_suspend() -> Callable[[], float]:
    """The monotonic clock that counts the time in which the machine was suspended, where there is one.

    Others go on meanwhile: they clean up logs, and end sessions. On Linux `time.monotonic` stands still then.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return time.monotonic
    try:
        time.clock_gettime(clock)
    except OSError:  # a sandbox or an old kernel without it
        return time.monotonic
    return partial(time.clock_gettime, clock)


_monotonic: Final = _through_suspend()


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000

    monotonic = staticmethod(_monotonic)
    """Return seconds of `CLOCK_BOOTTIME`, else of `time.monotonic`. Called too often for a function of Python."""

    def sleep(self, seconds: float) -> None:
        """Sleep; zero or less returns at once."""
        if seconds > 0:
            time.sleep(seconds)


class Deadline:
    """One time budget shared by every step of an operation.

    Args:
        clock: where the time comes from.
        timeout_ms: the budget in milliseconds; `None` means without end.
    """

    __slots__ = ("_clock", "_end")

    def __init__(self, clock: MonotonicClock, timeout_ms: float | None) -> None:
        self._clock = clock
        self._end = None if timeout_ms is None else clock.monotonic() + timeout_ms / 1000

    def remaining(self) -> float:
        """Seconds left, never negative; infinity when there is no end."""
        if self._end is None:
            return float("inf")
        return max(0.0, self._end - self._clock.monotonic())

    def expired(self) -> bool:
        """Whether the budget is used up."""
        return self._end is not None and self._end <= self._clock.monotonic()


_bound: Final[ContextVar[Deadline | None]] = ContextVar("kafkalike.deadline", default=None)


@contextmanager
def within(deadline: Deadline) -> Iterator[None]:
    """Let requests of this thread that are made inside, and may be made again, end with a deadline; see `time_left`."""
    outer = _bound.get()
    nearer = outer if outer is not None and outer.remaining() < deadline.remaining() else deadline
    # A deadline that an interrupt left behind would end all that this thread does later. So it is set inside the block
    # that takes it away, and taken away twice: an interrupt comes at any line, but once.
    try:
        try:
            _bound.set(nearer)
            yield
        finally:
            _bound.set(outer)
    finally:
        _bound.set(outer)


def time_left() -> float:
    """Seconds until the deadline that this thread works `within`; infinity where there is none."""
    deadline = _bound.get()
    return float("inf") if deadline is None else deadline.remaining()


def utc_text(time_ms: int) -> str:
    """A time for people: ISO 8601 with milliseconds, UTC.

    >>> utc_text(1)
    '1970-01-01T00:00:00.001+00:00'
    """
    return (_EPOCH + timedelta(milliseconds=time_ms)).isoformat(timespec="milliseconds")


SYSTEM_CLOCK = SystemClock()
