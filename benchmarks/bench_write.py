"""Produce 1 M and 10 M records from Spark into 4 partitions, against raw Delta appends of the same rows.

By `kafkalike.spark.write`, and by `df.write.format("kafkalike")`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import bench_session, records, sizes
from benchmarks.harness import Report, ratio, rounds
from kafkalike.connect import connect
from kafkalike.spark import write

RUNS = 5


def rivals(frame: DataFrame, scratch: str) -> dict[str, Callable[[], object]]:
    """The ways to append the same rows."""
    hashed = F.pmod(F.hash("key"), F.lit(4))

    def repartitioned() -> None:
        placed = frame.withColumn("partition", hashed).repartitionById(4, "partition")
        placed.write.format("delta").partitionBy("partition").mode("append").save(f"{scratch}/repartitioned")

    def by_format() -> None:
        options = {"kafka.bootstrap.servers": f"{scratch}/root", "topic": "format"}
        frame.write.format("kafkalike").options(**options).mode("append").save()

    return {
        "kafkalike": lambda: write(frame, "bench", f"{scratch}/root"),
        "format kafkalike": by_format,
        "raw Delta append": lambda: frame.write.format("delta").mode("append").save(f"{scratch}/raw"),
        "raw, repartitioned": repartitioned,
    }


def bytes_per_record(folder: Path, rows: int) -> float:
    """Size of all data files, by record."""
    return sum(f.stat().st_size for f in folder.rglob("*.parquet")) / (RUNS + 1) / rows


def main() -> None:
    """Measure and print."""
    spark = bench_session()
    for rows in sizes():
        report = Report(f"write-{rows}")
        frame = records(spark, rows)
        with tempfile.TemporaryDirectory() as scratch:
            for topic in ("bench", "format"):
                connect(f"{scratch}/root").create_topic(topic, 4, {})
            figures = rounds(rivals(frame, scratch), runs=RUNS)
            report.keep(f"write {rows}", figures)
            for ours, rival, aim in (
                ("kafkalike", "raw Delta append", ">= 0.9 x"),
                ("kafkalike", "raw, repartitioned", ""),
                ("format kafkalike", "kafkalike", ""),
                ("format kafkalike", "raw Delta append", ""),
            ):
                own, other = figures[ours], figures[rival]
                report.add(
                    f"{'spark.write' if ours == 'kafkalike' else 'the format'}, {rows:,} records",
                    f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
                    f"{'spark.write' if rival == 'kafkalike' else rival}: {other.median:.2f} s",
                    f"{1 / ratio(own, other):.2f} x its speed",
                    aim,
                )
            size, raw_size = (bytes_per_record(Path(scratch, name), rows) for name in ("root/bench", "raw"))
            report.add(f"bytes per record, {rows:,}", f"{size:.0f} B", f"raw Delta append: {raw_size:.0f} B")
        frame.unpersist(blocking=True)
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
