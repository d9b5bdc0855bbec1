"""Look up a key in a topic: through Spark and without it, with Bloom filters on keys and without them.

`python -m benchmarks.bench_key FOLDER`: makes two topics of 10 M records there (`BENCH_ROWS` says how many), unless
they are there, and asks for a key that stands in every file of its partition, for one that stands once, and for one
that is nowhere.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

import kafkalike.storage.parquet as parquet_files
from benchmarks.data import bench_session
from benchmarks.harness import Report
from kafkalike import KafkaProducer, find_records
from kafkalike.connect import connect
from kafkalike.spark import read

ROWS = int(os.environ.get("BENCH_ROWS", "10000000"))
BATCH = 1_000_000
KEYS = 100_000
FILTERS = {"with filters": parquet_files.FILTER_ROWS, "without": 1 << 60}


def key(number: int) -> bytes:
    """A key of 16 bytes."""
    return hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()[:16].encode()


QUESTIONS = {"often": key(4711), "once": b"only-once-000001", "nowhere": b"nowhere-00000000"}


def fill(root: str, filter_rows: int) -> float:
    """Write the records; seconds."""
    parquet_files.FILTER_ROWS = filter_rows  # type: ignore[misc]
    connect(root).create_topic("bench", 4, {})
    keys = [key(n) for n in range(KEYS)] * (BATCH // KEYS)
    values = [b'{"id":%010d,"kind":"k%d","pad":"%s"}' % (n, n % 20, b"x" * 64) for n in range(BATCH)]
    table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
    start = time.perf_counter()
    with KafkaProducer(bootstrap_servers=root) as producer:
        for number in range(ROWS // BATCH):
            producer.send_arrow("bench", table)
            if number == ROWS // BATCH // 2:
                producer.send_arrow("bench", pa.table({"key": [QUESTIONS["once"]] * 1, "value": ["v"]}))
    return time.perf_counter() - start


def timed(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def calls_of(spark: SparkSession, root: str, name: str, wanted: bytes) -> dict[str, Callable[[], object]]:
    """The ways to look a key up in a cluster."""
    return {
        f"Spark, {name}": lambda: read(spark, "bench", root, key=wanted).collect(),
        f"Spark, {name}, one partition": lambda: read(spark, "bench", root, key=wanted, placed_by_key=True).collect(),
        f"find_records, {name}": lambda: find_records("bench", root, key=wanted),
    }


def main() -> None:
    """Measure and report."""
    report = Report("key")
    folder = Path(sys.argv[1])
    for name, rows in FILTERS.items():
        root = folder / name
        if not root.exists():
            print(f"{name}: written in {fill(str(root), rows):.1f} s")
        print(f"{name}: {sum(f.stat().st_size for f in root.glob('bench*/partition=*/*.parquet')):,} bytes of data")
    spark = bench_session()
    for which, wanted in QUESTIONS.items():
        calls = {n: c for name in FILTERS for n, c in calls_of(spark, str(folder / name), name, wanted).items()}
        taken: dict[str, list[float]] = {name: [] for name in calls}
        for number in range(int(os.environ.get("BENCH_ROUNDS", "7")) + 1):
            for name, call in calls.items():
                seconds = timed(call)
                if number:
                    taken[name].append(seconds)
        medians = {name: statistics.median(seconds_of) for name, seconds_of in taken.items()}
        for name, median in medians.items():
            other = medians[name.replace("with filters", "without")]
            report.add(
                f"{which}: {name}", f"{median:.3f} s", f"without: {other:.3f} s", f"{median / other:.2f} x its time"
            )
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
