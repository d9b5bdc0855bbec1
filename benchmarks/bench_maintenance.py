"""What maintenance costs and gives: small files, retention, compaction, and producers while it runs."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.harness import Figure, Report, percentile, ratio, rounds
from kafkalike.connect import open_cluster
from kafkalike.delta.actions import Add
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.topic.batch_payload import iso_time
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.maintenance_commit import MaintenanceCommit, publish
from kafkalike.maintenance.maintenance_run import MaintenanceReport, maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AT_ONCE = {
    "kafkalike.merge.min.age.ms": "0",
    "file.delete.delay.ms": "0",
    "kafkalike.replaced.file.delay.ms": "0",
    "retention.ms": "-1",
}
HOUR_MS = 3_600_000


def batch(first: int, count: int, *, keys: int = 0, partitions: int = 1) -> RecordBatch:
    """Records of 100 bytes; each key in one partition."""
    made = RecordBatch()
    for number in range(first, first + count):
        key = number * 2_654_435_761 % keys if keys else 0
        made.add(key % partitions, b"%016d" % key if keys else None, b"%084d" % number, SYSTEM_CLOCK.now_ms())
    return made


def upkeep(root: str, **options: object) -> MaintenanceReport:
    """One run over everything."""
    report = maintain(open_cluster(root), clock=SYSTEM_CLOCK, **options)  # type: ignore[arg-type]
    assert not report.failed, report
    return report


def read_all(root: str, topic: str) -> int:
    """Number of records, read through a reader."""
    log = open_cluster(root).log(topic)
    reader = log.reader(0, log.log_start(0))
    count = 0
    while (chunk := reader.read(1 << 22)) is not None:
        count += len(chunk)
    return count


def poll_new(log: TopicLog) -> float:
    """Seconds from an append's end to its record in a reader's hands, the append itself left out."""
    reader = log.reader(0, log.log_end(0))
    log.append(batch(0, 1))
    begun = time.perf_counter()
    log.refresh()
    assert reader.read(1 << 20) is not None
    return time.perf_counter() - begun


def folder_facts(root: str, topic: str) -> dict[str, float]:
    """Files, bytes, and entries of the log of a topic."""
    folder = Path(root, topic)
    data = list(folder.glob("partition=*/*.parquet"))
    return {
        "data files": len(data),
        "MB": sum(path.stat().st_size for path in data) / 1e6,
        "log entries": len(list((folder / "_delta_log").iterdir())),
    }


def small_files(report: Report, scratch: Path, count: int) -> None:
    """A topic after many small appends, before and after maintenance."""
    root = str(scratch / "small")
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, AT_ONCE)
    log = cluster.log("t")
    for number in range(count):
        log.append(batch(number * 10, 10))
    middle = log.segments(0)[count // 2].min_timestamp

    asked: dict[str, Callable[[], object]] = {
        "open": lambda: open_cluster(root).log("t"),
        "scan": lambda: read_all(root, "t"),
        "look-up by time": lambda: open_cluster(root).log("t").offset_for_time(0, middle),
        "append": lambda: log.append(batch(0, 10)),
        "tail poll": lambda: poll_new(log),
    }
    before, facts = measured(asked), folder_facts(root, "t")
    begun = time.perf_counter()
    upkeep(root)
    taken = time.perf_counter() - begun
    after, new_facts = measured(asked), folder_facts(root, "t")
    report.add(f"maintenance after {count:,} appends of 10", f"{taken:.1f} s", "", f"{count / taken:,.0f} files/s")
    for name in asked:
        old, new = before[name].median * 1e3, after[name].median * 1e3
        report.add(f"{name} after maintenance", f"{new:.1f} ms", f"before: {old:.1f} ms", f"{new / old:.2f} x")
    for name, value in new_facts.items():
        report.add(f"{name} after maintenance", f"{value:,.1f}", f"before: {facts[name]:,.1f}")
    report.keep("small files before", before)
    report.keep("small files after", after)


def measured(asked: Mapping[str, Callable[[], object]]) -> dict[str, Figure]:
    """Time each question a few times."""
    return rounds(asked, runs=5)


def retention(report: Report, scratch: Path, count: int) -> None:
    """A tenth of the segments expires. The files do not exist, so nothing but metadata can be read."""
    root = str(scratch / "retention")
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    now = SYSTEM_CLOCK.now_ms()

    def planted(offset: int) -> Add:
        at = iso_time(now - (2 * HOUR_MS if offset < count // 10 else 0))
        low = {"offset": offset, "timestamp": at}
        stats = {"numRecords": 1, "minValues": low, "maxValues": low, "nullCount": {}}
        return Add(
            path=f"partition=0/planted-{offset}.parquet",
            partition=0,
            size=1000,
            modification_ms=now,
            data_change=True,
            stats=stats,
        )

    publish(cluster.log("t"), MaintenanceCommit(work="merge", adds=[planted(n) for n in range(count)]), "planted")
    begun = time.perf_counter()
    done = upkeep(root, works=["retention"]).topics[0]
    taken = time.perf_counter() - begun
    assert done.deleted_segments == count // 10
    report.add(
        f"retention of {count // 10:,} of {count:,} segments", f"{taken:.2f} s", "0 data bytes read", "", "< 10 s"
    )


def compaction(report: Report, scratch: Path, records: int, keys: int, partitions: int = 4) -> None:
    """In this process and in Spark's tasks, against a Spark job that rewrites the topic with each key's last record."""
    from benchmarks.data import bench_session

    base = compactable(scratch / "compaction", records, keys, partitions)
    spark = bench_session()
    rivals: dict[str, Callable[[str], object]] = {
        "in process": lambda root: upkeep(root, works=["compaction"]),
        "in Spark's tasks": lambda root: upkeep(root, works=["compaction"], spark=spark),
        "full rewrite": lambda root: full_rewrite(spark, f"{root}/t"),
    }
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = on_copies(rivals, base, runs=3)
    done = upkeep(str(base), works=["compaction"]).topics[0]
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    spark.stop()
    report.keep("compaction", figures)
    rival = figures.pop("full rewrite")
    for name, ours in figures.items():
        report.add(
            f"compaction of {records:,} records, {keys:,} keys, {partitions} partitions, {name}",
            f"{records / ours.median:,.0f} records/s",
            f"Spark full rewrite: {records / rival.median:,.0f}/s",
            f"{1 / ratio(ours, rival):.1f} x its speed",
            ">= 2 x",
        )
    report.add("records that went", f"{done.compacted_records:,}", "", f"peak memory + {memory:.0f} MB")


def compactable(root: Path, records: int, keys: int, partitions: int) -> Path:
    """A cluster with a topic `t` that was never compacted; each append is a segment."""
    settings = {
        **AT_ONCE,
        "cleanup.policy": "compact",
        "segment.bytes": str(max(2_000, records // partitions // 4)),
        "min.cleanable.dirty.ratio": "0",
    }
    cluster = open_cluster(str(root))
    cluster.create_topic("t", partitions, settings)
    log = cluster.log("t")
    step = min(1_000_000, records // 4)
    for first in range(0, records, step):
        log.append(batch(first, step, keys=keys, partitions=partitions))
    return root


def on_copies(rivals: Mapping[str, Callable[[str], object]], base: Path, *, runs: int) -> dict[str, Figure]:
    """Run rivals in turn, after a warm-up round, each on its own copy of a root; the copying is not timed."""
    figures = {name: Figure(name) for name in rivals}
    for number in range(1 + runs):
        for name, run in rivals.items():
            copy = base.with_name("copy")
            # No file is ever changed in place, so a second name for each of them is a copy.
            shutil.copytree(base, copy, copy_function=os.link)
            begun = time.perf_counter()
            run(str(copy))
            taken = time.perf_counter() - begun
            shutil.rmtree(copy)
            if number:
                figures[name].seconds.append(taken)
    return figures


def full_rewrite(spark: SparkSession, path: str) -> None:
    """Write the last record of each key to a table beside it: only kafkalike may write a topic's own."""
    from pyspark.sql import functions as F  # noqa: N812

    table = spark.read.format("delta").load(path)
    last = table.groupBy("partition", "key").agg(F.max("offset").alias("offset"))
    kept = table.join(last.select("partition", "offset"), on=["partition", "offset"], how="left_semi")
    ordered = kept.repartition("partition").sortWithinPartitions("partition", "offset")
    ordered.write.format("delta").save(f"{path}.rewritten")


