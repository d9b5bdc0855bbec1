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


def appended(folder: Path, appends: int, records: int, size: int) -> None:
    """Print ms of an append, median and 99th percentile, and µs of a look that finds nothing."""
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
        print(
            f"{name_of(factor)}: append p50 {median:.2f} ms ({median / base:.2f} x), "
            f"p99 {every[int(len(every) * 0.99)]:.2f} ms; look {statistics.median(looks[factor]) * 1000:.0f} µs"
        )


def produced(folder: Path, rounds: int) -> None:
    """Print records a second of a producer that sends, and is flushed at the end."""
    took: dict[int, list[float]] = {factor: [] for factor in FACTORS}
    for _ in range(rounds):
        for factor in FACTORS:
            took[factor].append(sustained(servers_of(folder, factor)))
    base = statistics.median(took[0])
    for factor in FACTORS:
        median = statistics.median(took[factor])
        print(f"{name_of(factor)}: {SUSTAINED / median:,.0f} rec/s sustained, {median / base:.2f} x the time")


def main(argv: Sequence[str]) -> None:
    """Measure and print."""
    appends, records, size, rounds = [*map(int, argv), *DEFAULTS[len(argv) :]]
    with tempfile.TemporaryDirectory() as folder:
        appended(Path(folder), appends, records, size)
        produced(Path(folder), rounds)


if __name__ == "__main__":
    main(sys.argv[1:])
