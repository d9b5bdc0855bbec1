"""Growth: tables, clusters and groups of three decades of sizes in, their costs out; for this tree and for another.

    python -m benchmarks.bench_growth [PATH_OF_ANOTHER_CHECKOUT]

`KAFKALIKE_BENCH_MOST=100` leaves the larger sizes out. The other checkout is measured by processes of its own, with its
own package, in turn with this one, on roots that it has made itself. Moves of log starts are in `bench_control`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.harness import Report

MOST = int(os.environ.get("KAFKALIKE_BENCH_MOST", "10000"))
HERE = Path(__file__).parents[1]

SIZES: Mapping[str, tuple[int, ...]] = {
    "commits": (10, 100, 1_000, 10_000),
    "partitions": (1, 10, 100, 1_000, 10_000),
    "topics": (1, 10, 100, 1_000),
    "groups": (1, 10, 100, 1_000),
}

WORKER = """
import json, sys, tempfile, time
from pathlib import Path

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata

kind, size = sys.argv[1], int(sys.argv[2])
TIMES = 7


def batch(*partitions):
    made = RecordBatch()
    for partition in partitions:
        made.add(partition, None, b"v" * 100, 1)
    return made


def timed(run, times=TIMES):
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


def bytes_of(files):
    return sum(file.stat().st_size for file in files if file.is_file())


def commits(root):
    cluster = connect(root)
    cluster.create_topic("t", 1, {"message.timestamp.type": "CreateTime"})
    log = cluster.log("t")
    for _ in range(size):
        log.append(batch(0))
    cluster.settle()
    found = {"open a topic": timed(lambda: connect(root).log("t").refresh())}
    kept = list(Path(root, "t", "_delta_log").iterdir())
    data = Path(root, "t").glob("partition=*/*")
    return found, {"bytes of the log": bytes_of(kept), "bytes of the data": bytes_of(data)}


def partitions(root):
    cluster = connect(root)
    cluster.create_topic("t", size, {})
    log = cluster.log("t")
    every = batch(*range(size))
    log.append(batch(0))
    found = {"append to one": timed(lambda: log.append(batch(0))), "append to all": timed(lambda: log.append(every), 3)}
    if size <= 1000:
        consumer = KafkaConsumer(bootstrap_servers=root, auto_offset_reset="latest")
        consumer.assign([TopicPartition("t", p) for p in range(size)])
        while consumer.poll(timeout_ms=10):
            pass
        found["empty poll"] = timed(lambda: consumer.poll(timeout_ms=0), 50)
        consumer.close()
    return found, {}


def topics(root):
    cluster = connect(root)
    for number in range(size):
        cluster.create_topic(f"t{number}", 1, {})
    cluster.settle()
    return {"open a cluster and list its topics": timed(lambda: connect(root).topics())}, {}


def groups(root):
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch(0))
    admin = KafkaAdminClient(bootstrap_servers=root)
    where = {TopicPartition("t", 0): OffsetAndMetadata(1)}
    for number in range(size):
        admin.alter_group_offsets(f"g{number}", where)
    admin.close()

    def look():
        fresh = KafkaAdminClient(bootstrap_servers=root)
        assert len(fresh.list_consumer_groups()) == size
        fresh.close()

    known = KafkaAdminClient(bootstrap_servers=root)
    found = {"open and list groups": timed(look)}
    found["commit of one group"] = timed(lambda: known.alter_group_offsets("g0", where))
    known.close()
    return found, {}


with tempfile.TemporaryDirectory() as scratch:
    seconds, sizes = globals()[kind](f"{scratch}/root")
print(json.dumps({"seconds": seconds, "bytes": sizes}))
"""
"""A process that makes one size of one kind, and measures it; it uses only what both checkouts have."""


def measured(checkout: Path, kind: str, size: int) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Seconds and bytes of one size, by a process with the package of a checkout.

    The checkout comes before what is installed, so that it is its own package that is imported.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", WORKER, kind, str(size)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=checkout)
    found = json.loads(done.stdout.splitlines()[-1])
    return found["seconds"], found["bytes"]


def exponent(smaller: tuple[int, float], larger: tuple[int, float]) -> float:
    """How a cost grows between two sizes: 0 not at all, 1 with the size, 2 with its square."""
    (few, low), (many, high) = smaller, larger
    return math.log(high / low) / math.log(many / few)


def main(arguments: Sequence[str]) -> None:
    """Measure and print."""
    checkouts = {"now": HERE} | ({"before": Path(arguments[0]).resolve()} if arguments else {})
    report = Report("growth")
    last: dict[tuple[str, str], tuple[int, float]] = {}
    for kind, sizes in SIZES.items():
        for size in (size for size in sizes if size <= MOST):
            figures: dict[str, dict[str, str]] = {}
            for name, checkout in checkouts.items():
                seconds, counted = measured(checkout, kind, size)
                report.raw |= {f"{what}, {size} {kind}, {name}": samples for what, samples in seconds.items()}
                costs = {what: statistics.median(samples) for what, samples in seconds.items()}
                for what, cost in {**costs, **counted}.items():
                    known = last.get((what, name))
                    growth = "" if known is None else f", exponent {exponent(known, (size, cost)):.2f}"
                    last[what, name] = size, cost
                    shown = f"{cost / 1e6:,.2f} MB" if what in counted else f"{cost * 1e3:,.1f} ms"
                    figures.setdefault(what, {})[name] = f"{shown}{growth}"
            for what, found in figures.items():
                report.add(f"{what}, {size:,} {kind}", found["now"], found.get("before", ""))
    report.finish()


if __name__ == "__main__":
    main(sys.argv[1:])
