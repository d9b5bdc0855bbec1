"""KafkaConsumer with nothing to read: what a poll costs by partitions and by topics, and how busy a waiting one is."""

from __future__ import annotations

import statistics
import tempfile
import time

from benchmarks.harness import Report
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.record_batch import RecordBatch

PARTITIONS = (1, 10, 100, 1_000)
TOPICS = (10, 100, 300)
POLLS = 50
WAIT_SECONDS = 5.0


def one_topic(cluster: Cluster, count: int) -> list[TopicPartition]:
    """A topic with a record in each partition."""
    name = f"partitions-{count}"
    cluster.create_topic(name, count, {})
    batch = RecordBatch()
    for partition in range(count):
        batch.add(partition, None, b"v" * 100, 1000)
    cluster.log(name).append(batch)
    return [TopicPartition(name, partition) for partition in range(count)]


def many_topics(cluster: Cluster, count: int) -> list[TopicPartition]:
    """Topics of one partition, without records."""
    names = [f"topic-{count}-{number}" for number in range(count)]
    for name in names:
        cluster.create_topic(name, 1, {})
    return [TopicPartition(name, 0) for name in names]


def idle(root: str, partitions: list[TopicPartition]) -> tuple[list[float], float]:
    """Seconds of single empty polls, and the share of a core that a poll uses that waits."""
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        while consumer.poll(max_records=100_000):
            pass
        taken = []
        for _ in range(POLLS):
            start = time.perf_counter()
            consumer.poll()
            taken.append(time.perf_counter() - start)
        before, start = time.process_time(), time.perf_counter()
        consumer.poll(timeout_ms=WAIT_SECONDS * 1000)
        busy = (time.process_time() - before) / (time.perf_counter() - start)
    return taken, busy


def main() -> None:
    """Measure and print."""
    report = Report("idle")
    with tempfile.TemporaryDirectory() as root:
        cluster = connect(root)
        worlds = [(f"{n:,} partitions of one topic", one_topic(cluster, n)) for n in PARTITIONS]
        worlds += [(f"{n:,} topics of one partition", many_topics(cluster, n)) for n in TOPICS]
        for what, partitions in worlds:
            taken, busy = idle(root, partitions)
            report.raw[what] = {"polls": taken, "busy": busy}
            report.add(
                f"empty poll: {what}",
                f"{statistics.median(taken) * 1e3:.2f} ms; waiting uses {busy * 100:.0f} % of a core",
                aim="<= 10 % of a core",
            )
    report.finish()


if __name__ == "__main__":
    main()
