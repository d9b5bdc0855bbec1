"""Write a batch into three topics: one transaction, against three writes to one topic each of the same rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import bench_session, records
from benchmarks.harness import Report, ratio, rounds
from kafkalike.connect import connect
from kafkalike.spark import transaction, write

RUNS = 5
TOPICS = ("a", "b", "c")


def rivals(frame: DataFrame, root: str) -> dict[str, Callable[[], object]]:
    """The ways to write the same rows, a third of them to each topic."""
    parts = [frame.where(F.col("topic") == topic).drop("topic") for topic in TOPICS]
    version = iter(range(1_000_000))

    def one_by_one() -> None:
        for topic, part in zip(TOPICS, parts, strict=True):
            write(part, topic, root)

    def block() -> None:
        with transaction("bench", root) as t:
            for topic, part in zip(TOPICS, parts, strict=True):
                t.write(part, topic)

    return {
        "one transaction": lambda: write(frame, None, root),
        "one transaction, named": lambda: write(frame, None, root, txn_id="bench", txn_version=next(version)),
        "transaction()": block,
        "three writes": one_by_one,
        "one topic": lambda: write(frame.drop("topic"), "d", root),
    }


def main() -> None:
    """Measure and print."""
    spark = bench_session()
    for rows in [int(n) for n in os.environ.get("BENCH_ROWS", "3000,1000000").split(",")]:
        report = Report(f"together-{rows}")
        names = F.array(*map(F.lit, TOPICS))
        frame = records(spark, rows).withColumn("topic", F.element_at(names, (F.rand(1) * 3 + 1).cast("int"))).persist()
        frame.count()
        with tempfile.TemporaryDirectory() as root:
            for topic in (*TOPICS, "d"):
                connect(root).create_topic(topic, 4, {})
            figures = rounds(rivals(frame, root), runs=RUNS)
        report.keep(f"together {rows}", figures)
        for ours, rival in (
            ("one transaction", "three writes"),
            ("one transaction", "one topic"),
            ("one transaction, named", "one topic"),
            ("transaction()", "three writes"),
        ):
            own, other = figures[ours], figures[rival]
            report.add(
                f"{ours}, {rows:,} records",
                f"{own.median:.2f} s",
                f"{rival}: {other.median:.2f} s",
                f"{ratio(own, other):.2f} x its time",
                "",
            )
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
