"""A root in an object store: how long an append and a record's way take, and what requests they cost.

versitygw as S3, with a proxy before it that makes each GET, HEAD and LIST, and each PUT, take so many ms. `make
setup-stores` fetches it.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness import Report, percentile
from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import RecordBatch
from tests.tools.object_servers import S3, ObjectServer, running

LATENCIES_MS = ((15, 25), (40, 60))
"""Of a GET, HEAD or LIST, and of a PUT."""

ROUNDS = 5
APPENDS = 100
WAYS = 30
SUSTAINED = 200_000
QUIET_SECONDS, IDLE_SECONDS = 60.0, 40.0
"""How long nothing has come when counting begins, and how long it goes on."""
VALUE = b"v" * 100

MONTH_SECONDS = 30.44 * 24 * 3600
PRICES = {"get": 0.0004, "head": 0.0004, "put": 0.005, "list": 0.005, "copy": 0.005, "delete": 0.0}
"""Dollars for a thousand requests, as S3 Standard asks in public."""

_PROXY = """
import sys
from tests.tools.fault_proxy import FaultProxy
proxy = FaultProxy(int(sys.argv[1]), 1)
get, put = float(sys.argv[2]), float(sys.argv[3])
proxy.plan.seconds = {"GET": get, "HEAD": get, "PUT": put, "POST": put, "DELETE": put}
print(proxy.port, flush=True)
sys.stdin.read()
"""


@contextmanager
def slow(server: ObjectServer, get_ms: float, put_ms: float) -> Iterator[ObjectServer]:
    """The server behind a proxy in a process of its own."""
    command = [sys.executable, "-c", _PROXY, str(server.port), str(get_ms / 1000), str(put_ms / 1000)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as proxy:
        assert proxy.stdin is not None
        assert proxy.stdout is not None
        try:
            yield server.behind(int(proxy.stdout.readline()))
        finally:
            proxy.stdin.close()


def spent(cluster: Cluster, before: Mapping[str, int], times: float) -> str:
    """Requests of each kind per piece of work since a moment."""
    per = {kind: (count - before[kind]) / times for kind, count in cluster.requests.items()}
    return ", ".join(f"{number:.2f} {kind}" for kind, number in per.items() if number >= 0.005)


def dollars(per_second: Mapping[str, float]) -> float:
    """What requests cost in a month."""
    return sum(PRICES[kind] / 1000 * number for kind, number in per_second.items()) * MONTH_SECONDS


def appends(root: str, options: Mapping[str, str]) -> tuple[list[float], str]:
    """Seconds of lone appends, and their requests."""
    cluster = connect(root, options)
    log = cluster.log("bench")

    def append() -> float:
        batch = RecordBatch()
        batch.add(0, None, VALUE, 1000)
        start = time.perf_counter()
        log.append(batch)
        return time.perf_counter() - start

    for _ in range(5):
        append()
    before = cluster.requests
    taken = [append() for _ in range(APPENDS)]
    return taken, spent(cluster, before, APPENDS)


def ways(root: str, options: Mapping[str, str]) -> tuple[list[float], str]:
    """Seconds from `send` to the poll that has the record, and the consumer's requests.

    The consumer has options of its own, so that it shares no looks with the producer, as in another process.
    """
    taken: list[float] = []
    apart = {**options, "timeout": "19s"}
    with (
        KafkaProducer(bootstrap_servers=root, storage_options=options) as producer,
        KafkaConsumer(bootstrap_servers=root, storage_options=apart, auto_offset_reset="latest") as consumer,
    ):
        consumer.subscribe(["bench"])
        consumer.poll(timeout_ms=100)
        producer.send("bench", VALUE, partition=0).get()
        while not consumer.poll(timeout_ms=1000):
            pass
        cluster = connect(root, apart)
        before = cluster.requests
        for _ in range(WAYS):
            start = time.perf_counter()
            producer.send("bench", VALUE, partition=0)
            while not consumer.poll(timeout_ms=1000):
                pass
            taken.append(time.perf_counter() - start)
        producer.flush()
        return taken, spent(cluster, before, WAYS)


def sustained(root: str, options: Mapping[str, str]) -> float:
    """Records a second."""
    with KafkaProducer(bootstrap_servers=root, storage_options=options) as producer:
        producer.send("bench", VALUE).get()
        start = time.perf_counter()
        for _ in range(SUSTAINED):
            producer.send("bench", VALUE)
        producer.flush()
        return SUSTAINED / (time.perf_counter() - start)


def idle(root: str, options: Mapping[str, str]) -> dict[str, float]:
    """Requests a second of a consumer without a group that has had nothing to read for a while."""
    cluster = connect(root, options)
    with KafkaConsumer("bench", bootstrap_servers=root, storage_options=options) as consumer:
        consumer.poll(timeout_ms=QUIET_SECONDS * 1000)
        before, start = cluster.requests, time.monotonic()
        while (passed := time.monotonic() - start) < IDLE_SECONDS:
            consumer.poll(timeout_ms=500)
        return {kind: (count - before[kind]) / passed for kind, count in cluster.requests.items()}


def measure(server: ObjectServer, get_ms: int, put_ms: int) -> None:
    """Times and requests at one latency."""
    report = Report(f"objects-{get_ms}-{put_ms}")
    one, way, rates = [], [], []
    per_append = per_way = ""
    for _ in range(ROUNDS):
        root = server.new_root()
        connect(root, server.options).create_topic("bench", 1, {})
        taken, per_append = appends(root, server.options)
        one.append(taken)
        taken, per_way = ways(root, server.options)
        way.append(taken)
        rates.append(sustained(root, server.options))
    p50, p99 = (statistics.median(percentile(t, share) for t in one) * 1e3 for share in (0.5, 0.99))
    report.raw |= {"appends": one, "produce to poll": way, "sustained": rates}
    report.add("lone append", f"p50 {p50:.0f} ms, p99 {p99:.0f} ms", aim="p50 <= 60, p99 <= 200 ms at 15/25")
    report.add("requests of an append", per_append)
    to_poll = statistics.median(percentile(t, 0.5) for t in way) * 1e3
    report.add("produce to poll", f"p50 {to_poll:.0f} ms", aim="p50 <= 200 ms at 15/25")
    report.add("requests of the consumer for a record", per_way)
    report.add("sustained", f"{statistics.median(rates):,.0f} rec/s", aim=">= 100,000 rec/s")
    report.finish()


def measure_idle(server: ObjectServer) -> None:
    """Requests and dollars of a consumer that waits."""
    report = Report("objects-idle")
    root = server.new_root()
    connect(root, server.options).create_topic("bench", 1, {})
    seconds = idle(root, server.options)
    shown = ", ".join(f"{number:.2f} {kind}" for kind, number in seconds.items() if number)
    report.raw |= {"a second": seconds, "prices for a thousand": PRICES}
    report.add("requests of an idle second", shown)
    report.add("an idle consumer and topic", f"{dollars(seconds):.2f} $ a month", aim="<= 1.1 $")
    report.finish()


def main() -> None:
    """Measure and print: `15/25`, `40/60` or `idle`; all of them when none is named."""
    cases = sys.argv[1:] or [*(f"{get_ms}/{put_ms}" for get_ms, put_ms in LATENCIES_MS), "idle"]
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        try:
            server = stack.enter_context(running(S3, Path(folder)))
        except pytest.skip.Exception as missing:
            print(missing, file=sys.stderr)
            return
        for case in cases:
            get_ms, put_ms = (15, 25) if case == "idle" else map(int, case.split("/"))
            with slow(server, get_ms, put_ms) as behind:
                if case == "idle":
                    measure_idle(behind)
                else:
                    measure(behind, get_ms, put_ms)


if __name__ == "__main__":
    main()
