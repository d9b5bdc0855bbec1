"""Write streams of ten micro-batches into 4 partitions, through the format and `write_stream`, against a Delta sink.

The rows come from Parquet files, which cost every sink the same. Streams run with Trigger.AvailableNow; their time
includes the start of the query. Batches of a thousand records show what a batch costs, whatever is in it.
"""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections.abc import Callable
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks.data import bench_session, records, sizes
from benchmarks.harness import Figure, Report, ratio, rounds
from kafkalike.connect import connect
from kafkalike.spark import write_stream

BATCHES: Final = 10
FILES: Final = 4
"""Of each batch."""
RUNS: Final = 5


class Sinks:
    """Rows in files, and the sinks that they go to."""

    def __init__(self, spark: SparkSession, folder: str, rows: int) -> None:
        self.spark, self.folder, self.rows = spark, folder, rows
        self.root = f"{folder}/root"
        self.batch_ms: dict[str, list[float]] = {}
        """Median time of the micro-batches of each round, by sink."""
        self._checkpoints = (f"{folder}/checkpoint-{n}" for n in itertools.count())
        for topic in ("format", "function"):
            connect(self.root).create_topic(topic, 4, {})
        frame = records(spark, rows)
        frame.repartition(BATCHES * FILES).write.parquet(f"{folder}/rows")
        frame.unpersist(blocking=True)

    def source(self) -> DataFrame:
        """The rows in ten micro-batches."""
        reader = self.spark.readStream.schema("key BINARY, value BINARY, timestamp TIMESTAMP")
        return reader.option("maxFilesPerTrigger", FILES).parquet(f"{self.folder}/rows")

    def by_format(self) -> None:
        """Through the format."""
        options = {
            "kafka.bootstrap.servers": self.root,
            "topic": "format",
            "checkpointLocation": next(self._checkpoints),
        }
        writer = self.source().writeStream.format("kafkalike").options(**options)
        self._drained("format kafkalike", writer.trigger(availableNow=True).start())

    def by_function(self) -> None:
        """Through `write_stream`."""
        checkpoint = next(self._checkpoints)
        query = write_stream(self.source(), "function", self.root, checkpoint=checkpoint, available_now=True)
        self._drained("write_stream", query)

    def delta(self) -> None:
        """Through Delta's own sink."""
        writer = self.source().writeStream.format("delta").option("checkpointLocation", next(self._checkpoints))
        self._drained("Delta sink", writer.trigger(availableNow=True).start(f"{self.folder}/delta"))

    def _drained(self, sink: str, query: StreamingQuery) -> None:
        query.awaitTermination()
        done = [batch for batch in query.recentProgress if batch["numInputRows"]]
        assert sum(batch["numInputRows"] for batch in done) == self.rows, done
        assert len(done) == BATCHES, done
        times = [float(batch["durationMs"]["triggerExecution"]) for batch in done]
        self.batch_ms.setdefault(sink, []).append(statistics.median(times))


def measure(sinks: Sinks) -> Report:
    """The sinks in turn."""
    rows = sinks.rows
    report = Report(f"stream-write-{rows}")
    rivals: dict[str, Callable[[], object]] = {
        "format kafkalike": sinks.by_format,
        "write_stream": sinks.by_function,
        "Delta sink": sinks.delta,
    }
    figures = rounds(rivals, runs=RUNS)
    batches = {name: Figure(name, times[1:], unit="ms") for name, times in sinks.batch_ms.items()}
    report.keep(f"stream of {BATCHES} {rows}", figures)
    report.keep(f"micro-batch {rows}", batches)
    for ours, rival in (
        ("format kafkalike", "write_stream"),
        ("format kafkalike", "Delta sink"),
        ("write_stream", "Delta sink"),
    ):
        own, other = figures[ours], figures[rival]
        report.add(
            f"{ours}, {rows:,} in {BATCHES} micro-batches",
            f"{own.median:.2f} s, {rows / own.median / 1e6:.2f} M rec/s",
            f"{rival}: {other.median:.2f} s",
            f"{ratio(own, other):.2f} x its time",
        )
        own, other = batches[ours], batches[rival]
        report.add(
            f"{ours}, a micro-batch of {rows // BATCHES:,}",
            f"{own.median:.0f} ms",
            f"{rival}: {other.median:.0f} ms",
            f"{ratio(own, other):.2f} x its time",
        )
    return report


def main() -> None:
    """Measure and print."""
    spark = bench_session()
    for rows in dict.fromkeys((10_000, *sizes())):
        with tempfile.TemporaryDirectory() as folder:
            report = measure(Sinks(spark, folder, rows))
        report.finish()
    spark.stop()


if __name__ == "__main__":
    main()
