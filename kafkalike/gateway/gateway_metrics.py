"""Metrics of a gateway for Prometheus, and its readiness for whoever spreads connections."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from wsgiref.simple_server import WSGIServer

from kio.schema.index import api_key_map
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_SECONDS: Final = (0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)
"""Upper bounds of the latency's buckets."""

READY_PATH: Final = "/health/ready"


def add_readiness(server: WSGIServer, unready: Callable[[], str | None]) -> None:
    """Let a server of metrics also answer whether a gateway is ready: 200, or 503 with the reason.

    Args:
        server: answers all other paths as before.
        unready: returns the reason why it is not; None if it is.
    """
    metrics = server.get_app()
    assert metrics is not None

    def answer(environ: Any, start_response: Any) -> Any:  # noqa: ANN401 - as WSGI has them
        if environ["PATH_INFO"] != READY_PATH:
            return metrics(environ, start_response)
        reason = unready()
        status = "200 OK" if reason is None else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{reason or 'ready'}\n".encode()]

    server.set_app(answer)


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
        self.memory = Gauge(
            "kafkalike_gateway_memory_bytes",
            "Memory of large requests, of records that wait for appends, and of answers that clients have not read",
            ["of"],
            registry=registry,
        )
        self.malformed = Counter(
            "kafkalike_gateway_malformed_requests", "Requests that ended their connection", registry=registry
        )
        self.failures = Counter(
            "kafkalike_gateway_failed_requests", "Requests answered with an error as a whole", registry=registry
        )
        self._errors = Counter(
            "kafkalike_gateway_errors",
            "Answers, and parts of them for a partition, with an error, by request and Kafka's code",
            ["request", "code"],
            registry=registry,
        )
        self._requests = Counter(
            "kafkalike_gateway_requests", "Requests by their version", ["request", "version"], registry=registry
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

        self._in, self._out = self._bytes.labels("in"), self._bytes.labels("out")
        self._of_key: dict[int, Histogram] = {}
        self._of_version: dict[tuple[int, int], Counter] = {}

    def asked(self, key: int, version: int) -> None:
        """Count a request that the gateway offers, by API key and version."""
        found = self._of_version.get((key, version))
        if found is None:
            found = self._of_version[key, version] = self._requests.labels(api_key_map[key], str(version))
        found.inc()

    def answered(self, key: int, seconds: float, received: int, sent: int) -> None:
        """Count a request and its answer.

        Args:
            key: API key.
            seconds: from request to answer.
            received: bytes of the request.
            sent: bytes of the answer.
        """
        found = self._of_key.get(key)
        if found is None:
            # Looking labels up takes longer than counting.
            found = self._of_key[key] = self._seconds.labels(api_key_map[key])
        found.observe(seconds)
        self._in.inc(received)
        self._out.inc(sent)

    def count_errors(self, key: int, answer: Mapping[str, Any]) -> None:
        """Count the errors of an answer, and of its partitions if it has any.

        Args:
            key: API key.
            answer: by field.
        """
        codes = [answer.get("error_code", 0)]
        for topic in answer.get("responses", ()):
            parts = topic.get("partition_responses") or topic.get("partitions") or ()
            codes += [part.get("error_code", 0) for part in parts]
        for code in codes:
            if code:
                self._errors.labels(api_key_map[key], str(int(code))).inc()
