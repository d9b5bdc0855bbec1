"""Reads at a root that is near beside those at the leader, turn by turn; and how long a replica takes to catch up.

Run: python -m benchmarks.bench_replicas_reads [rounds] [commits that a new replica lacks]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench_replicas import batch
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.replication.cluster.cluster_factory import open_several

DEFAULTS = (15, 20_000)
RECORDS, SIZE, BATCHES = 20_000, 500, 10


def read(roots: list[str], rack: str) -> float:
    """Records a second of a consumer that reads all."""
    with KafkaConsumer(bootstrap_servers=roots, client_rack=rack, max_poll_records=100_000) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        consumer.seek_to_beginning()
        began, count = time.perf_counter(), 0
        while count < RECORDS * BATCHES:
            count += sum(len(messages) for messages in consumer.poll(1000).values())
        return count / (time.perf_counter() - began)


def main(argv: Sequence[str]) -> None:
    """Print records a second at the leader and at the near root, and the time of catching up."""
    rounds, commits = [*map(int, argv), *DEFAULTS[len(argv) :]]
    with tempfile.TemporaryDirectory() as folder:
        roots = [f"{folder}/{n}" for n in (1, 2, 3)]
        for n, root in enumerate(roots, start=1):
            Path(root).mkdir()
            Path(root, "server.properties").write_text(f"broker.rack=r{n}")
        cluster = open_several(roots)
        cluster.create_topic("t", 1, {}, assignments={0: [1, 2, 3]})
        for _ in range(BATCHES):
            cluster.log("t").append(batch(RECORDS, SIZE))
        rates: dict[str, list[float]] = {"r1": [], "r3": []}
        for _ in range(rounds):
            for rack, found in rates.items():
                found.append(read(roots, rack))
        leader, near = (statistics.median(found) for found in rates.values())
        print(
            f"at the leader {leader:,.0f} records/s, at a near root {near:,.0f}: {near / leader:.3f} x",
            flush=True,
        )
        cluster.create_topic("long", 1, {}, assignments={0: [1, 2]})
        log = cluster.log("long")
        began = time.perf_counter()
        for _ in range(commits):
            log.append(batch(1, 100))
        print(f"{commits} commits were made in {time.perf_counter() - began:.0f} s", flush=True)
        cluster.replication.reassign("long", [1, 2, 3])
        began = time.perf_counter()
        report = cluster.replication.replicate(["long"])
        print(f"a third replica has caught up with them in {time.perf_counter() - began:.1f} s {report.failed or ''}")


if __name__ == "__main__":
    main(sys.argv[1:])
