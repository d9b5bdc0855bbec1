"""Produce 1 M and 10 M records from Spark into 4 partitions, against raw Delta appends of the same rows."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import bench_session, records, sizes
from benchmarks.harness import Report, ratio, rounds
from kafkalike.log.connect import connect
from kafkalike.spark import write

RUNS = 5


def rivals(frame: DataFrame, scratch: str) -> dict[str, Callable[[], object]]:
    """The three ways to append the same rows."""
    hashed = F.pmod(F.hash("key"), F.lit(4))

    def repartitioned() -> None:
        placed = frame.withColumn("partition", hashed).repartitionById(4, "partition")
        placed.write.format("delta").partitionBy("partition").mode("append").save(f"{scratch}/repartitioned")

    return {
        "kafkalike": lambda: write(frame, "bench", f"{scratch}/root"),
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
            connect(f"{scratch}/root").create_topic("bench", 4, {})
            figures = rounds(rivals(frame, scratch), runs=RUNS)
            report.keep(f"write {rows}", figures)
            own = figures["kafkalike"]
            for name in ("raw Delta append", "raw, repartitioned"):
                report.add(
                    f"spark.write of {rows:,} records",
                    f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
                    f"{name}: {figures[name].median:.2f} s",
                    f"{1 / ratio(own, figures[name]):.2f} x its speed",
                    ">= 0.9 x" if name == "raw Delta append" else "",
                )
            size, other = (bytes_per_record(Path(scratch, name), rows) for name in ("root/bench", "raw"))
            report.add(f"bytes per record, {rows:,}", f"{size:.0f} B", f"raw Delta append: {other:.0f} B")
        frame.unpersist(blocking=True)
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
