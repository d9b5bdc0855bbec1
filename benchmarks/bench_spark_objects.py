"""Spark on a root in S3: write and read 1 M records, against a raw Delta append to the same server and a read of it.

The server is versitygw on this machine, so its own work is part of every figure; `make setup-stores` fetches it. A
proxy before it makes each GET, HEAD and LIST wait 15 ms, and everything else 25 ms, or what an argument such as `40/60`
says. The arguments `write` and `read` measure one of both.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import records
from benchmarks.harness import Figure, Report, ratio, rounds
from benchmarks.slow_proxy import slow
from kafkalike.connect import connect
from kafkalike.spark import read, session, write
from kafkalike.spark.jvm.spark_session import OPEN_COST
from tests.tools.object_servers import BUCKET, S3, ObjectServer, running

ROWS: Final = 1_000_000
RUNS: Final = 5
LATENCY: Final = "15/25"
CLASSIC: Final = f"spark.hadoop.fs.s3a.bucket.{BUCKET}.input.stream.type"
"""Hadoop's default, `analytics`, keeps blocks of earlier rounds in memory: a round would not read what it says."""
TO_READ: Final = 3
"""Appends to each side before the first read."""


def writers(frame: DataFrame, server: ObjectServer, root: str) -> dict[str, Callable[[], object]]:
    """The ways to append the same rows."""
    raw = f"s3a{root[2:]}-raw"

    def by_format() -> None:
        options = {"kafka.bootstrap.servers": root, "topic": "format"}
        frame.write.format("kafkalike").options(**options).mode("append").save()

    return {
        "spark.write": lambda: write(frame, "bench", root, storage_options=server.options),
        "the format": by_format,
        "raw Delta append": lambda: frame.write.format("delta").mode("append").save(raw),
    }


def readers(spark: SparkSession, server: ObjectServer, root: str) -> dict[str, Callable[[], object]]:
    """The ways to read all of the same rows, keys and values; the last ones are rivals."""
    cost = spark.conf.get(OPEN_COST) or ""

    def scan(frame: DataFrame) -> object:
        return frame.agg(F.sum(F.length("value")), F.sum(F.length("key"))).collect()

    def by_format() -> object:
        given = {"kafka.bootstrap.servers": root, "subscribe": "bench"}
        return scan(spark.read.format("kafkalike").options(**given).load())

    def raw() -> object:
        return scan(spark.read.format("delta").load(f"s3a{root[2:]}-raw"))

    def raw_as_it_comes() -> object:
        spark.conf.unset(OPEN_COST)
        try:
            return raw()
        finally:
            spark.conf.set(OPEN_COST, cost)

    return {
        "spark.read": lambda: scan(read(spark, "bench", root, storage_options=server.options)),
        "the format": by_format,
        "raw Delta, Spark's settings": raw_as_it_comes,
        "raw Delta, same settings": raw,
    }


def add(report: Report, what: str, figures: dict[str, Figure], rows: int, aims: dict[str, str]) -> None:
    """A line for each of our ways."""
    *ours, rival = figures
    for name in ours:
        own, other = figures[name], figures[rival]
        report.add(
            f"{name}, {what} {rows:,}",
            f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
            f"{rival}: {other.median:.2f} s",
            f"{1 / ratio(own, other):.2f} x its speed",
            aims.get(name, ""),
        )


def main() -> None:
    """Measure and print."""
    latency = next((argument for argument in sys.argv[1:] if "/" in argument), LATENCY)
    asked = {*sys.argv[1:]} - {latency} or {"write", "read"}
    get_ms, put_ms = map(int, latency.split("/"))
    report = Report("spark-objects")
    with (
        tempfile.TemporaryDirectory() as scratch,
        running(S3, Path(scratch)) as near,
        slow(near, get_ms, put_ms) as server,
    ):
        root = server.new_root()
        small = {"spark.driver.memory": "4g", "spark.sql.shuffle.partitions": "4", CLASSIC: "classic"}
        spark = session("kafkalike-bench", bootstrap_servers=root, storage_options=server.options, **small)
        frame = records(spark, ROWS)
        if "write" in asked:
            for topic in ("bench", "format"):
                connect(root, server.options).create_topic(topic, 4, {})
            figures = rounds(writers(frame, server, root), runs=RUNS)
            report.keep("write", figures)
            add(report, "write", figures, ROWS, {"spark.write": ">= 0.8 x"})
        if "read" in asked:
            root = server.new_root()
            connect(root, server.options).create_topic("bench", 4, {})
            for way in ("spark.write", "raw Delta append"):
                for _ in range(TO_READ):
                    writers(frame, server, root)[way]()
            figures = rounds(readers(spark, server, root), runs=RUNS)
            report.keep("read", figures)
            ours = {name: figure for name, figure in figures.items() if not name.startswith("raw")}
            for rival in figures.keys() - ours.keys():
                add(report, "read", {**ours, rival: figures[rival]}, TO_READ * ROWS, {"spark.read": "1.0 x"})
        report.finish()
        spark.stop()


if __name__ == "__main__":
    main()
