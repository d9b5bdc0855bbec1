"""RateLimit: waits between sends that keep a rate."""

from __future__ import annotations

from kafkalike.model.clock import MonotonicClock


class RateLimit:
    """Keeps sends at a rate.

    Args:
        clock: time and waiting.
        per_second: records per second; 0 or less is no limit.
    """

    def __init__(self, clock: MonotonicClock, per_second: float) -> None:
        self._clock = clock
        self._per_second = per_second
        self._start = clock.monotonic()

    def wait(self, sent: int) -> None:
        """Wait until so many records may have been sent."""
        if self._per_second > 0:
            self._clock.sleep(self._start + sent / self._per_second - self._clock.monotonic())
