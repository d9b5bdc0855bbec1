"""A consumer of many topics in an object store: the time to open them, to ask for their ends, and to find nothing new.

versitygw as S3 behind a proxy, as in `bench_objects`.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.bench_objects import LATENCIES_MS, slow
from benchmarks.harness import Report
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from tests.tools.object_servers import S3, ObjectServer, running

TOPICS = (1, 10, 100)
ASKED, POLLS = 15, 12
DUE_SECONDS = 1.3
"""After so long a waiting consumer looks at each of its topics again."""


def timed(call: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def measure(server: ObjectServer, far: ObjectServer, count: int) -> tuple[float, float, float]:
    """Seconds of the first poll, of a question for all ends, and of an empty poll that looks at all topics."""
    near = connect(server.new_root(), server.options)
    for number in range(count):
        near.create_topic(f"topic-{number}", 1, {})
    near.settle()
    partitions = [TopicPartition(f"topic-{number}", 0) for number in range(count)]
    with KafkaConsumer(
        bootstrap_servers=near.root, storage_options=far.options, auto_offset_reset="earliest"
    ) as consumer:
        consumer.topics()
        consumer.assign(partitions)
        first = timed(consumer.poll)
        ends = [timed(lambda: consumer.end_offsets(partitions)) for _ in range(ASKED)]
        polls = []
        for _ in range(POLLS):
            time.sleep(DUE_SECONDS)
            polls.append(timed(consumer.poll))
    return first, statistics.median(ends), statistics.median(polls)


def main() -> None:
    """Measure and print."""
    report = Report("objects_topics")
    with tempfile.TemporaryDirectory() as folder, running(S3, Path(folder)) as server:
        get_ms, put_ms = LATENCIES_MS[0]
        for count in TOPICS:
            with slow(server, get_ms, put_ms) as far:
                first, ends, poll = measure(server, far, count)
            report.add(f"first poll of {count} topics at {get_ms} ms a GET", f"{first * 1000:.0f} ms")
            report.add(f"ends of {count} topics", f"{ends * 1000:.0f} ms")
            report.add(f"empty poll of {count} topics", f"{poll * 1000:.0f} ms")
    report.finish()


if __name__ == "__main__":
    main()