def producers(report: Report, scratch: Path, seconds: float) -> None:
    """Latency of single appends without maintenance, and while it runs in a process of its own."""
    root = str(scratch / "producers")
    cluster = open_cluster(root)
    cluster.create_topic("t", 1, {**AT_ONCE, "retention.ms": "2000"})
    for _ in range(200):
        cluster.log("t").append(batch(0, 10))
    alone = latencies(cluster, seconds)
    command = [sys.executable, "-c", "import sys; from kafkalike.cli import main; sys.exit(main())"]
    keeper = subprocess.Popen(
        [*command, "maintain", "--bootstrap-server", root, "--every", "1s", "--json"], stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None
    keeper.stdout.readline()
    try:
        beside = latencies(cluster, seconds)
    finally:
        keeper.terminate()
        runs = keeper.communicate()[0].count("\n")
    report.raw["maintenance runs"] = runs
    old, new = (percentile(samples, 0.99) * 1e3 for samples in (alone, beside))
    report.raw["append alone"], report.raw["append beside maintenance"] = alone, beside
    report.add(
        "append p99 while maintenance runs", f"{new:.1f} ms", f"alone: {old:.1f} ms", f"{new / old:.2f} x", "<= 2 x"
    )
    old, new = (percentile(samples, 0.5) * 1e3 for samples in (alone, beside))
    report.add("append p50 while maintenance runs", f"{new:.1f} ms", f"alone: {old:.1f} ms", f"{new / old:.2f} x")


def latencies(cluster: Cluster, seconds: float) -> list[float]:
    """Seconds of single appends of 10 records, one after another."""
    log = cluster.log("t")
    samples = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begun = time.perf_counter()
        log.append(batch(0, 10))
        samples.append(time.perf_counter() - begun)
        time.sleep(0.002)
    return samples


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="see that it works")
    parser.add_argument("--only", choices=("files", "retention", "producers", "compaction"), help="one part of it")
    parser.add_argument("--records", type=int, default=10_000_000, help="that are compacted; a tenth as many keys")
    given = parser.parse_args()
    tiny, only = given.tiny, given.only
    records = 40_000 if tiny else given.records
    parts: dict[str, Callable[[Report, Path], None]] = {
        "files": lambda report, scratch: small_files(report, scratch, 100 if tiny else 5_000),
        "retention": lambda report, scratch: retention(report, scratch, 200 if tiny else 10_000),
        "producers": lambda report, scratch: producers(report, scratch, 2 if tiny else 20),
        "compaction": lambda report, scratch: compaction(report, scratch, records, records // 10),
    }
    report = Report("-".join(["maintenance", *([only] if only else []), *(["tiny"] if tiny else [])]))
    for name, part in parts.items():
        if only in {None, name}:
            with tempfile.TemporaryDirectory() as folder:
                part(report, Path(folder))
    report.finish()


if __name__ == "__main__":
    main()
