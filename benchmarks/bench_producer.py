"""KafkaProducer: one record from send to acknowledgement, and 200 k records sustained, against raw Delta appends."""

from __future__ import annotations

import tempfile
import time

from benchmarks.data import bench_session
from benchmarks.harness import Report, percentile
from kafkalike import KafkaProducer
from kafkalike.connect import connect

VALUE = b"v" * 100
SUSTAINED = 200_000


def one_by_one(root: str, count: int) -> list[float]:
    """Seconds of each `send().get()`."""
    taken = []
    with KafkaProducer(bootstrap_servers=root) as producer:
        for number in range(count + 10):
            start = time.perf_counter()
            producer.send("bench", value=VALUE, key=b"%016d" % number).get(timeout=120)
            taken.append(time.perf_counter() - start)
    return taken[10:]


def sustained(root: str) -> float:
    """Seconds for `SUSTAINED` sends and a flush."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("bench", value=VALUE).get(timeout=120)
        keys = [b"%016d" % (n % 10_000) for n in range(SUSTAINED)]
        start = time.perf_counter()
        for key in keys:
            producer.send("bench", value=VALUE, key=key)
        producer.flush()
        return time.perf_counter() - start


def main() -> None:
    """Measure and print."""
    report = Report("producer")
    spark = bench_session()
    with tempfile.TemporaryDirectory() as scratch:
        root = f"{scratch}/root"
        connect(root).create_topic("bench", 4, {})
        row = spark.createDataFrame([(b"k" * 16, VALUE)], "key binary, value binary")
        raw = []
        for _ in range(45):
            start = time.perf_counter()
            row.write.format("delta").mode("append").save(f"{scratch}/raw")
            raw.append(time.perf_counter() - start)
        raw = raw[5:]
        low, high = percentile(raw, 0.5) * 1e3, percentile(raw, 0.99) * 1e3
        rival = f"one-row raw Delta append: p50 {low:.0f} ms, p99 {high:.0f} ms"
        taken = one_by_one(root, 1000)
        report.raw["one"] = taken
        report.add(
            "send().get()",
            f"p50 {percentile(taken, 0.5) * 1e3:.1f} ms, p99 {percentile(taken, 0.99) * 1e3:.1f} ms",
            rival,
            f"p50 {percentile(taken, 0.5) / percentile(raw, 0.5):.3f} x its time",
            "<= 1.5 x",
        )
        report.raw["raw append"] = raw
        runs = sorted(sustained(root) for _ in range(5))
        report.raw["sustained"] = runs
        report.add(
            f"{SUSTAINED:,} records sustained",
            f"median {runs[2]:.2f} s, {SUSTAINED / runs[2]:,.0f} rec/s",
        )
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
