"""One history of everything at once in an object store: writers, a group, maintenance, kill -9 and a bad network.

Eight writers and four members of a group are processes; maintenance merges and cleans up beside them all the time.
Writers, members and maintenance are killed at random moments and replaced. The checker judges what all of them saw.
"""

import json
import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.jepsen.checker import load
from tests.processes.conftest import ObjectRoot
from tests.tools.children import Child
from tests.tools.fault_proxy import BAD, FAULTS
from tests.tools.fleet import PARTITIONS, Fleet
from tests.tools.upkeep import AT_ONCE, HOUR_MS

PRODUCE = "tests.processes.workers.produce"
UPKEEP = "tests.processes.workers.upkeep"
WRITERS, MEMBERS = int(os.environ.get("KAFKALIKE_HISTORY_WRITERS", "8")), 4
SECONDS = float(os.environ.get("KAFKALIKE_HISTORY_SECONDS", "inf"))
"""A long trial ends after these, whatever it has come to; it says how many appends that were."""
PATIENCE = 600.0
"""Seconds to wait for a run of maintenance, and for the members, when the writers have ended."""
LONG = {"most": 500, "fetch_min_bytes": 100_000, "fetch_max_wait_ms": 2000, "default_api_timeout_ms": 600_000}
"""What members of a long trial are told: they commit every two seconds, so that the machine has time for appends, and
wait for minutes for a server that the machine has no time for."""
KILLED = ("writer", "maintenance", "member", "writer")
"""What is killed, in turn; which of them, chance says."""


@dataclass
class Trial:
    """The processes of a history."""

    place: ObjectRoot
    fleet: Fleet
    writers: dict[str, Child] = field(default_factory=dict)
    keeper: Child | None = None
    killed: dict[str, int] = field(default_factory=dict)
    count: int = 0
    ok: int = 0
    read: dict[Path, int] = field(default_factory=dict)
    """How much of each writer's history was counted."""

    def write(self, number: int = 1) -> None:
        """Start more writers, which begin together and go on until they are killed."""
        begun = {}
        for _ in range(number):
            name = f"w{self.count}"
            self.count += 1
            orders = {
                "root": self.place.root,
                "topic": "t",
                "name": name,
                "history": str(self.fleet.histories / f"{name}.jsonl"),
                "partitions": list(range(PARTITIONS)),
                "through": "producer",
                "batches": 1_000_000,
            }
            begun[name] = self.writers[name] = Child(PRODUCE, orders, {})
        for child in begun.values():
            child.wait_ready()
        for child in begun.values():
            child.go()

    def keep(self) -> None:
        """Start maintenance. Its clock is ahead, so that the files of those who are just writing look old."""
        orders = {"root": self.place.root, "role": "upkeep", "name": "keeper", "doomed": False}
        self.keeper = Child(UPKEEP, {**orders, "ahead_ms": 2 * HOUR_MS, "patient": True}, {})
        self.keeper.wait_ready()
        self.keeper.go()

    def kill(self, chance: random.Random) -> None:
        """Kill one process and put another one in its place."""
        what = KILLED[sum(self.killed.values()) % len(KILLED)]
        self.killed[what] = self.killed.get(what, 0) + 1
        if what == "writer":
            self.writers.pop(chance.choice(sorted(self.writers))).kill()
            self.write()
        elif what == "member":
            (name,) = self.fleet.prepare(1)
            self.fleet.kill(chance.choice(sorted(self.fleet.live)))
            self.fleet.join(name)
        else:
            assert self.keeper is not None
            self.keeper.kill()
            self.keep()

    def acknowledged(self) -> int:
        """How many appends were, as far as the writers have told."""
        for path in self.fleet.histories.glob("w*.jsonl"):
            with path.open() as history:
                # What was counted before is not read again: this process has more to do.
                history.seek(self.read.get(path, 0))
                told = history.read()
            whole = told[: told.rfind("\n") + 1]
            self.read[path] = self.read.get(path, 0) + len(whole)
            self.ok += whole.count('"type": "ok"')
        return self.ok

    def end(self) -> None:
        """End what is left, whatever it does."""
        for child in (*self.writers.values(), *([self.keeper] if self.keeper else [])):
            child.kill()
        self.fleet.end()


def history(place: ObjectRoot, folder: Path, appends: int, kill_every: float) -> Trial:
    """Let them all run until so many appends were acknowledged."""
    chance = random.Random(appends)
    orders = LONG if appends > 1000 else {}
    trial = Trial(place, Fleet(place.root, folder, "range", 15_000 if orders else 6000, **orders))
    trial.fleet.cluster.edit_configs("t", lambda _: {**AT_ONCE, "retention.ms": "-1"})
    try:
        trial.fleet.join(*trial.fleet.prepare(MEMBERS))
        trial.keep()
        place.proxy.plan.faults = BAD
        trial.write(WRITERS)
        next_kill = time.monotonic() + kill_every
        end = time.monotonic() + SECONDS
        while (trial.acknowledged() < appends and time.monotonic() < end) or len(trial.killed) < len(set(KILLED)):
            time.sleep(0.5)
            assert not [name for name, child in trial.writers.items() if child.ended]
            if time.monotonic() > next_kill:
                trial.kill(chance)
                next_kill = time.monotonic() + kill_every
        for child in trial.writers.values():
            child.kill()
        trial.writers.clear()
        assert trial.keeper is not None
        trial.keeper.go()
        told = json.loads(trial.keeper.finish(patience=PATIENCE))
        trial.keeper = None
        assert [problem for problem in told["problems"] if "Storage" not in problem and "Outcome" not in problem] == []
        place.proxy.plan.faults = {}
        trial.fleet.drained(patience=PATIENCE)
        for name in sorted(trial.fleet.live):
            trial.fleet.leave(name)
    finally:
        trial.end()
    return trial


@pytest.mark.timeout(7200)
@pytest.mark.parametrize(
    ("appends", "kill_every"), [(150, 4.0), pytest.param(10_000, 20.0, marks=pytest.mark.soak, id="soak")]
)
def test_nothing_is_lost_doubled_or_reordered_whatever_happens(
    object_root: ObjectRoot, tmp_path: Path, appends: int, kill_every: float
) -> None:
    begun = time.monotonic()

    trial = history(object_root, tmp_path, appends, kill_every)

    report = trial.fleet.verdict()
    faults = {fault: object_root.proxy.done[fault] for fault in FAULTS}
    events = sum(len(load(path)) for path in trial.fleet.histories.glob("*.jsonl"))
    print(  # noqa: T201 - for who runs it by hand
        f"\n{object_root.server.kind}: {trial.acknowledged()} appends acknowledged, {time.monotonic() - begun:.0f} s, "
        f"{events} events, {report['counts']}, killed {trial.killed}, {sum(faults.values())} faults {faults}"
    )
    acknowledged = trial.acknowledged()
    assert acknowledged >= appends or time.monotonic() - begun >= SECONDS
    assert sum(faults.values()) > min(appends, acknowledged) // 10
    assert report["counts"]["read"] >= report["counts"]["acked"]
