"""KafkaConsumer: poll at the tail, and drain 1 M records as Arrow batches and as ConsumerRecord objects."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time

from benchmarks.data import bench_session, records
from benchmarks.harness import Report, percentile
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import write

ROWS = 1_000_000
TAIL = 500


def tail_latency(root: str) -> list[float]:
    """Seconds from the moment an append returned (the commit is visible) to the poll that returns its record."""
    cluster = connect(root)
    cluster.create_topic("tail", 1, {})
    log = cluster.log("tail")
    consumer = KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("tail", 0)])
    consumer.poll(timeout_ms=10)
    visible: dict[int, float] = {}
    taken: list[float] = []

    def produce() -> None:
        for number in range(TAIL):
            batch = RecordBatch()
            batch.add(0, None, b"v" * 100, number)
            log.append(batch)
            visible[number] = time.perf_counter()
            time.sleep(0.005 + 0.0007 * (number % 10))

    thread = threading.Thread(target=produce)
    thread.start()
    while len(taken) < TAIL:
        for batch in consumer.poll(timeout_ms=1000).values():
            now = time.perf_counter()
            taken += [max(0.0, now - visible.get(record.offset, now)) for record in batch]
    thread.join()
    consumer.close()
    return taken


def drain(root: str, *, arrow: bool, max_records: int) -> float:
    """Seconds to read the whole topic."""
    consumer = KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest")
    consumer.assign([TopicPartition("bench", p) for p in range(4)])
    seen = 0
    start = time.perf_counter()
    while seen < ROWS:
        if arrow:
            table = consumer.poll_arrow(timeout_ms=1000, max_records=max_records)
            seen += 0 if table is None else table.num_rows
        else:
            seen += sum(len(batch) for batch in consumer.poll(timeout_ms=1000, max_records=max_records).values())
    taken = time.perf_counter() - start
    consumer.close()
    return taken


def main() -> None:
    """Measure and print."""
    report = Report("consumer")
    with tempfile.TemporaryDirectory() as scratch:
        root = f"{scratch}/root"
        taken = tail_latency(root)
        report.raw["tail"] = taken
        report.add(
            "poll at the tail after the commit",
            f"p50 {percentile(taken, 0.5) * 1e3:.1f} ms, p99 {percentile(taken, 0.99) * 1e3:.1f} ms",
            aim="p50 < 10 ms",
        )
        spark = bench_session()
        connect(root).create_topic("bench", 4, {})
        write(records(spark, ROWS), "bench", root)
        spark.stop()
        for name, arrow, most, aim in (
            ("poll_arrow, 100,000 a poll", True, 100_000, ">= 1 M rec/s"),
            ("poll, 500 a poll (the default)", False, 500, ">= 0.3 M rec/s"),
            ("poll, 10,000 a poll", False, 10_000, ">= 0.3 M rec/s"),
        ):
            runs = [drain(root, arrow=arrow, max_records=most) for _ in range(6)][1:]
            report.raw[name] = runs
            rate = ROWS / statistics.median(runs)
            report.add(f"drain {ROWS:,}: {name}", f"{statistics.median(runs):.2f} s, {rate / 1e6:.2f} M rec/s", aim=aim)
    report.finish()


if __name__ == "__main__":
    main()
