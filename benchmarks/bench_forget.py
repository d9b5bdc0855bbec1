"""Forget one key, and a thousand, of a topic of 10 M records: seconds, and bytes that are written anew.

`python -m benchmarks.bench_forget FOLDER`: makes a topic there (`BENCH_ROWS` says how many records), unless it is
there, and forgets keys of forks of it, so that each round begins with the same files. Ten records for each key, spread
over the whole topic, in twelve partitions.
"""

from __future__ import annotations

import hashlib
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.harness import Report
from kafkalike import ForgetReport, KafkaProducer, forget, fork, undo
from kafkalike.connect import connect
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.model.clock import SYSTEM_CLOCK

ROWS = int(os.environ.get("BENCH_ROWS", "10000000"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
PARTITIONS = 12
TURNS = 10
"""Records of each key."""


def key(number: int) -> bytes:
    """A key of 16 bytes."""
    return hashlib.md5(b"%d" % number, usedforsecurity=False).hexdigest()[:16].encode()


def filled(root: str) -> None:
    """The topic, unless it is there: a table for each turn, and the small files merged."""
    cluster = connect(root)
    if "t" in cluster.topics():
        return
    settings = {"retention.ms": "-1", "kafkalike.merge.min.age.ms": "0", "kafkalike.replaced.file.delay.ms": "0"}
    cluster.create_topic("t", PARTITIONS, settings)
    keys = [key(number) for number in range(ROWS // TURNS)]
    with KafkaProducer(bootstrap_servers=root) as producer:
        for turn in range(TURNS):
            values = [b"%084d" % (turn * len(keys) + number) for number in range(len(keys))]
            table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
            producer.send_arrow("t", table).get(600)
    maintain(connect(root), clock=SYSTEM_CLOCK)


def timed(root: str, name: str, options: dict[str, Any]) -> tuple[float, ForgetReport]:
    """One run over a fork; what it took, and what it says."""
    begun = time.perf_counter()
    report = forget(name, root, **options)
    return time.perf_counter() - begun, report


def main() -> None:
    """Measure and report."""
    report_of_all = Report("forget")
    root = str(Path(sys.argv[1]).absolute())
    filled(root)
    info = connect(root).log("t")
    whole = sum(s.size_bytes for p in info.info.partitions for s in info.segments(p))
    files = sum(len(info.segments(p)) for p in info.info.partitions)
    print(f"{ROWS:,} records, {whole:,} bytes, {files} files")
    questions: dict[str, dict[str, Any]] = {
        "dry run, 1 key": {"keys": key(4711)},
        "1 key": {"keys": key(4711), "dry_run": False},
        "1,000 keys": {"keys": [key(number * 7) for number in range(1000)], "dry_run": False},
        "dry run, 1,000 keys": {"keys": [key(number * 7) for number in range(1000)]},
    }
    for what, options in questions.items():
        seconds: list[float] = []
        forks: list[float] = []
        report: ForgetReport | None = None
        for number in range(ROUNDS):
            name = f"f-{os.getpid()}-{len(what)}-{number}"
            begun = time.perf_counter()
            fork("t", name, root)
            forks.append(time.perf_counter() - begun)
            taken, report = timed(root, name, options)
            seconds.append(taken)
            if report.certificate is not None and number == 0:
                begun = time.perf_counter()
                check_certificate(connect(root, access="spark"), report.certificate)
                print(f"  its certificate is checked in {time.perf_counter() - begun:.2f} s")
            connect(root).delete_topic(name)
        assert report is not None
        report_of_all.add(
            what,
            f"{statistics.median(seconds):.2f} s",
            f"{report.records} records, {report.size_bytes:,} bytes of {len(report.parts)} partitions rewritten",
        )
        report_of_all.add(f"fork before {what}", f"{statistics.median(forks):.3f} s")
    append = next(one for event in topic_history(connect(root), "t") for one in event.appends)
    begun = time.perf_counter()
    report_of_undo = undo("t", append, root)
    report_of_all.add("dry run of undo", f"{time.perf_counter() - begun:.2f} s", f"{report_of_undo.records:,} records")
    report_of_all.finish()


if __name__ == "__main__":
    main()
