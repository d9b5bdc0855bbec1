"""Reads of a topic whose three replicas lie in buckets that give so many MB a second each: at the leader, and striped.

Run: python -m benchmarks.bench_replicas_stripes [MB a second of each bucket] [rounds]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.slow_proxy import slow
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.config.storage_options import check_options
from kafkalike.model.record_batch import RecordBatch
from kafkalike.replication.cluster.cluster_factory import open_several
from tests.tools.object_servers import S3, running

DEFAULTS = (10, 5)
PARTITIONS, FILES, RECORDS, SIZE = 8, 12, 125, 20_000
GET_MS, PUT_MS = 15, 25


def batch(partition: int) -> RecordBatch:
    """Records that nothing makes smaller."""
    made, now = RecordBatch(), SYSTEM_CLOCK.now_ms()
    for _ in range(RECORDS):
        made.add(partition, None, os.urandom(SIZE), now)
    return made


def drain(roots: list[str], options: dict[str, object], partition: int, *, striped: bool) -> None:
    """Read one partition to its end."""
    with KafkaConsumer(
        bootstrap_servers=roots,
        storage_options=options,
        stripe_reads=striped,
        max_poll_records=RECORDS,
        max_partition_fetch_bytes=RECORDS * SIZE,
    ) as consumer:
        consumer.assign([TopicPartition("t", partition)])
        consumer.seek_to_beginning()
        count = 0
        while count < RECORDS * FILES:
            found = consumer.poll_arrow(1000)
            count += 0 if found is None else found.num_rows


def seconds(roots: list[str], options: dict[str, object], *, striped: bool) -> float:
    """How long consumers take that read all partitions side by side."""
    began = time.perf_counter()
    readers = [
        threading.Thread(target=drain, args=(roots, options, partition), kwargs={"striped": striped})
        for partition in range(PARTITIONS)
    ]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    return time.perf_counter() - began


def main(argv: Sequence[str]) -> None:
    """Print MB a second at the leader, and striped."""
    width, rounds = [*map(int, argv), *DEFAULTS[len(argv) :]]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(running(S3, Path(folder)))
        base = server.new_root()
        roots = [f"{base}/{n}" for n in range(3)]
        plain: dict[str, object] = dict.fromkeys(roots, server.options)
        cluster = open_several(roots, storage_options=check_options(plain))
        cluster.create_topic("t", PARTITIONS, {}, assignments={n: [1, 2, 3] for n in range(PARTITIONS)})
        log = cluster.log("t")
        for _ in range(FILES):
            for partition in range(PARTITIONS):
                log.append(batch(partition))
        narrow: dict[str, object] = {
            root: stack.enter_context(slow(server, GET_MS, PUT_MS, mb_per_second=width)).options for root in roots
        }
        took: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(rounds):
            for striped, found in took.items():
                found.append(seconds(roots, narrow, striped=striped))
        total = PARTITIONS * FILES * RECORDS * SIZE / 1_000_000
        for striped, found in took.items():
            median = statistics.median(found)
            name = "striped" if striped else "at the leader"
            print(f"{name}: {total:.0f} MB in {median:.1f} s, {total / median:.0f} MB/s")
        ratio = statistics.median(a / b for a, b in zip(took[False], took[True], strict=True))
        print(f"striped {ratio:.2f} x as fast")


if __name__ == "__main__":
    main(sys.argv[1:])
