"""Control: moves of log starts in, what a new client pays to open the cluster out; before and after maintenance.

One topic of 100 partitions; each maintenance run moves the log start of every partition, so 1,000 runs are 100,000
moves: three and a half days of a run each five minutes. `KAFKALIKE_BENCH_MOVES` names other numbers: `1000,10000`.
"""

from __future__ import annotations

import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator

from benchmarks.harness import Report
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch

MOVES = tuple(int(n) for n in os.environ.get("KAFKALIKE_BENCH_MOVES", "1000,10000,100000").split(","))
PARTITIONS = 100
RUNS = 5

OPEN = """
import sys, time
from kafkalike.connect import connect

def pages():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

connect(sys.argv[1]).topics()
before, start = pages(), time.process_time()
connect(sys.argv[2]).topics()
print(time.process_time() - start, (pages() - before) * 4096 / 2**20)
"""
"""A new process that has its modules loaded, by a look at another cluster, before the clock starts."""


def topic(cluster: Cluster, runs: int) -> None:
    """A topic whose partitions are long enough to move their log starts so often."""
    cluster.create_topic("bench", PARTITIONS, {})
    batch = RecordBatch()
    for partition in range(PARTITIONS):
        for _ in range(runs):
            batch.add(partition, None, b"v", 1_000)
    cluster.log("bench").append(batch)


def move(cluster: Cluster, runs: Iterator[int]) -> None:
    """What the retention of so many maintenance runs writes."""
    log = cluster.log("bench")
    for number in runs:
        starts = dict.fromkeys(range(PARTITIONS), number)
        cluster.move_log_start("bench", starts, "retention", f"run-{number}", log=log)


def opened(other: str, root: str) -> tuple[list[float], float]:
    """Seconds of CPU that a new process needs to know the topics, and the MiB of memory that this adds."""
    seconds, mib = [], []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", OPEN, other, root], check=True, capture_output=True, text=True)
        taken, memory = done.stdout.split()
        seconds.append(float(taken))
        mib.append(float(memory))
    return seconds, statistics.median(mib)


def main() -> None:
    """Measure and print."""
    report = Report("control")
    before: dict[str, tuple[int, float]] = {}
    for moves in MOVES:
        runs = moves // PARTITIONS
        with tempfile.TemporaryDirectory() as scratch:
            other, root = f"{scratch}/other", f"{scratch}/root"
            connect(other).create_topic("other", 1, {})
            cluster = connect(root)
            topic(cluster, runs)
            move(cluster, iter(range(1, runs + 1)))
            for when in ("as written", "maintained"):
                if when == "maintained":
                    maintain(cluster, [], clock=SYSTEM_CLOCK, works=["control"])
                seconds, mib = opened(other, root)
                middle = statistics.median(seconds)
                report.raw[f"open after {moves}, {when}"] = seconds
                growth = ""
                if when in before:
                    fewer, faster = before[when]
                    growth = f"exponent {math.log(middle / faster) / math.log(moves / fewer):.2f}"
                before[when] = moves, middle
                rows = len(connect(root).metadata.rows)
                report.add(
                    f"open a cluster after {moves:,} moves of log starts, {when}",
                    f"{middle * 1e3:,.0f} ms of CPU, {mib:,.0f} MiB, {rows:,} rows",
                    result=growth,
                )
    report.finish()


if __name__ == "__main__":
    main()
