"""Appends to a topic on one, two and three roots beside a cluster of one root, turn by turn in one process.

Run: python -m benchmarks.bench_replicas [appends] [records of each] [bytes of each]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.log.connect import connect
from kafkalike.log.port import TopicLog
from kafkalike.model.batch import RecordBatch

DEFAULTS = (300, 10, 1000)
WARM_UP = 20


def log_of(folder: Path, factor: int) -> TopicLog:
    """The log of a new topic; factor 0: in a cluster of one root."""
    roots = [folder / f"{factor}-{n}" for n in range(1, 4)]
    if not factor:
        cluster = connect(str(roots[0]))
        cluster.create_topic("t", 1, {})
    else:
        cluster = connect(",".join(map(str, roots)))
        cluster.create_topic("t", 1, {}, replication_factor=factor)
    return cluster.log("t")


def batch(records: int, size: int) -> RecordBatch:
    """Records of one partition."""
    made, now = RecordBatch(), SYSTEM_CLOCK.now_ms()
    for _ in range(records):
        made.add(0, None, bytes(size), now)
    return made


def main(argv: Sequence[str]) -> None:
    """Print ms of an append, median and 99th percentile, and of a look that finds nothing."""
    appends, records, size = [*map(int, argv), *DEFAULTS[len(argv) :]]
    with tempfile.TemporaryDirectory() as folder:
        logs = {factor: log_of(Path(folder), factor) for factor in (0, 1, 2, 3)}
        took: dict[int, list[float]] = {factor: [] for factor in logs}
        looks: dict[int, list[float]] = {factor: [] for factor in logs}
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
        for factor in logs:
            every = sorted(took[factor])
            name = f"factor {factor}" if factor else "one root"
            print(
                f"{name}: append p50 {statistics.median(every):.2f} ms ({statistics.median(every) / base:.2f} x), "
                f"p99 {every[int(len(every) * 0.99)]:.2f} ms; look {statistics.median(looks[factor]) * 1000:.0f} µs"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
