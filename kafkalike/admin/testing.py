"""Testing: a cluster in memory and a clock that is turned by hand, for users' own tests."""

from __future__ import annotations

from collections.abc import Callable

from kafkalike.log.cluster.cluster import MemoryCluster

__all__ = ["ManualClock", "MemoryCluster"]


class ManualClock:
    """A clock that goes on only when it is slept on or turned, so that waiting takes no time.

    Args:
        seconds: where it begins, for both kinds of time.
    """

    def __init__(self, seconds: float = 1000.0) -> None:
        self.seconds = seconds
        """What it shows; may be set."""
        self.tasks: list[Callable[[], object]] = []
        """What happens while somebody sleeps: one of them per sleep, the first one first."""

    def now_ms(self) -> int:
        """What it shows, in ms."""
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        """What it shows, in seconds."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Go on at once, and do the next task."""
        self.seconds += max(0.0, seconds)
        if self.tasks:
            self.tasks.pop(0)()
