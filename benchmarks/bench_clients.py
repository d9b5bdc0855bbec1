"""Clients of one local root, without a JVM: latency between processes, commits, appends, polls and waiting.

`KAFKALIKE_BENCH_OTHER=/another/worktree` measures its package, too: each round runs in a process of its own, ours and
the other one in turn, and the last column is our time by the other one's, round by round.
`KAFKALIKE_BENCH_ONLY=latency,commit` runs some of the measurements, `KAFKALIKE_BENCH_ROUNDS` says how often.
Times of CPU are those of the calling thread; they are what to compare on a machine with other work.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve()
OTHER = os.environ.get("KAFKALIKE_BENCH_OTHER", "")
ONLY = set(filter(None, os.environ.get("KAFKALIKE_BENCH_ONLY", "").split(",")))
ROUNDS = int(os.environ.get("KAFKALIKE_BENCH_ROUNDS", "5"))
SENDS = 300
COMMITS = 1_200
APPENDS = 1_000
ROWS = 400_000
MANY_TOPICS = 1_000
WAIT_SECONDS = 4.0


def percentile(samples: list[float], share: float) -> float:
    """The sample below which a share of all lies."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def spread(samples: list[float]) -> dict[str, float]:
    """Median and 99th percentile, in ms."""
    return {"p50 ms": percentile(samples, 0.5) * 1e3, "p99 ms": percentile(samples, 0.99) * 1e3}


SENDER = """
import random, sys, time
from kafkalike import KafkaProducer
pauses = random.Random(7)
with KafkaProducer(bootstrap_servers=sys.argv[1]) as producer:
    producer.send("bench", value=b"0").get(timeout=60)
    for _ in range(int(sys.argv[2])):
        time.sleep(pauses.uniform(0.01, 0.06))
        producer.send("bench", value=b"%d" % time.monotonic_ns())
"""


def latency(root: str) -> dict[str, float]:
    """From `send` in one process until `poll` returns the record in another one."""
    from kafkalike import KafkaAdminClient, KafkaConsumer, NewTopic

    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("bench", num_partitions=1)])
    taken: list[float] = []
    with KafkaConsumer("bench", bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        consumer.poll(timeout_ms=50)
        sender = subprocess.Popen([sys.executable, "-c", SENDER, root, str(SENDS)])
        while len(taken) < SENDS:
            for records in consumer.poll(timeout_ms=1000).values():
                now = time.monotonic_ns()
                taken += [(now - int(record.value)) / 1e9 for record in records if record.value != b"0"]
        sender.wait()
    return spread(taken)


def waiting(root: str) -> dict[str, float]:
    """The share of a core that a consumer uses which waits, without a group and as a member of one."""
    from kafkalike import KafkaAdminClient, KafkaConsumer, NewTopic

    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("bench", num_partitions=4)])
    found = {}
    for what, group in (("alone", None), ("member", "bench")):
        with KafkaConsumer("bench", bootstrap_servers=root, group_id=group) as consumer:
            consumer.poll(timeout_ms=500)
            before, start = time.process_time(), time.perf_counter()
            consumer.poll(timeout_ms=WAIT_SECONDS * 1000)
            found[f"{what} % of a core"] = (time.process_time() - before) / (time.perf_counter() - start) * 100
    return found


def commit(root: str) -> dict[str, float]:
    """One `commit` after the other."""
    from kafkalike import KafkaAdminClient, KafkaConsumer, NewTopic, OffsetAndMetadata, TopicPartition

    KafkaAdminClient(bootstrap_servers=root).create_topics([NewTopic("bench", num_partitions=1)])
    taken, busy = [], []
    with KafkaConsumer(bootstrap_servers=root, group_id="bench", enable_auto_commit=False) as consumer:
        partition = TopicPartition("bench", 0)
        consumer.assign([partition])
        for number in range(COMMITS):
            start, cpu = time.perf_counter(), time.thread_time()
            consumer.commit({partition: OffsetAndMetadata(number, "", -1)})
            busy.append(time.thread_time() - cpu)
            taken.append(time.perf_counter() - start)
    return spread(taken[10:]) | {"max ms": max(taken[10:]) * 1e3, "p99 CPU ms": percentile(busy[10:], 0.99) * 1e3}


