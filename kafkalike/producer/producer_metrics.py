"""Producer metrics: totals of a producer, with Kafka's names where Kafka has the number."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class TopicTotals:
    """Totals of one topic."""

    sent: int = 0
    sent_bytes: int = 0
    failed: int = 0
    retried: int = 0


@dataclass(slots=True)
class ProducerMetrics:
    """Totals since the producer was made. Changed by the sender alone; read by any thread."""

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
        """Totals of a topic."""
        return self.topics.setdefault(topic, TopicTotals())

    def queued(self, waited_ms: float) -> None:
        """A batch's first record waited so long (ms) until it was taken."""
        self.taken += 1
        self.queued_ms += waited_ms
        self.queued_ms_max = max(self.queued_ms_max, waited_ms)

    def appended(self, topic: str, records: int, size: int, took_ms: float) -> None:
        """An append of so many records and bytes succeeded, and took so long (ms)."""
        self.appends += 1
        self.append_ms += took_ms
        self.append_ms_max = max(self.append_ms_max, took_ms)
        self.appended_records += records
        self.appended_bytes += size
        totals = self.of_topic(topic)
        totals.sent += records
        totals.sent_bytes += size

    def by_group(self, *, limit: int, used: int) -> dict[str, dict[str, float]]:
        """Numbers by Kafka's metric group and metric name; a request is an append of one topic.

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
