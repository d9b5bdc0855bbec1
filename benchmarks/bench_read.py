"""Read a topic of 1 M and 10 M records with Spark, against a plain Delta table with the same rows and files."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import bench_session, records, sizes
from benchmarks.harness import Report, ratio, rounds
from kafkalike.connect import connect
from kafkalike.spark import read, write

START_MS = 1_700_000_000_000


QUESTIONS = ("full scan", "key look-up", "last tenth by time", "group by a JSON field")


def question(name: str, frame: DataFrame, rows: int) -> DataFrame:
    """One of the four questions, asked anew."""
    wanted = F.substring(F.md5(F.lit("4711").cast("binary")), 1, 16).cast("binary")
    late = F.timestamp_millis(F.lit(START_MS + rows * 9 // 10))
    kind = F.get_json_object(F.col("value").cast("string"), "$.kind")
    total = F.sum(F.length("value"))
    if name == "full scan":
        return frame.agg(total, F.sum(F.length("key")))
    if name == "key look-up":
        return frame.where(F.col("key") == wanted).agg(F.count("*"), F.max("value"))
    if name == "last tenth by time":
        return frame.where(F.col("timestamp") >= late).agg(F.count("*"), total)
    return frame.groupBy(kind.alias("kind")).agg(F.count("*"))


def rivals_of(name: str, spark: SparkSession, scratch: str, rows: int) -> dict[str, Callable[[], object]]:
    """The question put to the topic and to the plain table.

    A DataFrame that was collected once keeps its shuffle files, so each run plans its own.
    """
    return {
        "kafkalike": lambda: question(name, read(spark, "bench", f"{scratch}/root"), rows).collect(),
        "plain Delta": lambda: question(name, spark.read.format("delta").load(f"{scratch}/plain"), rows).collect(),
    }


def main() -> None:
    """Measure and print."""
    spark = bench_session()
    for rows in sizes():
        report = Report(f"read-{rows}")
        frame = records(spark, rows)
        with tempfile.TemporaryDirectory() as scratch:
            root, plain = f"{scratch}/root", f"{scratch}/plain"
            connect(root).create_topic("bench", 4, {})
            write(frame, "bench", root)
            frame.unpersist(blocking=True)
            # The rival has the same files, row groups and statistics: it is the table without our layer.
            kept = spark.read.format("delta").load(f"{root}/bench").repartitionById(4, "partition")
            kept.sortWithinPartitions("offset").write.format("delta").partitionBy("partition").save(plain)
            for name in QUESTIONS:
                rivals = rivals_of(name, spark, scratch, rows)
                figures = rounds(rivals, runs=7)
                report.keep(f"{name} {rows}", figures)
                own, rival = figures["kafkalike"], figures["plain Delta"]
                report.add(
                    f"{name}, {rows:,}",
                    f"{own.median:.2f} s",
                    f"plain Delta: {rival.median:.2f} s",
                    f"{1 / ratio(own, rival):.2f} x its speed",
                    "1.0 x",
                )
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
