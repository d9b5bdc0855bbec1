"""Queue: share consumers in, records per second and the time of a poll out; also the cost of a million locks.

    python -m benchmarks.bench_queue [--tiny] [--workers N] [--parts throughput,s3,locks,history]

Workers are processes. Each polls, which acknowledges its last records and acquires the next ones, until the queue is
empty. `locks` measures in one process what a million records that are locked at once cost. `history` measures a poll
after 10,000, 100,000 and 1,000,000 earlier ones, whose rows maintenance has compacted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bench_objects import slow
from benchmarks.harness import Report, percentile
from kafkalike import KafkaShareConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import GroupRow, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.shares.share_partition import SharePartition
from tests.tools.object_servers import S3, ObjectServer, running

T0 = TopicPartition("jobs", 0)
SETTINGS: dict[str, Any] = {"group_id": "work", "share_auto_offset_reset": "earliest"}
EACH_POLL_ACQUIRES: dict[str, Any] = {**SETTINGS, "share_acquire_mode": "record_limit"}


PATIENCE_MS = 3_000
"""How long a worker waits for a record before it stops."""


class Case(NamedTuple):
    """Workers, in some processes, empty a queue."""

    workers: int
    processes: int
    records: int
    most: int


CASES = (
    Case(1, 1, 200_000, 500),
    Case(10, 10, 200_000, 500),
    Case(100, 10, 200_000, 500),
    Case(1, 1, 4_000, 1),
    Case(10, 10, 4_000, 1),
    Case(100, 10, 4_000, 1),
)


def filled(root: str, records: int, options: Mapping[str, str] | None = None) -> Cluster:
    """A queue of one partition."""
    cluster = connect(root, options)
    cluster.create_topic("jobs", 1, {})
    log = cluster.log("jobs")
    for first in range(0, records, 100_000):
        batch = RecordBatch()
        for _ in range(min(100_000, records - first)):
            batch.add(0, None, b"x" * 100, SYSTEM_CLOCK.now_ms())
        log.append(batch)
    return cluster


def worker(root: str, most: str, threads: str, options: str) -> None:
    """Take records in threads until there are none; print how many, and how long each poll took."""
    cluster = connect(root, json.loads(options))
    settings: dict[str, Any] = {"bootstrap_servers": cluster, "max_poll_records": int(most), **SETTINGS}
    results: list[dict[str, Any]] = []
    start, ready = threading.Event(), threading.Barrier(int(threads) + 1)

    def work() -> None:
        taken, records = [], 0
        with KafkaShareConsumer("jobs", **settings) as consumer:
            ready.wait()
            start.wait()
            begun = ended = time.monotonic()
            while True:
                at = time.perf_counter()
                found = consumer.poll(timeout_ms=PATIENCE_MS)
                if not found:
                    break
                taken.append(time.perf_counter() - at)
                records += len(found)
                ended = time.monotonic()
            results.append({"records": records, "polls": taken, "begun": begun, "ended": ended})

    made = [threading.Thread(target=work) for _ in range(int(threads))]
    for one in made:
        one.start()
    ready.wait()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu = time.process_time()
    start.set()
    for one in made:
        one.join()
    print(json.dumps({"cpu": time.process_time() - cpu, "workers": results}), flush=True)


def throughput(report: Report, case: Case, server: ObjectServer | None = None) -> None:
    """Let workers empty a queue."""
    with tempfile.TemporaryDirectory() as folder:
        root, options = (folder, {}) if server is None else (server.new_root(), dict(server.options))
        filled(root, case.records, options)
        orders = [root, str(case.most), str(case.workers // case.processes), json.dumps(options)]
        command = [sys.executable, "-m", "benchmarks.bench_queue", "--worker", *orders]
        children = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(case.processes)
        ]
        for child in children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
        done, cpu = [], 0.0
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        for child in children:
            assert child.stdout is not None
            found = json.loads(child.stdout.readline())
            done += found["workers"]
            cpu += found["cpu"]
            child.wait()
    seconds = max(one["ended"] for one in done) - min(one["begun"] for one in done)
    polls = [taken for one in done for taken in one["polls"]]
    total = sum(one["records"] for one in done)
    assert total >= case.records, (total, case.records)
    where = "" if server is None else " on S3 with 15/25 ms"
    report.add(
        f"{case.workers} workers in {case.processes} processes, {case.most} records per poll{where}",
        f"{total / seconds:,.0f} records/s; poll {statistics.median(polls) * 1000:.1f} ms, "
        f"p99 {percentile(polls, 0.99) * 1000:.1f} ms; CPU {cpu / total * 1e6:.0f} us/record"
        + (f"; {total - case.records} records twice, because a lock ended" if total > case.records else ""),
    )


@contextlib.contextmanager
def s3() -> Iterator[ObjectServer]:
    """An S3 server whose reads take 15 ms and whose writes take 25 ms."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(S3, Path(folder)) as server,
        slow(server, 15, 25) as behind,
    ):
        yield behind


