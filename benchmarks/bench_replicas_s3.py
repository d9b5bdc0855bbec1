"""Appends on one, two and three buckets whose requests take 15 / 25 ms, beside a cluster of one bucket; and failover.

Run: python -m benchmarks.bench_replicas_s3 [seconds for each]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bench_replicas import batch
from benchmarks.harness import Report
from kafkalike.connect import connect
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.storage_options import StorageOptions, check_options
from kafkalike.replication.cluster.cluster_factory import open_several
from tests.tools.fault_proxy import fault_proxy
from tests.tools.object_servers import S3, running

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog

GET, PUT = 0.015, 0.025
"""Seconds that a request takes at least."""

WRITERS = 8
LAG_MS = 5000
WARM_UP = 5


def timed(log: TopicLog, seconds: float) -> list[float]:
    """Ms of appends of one writer, one after the other."""
    for _ in range(WARM_UP):
        log.append(batch(10, 1000))
    took: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        log.append(batch(10, 1000))
        took.append((time.perf_counter() - began) * 1000)
    return sorted(took)


def rate(cluster: Cluster, seconds: float) -> float:
    """Appends a second of several threads of one process, each at the same topic."""
    counts = [0] * WRITERS
    end = time.perf_counter() + seconds

    def write(number: int) -> None:
        log = cluster.log("t")
        while time.perf_counter() < end:
            log.append(batch(10, 1000))
            counts[number] += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / seconds


def main(argv: Sequence[str]) -> None:
    """Report ms of an append, the rate of several writers, requests of an append, and the time of a failover."""
    seconds = float(argv[0]) if argv else 10.0
    report = Report("replicas-s3")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running(S3, Path(folder)))
        proxies = [stack.enter_context(fault_proxy(server.port)) for _ in range(3)]
        base = server.new_root()
        roots = [f"{base}/{n}" for n in range(3)]
        options = {root: server.behind(proxy.port).options for root, proxy in zip(roots, proxies, strict=True)}
        settings = ServerProperties.from_properties({"replica.lag.time.max.ms": str(LAG_MS)})
        clusters: dict[int, Cluster] = {}
        for factor in (0, 1, 2, 3):
            named = [f"{root}/{factor}" for root in roots]
            if factor:
                clusters[factor] = open_several(named, server=settings, storage_options=check_options(options))
                clusters[factor].create_topic("t", 1, {}, replication_factor=factor)
            else:
                clusters[factor] = connect(named[0], StorageOptions(options[roots[0]]))
                clusters[factor].create_topic("t", 1, {})
        for proxy in proxies:
            proxy.plan.seconds = {"GET": GET, "HEAD": GET, "PUT": PUT, "POST": PUT, "DELETE": GET}
        base_ms = base_rate = 0.0
        for factor, cluster in clusters.items():
            log = cluster.log("t")
            before = dict(cluster.requests)
            took = timed(log, seconds)
            made = {kind: (n - before[kind]) / (len(took) + WARM_UP) for kind, n in cluster.requests.items()}
            median = statistics.median(took)
            base_ms = base_ms or median
            each = ", ".join(f"{n:.1f} {kind}" for kind, n in made.items() if n >= 0.05)
            name = f"factor {factor}" if factor else "one root"
            one = f"one root: {base_ms:.0f} ms"
            report.add(f"{name}: append p50", f"{median:.0f} ms", one, f"{median / base_ms:.1f} x")
            report.add(f"{name}: append p99", f"{took[int(len(took) * 0.99)]:.0f} ms")
            report.add(f"{name}: requests of an append", each)
            together = rate(cluster, seconds)
            base_rate = base_rate or together
            report.add(f"{name}: eight writers", f"{together:.1f} appends/s", f"one root: {base_rate:.1f} appends/s")
        log = clusters[3].log("t")
        leader = clusters[3].replication.replicas("t").leader
        proxies[leader - 1].plan.faults = {"reset": 1.0}
        began = time.perf_counter()
        log.append(batch(10, 1000))
        report.add("next append after the leader's bucket is gone", f"{time.perf_counter() - began:.2f} s")
    report.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
