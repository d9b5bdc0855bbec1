"""Describe: groups and partitions in, how long the looks of an operator and of Prometheus take out.

`KAFKALIKE_BENCH_GROUPS` and `KAFKALIKE_BENCH_PARTITIONS` make it smaller; 100 of each by default.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

from benchmarks.harness import Report
from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.group_lag import Lags, lag_history
from kafkalike.connect import connect
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.group_state import GroupsState
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

GROUPS = int(os.environ.get("KAFKALIKE_BENCH_GROUPS", "100"))
PARTITIONS = int(os.environ.get("KAFKALIKE_BENCH_PARTITIONS", "100"))
APPENDS = 20
RUNS = 6

MAIN = "import sys; from kafkalike.cli import main; sys.exit(main())"


def fill(root: str) -> None:
    """A topic of many segments, and groups that have committed in every partition."""
    cluster = connect(root)
    cluster.create_topic("bench", PARTITIONS, {})
    log = cluster.log("bench")
    for n in range(APPENDS):
        batch = RecordBatch()
        for p in range(PARTITIONS):
            for at in range(5):
                batch.add(p, b"key", b"value", 1_000 * (n * 5 + at))
        log.append(batch)
    topic_id = cluster.topic("bench").topic_id

    for group in range(GROUPS):

        def plan(state: GroupsState, group: int = group) -> Sequence[GroupRow]:
            return [
                GroupRow(
                    seq=state.seq + 1 + p,
                    kind=OFFSET,
                    group_id=f"group-{group:03d}",
                    topic="bench",
                    topic_id=topic_id,
                    partition=p,
                    offset=(group + p) % (APPENDS * 5),
                    time_ms=SYSTEM_CLOCK.now_ms(),
                )
                for p in range(PARTITIONS)
            ]

        cluster.groups.transact(plan)


def command(root: str, *args: str) -> float:
    """Seconds that a command takes as a process of its own."""
    env = {**os.environ, "KAFKALIKE_BOOTSTRAP_SERVERS": root}
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", MAIN, *args], env=env, check=True, capture_output=True)
    return time.perf_counter() - start


def timed(report: Report, name: str, aim: str, samples: list[float]) -> None:
    """Add the median of all but the first."""
    report.raw[name] = samples
    report.add(name, f"{statistics.median(samples[1:]):.3f} s", aim=aim)


def main() -> None:
    """Measure and print."""
    report = Report("describe")
    size = f"{GROUPS} groups x {PARTITIONS} partitions"
    with tempfile.TemporaryDirectory() as scratch:
        root = f"{scratch}/root"
        fill(root)
        look = [_seconds(lambda: list(Lags(connect(root)))) for _ in range(RUNS)]
        timed(report, f"lag of {size}, from nothing, in-process", "", look)
        warm = Lags(connect(root))
        list(warm)
        timed(report, f"lag of {size}, again", "", [_seconds(lambda: _again(warm)) for _ in range(RUNS)])
        for args, aim in (
            (("consumer-groups", "--describe", "--all-groups"), "< 1 s"),
            (("consumer-groups", "--describe", "--all-groups", "--lag"), ""),
            (("consumer-groups", "--describe", "--group", "group-000"), ""),
            (("consumer-groups", "--list", "--state"), ""),
            (("metrics", "--json"), ""),
            (("--version",), ""),
        ):
            taken = [command(root, *args) for _ in range(RUNS)]
            timed(report, f"kafkalike {' '.join(args)}, the whole process", aim, taken)
        cluster = connect(root)
        admin = KafkaAdminClient(bootstrap_servers=cluster)
        names = [f"group-{n:03d}" for n in range(GROUPS)]
        timed(report, "describe_groups, all", "", [_seconds(lambda: admin.describe_groups(names)) for _ in range(RUNS)])
        where = {TopicPartition("bench", p): OffsetAndMetadata(1) for p in range(PARTITIONS)}
        alter = [_seconds(lambda: admin.alter_group_offsets("group-000", where)) for _ in range(RUNS)]
        timed(report, f"alter_group_offsets, {PARTITIONS} partitions", "", alter)
        now = SYSTEM_CLOCK.now_ms()
        history = [_seconds(lambda: list(lag_history(Lags(cluster), now))) for _ in range(RUNS)]
        timed(report, f"lag_history, 3 hours of {size}", "", history)
    report.finish()


def _again(lags: Lags) -> None:
    lags.refresh()
    list(lags)


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
