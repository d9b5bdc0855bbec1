"""Eight producers in processes of their own, on one topic in an object store: appends a second, and who is slowest.

versitygw as S3, with a proxy before it that makes each GET, HEAD and LIST, and each PUT, take so many ms.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.bench_objects import slow
from benchmarks.harness import Report, percentile
from kafkalike.connect import connect
from kafkalike.model.record_batch import RecordBatch
from tests.tools.object_servers import S3, ObjectServer, running

LATENCIES_MS = ((15, 25), (40, 60))
WRITERS = 8
SECONDS = 20.0
WARM_SECONDS = 3.0
"""Appends that begin before are not counted."""
VALUE = b"v" * 100


def work(root: str, options: dict[str, str], begin: float) -> None:
    """Append one record after the other, and print how long each took. In a process of its own."""
    log = connect(root, options).log("bench")
    time.sleep(max(0.0, begin - time.time()))
    taken: list[float] = []
    while (start := time.time()) < begin + WARM_SECONDS + SECONDS:
        batch = RecordBatch()
        batch.add(0, None, VALUE, int(start * 1000))
        log.append(batch)
        if start >= begin + WARM_SECONDS:
            taken.append(time.time() - start)
    print(json.dumps(taken))


def measure(server: ObjectServer, get_ms: int, put_ms: int) -> None:
    """At one latency."""
    report = Report(f"objects-many-{get_ms}-{put_ms}")
    with slow(server, get_ms, put_ms) as behind:
        root = server.new_root()
        connect(root, server.options).create_topic("bench", 1, {})
        orders = json.dumps([root, behind.options, time.time() + 10.0])
        command = [sys.executable, "-m", "benchmarks.bench_objects_many", "work", orders]
        writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WRITERS)]
        taken = [json.loads(writer.communicate()[0]) for writer in writers]
        versions = connect(root, server.options).log("bench").version
    every = [seconds for one in taken for seconds in one]
    counts = [len(one) for one in taken]
    report.raw |= {"appends": every, "of each writer": counts, "versions": versions}
    report.add("appends a second", f"{len(every) / SECONDS:.1f}", aim=">= 35 at 15/25")
    report.add(
        "time of an append", f"p50 {percentile(every, 0.5) * 1e3:.0f} ms, p99 {percentile(every, 0.99) * 1e3:.0f} ms"
    )
    report.add("slowest writer by the mean", f"{min(counts) * WRITERS / sum(counts):.2f}", aim=">= 0.6")
    report.add("versions a second", f"{versions / (SECONDS + WARM_SECONDS):.1f}")
    report.finish()


def main() -> None:
    """Measure and print, at `15/25` and `40/60`, or at those that are named."""
    if sys.argv[1:2] == ["work"]:
        root, options, begin = json.loads(sys.argv[2])
        work(root, options, begin)
        return
    cases = sys.argv[1:] or [f"{get_ms}/{put_ms}" for get_ms, put_ms in LATENCIES_MS]
    with tempfile.TemporaryDirectory() as folder, running(S3, Path(folder)) as server:
        for case in cases:
            get_ms, put_ms = map(int, case.split("/"))
            measure(server, get_ms, put_ms)


if __name__ == "__main__":
    main()
