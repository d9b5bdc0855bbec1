"""Append collector: metric families of the appends of this process, for Prometheus.

Example:
    from kafkalike.metrics import serve_appends

    serve_appends(9309)
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kafkalike.log.topic.topic_log import APPENDS, FAILED


class AppendCollector(Collector):
    """How long the appends of this process took: those of its producers, and of all else in it that writes records.

    Appends to tables count; what Spark's tasks stage is appended by the driver, as one.
    """

    def collect(self) -> Iterator[HistogramMetricFamily | CounterMetricFamily]:
        """All appends since the process began."""
        seen = APPENDS.seen()
        buckets = [("+Inf" if bound == float("inf") else str(bound), float(count)) for bound, count in seen.at_most]
        text = "Time of the appends of this process that ended well."
        yield HistogramMetricFamily("kafkalike_append_seconds", text, buckets=buckets, sum_value=seen.total)
        failed = FAILED.seen().count
        yield CounterMetricFamily("kafkalike_append_failures", "Appends of this process that failed.", value=failed)


def serve_appends(port: int, host: str = "127.0.0.1") -> None:
    """Serve these metrics from a thread, at `http://host:port/metrics`, until the process ends.

    A service that has a registry of `prometheus_client` registers an `AppendCollector` there instead.

    Args:
        port: of the address.
        host: name or number of the address; `0.0.0.0` is everyone.

    Raises:
        OSError: the address cannot be listened at.
    """
    registry = CollectorRegistry()
    registry.register(AppendCollector())
    start_http_server(port, addr=host, registry=registry)
