"""Histories of clusters of three roots that vanish, hang, fill up, turn read-only and come back, under kill -9.

The checker judges what all writers were told and a reader sees in the end; replicas are the same then, byte by byte,
and each topic that was acknowledged is there.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
from kafkalike.log.connect import connect
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.layout import CLUSTER_METADATA
from kafkalike.log.table.loading import load_table
from kafkalike.log.topic.segment_files import segment_of
from tests.jepsen.history import Recorder, judge
from tests.tools.children import Child
from tests.tools.hanging import Hanging, can_hang
from tests.tools.records import records_of

WORKER = "tests.processes.workers.replicas"
PARTITIONS = [0, 1]
FIRST = ("write", "write", "replicate", "elect", "control")
LAG_MS = 500
PATIENCE = 300.0
"""Seconds for replicas to come back, once all roots are there."""


class Trial:
    """Three roots, processes at work, and what is done to both."""

    def __init__(self, path: Path, *, mounts: bool, pause_ms: int) -> None:
        self.path, self.mounts, self.pause_ms = path, mounts, pause_ms
        (path / "hangs").mkdir()
        self.hangs = can_hang(path / "hangs")
        self.chance = random.Random(str(path.name))
        self.disks = [path / f"disk{n}" for n in (1, 2, 3)]
        for disk in self.disks:
            disk.mkdir()
            if mounts:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", str(disk)], check=True)
        self.roots = [str(disk / "root") for disk in self.disks]
        self.histories = path / "histories"
        self.histories.mkdir()
        settings = path / "server.properties"
        settings.write_text(f"replica.lag.time.max.ms={LAG_MS}\n")
        self.env = {"KAFKALIKE_SERVER_PROPERTIES": str(settings)}
        os.environ.update(self.env)
        self.open().create_topic("t", len(PARTITIONS), {}, replication_factor=3)
        self.live: dict[str, Child] = {}
        self.killed: list[Child] = []
        self.count = 0
        self.undo: list[Callable[[], object]] = []
        self.done: dict[str, int] = {}

    def open(self) -> ReplicatedCluster:
        found = connect(self.roots)
        assert isinstance(found, ReplicatedCluster)
        return found

    # --- processes -----------------------------------------------------------------------------

    def start(self, role: str) -> None:
        name = f"{role}{self.count}"
        self.count += 1
        ending = "jsonl" if role == "write" else "txt"
        orders: dict[str, object] = {
            "role": role,
            "name": name,
            "roots": self.roots,
            "topic": "t",
            "partitions": PARTITIONS,
        }
        orders["pause_ms"] = self.pause_ms
        child = Child(WORKER, {**orders, "history": str(self.histories / f"{name}.{ending}")}, self.env)
        self.live[name] = child
        if len(self.live) > len(FIRST) - 1:
            child.wait_ready()
            child.go()

    def begin(self) -> None:
        """Start those that the trial begins with, side by side."""
        for role in FIRST:
            self.start(role)
        for child in list(self.live.values())[:-1]:
            child.wait_ready()
            child.go()

    def kill(self) -> None:
        """Kill a process, and put another one in its place."""
        name = self.chance.choice(sorted(self.live))
        child = self.live.pop(name)
        child.shoot()
        # The system does not end it while a call of it hangs, so nobody waits for that here.
        self.killed.append(child)
        self.restart(name)

    def restart(self, name: str) -> None:
        role = name.rstrip("0123456789")
        if self.undo:
            # It opens the cluster first, which it may do with a root that is away.
            self.note("begun without a root")
        self.start(role)

    def stop_for_a_while(self) -> None:
        child = self.live[self.chance.choice(sorted(self.live))]
        os.kill(child.pid, signal.SIGSTOP)
        self.undo.append(lambda: os.kill(child.pid, signal.SIGCONT))

    # --- roots ---------------------------------------------------------------------------------

    def vanish(self) -> None:
        disk = self.chance.choice(self.disks)
        (disk / "root").rename(disk / "away")
        self.undo.append(lambda: come_back(disk))

    def fill(self) -> None:
        disk = self.chance.choice(self.disks)
        with (disk / "filler").open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(b"\0" * 65_536)
            except OSError:
                pass
        self.undo.append((disk / "filler").unlink)

    def freeze(self) -> None:
        disk = self.chance.choice(self.disks)
        for _ in range(50):
            # Not while somebody has a file open to write.
            if (
                subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=False, capture_output=True).returncode
                == 0
            ):
                break
            time.sleep(0.02)
        else:
            self.note("busy")
            return
        self.undo.append(lambda: subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True))

    def hang(self) -> None:
        mounted = Hanging(self.chance.choice(self.disks) / "root")
        self.undo.append(mounted.end)

    def note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def run(self, seconds: float, pause: float) -> None:
        """Do one thing after the other, each undone before the next one begins."""
        acts = [self.vanish, self.kill, self.stop_for_a_while, self.vanish, self.kill]
        if self.mounts:
            acts += [self.fill, self.freeze]
        if self.hangs:
            acts += [self.hang, self.hang]
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end or turn < len(acts):
            act = acts[turn % len(acts)] if turn < len(acts) else self.chance.choice(acts)
            turn += 1
            act()
            self.note(act.__name__)
            time.sleep(self.chance.uniform(0.2, 2.5) * pause)
            if act in {self.vanish, self.hang} and self.chance.random() < 0.5:
                self.kill()
            self.mend()
            time.sleep(self.chance.uniform(0.1, 1.0) * pause)

    def mend(self) -> None:
        while self.undo:
            self.undo.pop()()
        while self.killed:
            self.killed.pop().kill()

    # --- the end -------------------------------------------------------------------------------

    def settle(self) -> ReplicatedCluster:
        """Everybody ends, and the replicas come back."""
        self.mend()
        for child in self.live.values():
            child.kill()
        self.live.clear()
        cluster, deadline = self.open(), time.monotonic() + PATIENCE
        while True:
            failed = cluster.replication.replicate().failed
            if not failed and len(cluster.replication.replicas("t").isr) == len(self.roots):
                break
            assert time.monotonic() < deadline, failed
        cluster.create_topic("last", 1, {}, replication_factor=3)
        return cluster

    def judge(self) -> dict[str, object]:
        cluster = self.settle()
        log = cluster.log("t")
        with Recorder(str(self.histories / "reader.jsonl"), "reader", "t") as recorder:
            recorder.assign(PARTITIONS)
            recorder.poll(lambda: {p: records_of(log, p) for p in PARTITIONS})
        found = judge(self.histories)
        assert found["bad"] == [], {name: found["anomalies"][name] for name in found["bad"]}
        self.compare(cluster)
        told = {json.loads(line) for path in self.histories.glob("*.txt") for line in path.read_text().splitlines()}
        assert told <= set(cluster.topics()), sorted(told - set(cluster.topics()))
        self.note(f"topics {len(told)}")
        counts = found["counts"]
        assert isinstance(counts, dict)
        return counts

    def compare(self, cluster: ReplicatedCluster) -> None:
        """All replicas have the same versions and data files."""
        location = cluster.topic("t").location
        for name in (location, CLUSTER_METADATA):
            seen: dict[str, bytes] = {}
            for root in self.roots:
                for file in sorted(Path(root, name).rglob("*")):
                    part = str(file.relative_to(Path(root, name)))
                    if file.is_file() and part.endswith((".json", ".parquet")) and "/_" not in part:
                        content = file.read_bytes()
                        if "checkpoint" not in part:
                            assert seen.setdefault(part, content) == content, (root, part)
        states = [load_table(cluster.store.roots[n].at(location), segment_of) for n in (1, 2, 3)]
        assert len({state.version for state in states}) == 1
        for n, state in zip((1, 2, 3), states, strict=True):
            for segment in state.index:
                assert Path(self.roots[n - 1], location, segment.path).stat().st_size == segment.size_bytes
        lasts = {member.version for member in cluster.replication.quorum().members}
        assert len(lasts) == 1, lasts
        assert Path(self.roots[0], CLUSTER_METADATA, log_name(lasts.pop() or 0)).exists()

    def end(self) -> None:
        self.mend()
        for child in self.live.values():
            child.kill()
        del os.environ["KAFKALIKE_SERVER_PROPERTIES"]
        if self.mounts:
            for disk in self.disks:
                subprocess.run(["umount", "-l", str(disk)], check=False)


def come_back(disk: Path) -> None:
    """Nobody may have made anything in its place, below a mount point."""
    assert not (disk / "root").exists(), list((disk / "root").rglob("*"))
    (disk / "away").rename(disk / "root")


def can_mount(path: Path) -> bool:
    probe = path / "probe"
    probe.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe)], check=False, capture_output=True
    )
    return done.returncode == 0 and subprocess.run(["umount", str(probe)], check=False).returncode == 0


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("seconds", "pause"), [(2.0, 0.15), pytest.param(1800.0, 2.0, marks=pytest.mark.soak, id="soak")]
)
def test_nothing_is_lost_whatever_happens_to_roots_and_processes(tmp_path: Path, seconds: float, pause: float) -> None:
    # A long one must not fill the disks, which are memory.
    mounts = os.geteuid() == 0 and can_mount(tmp_path)
    trial = Trial(tmp_path, mounts=mounts, pause_ms=5 if seconds < 60 else 100)
    try:
        trial.begin()
        trial.run(seconds, pause)
        counts = trial.judge()
    finally:
        trial.end()
    print(f"{trial.done}, {counts}")  # noqa: T201 - figures of a long trial

    assert int(str(counts["acked"])) > 20
