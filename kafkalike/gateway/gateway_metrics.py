"""Metrics of a gateway for Prometheus."""

from __future__ import annotations

from typing import Final

from kio.schema.index import api_key_map
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the latency's buckets."""


class GatewayMetrics:
    """Counters of one gateway.

    Args:
        registry: gets the metrics.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self.connections = Gauge("kafkalike_gateway_connections", "Open connections of clients", registry=registry)
        self.members = Gauge("kafkalike_gateway_members", "Members of groups at this gateway", registry=registry)
        self.open_logs = Gauge(
            "kafkalike_gateway_open_logs", "Logs of topics that are open for appends or reads", registry=registry
        )
        self.malformed = Counter(
            "kafkalike_gateway_malformed_requests", "Requests that ended their connection", registry=registry
        )
        self.failures = Counter(
            "kafkalike_gateway_failed_requests", "Requests answered with an error as a whole", registry=registry
        )
        self._seconds = Histogram(
            "kafkalike_gateway_request_seconds",
            "Time from a request to its answer, waiting of long polls included",
            ["request"],
            buckets=LATENCY_SECONDS,
            registry=registry,
        )
        self._bytes = Counter(
            "kafkalike_gateway_bytes", "Bytes of requests and answers", ["direction"], registry=registry
        )

    def answered(self, key: int, seconds: float, received: int, sent: int) -> None:
        """Count a request and its answer.

        Args:
            key: API key.
            seconds: from request to answer.
            received: bytes of the request.
            sent: bytes of the answer.
        """
        self._seconds.labels(api_key_map[key]).observe(seconds)
        self._bytes.labels("in").inc(received)
        self._bytes.labels("out").inc(sent)
