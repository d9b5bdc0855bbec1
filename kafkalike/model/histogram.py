"""Histogram: count values by upper bounds, as Prometheus does."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """The counts of a histogram at one moment."""

    at_most: tuple[tuple[float, int], ...]
    """Each bound with the number of values up to it; the last bound is infinity."""
    total: float
    """Sum of all values."""

    @property
    def count(self) -> int:
        """Number of values."""
        return self.at_most[-1][1]


class Histogram:
    """Counts values by upper bounds. Thread-safe.

    Args:
        bounds: ascending; the last bound, infinity, is added.

    >>> sizes = Histogram([1, 10])
    >>> for value in (0.5, 1, 2, 100):
    ...     sizes.observe(value)
    >>> sizes.seen()
    HistogramSnapshot(at_most=((1, 2), (10, 3), (inf, 4)), total=103.5)
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0
        self._lock = threading.Lock()

    def observe(self, value: float) -> None:
        """Count one value."""
        with self._lock:
            self._counts[bisect_left(self._bounds, value)] += 1
            self._total += value

    def seen(self) -> HistogramSnapshot:
        """Return the counts of all values so far."""
        with self._lock:
            counts, total = tuple(accumulate(self._counts)), self._total
        return HistogramSnapshot(tuple(zip((*self._bounds, float("inf")), counts, strict=True)), total)
