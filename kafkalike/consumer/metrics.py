"""Metrics: what a consumer did, counted; Kafka's names where Kafka has the number."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalike.consumer.subscription import Subscription


@dataclass(slots=True)
class Metrics:
    """Totals since the consumer was made."""

    records_consumed: int = 0
    bytes_fetched: int = 0
    fetches: int = 0
    polls: int = 0
    commits: int = 0
    failed_commits: int = 0
    rebalances: int = 0
    records_skipped: int = 0
    """Records that could not be read and were passed over."""
    letters: int = 0
    """Those of them that are, or become, dead letters."""
    errors_logged: int = 0

    def by_group(self, subscription: Subscription) -> dict[str, dict[str, float]]:
        """Numbers by Kafka's metric group and metric name."""
        states = [state for _, state in subscription.items()]
        lags = [s.highwater - s.position for s in states if s.highwater is not None and s.position is not None]
        return {
            "consumer-metrics": {"poll-total": self.polls},
            "consumer-fetch-manager-metrics": {
                "records-consumed-total": self.records_consumed,
                "bytes-consumed-total": self.bytes_fetched,
                "fetch-total": self.fetches,
                "records-lag-max": max(0, *lags) if lags else 0,
            },
            "consumer-coordinator-metrics": {
                "assigned-partitions": len(subscription),
                "commit-total": self.commits,
                "failed-commit-total": self.failed_commits,
                "rebalance-total": self.rebalances,
            },
            "task-error-metrics": {
                "total-records-skipped": self.records_skipped,
                "deadletterqueue-produce-requests": self.letters,
                "total-errors-logged": self.errors_logged,
            },
        }
