"""Groups: members and kills in, how long joining, leaving, crashing and committing take out.

`--tiny` sees that it works. Members are processes; what they see comes back as lines of JSON with times of the
machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import Report, percentile
from kafkalike import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndMetadata

PARTITIONS = 12
SESSION_MS = 6000
STRATEGIES = ("range", "cooperative-sticky")


# --- the members ---------------------------------------------------------------------------------


class Teller(ConsumerRebalanceListener):
    """Says what it is assigned, and when."""

    def __init__(self, say: Callable[..., None]) -> None:
        self._say = say

    def on_partitions_revoked(self, revoked: object) -> None:
        """Nothing to be said."""

    def on_partitions_assigned(self, assigned: object) -> None:
        """Say it."""
        assert isinstance(assigned, set)
        self._say("assigned", count=len(assigned))


def say(what: str, **more: object) -> None:
    """One line for the parent."""
    print(json.dumps({"what": what, "at": time.monotonic(), **more}), flush=True)


def member(root: str, strategy: str) -> None:
    """Poll as a member until the parent closes the pipe; a signal ends it at once."""
    consumer = KafkaConsumer(
        bootstrap_servers=root,
        group_id="g",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=SESSION_MS / 5,
        partition_assignment_strategy=[strategy],
    )
    asked = False

    def leave(*_: object) -> None:
        nonlocal asked
        asked = True

    signal.signal(signal.SIGTERM, leave)
    say("ready")
    sys.stdin.readline()
    say("joining")
    consumer.subscribe(["t"], listener=Teller(say))
    first = True
    while not asked:
        got = consumer.poll(timeout_ms=200)
        if got and first:
            say("first record")
            first = False
    say("leaving")
    consumer.close()


def committer(root: str, number: str, commits: str) -> None:
    """Commit by hand, one after the other, and say how long each took."""
    consumer = KafkaConsumer(bootstrap_servers=root, group_id=f"g{number}", enable_auto_commit=False)
    consumer.subscribe(["t"])
    while not consumer.assignment():
        consumer.poll(timeout_ms=100)
    say("ready")
    sys.stdin.readline()
    taken = []
    begun = time.monotonic()
    for n in range(int(commits)):
        start = time.perf_counter()
        consumer.commit({TopicPartition("t", p): OffsetAndMetadata(n) for p in range(PARTITIONS)})
        taken.append(time.perf_counter() - start)
    say("done", taken=taken, begun=begun)
    consumer.close()


class Process:
    """A member in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "benchmarks.bench_groups", *arguments]
        self.popen = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.hear("ready")

    def go(self) -> None:
        """Let it begin."""
        assert self.popen.stdin is not None
        self.popen.stdin.write("go\n")
        self.popen.stdin.flush()

    def hear(self, what: str) -> dict[str, Any]:
        """Wait for a line of it."""
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            heard: dict[str, Any] = json.loads(line)
            if heard["what"] == what:
                return heard
        raise AssertionError(what)

    def end(self) -> None:
        """Let it leave."""
        self.popen.terminate()
        self.popen.communicate(timeout=60)


# --- what is measured ----------------------------------------------------------------------------


def new_root(scratch: str, name: str) -> str:
    """A cluster with one topic of some records."""
    root = f"{scratch}/{name}"
    cluster = connect(root)
    cluster.create_topic("t", PARTITIONS, {})
    batch = RecordBatch()
    for n in range(PARTITIONS * 10):
        batch.add(n % PARTITIONS, None, b"v" * 100, 1000)
    cluster.log("t").append(batch)
    return root


def shared(cluster: Cluster, size: int) -> float:
    """Wait until so many members own everything; returns when that was, by the monotonic clock."""
    while True:
        roster = cluster.groups.refresh().group("g").roster
        owned = sum(len(m.assignment) for m in roster)
        if len(roster.members) == size and owned == PARTITIONS and not roster.rebalancing:
            return time.monotonic()
        time.sleep(0.002)


def changes(report: Report, scratch: str, strategy: str, rounds: int) -> None:
    """Joins, clean leaves and kills among three members."""
    joins, alone, leaves, kills = [], [], [], []
    for number in range(rounds):
        root = new_root(scratch, f"{strategy}-{number}")
        cluster = connect(root)
        members = [Process("member", root, strategy) for _ in range(3)]
        for nth, process in enumerate(members):
            process.go()
            start = process.hear("joining")["at"]
            if nth == 0:
                alone.append(process.hear("first record")["at"] - start)
            joins.append(shared(cluster, nth + 1) - start)
        members[0].popen.terminate()
        start = members[0].hear("leaving")["at"]
        leaves.append(shared(cluster, 2) - start)
        start = time.monotonic()
        members[1].popen.kill()
        kills.append(shared(cluster, 1) - start - SESSION_MS / 1000)
        for process in members:
            process.end()
    for what, seconds, aim in (
        ("join of the first member to its first record", alone, "< 1 s"),
        ("join to all partitions shared out", joins, ""),
        ("clean leave to all partitions shared out", leaves, "< 2 s"),
        (f"kill -9 to all shared out, beyond the session ({SESSION_MS / 1000:g} s)", kills, ""),
    ):
        report.raw[f"{strategy}: {what}"] = seconds
        report.add(
            f"{strategy}: {what}", f"median {statistics.median(seconds):.3f} s, worst {max(seconds):.3f} s", aim=aim
        )


