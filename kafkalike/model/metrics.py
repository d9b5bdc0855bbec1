"""Metrics: histograms that count values by upper bounds, as Prometheus does, and the totals of a producer."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
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


@dataclass(slots=True)
class TopicTotals:
    """Counters of one topic."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    retried: int = 0


@dataclass(slots=True)
class ProducerMetrics:
    """Totals since the producer was made. Changed only by the sender; read by any thread."""

    appends: int = 0
    append_ms: float = 0
    append_ms_max: float = 0
    appended_records: int = 0
    appended_bytes: int = 0
    queued_ms: float = 0
    queued_ms_max: float = 0
    taken: int = 0
    topics: dict[str, TopicTotals] = field(default_factory=dict)

    def of_topic(self, topic: str) -> TopicTotals:
        """Return the counters of a topic."""
        return self.topics.setdefault(topic, TopicTotals())

    def queued(self, waited_ms: float) -> None:
        """Record the time (ms) that a batch's first record waited in the buffer."""
        self.taken += 1
        self.queued_ms += waited_ms
        self.queued_ms_max = max(self.queued_ms_max, waited_ms)

    def appended(self, topic: str, records: int, size: int, took_ms: float) -> None:
        """Record a successful append with its number of records, bytes and duration (ms)."""
        self.appends += 1
        self.append_ms += took_ms
        self.append_ms_max = max(self.append_ms_max, took_ms)
        self.appended_records += records
        self.appended_bytes += size
        totals = self.topics.get(topic) or self.of_topic(topic)
        totals.sent += records
        totals.sent_bytes += size

    def by_group(self, *, limit: int, used: int) -> dict[str, dict[str, float]]:
        """Return the numbers by Kafka's metric group and name; a request is an append to one topic.

        Args:
            limit: bytes the buffer may hold.
            used: bytes it holds.
        """
        topics = dict(self.topics)
        groups: dict[str, dict[str, float]] = {
            "producer-metrics": {
                "record-send-total": self.appended_records,
                "record-error-total": sum(t.failed for t in topics.values()),
                "record-retry-total": sum(t.retried for t in topics.values()),
                "byte-total": self.appended_bytes,
                "request-total": self.appends,
                "request-latency-avg": _mean(self.append_ms, self.appends),
                "request-latency-max": self.append_ms_max,
                "records-per-request-avg": _mean(self.appended_records, self.appends),
                "batch-size-avg": _mean(self.appended_bytes, self.appends),
                "record-size-avg": _mean(self.appended_bytes, self.appended_records),
                "record-queue-time-avg": _mean(self.queued_ms, self.taken),
                "record-queue-time-max": self.queued_ms_max,
                "buffer-total-bytes": limit,
                "buffer-available-bytes": max(0, limit - used),
            }
        }
        for name, totals in topics.items():
            groups[f"producer-topic-metrics.{name}"] = {
                "record-send-total": totals.sent,
                "byte-total": totals.sent_bytes,
                "record-error-total": totals.failed,
                "record-retry-total": totals.retried,
            }
        return groups


def _mean(total: float, number: int) -> float:
    return total / number if number else 0.0