def append(root: str) -> dict[str, float]:
    """One append of one record after the other, as the only writer, and the same by `send().get()`."""
    from kafkalike import KafkaProducer
    from kafkalike.connect import connect
    from kafkalike.model.record_batch import RecordBatch

    cluster = connect(root)
    cluster.create_topic("bench", 1, {})
    log = cluster.log("bench")
    taken, busy = [], []
    for number in range(APPENDS):
        batch = RecordBatch()
        batch.add(0, None, b"v" * 100, number)
        start, cpu = time.perf_counter(), time.thread_time()
        log.append(batch)
        busy.append(time.thread_time() - cpu)
        taken.append(time.perf_counter() - start)
    sent = []
    with KafkaProducer(bootstrap_servers=root) as producer:
        for _ in range(APPENDS):
            start = time.perf_counter()
            producer.send("bench", value=b"v" * 100).get(timeout=60)
            sent.append(time.perf_counter() - start)
    return spread(taken[10:]) | {
        "p50 CPU ms": percentile(busy[10:], 0.5) * 1e3,
        "send().get() ms": percentile(sent[10:], 0.5) * 1e3,
    }


def polls(root: str) -> dict[str, float]:
    """A topic read from its begin to its end by `poll`, 500 records and 10,000 records at a time."""
    from kafkalike import KafkaConsumer, TopicPartition
    from kafkalike.connect import connect
    from kafkalike.model.record_batch import RecordBatch

    cluster = connect(root)
    cluster.create_topic("bench", 1, {})
    for first in range(0, ROWS, 50_000):
        batch = RecordBatch()
        for number in range(first, first + 50_000):
            batch.add(0, b"%016d" % number, b"v" * 100, number)
        cluster.log("bench").append(batch)
    found = {}
    for most in (500, 10_000, 500, 10_000):
        with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("bench", 0)])
            seen, start, cpu = 0, time.perf_counter(), time.thread_time()
            while seen < ROWS:
                seen += sum(map(len, consumer.poll(timeout_ms=1000, max_records=most).values()))
            found[f"poll({most}) us/record"] = (time.perf_counter() - start) / ROWS * 1e6
            found[f"poll({most}) CPU us/record"] = (time.thread_time() - cpu) / ROWS * 1e6
    return found


def topics(root: str) -> dict[str, float]:
    """A consumer of many topics that has nothing to read: an empty poll, and the share of a core while it waits."""
    from kafkalike import KafkaConsumer, TopicPartition
    from kafkalike.connect import connect

    cluster = connect(root)
    names = [f"topic-{number}" for number in range(MANY_TOPICS)]
    for name in names:
        cluster.create_topic(name, 1, {})
    with KafkaConsumer(bootstrap_servers=root, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(name, 0) for name in names])
        consumer.poll(timeout_ms=1000)
        taken = []
        for _ in range(30):
            start = time.perf_counter()
            consumer.poll()
            taken.append(time.perf_counter() - start)
        before, start = time.process_time(), time.perf_counter()
        consumer.poll(timeout_ms=WAIT_SECONDS * 1000)
        busy = (time.process_time() - before) / (time.perf_counter() - start)
    return {"poll ms": statistics.median(taken) * 1e3, "waiting % of a core": busy * 100}


MEASUREMENTS: dict[str, Callable[[str], dict[str, float]]] = {
    work.__name__: work for work in (latency, waiting, commit, append, polls, topics)
}

AIMS = {
    "latency: p50 ms": "<= 2.5",
    "waiting: alone % of a core": "<= 3",
    "waiting: member % of a core": "<= 3",
    "commit: p99 ms": "<= 8",
    "append: p50 ms": "<= 1.1",
    "polls: poll(10000) us/record": "<= 1.11",
}


def one_round(tree: str, name: str) -> dict[str, float]:
    """One measurement with the package of a worktree, in a process of its own."""
    with tempfile.TemporaryDirectory() as root:
        done = subprocess.run(
            [sys.executable, str(HERE), name, f"{root}/root"],
            check=True,
            stdout=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": tree},
        )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure and print."""
    from benchmarks.harness import Report

    report = Report("clients")
    trees = [str(HERE.parent.parent), *([OTHER] if OTHER else [])]
    for name in MEASUREMENTS:
        if ONLY and name not in ONLY:
            continue
        runs: dict[str, list[dict[str, float]]] = {tree: [] for tree in trees}
        for _ in range(ROUNDS):
            for tree in trees:
                runs[tree].append(one_round(tree, name))
        report.raw[name] = list(runs.values())
        for what in runs[trees[0]][0]:
            ours = [run[what] for run in runs[trees[0]]]
            theirs = [run[what] for run in runs[trees[-1]]]
            rival = f"{statistics.median(theirs):.2f}" if OTHER else ""
            ratio = f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}" if OTHER else ""
            key = f"{name}: {what}"
            report.add(key, f"{statistics.median(ours):.2f}", rival, ratio, AIMS.get(key, ""))
    report.finish()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        import kafkalike

        assert Path(kafkalike.__file__).parent.parent == Path(os.environ["PYTHONPATH"]), kafkalike.__file__
        result = MEASUREMENTS[sys.argv[1]](sys.argv[2])
        print(json.dumps(result))
    else:
        main()
