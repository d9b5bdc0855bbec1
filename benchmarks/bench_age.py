"""Cost of an append and of a poll after 10, 100, 1,000 and 2,000 table commits."""

from __future__ import annotations

import tempfile
import time

from pyspark.sql import functions as F  # noqa: N812

from benchmarks.data import bench_session
from benchmarks.harness import Report, percentile
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import open_cluster
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import write

AGES = (10, 100, 1_000, 2_000)
SAMPLES = 40


def batch(number: int) -> RecordBatch:
    """One record."""
    made = RecordBatch()
    made.add(number % 4, None, b"v" * 100, number)
    return made


def main() -> None:
    """Measure and print."""
    report = Report("age")
    spark = bench_session()
    frame = spark.range(1000).select(F.col("id").cast("string").alias("key"), F.lit("v" * 100).alias("value"))
    with tempfile.TemporaryDirectory() as scratch:
        root = f"{scratch}/root"
        cluster = open_cluster(root)
        cluster.create_topic("bench", 4, {})
        cluster.create_topic("warm", 4, {})
        for _ in range(5):
            write(frame, "warm", root)
        log = cluster.log("bench")
        consumer = KafkaConsumer(bootstrap_servers=root, auto_offset_reset="latest")
        consumer.assign([TopicPartition("bench", p) for p in range(4)])
        consumer.poll(timeout_ms=10)
        first: dict[str, float] = {}
        for age in AGES:
            while log.version < age:
                log.append(batch(log.version))
            appends, polls, opens, sparks = [], [], [], []
            while consumer.poll(timeout_ms=10):
                pass
            for number in range(SAMPLES):
                start = time.perf_counter()
                log.append(batch(number))
                middle = time.perf_counter()
                consumer.poll(timeout_ms=1000)
                polls.append(time.perf_counter() - middle)
                appends.append(middle - start)
            for _ in range(7):
                start = time.perf_counter()
                open_cluster(root).log("bench")
                opens.append(time.perf_counter() - start)
                start = time.perf_counter()
                write(frame, "bench", root)
                sparks.append(time.perf_counter() - start)
            for name, samples in (("append", appends), ("poll", polls), ("open", opens), ("spark.write", sparks[2:])):
                middle = percentile(samples, 0.5) * 1e3
                first.setdefault(name, middle)
                report.raw[f"{name} at {age}"] = samples
                report.add(
                    f"{name} after {age:,} commits",
                    f"p50 {middle:.1f} ms, max {max(samples) * 1e3:.1f} ms",
                    f"after {AGES[0]}: {first[name]:.1f} ms",
                    f"{middle / first[name]:.2f} x its time",
                    "<= 2 x" if name in {"append", "poll"} else "",
                )
        consumer.close()
    spark.stop()
    report.finish()


if __name__ == "__main__":
    main()