def commits(report: Report, scratch: str, consumers: int, each: int) -> None:
    """Synchronous commits of 12 partitions, by consumers of groups of their own in processes of their own."""
    root = new_root(scratch, f"commits-{consumers}")
    members = [Process("committer", root, str(n), str(each)) for n in range(consumers)]
    for process in members:
        process.go()
    done = [process.hear("done") for process in members]
    for process in members:
        process.end()
    taken: list[float] = [second for heard in done for second in heard["taken"]]
    span = max(heard["at"] for heard in done) - min(heard["begun"] for heard in done)
    report.raw[f"commits of {consumers}"] = taken
    report.add(
        f"synchronous commits of {PARTITIONS} partitions, {consumers} consumers",
        f"{len(taken) / span:.0f} a second; p50 {percentile(taken, 0.5) * 1e3:.1f} ms, "
        f"p99 {percentile(taken, 0.99) * 1e3:.1f} ms",
        aim="p50 < 30 ms" if consumers == 1 else "",
    )


def size_of(folder: Path) -> tuple[int, int]:
    """Files and bytes below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return len(files), sum(path.stat().st_size for path in files)


def many_commits(report: Report, scratch: str, count: int) -> None:
    """What is left of the offsets table after very many commits, and what it costs then."""
    root = new_root(scratch, "many")
    cluster = connect(root)
    ids = {"t": cluster.topic("t").topic_id}
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)

    def commit(n: int) -> float:
        start = time.perf_counter()
        offsets.commit(
            Membership(group_id=f"g{n % 10}"), {TopicPartition("t", n % PARTITIONS): OffsetAndMetadata(n)}, ids
        )
        return time.perf_counter() - start

    taken = []
    for n in range(count):
        taken.append(commit(n))
        if n % (count // 10) == count // 10 - 1:
            maintain(cluster, clock=SYSTEM_CLOCK)
    files, size = size_of(Path(root, "__consumer_offsets"))
    report.raw["many commits"] = taken
    tenth = max(1, count // 10)
    report.add(
        f"__consumer_offsets after {count:,} commits, maintained ten times",
        f"{files:,} files, {size / 1e6:.1f} MB; a commit {statistics.median(taken[-tenth:]) * 1e3:.1f} ms",
        rival=f"the first tenth: {statistics.median(taken[:tenth]) * 1e3:.1f} ms",
    )
    start = time.perf_counter()
    connect(root).groups.refresh()
    report.add("opening it in a new client", f"{(time.perf_counter() - start) * 1e3:.0f} ms")


def heartbeats(report: Report, scratch: str, count: int) -> None:
    """A sign of life as a lease, against one as a row of the table."""
    root = new_root(scratch, "beats")
    cluster = connect(root)
    ids = {"t": cluster.topic("t").topic_id}
    offsets = GroupOffsets.of(cluster, SYSTEM_CLOCK)
    others = [f"m{n}" for n in range(10)]
    for name in others:
        cluster.leases.renew("g", name)
    leases, rows = [], []
    for _ in range(count):
        start = time.perf_counter()
        cluster.leases.renew("g", "m0")
        cluster.leases.read("g", others)
        leases.append(time.perf_counter() - start)
        start = time.perf_counter()
        offsets.commit(Membership(group_id="g"), {TopicPartition("t", 0): OffsetAndMetadata(1)}, ids)
        rows.append(time.perf_counter() - start)
    report.add(
        "heartbeat among ten members, as a lease",
        f"p50 {percentile(leases, 0.5) * 1e6:.0f} µs",
        rival=f"as a row: {percentile(rows, 0.5) * 1e6:.0f} µs and a table version",
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="see that it works")
    parser.add_argument("--only", choices=("members", "commits"), help="one half: minutes each")
    given = parser.parse_args()
    tiny, half = given.tiny, given.only
    report = Report("-".join(filter(None, ("groups", half, "tiny" if tiny else None))))
    with tempfile.TemporaryDirectory() as scratch:
        if half != "commits":
            for strategy in STRATEGIES:
                changes(report, scratch, strategy, 1 if tiny else 7)
            for consumers in (1, 2) if tiny else (1, 3, 10):
                commits(report, scratch, consumers, 5 if tiny else 300)
            heartbeats(report, scratch, 5 if tiny else 200)
        if half != "members":
            many_commits(report, scratch, 200 if tiny else 100_000)
    report.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["member"]:
        member(*sys.argv[2:])
    elif sys.argv[1:2] == ["committer"]:
        committer(*sys.argv[2:])
    else:
        os.environ.setdefault("PYTHONUNBUFFERED", "1")
        main()
