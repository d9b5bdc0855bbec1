"""Histories of clusters of three roots that vanish, hang, fill up, turn read-only and come back, under kill -9.

Roots are folders, buckets, or both; buckets slow down and answer wrongly, too.

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
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from kafkalike.connect import connect
from kafkalike.delta.actions import log_name
from kafkalike.delta.layout import CLUSTER_METADATA
from kafkalike.delta.table_state import load_table
from kafkalike.log.topic.topic_commits import segment_of
from kafkalike.replication.cluster.cluster_storage import folder_of
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.jepsen.history import Recorder, judge
from tests.tools.children import Child
from tests.tools.hanging import can_hang
from tests.tools.records import records_of
from tests.tools.trial_roots import BucketRoot, FolderRoot, Root, Undo

WORKER = "tests.processes.workers.replicas"
PARTITIONS = [0, 1]
FIRST = ("write", "write", "replicate", "elect", "move", "control")
LAG_MS = 500
SOAK_SECONDS = float(os.environ.get("KAFKALIKE_TRIAL_SECONDS", "600"))
"""How long the long trial of each kind of roots is."""

PATIENCE = 300.0
"""Seconds for replicas to come back, once all roots are there."""


class Trial:
    """Three roots, processes at work, and what is done to both."""

    def __init__(self, path: Path, roots: Sequence[Root], *, pause_ms: int) -> None:
        self.path, self.places, self.pause_ms = path, roots, pause_ms
        self.chance = random.Random(str(path.name))
        self.roots = [root.uri for root in roots]
        self.options = {root.uri: dict(root.options) for root in roots if root.options}
        self.histories = path / "histories"
        self.histories.mkdir()
        settings = path / "server.properties"
        settings.write_text(f"replica.lag.time.max.ms={LAG_MS}\n")
        self.env = {"KAFKALIKE_SERVER_PROPERTIES": str(settings)}
        os.environ.update(self.env)
        at_once = {"kafkalike.replaced.file.delay.ms": "0"}
        self.open().create_topic("t", len(PARTITIONS), at_once, replication_factor=3)
        self.live: dict[str, Child] = {}
        self.killed: list[Child] = []
        self.count = 0
        self.undo: list[Undo] = []
        self.done: dict[str, int] = {}

    def open(self) -> ReplicatedCluster:
        found = connect(self.roots, self.options or None)
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
            "options": self.options or None,
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
        self.note("kill")
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
        self.note("stop")
        self.undo.append(lambda: os.kill(child.pid, signal.SIGCONT))

    # --- roots ---------------------------------------------------------------------------------

    def harm(self, what: str) -> None:
        """Do something to one of those roots to which it can be done."""
        place = self.chance.choice([root for root in self.places if what in root.acts])
        undo = place.acts[what](self.chance)
        self.note("busy" if undo is None else what)
        self.undo += [] if undo is None else [undo]

    def note(self, what: str) -> None:
        self.done[what] = self.done.get(what, 0) + 1

    def run(self, seconds: float, pause: float) -> None:
        """Do one thing after the other, each undone before the next one begins."""
        harms = sorted({what for root in self.places for what in root.acts})
        acts = ["vanish", "kill", "stop", "vanish", "kill", *(what for what in harms if what != "vanish")]
        acts += ["hang"] if "hang" in harms else []
        end, turn = time.monotonic() + seconds, 0
        while time.monotonic() < end or turn < len(acts):
            act = acts[turn % len(acts)] if turn < len(acts) else self.chance.choice(acts)
            turn += 1
            if act == "kill":
                self.kill()
            elif act == "stop":
                self.stop_for_a_while()
            else:
                self.harm(act)
            time.sleep(self.chance.uniform(0.2, 2.5) * pause)
            if act in harms and self.chance.random() < 0.5:
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
            # What a killed process had begun to decide may be decided after the first time.
            cluster.replication.reassign("t", [1, 2, 3])
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
        replicas = {replica.broker: replica for replica in cluster.store.replicas(location).in_sync()}
        folders = [folder_of(location, replicas[broker]) for broker in (1, 2, 3)]
        self.note(f"other names {sum(folder != location for folder in folders)}")
        for names in (folders, [CLUSTER_METADATA] * 3):
            seen: dict[str, bytes] = {}
            for root, name in zip(self.places, names, strict=True):
                # What stands at or below a checkpoint counts no more: a late put may have left it there.
                logged = (root.files / name / "_delta_log").glob("*.checkpoint*.parquet")
                covered = max((file.name.partition(".")[0] for file in logged), default="")
                for file in sorted((root.files / name).rglob("*")):
                    part = str(file.relative_to(root.files / name))
                    if file.is_file() and part.endswith((".json", ".parquet")) and "/_" not in part:
                        content = file.read_bytes()
                        if "checkpoint" not in part and not (part.endswith(".json") and file.stem <= covered):
                            assert seen.setdefault(part, content) == content, (root.uri, part, covered)
        states = [load_table(cluster.store.roots[n].at(folders[n - 1]), segment_of) for n in (1, 2, 3)]
        assert len({state.version for state in states}) == 1
        for root, folder, state in zip(self.places, folders, states, strict=True):
            for segment in state.index:
                assert (root.files / folder / segment.path).stat().st_size == segment.size_bytes
        lasts = {member.version for member in cluster.replication.quorum().members}
        assert len(lasts) == 1, lasts
        assert (self.places[0].files / CLUSTER_METADATA / log_name(lasts.pop() or 0)).exists()

    def end(self) -> None:
        self.mend()
        for child in self.live.values():
            child.kill()
        del os.environ["KAFKALIKE_SERVER_PROPERTIES"]


def can_mount(path: Path) -> bool:
    probe = path / "probe"
    probe.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(probe)], check=False, capture_output=True
    )
    return done.returncode == 0 and subprocess.run(["umount", str(probe)], check=False).returncode == 0


@pytest.fixture(params=["folders", *(pytest.param(kind, marks=pytest.mark.objects) for kind in ("buckets", "mixed"))])
def roots(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Root]]:
    """Three of them."""
    mounts = os.geteuid() == 0 and can_mount(tmp_path)
    (tmp_path / "hangs").mkdir()
    hangs = can_hang(tmp_path / "hangs")
    kinds = {"folders": "fff", "buckets": "bbb", "mixed": "bfb"}[request.param]
    with ExitStack() as stack:
        made: list[Root] = []
        for number, kind in enumerate(kinds, start=1):
            place = tmp_path / f"disk{number}"
            made.append(FolderRoot(place, mounts=mounts, hangs=hangs) if kind == "f" else BucketRoot(place, number))
            stack.callback(made[-1].end)
        yield made


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("seconds", "pause"), [(2.0, 0.15), pytest.param(SOAK_SECONDS, 2.0, marks=pytest.mark.soak, id="soak")]
)
def test_nothing_is_lost_whatever_happens_to_roots_and_processes(
    tmp_path: Path, roots: list[Root], seconds: float, pause: float
) -> None:
    # A long one must not fill the disks, which are memory.
    trial = Trial(tmp_path, roots, pause_ms=5 if seconds < 60 else 100)
    try:
        trial.begin()
        trial.run(seconds, pause)
        counts = trial.judge()
    finally:
        trial.end()
    print(f"{trial.done}, {counts}")  # noqa: T201 - figures of a long trial

    assert int(str(counts["acked"])) > 20
