"""Read topics of many partitions: `ks.read` where retention has worked, and a batch of the format.

`python -m benchmarks.bench_partitions [TREE ...]`: each TREE is a checkout of this repository, and gets a process
of its own; none for this one. The processes read the same topics in turn, so that their figures can be compared.
`BENCH_ROWS` says how many records the format reads.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import kafkalike.spark as ks
from benchmarks.data import bench_session
from kafkalike import KafkaProducer
from kafkalike.connect import connect

ROWS = int(os.environ.get("BENCH_ROWS", "5000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "5"))
STARTED, WIDE = 600, 200
"""Partitions of the topic with log starts, and of the one that the format reads."""


def fill(root: str) -> None:
    """A topic all of whose partitions have a log start, and one of `ROWS` records in many partitions."""
    cluster = connect(root)
    cluster.create_topic("started", STARTED, {})
    cluster.create_topic("wide", WIDE, {})
    each = 4
    table = pa.table(
        {
            "value": pa.array([b"v"] * each * STARTED, pa.binary()),
            "partition": pa.array([p for p in range(STARTED) for _ in range(each)], pa.int32()),
        }
    )
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send_arrow("started", table)
        for batch in range(10):
            numbers = range(batch * ROWS // 10, (batch + 1) * ROWS // 10)
            values = pa.array([b'{"id":%010d,"kind":"k%d"}' % (n, n % 20) for n in numbers], pa.binary())
            partitions = pa.array([n % WIDE for n in numbers], pa.int32())
            producer.send_arrow("wide", pa.table({"value": values, "partition": partitions}))
    cluster.move_log_start("started", dict.fromkeys(range(STARTED), 1), "retention", "bench")


def works(spark: SparkSession, root: str) -> dict[str, Callable[[], object]]:
    """What is measured, by name."""
    wide = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", "wide")
    return {
        "read": lambda: ks.read(spark, "started", root),
        "read_offsets": lambda: ks.read(spark, "started", root, starting_offsets="earliest"),
        "read_count": lambda: ks.read(spark, "started", root).where("length(value) = 1").count(),
        "format": lambda: wide.load().where("length(value) > 0").count(),
    }


def serve(root: str) -> None:
    """Do what standard input names, and print the seconds."""
    spark = bench_session()
    todo = works(spark, root)
    print("ready", flush=True)
    for line in sys.stdin:
        start = time.perf_counter()
        todo[line.strip()]()
        print(time.perf_counter() - start, flush=True)


@contextmanager
def served(tree: Path, root: str) -> Iterator[Callable[[str], float]]:
    """A process of a checkout; what it is told it does, and gives the seconds."""
    command = [sys.executable, str(Path(__file__).resolve()), "--serve", root]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
        env={**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told, said = process.stdin, process.stdout
        while said.readline().strip() != "ready":
            pass

        def ask(what: str) -> float:
            told.write(f"{what}\n")
            return float(said.readline())

        yield ask
        told.close()


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
        return
    trees = [Path(tree).resolve() for tree in sys.argv[1:]] or [Path(__file__).resolve().parents[1]]
    with tempfile.TemporaryDirectory() as folder:
        fill(folder)
        from contextlib import ExitStack

        with ExitStack() as stack:
            doors = {tree: stack.enter_context(served(tree, folder)) for tree in trees}
            for what in ("read", "read_offsets", "read_count", "format"):
                taken: dict[Path, list[float]] = {tree: [] for tree in trees}
                for number in range(ROUNDS + 1):
                    for tree, ask in doors.items():
                        seconds = ask(what)
                        if number:
                            taken[tree].append(seconds)
                for tree, seconds_of in taken.items():
                    print(f"{what}: {tree}: {statistics.median(seconds_of):.3f} s", flush=True)


if __name__ == "__main__":
    main()
