"""Consumers of several processes that commit offsets into one object store: commits a second, and how long one takes.

versitygw as S3, with a proxy before it that makes each GET, HEAD and LIST, and each PUT, take so many ms.

    python -m benchmarks.bench_objects_commits [PROCESSESxCONSUMERS ...]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.bench_objects import slow
from benchmarks.harness import Report, percentile
from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.model.structs import OffsetAndMetadata
from tests.tools.object_servers import S3, running

GET_MS, PUT_MS = 15, 25
CASES = ("4x25", "4x75")
SECONDS = 15.0
WARM_SECONDS = 4.0
"""Commits that begin before are not counted."""
STARTING_SECONDS = 20.0


def work(root: str, options: dict[str, str], begin: float, number: int, count: int) -> None:
    """Let so many consumers commit, each in a thread, one commit after the other. In a process of its own."""
    taken: list[list[float]] = [[] for _ in range(count)]
    started = threading.Barrier(count + 1)

    def commit(nth: int) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=root, storage_options=options, group_id=f"g{number}-{nth}", enable_auto_commit=False
        )
        consumer.assign([TopicPartition("t", 0)])
        consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(0)})
        started.wait()
        time.sleep(max(0.0, begin - time.time()))
        done = 0
        while (start := time.time()) < begin + WARM_SECONDS + SECONDS:
            done += 1
            consumer.commit({TopicPartition("t", 0): OffsetAndMetadata(done)})
            if start >= begin + WARM_SECONDS:
                taken[nth].append(time.time() - start)

    threads = [threading.Thread(target=commit, args=(nth,), daemon=True) for nth in range(count)]
    for thread in threads:
        thread.start()
    started.wait()
    cluster = connect(root, options)
    before, cpu = dict(cluster.requests), time.process_time()
    for thread in threads:
        thread.join()
    spent = {kind: many - before.get(kind, 0) for kind, many in cluster.requests.items()}
    print(json.dumps({"taken": taken, "requests": spent, "cpu": time.process_time() - cpu}))


def measure(case: str) -> None:
    """So many processes with so many consumers each."""
    processes, consumers = map(int, case.split("x"))
    report = Report(f"objects-commits-{case}")
    with (
        tempfile.TemporaryDirectory() as folder,
        running(S3, Path(folder)) as server,
        slow(server, GET_MS, PUT_MS) as behind,
    ):
        root = server.new_root()
        connect(root, server.options).create_topic("t", 1, {})
        command = [sys.executable, "-m", "benchmarks.bench_objects_commits", "work"]
        begin = time.time() + STARTING_SECONDS
        workers = [
            subprocess.Popen(
                [*command, json.dumps([root, behind.options, begin, number, consumers])],
                stdout=subprocess.PIPE,
                text=True,
            )
            for number in range(processes)
        ]
        found = [json.loads(worker.communicate()[0]) for worker in workers]
        cluster = connect(root, server.options)
        cluster.groups.refresh()
        versions = cluster.groups.version
    each = [taken for one in found for taken in one["taken"]]
    every = [seconds for taken in each for seconds in taken]
    counts = [len(taken) for taken in each]
    requests = [one["requests"] for one in found]
    report.raw |= {"commits": every, "of each": counts, "versions": versions, "requests of processes": requests}
    report.add(f"commits a second of {processes * consumers} consumers", f"{len(every) / SECONDS:.0f}", aim=">= 20")
    report.add("time of one", f"p50 {percentile(every, 0.5) * 1e3:.0f} ms, p99 {percentile(every, 0.99) * 1e3:.0f} ms")
    report.add("slowest consumer by the mean", f"{min(counts) * len(counts) / max(1, sum(counts)):.2f}")
    report.add("processor time of the clients", f"{sum(one['cpu'] for one in found):.0f} s")
    report.finish()


def main() -> None:
    """Measure and print."""
    if sys.argv[1:2] == ["work"]:
        root, options, begin, number, count = json.loads(sys.argv[2])
        work(root, options, begin, number, count)
        return
    for case in sys.argv[1:] or CASES:
        measure(case)


if __name__ == "__main__":
    main()
