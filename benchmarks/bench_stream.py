"""Read topics through format("kafkalike"), in a batch and in streams, against plain Delta with the same rows and files.

A Python source that hands out constant rows from memory runs beside it: what that takes is Spark's own share.
Streams run with Trigger.AvailableNow into a sink that drops the rows; their time includes the start of the query.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from functools import partial

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from benchmarks.bare_source import register_bare
from benchmarks.data import bench_session, records, sizes
from benchmarks.harness import Report, ratio, rounds
from kafkalike.connect import connect
from kafkalike.spark import read, write


class Scratch:
    """A topic, and a plain Delta table with the same rows, files and row groups."""

    def __init__(self, spark: SparkSession, folder: str, rows: int) -> None:
        self.spark = spark
        self.root, self.plain, self.folder = f"{folder}/root", f"{folder}/plain", folder
        self.rows = rows
        connect(self.root).create_topic("bench", 4, {})
        frame = records(spark, rows)
        write(frame, "bench", self.root)
        frame.unpersist(blocking=True)
        kept = spark.read.format("delta").load(f"{self.root}/bench").repartitionById(4, "partition")
        kept.sortWithinPartitions("offset").write.format("delta").partitionBy("partition").save(self.plain)

    def batch(self) -> DataFrame:
        """The topic through the format, loaded anew: a DataFrame keeps what it has planned."""
        options = {"kafka.bootstrap.servers": self.root, "subscribe": "bench"}
        return self.spark.read.format("kafkalike").options(**options).load()

    def stream(self, batches: int) -> DataFrame:
        """The topic as a stream in about so many micro-batches."""
        options = {"kafka.bootstrap.servers": self.root, "subscribe": "bench", "startingOffsets": "earliest"}
        if batches > 1:
            options["maxOffsetsPerTrigger"] = str(-(-self.rows // batches))
        return self.spark.readStream.format("kafkalike").options(**options).load()

    def delta_stream(self, batches: int) -> DataFrame:
        """The plain table as a native Delta stream; its batches are whole files."""
        reader = self.spark.readStream.format("delta")
        if batches > 1:
            size = DeltaTable.forPath(self.spark, self.plain).detail().collect()[0]["sizeInBytes"]
            reader = reader.option("maxBytesPerTrigger", str(-(-size // batches)))
        return reader.load(self.plain)

    def drain(self, batches: int) -> None:
        """Read the whole topic as a stream."""
        self._drained(self.stream(batches))

    def drain_delta(self, batches: int) -> None:
        """Read the whole table as a native stream."""
        self._drained(self.delta_stream(batches))

    def bare(self) -> DataFrame:
        """As many constant rows, from a Python source that does nothing else."""
        return self.spark.read.format("bare").option("rows", self.rows).load()

    def drain_bare(self, batches: int) -> None:
        """The same as a stream."""
        reader = self.spark.readStream.format("bare").option("rows", self.rows).option("batches", batches)
        self._drained(reader.load())

    def _drained(self, frame: DataFrame) -> None:
        """Run a stream to its end, from an empty checkpoint."""
        checkpoint = f"{self.folder}/checkpoint"
        shutil.rmtree(checkpoint, ignore_errors=True)
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        read_rows = sum(batch["numInputRows"] for batch in query.recentProgress)
        assert read_rows == self.rows, f"{read_rows} rows of {self.rows}"


def scan(frame: DataFrame) -> object:
    """Look at every key and value."""
    return frame.agg(F.sum(F.length("value")), F.sum(F.length("key")), F.max("offset")).collect()


def compare(report: Report, what: str, rivals: dict[str, Callable[[], object]], rows: int, aim: str) -> None:
    """Run ours and its rivals in turn, and add a line."""
    figures = rounds(rivals)
    report.keep(f"{what} {rows}", figures)
    own, *others = figures.values()
    report.add(
        f"{what}, {rows:,}",
        f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
        "; ".join(f"{other.name}: {other.median:.2f} s" for other in others),
        "; ".join(f"{ratio(own, other):.2f} x its time" for other in others),
        aim,
    )


def measure(scratch: Scratch) -> Report:
    """A scan, one large micro-batch, and ten limited ones."""
    spark, rows = scratch.spark, scratch.rows
    report = Report(f"stream-{rows}")
    scans: dict[str, Callable[[], object]] = {
        "format kafkalike": lambda: scan(scratch.batch()),
        "kafkalike.spark.read": lambda: scan(read(spark, "bench", scratch.root, include_headers=False)),
        "plain Delta": lambda: scan(spark.read.format("delta").load(scratch.plain)),
        "constant rows": lambda: scan(scratch.bare()),
    }
    compare(report, "full scan", scans, rows, "2 M rec/s, 1.15 x plain Delta")
    for batches, aim in ((1, "1.25 M rec/s"), (10, "0.46 M rec/s")):
        streams: dict[str, Callable[[], object]] = {
            "format kafkalike": partial(scratch.drain, batches),
            "native Delta stream": partial(scratch.drain_delta, batches),
            "constant rows": partial(scratch.drain_bare, batches),
        }
        compare(report, f"stream of {batches}", streams, rows, aim)
    return report


def main() -> None:
    """Measure and print."""
    spark = bench_session()
    register_bare(spark)
    for rows in sizes():
        with tempfile.TemporaryDirectory() as folder:
            report = measure(Scratch(spark, folder, rows))
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
