"""Test helpers for users: a cluster in memory and a clock controlled by the test."""

from __future__ import annotations

from collections.abc import Callable

from kafkalike.log.cluster.cluster import MemoryCluster

__all__ = ["ManualClock", "MemoryCluster"]


class ManualClock:
    """A clock that advances only when it is slept on or set, so waiting takes no time.

    Args:
        seconds: initial value, for wall-clock and monotonic time.
    """

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds
        """The current time in seconds; may be set."""
        self.tasks: list[Callable[[], object]] = []
        """Functions called by `sleep`: each call runs and removes the first one."""

    def now_ms(self) -> int:
        """Return the current time in ms."""
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        """Return the current time in seconds."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting, and run the next task."""
        self.seconds += max(0.0, seconds)
        if self.tasks:
            self.tasks.pop(0)()