def locks(report: Report, count: int) -> None:
    """Lock many records at once, and let another member take the next one meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = filled(folder, count + 1_000)
        settings = {"bootstrap_servers": cluster, "share_partition_max_record_locks": 2 * count, **EACH_POLL_ACQUIRES}
        with KafkaShareConsumer("jobs", **settings) as holder, KafkaShareConsumer("jobs", **settings) as other:
            group = holder._fetcher.group  # noqa: SLF001 - the lock alone, without a million Python records
            holder.poll(max_records=1)
            log = cluster.log("jobs")
            source = holder._fetcher._sources(cluster.groups.state, {"jobs": log}, count)  # noqa: SLF001
            start = time.perf_counter()
            group.exchange("holder", {}, source, most=count)
            acquired = time.perf_counter() - start
            polls = []
            for _ in range(20):
                start = time.perf_counter()
                other.poll(max_records=10)
                polls.append(time.perf_counter() - start)
        row = next(row for row in reversed(cluster.groups.rows) if row.kind == "share")
        report.add(
            f"{count} locked records",
            f"acquired in {acquired * 1000:.1f} ms; poll of another member {statistics.median(polls) * 1000:.1f} ms; "
            f"{len(row.value)} bytes of state",
        )


def history(report: Report, before: int) -> None:
    """A queue that has been used before."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = filled(folder, 1_000)
        topic_id = cluster.topic("jobs").topic_id

        def plan(state: GroupsState) -> list[GroupRow]:
            share = SharePartition(topic_id, 0)
            return [share_row(state.seq + nth, "work", T0, share, now_ms=nth) for nth in range(1, before + 1)]

        cluster.groups.transact(plan)
        start = time.perf_counter()
        maintain(folder)
        maintained = time.perf_counter() - start
        start = time.perf_counter()
        settings = {"bootstrap_servers": connect(folder), "max_poll_records": 10, **EACH_POLL_ACQUIRES}
        with KafkaShareConsumer("jobs", **settings) as consumer:
            consumer.poll()
            first_poll = time.perf_counter() - start
            polls = []
            for _ in range(50):
                start = time.perf_counter()
                consumer.poll()
                polls.append(time.perf_counter() - start)
        report.add(
            f"after {before} earlier polls",
            f"maintenance {maintained:.1f} s; first poll {first_poll * 1000:.0f} ms, others "
            f"{statistics.median(polls) * 1000:.1f} ms",
        )


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="only see that it works")
    parser.add_argument("--parts", default="throughput,locks,history")
    parser.add_argument("--workers", type=int, default=0, help="only cases with so many workers")
    parser.add_argument("--worker", nargs=4, metavar=("ROOT", "MOST", "THREADS", "OPTIONS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        worker(*options.worker)
        return
    parts = options.parts.split(",")
    report = Report("queue" if "throughput" in parts else "-".join(["queue", *parts]))
    wanted = [case for case in CASES if not options.workers or case.workers == options.workers]
    cases = [case._replace(records=case.records // 100) for case in wanted] if options.tiny else wanted
    if "throughput" in parts:
        for case in cases:
            throughput(report, case)
    if "s3" in parts:
        with s3() as server:
            for case in cases:
                throughput(report, case._replace(records=case.records // (10 if case.most == 1 else 4)), server)
    if "locks" in parts:
        locks(report, 10_000 if options.tiny else 1_000_000)
    if "history" in parts:
        for before in (100,) if options.tiny else (10_000, 100_000, 1_000_000):
            history(report, before)
    report.finish()


if __name__ == "__main__":
    main()
