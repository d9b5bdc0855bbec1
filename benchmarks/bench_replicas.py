"""Appends to a topic on one, two and three roots beside a cluster of one root, turn by turn in one process.

Then what a producer sustains, as in `bench_producer`.

Run: python -m benchmarks.bench_replicas [appends] [records of each] [bytes of each] [rounds of the producer]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_producer import SUSTAINED, sustained
from benchmarks.harness import Report
from kafkalike.connect import connect
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch

DEFAULTS = (300, 10, 1000, 5)
FACTORS = (0, 1, 2, 3)
"""0 is a cluster of one root."""
WARM_UP = 20


def servers_of(folder: Path, factor: int) -> str:
    """The `bootstrap_servers` of the cluster in which topics of this factor are."""
    return ",".join(str(folder / f"{factor}-{n}") for n in range(1, 4 if factor else 2))


def log_of(folder: Path, factor: int) -> TopicLog:
    """The log of a new topic."""
    cluster = connect(servers_of(folder, factor))
    for topic, partitions in (("t", 1), ("bench", 4)):
        cluster.create_topic(topic, partitions, {}, replication_factor=factor or 1)
    return cluster.log("t")


def name_of(factor: int) -> str:
    """As it is printed."""
    return f"factor {factor}" if factor else "one root"


def batch(records: int, size: int) -> RecordBatch:
    """Records of one partition."""
    made, now = RecordBatch(), SYSTEM_CLOCK.now_ms()
    for _ in range(records):
        made.add(0, None, bytes(size), now)
    return made


def appended(report: Report, folder: Path, appends: int, records: int, size: int) -> None:
    """Report ms of an append, median and 99th percentile, and µs of a look that finds nothing."""
    logs = {factor: log_of(folder, factor) for factor in FACTORS}
    took: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    looks: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    for turn in range(appends + WARM_UP):
        for factor, log in logs.items():
            rows = batch(records, size)
            began = time.perf_counter()
            log.append(rows)
            middle = time.perf_counter()
            log.refresh()
            ended = time.perf_counter()
            if turn >= WARM_UP:
                took[factor].append((middle - began) * 1000)
                looks[factor].append((ended - middle) * 1000)
    base = statistics.median(took[0])
    for factor in FACTORS:
        every = sorted(took[factor])
        median = statistics.median(every)
        one, name = f"one root: {base:.2f} ms", name_of(factor)
        report.add(f"{name}: append p50", f"{median:.2f} ms", one, f"{median / base:.2f} x")
        report.add(f"{name}: append p99", f"{every[int(len(every) * 0.99)]:.2f} ms")
        report.add(f"{name}: look", f"{statistics.median(looks[factor]) * 1000:.0f} µs")


def produced(report: Report, folder: Path, rounds: int) -> None:
    """Report records a second of a producer that sends, and is flushed at the end."""
    took: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    for _ in range(rounds):
        for factor in FACTORS:
            took[factor].append(sustained(servers_of(folder, factor)))
    base = statistics.median(took[0])
    for factor in FACTORS:
        median = statistics.median(took[factor])
        one = f"one root: {SUSTAINED / base:,.0f} rec/s"
        report.add(
            f"{name_of(factor)}: sustained", f"{SUSTAINED / median:,.0f} rec/s", one, f"{median / base:.2f} x its time"
        )


def main(argv: Sequence[str]) -> None:
    """Measure and print."""
    appends, records, size, rounds = [*map(int, argv), *DEFAULTS[len(argv) :]]
    report = Report("replicas")
    with tempfile.TemporaryDirectory() as folder:
        appended(report, Path(folder), appends, records, size)
        produced(report, Path(folder), rounds)
    report.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
