"""Members of a group as real processes that join, leave, are killed and are stopped, while records keep coming."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaProducer, TopicPartition
from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.group.offsets import GroupOffsets
from kafkalike.log.connect import connect
from kafkalike.model.group_state import Roster
from kafkalike.model.structs import GroupState
from tests.jepsen.checker import load
from tests.jepsen.history import Recorder, judge
from tests.jepsen.ownership import explained, overlaps, spans
from tests.tools.children import Child
from tests.tools.findings import errors_of

MEMBER = "tests.processes.workers.group_member"
PARTITIONS = 4
PATIENCE = 60.0
"""Seconds to wait for what must come; only a broken group needs them."""


class Fleet:
    """A topic, a producer that never rests, and the members of a group."""

    def __init__(self, root: str, folder: Path, strategy: str, session_ms: int) -> None:
        self.root = root
        self.cluster = connect(root)
        self.cluster.create_topic("t", PARTITIONS, {})
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.strategy = strategy
        self.session_ms = session_ms
        self.live: dict[str, Child] = {}
        self.halted: dict[str, list[int]] = {}
        """When processes were killed or stopped, ns of the monotonic clock."""
        self.waiting: dict[str, Child] = {}
        self._count = 0

    # --- members -----------------------------------------------------------------------------

    def prepare(self, number: int, group: str = "g", instance: str | None = None, fault: str = "") -> list[str]:
        """Start processes that do nothing yet: starting takes long, joining does not. For `fault` see faults.py."""
        names = [f"m{self._count + n}" for n in range(number)]
        self._count += number
        for name in names:
            orders = {
                "root": self.root,
                "topic": "t",
                "name": name,
                "group": group,
                "instance": instance,
                "strategy": self.strategy,
                "session_ms": self.session_ms,
                "history": str(self.histories / f"{name}.jsonl"),
            }
            self.waiting[name] = Child(MEMBER, orders, {"KAFKALIKE_FAULT": fault})
        for name in names:
            self.waiting[name].wait_ready()
        return names

    def join(self, *names: str) -> None:
        for name in names:
            self.live[name] = self.waiting.pop(name)
            self.live[name].go()

    def leave(self, name: str) -> None:
        child = self.live.pop(name)
        child.go()
        child.finish()

    def kill(self, name: str) -> None:
        self._halts(name)
        child = self.live.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        child.finish(-signal.SIGKILL)

    def stop(self, name: str) -> None:
        self._halts(name)
        os.kill(self.live[name].pid, signal.SIGSTOP)

    def _halts(self, name: str) -> None:
        self.halted.setdefault(name, []).append(time.monotonic_ns())

    def stops_itself(self, name: str) -> None:
        """Wait until a process has come to its fault and stopped."""
        stat = Path(f"/proc/{self.live[name].pid}/stat")
        self.await_that(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", lambda: f"{name} goes on")
        self._halts(name)

    def resume(self, name: str) -> None:
        os.kill(self.live[name].pid, signal.SIGCONT)

    def end(self) -> None:
        for child in (*self.live.values(), *self.waiting.values()):
            os.kill(child.pid, signal.SIGCONT)
            child.kill()

    # --- what must come ----------------------------------------------------------------------

    def roster(self, group: str = "g") -> Roster:
        return self.cluster.groups.refresh().group(group).roster

    def shared_by(self, size: int) -> None:
        """Wait until so many members own everything together, and nobody anything twice."""

        def shared() -> bool:
            roster = self.roster()
            owned = [tp for member in roster for tp in member.assignment]
            full = len(owned) == len(set(owned)) == PARTITIONS
            return full and len(roster.members) == size and roster.state is GroupState.STABLE

        self.await_that(shared, lambda: f"{size} members do not share the partitions: {self.roster()}")

    def member_of(self, name: str) -> None:
        """Wait until a process is a member."""

        def joined() -> bool:
            return any(member.client_id == name for member in self.roster())

        self.await_that(joined, lambda: f"{name} does not come back: {self.roster()}")

    def drained(self, group: str = "g") -> None:
        """Wait until everything that was sent is committed."""
        log = self.cluster.log("t")
        partitions = [TopicPartition("t", p) for p in range(PARTITIONS)]
        offsets = GroupOffsets.of(self.cluster, SYSTEM_CLOCK)

        def done() -> bool:
            log.refresh()
            found = offsets.committed(group, partitions, {"t": log.info.topic_id})
            return {tp: at.offset for tp, at in found.items()} == {tp: log.log_end(tp.partition) for tp in partitions}

        self.await_that(done, lambda: f"group {group} does not come to the end")

    @staticmethod
    def await_that(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, otherwise()
            time.sleep(0.02)

    # --- records -----------------------------------------------------------------------------

    @contextmanager
    def producing(self) -> Iterator[None]:
        """Send one record after another to all partitions."""
        done = threading.Event()

        def produce() -> None:
            with (
                KafkaProducer(bootstrap_servers=self.root) as producer,
                Recorder(str(self.histories / "producer.jsonl"), "producer", "t") as recorder,
            ):
                number = 0
                while not done.wait(0.01):
                    number += 1
                    records = [(p, f"{number}-{p}") for p in range(PARTITIONS)]

                    def send(records: list[tuple[int, str]] = records) -> list[int]:
                        futures = [producer.send("t", value.encode(), partition=p) for p, value in records]
                        return [future.get(timeout=60).offset for future in futures]

                    recorder.send(records, send, atomic=False)

        thread = threading.Thread(target=produce)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    # --- the verdict -------------------------------------------------------------------------

    def read_by(self, *names: str) -> set[tuple[str, int]]:
        """Partition and offset of all records that some processes were given."""
        return {
            (partition, offset)
            for name in names
            for event in load(self.histories / f"{name}.jsonl")
            if event["type"] == "ok" and event["f"] == "poll"
            for partition, records in event["value"][0][1].items()
            for offset, _ in records
        }

    def told(self, name: str) -> list[tuple[str, list[str]]]:
        """What a process was told of its partitions."""
        events = load(self.histories / f"{name}.jsonl")
        return [(e["how"], e["which"]) for e in events if e["type"] == "ok" and e["f"] == "assign"]

    def verdict(self) -> dict[str, Any]:
        """Every record was read, nobody owned what another one did, and the commits make one history."""
        report = judge(self.histories)
        assert report["valid"], (report["bad"], report["anomalies"])
        clashes = overlaps(spans(self.histories, "g", self.halted))
        assert not clashes, f"halted: {self.halted}\n{explained(self.histories, clashes)}"
        assert errors_of(self.root) == []
        return report


@pytest.fixture
def fleet_of(root: str, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Makes a fleet, and ends its processes."""
    made: list[Fleet] = []

    def make(strategy: str, session_ms: int = 1500) -> Fleet:
        made.append(Fleet(root, tmp_path, strategy, session_ms))
        return made[-1]

    yield make
    for fleet in made:
        fleet.end()


@pytest.mark.timeout(180)
def test_members_come_and_go_and_every_record_is_read_by_one_owner(fleet_of: Callable[..., Fleet]) -> None:
    """One, three, five, two members; killed, stopped past their session, woken up again, and leaving."""
    fleet = fleet_of("range")
    m0, m1, m2, m3, m4 = fleet.prepare(5)

    with fleet.producing():
        fleet.join(m0)
        fleet.shared_by(1)
        fleet.join(m1, m2)
        fleet.shared_by(3)
        fleet.join(m3, m4)
        fleet.shared_by(5)
        fleet.kill(m0)
        fleet.stop(m1)
        fleet.shared_by(3)
        fleet.resume(m1)
        fleet.shared_by(4)
        fleet.leave(m2)
        fleet.shared_by(3)
        fleet.kill(m3)
        fleet.shared_by(2)
    fleet.drained()
    fleet.leave(m1)
    fleet.leave(m4)

    report = fleet.verdict()
    assert report["counts"]["acked"] == report["counts"]["read"] > 100


@pytest.mark.timeout(180)
def test_a_member_that_is_stopped_in_the_middle_of_a_commit_stops_nobody_else(fleet_of: Callable[..., Fleet]) -> None:
    """It holds the table's lock; woken up it is fenced and joins again. Cooperative: what stays is never given up."""
    fleet = fleet_of("cooperative-sticky")
    m0, m1 = fleet.prepare(2)
    (sleeper,) = fleet.prepare(1, fault="commit.before:stop@4")

    with fleet.producing():
        fleet.join(m0, m1)
        fleet.shared_by(2)
        fleet.join(sleeper)
        fleet.stops_itself(sleeper)
        fleet.shared_by(2)
        fleet.resume(sleeper)
        fleet.shared_by(3)
    fleet.drained()
    for name in (m0, m1, sleeper):
        fleet.leave(name)

    fleet.verdict()
    assert_what_stays_is_never_given_up(fleet)


@pytest.mark.timeout(120)
def test_a_member_that_is_stopped_before_it_hears_of_its_partitions_gets_nothing_of_its_heirs(
    fleet_of: Callable[..., Fleet],
) -> None:
    """The commit by which it joined the empty group gave it everything; another one reads that by the time it wakes up.

    It must not be told of partitions that it does not own any more, nor be given their records.
    """
    fleet = fleet_of("sticky")
    (heir,) = fleet.prepare(1)
    (sleeper,) = fleet.prepare(1, fault="commit.after:stop@1")

    with fleet.producing():
        fleet.join(sleeper)
        fleet.stops_itself(sleeper)
        fleet.join(heir)
        fleet.member_of(heir)
        fleet.shared_by(1)
        fleet.resume(sleeper)
        fleet.shared_by(2)
    fleet.drained()
    for name in (sleeper, heir):
        fleet.leave(name)

    fleet.verdict()
    assert {how for how, _ in fleet.told(sleeper)} == {"assigned", "revoked"}
    assert [len(which) for how, which in fleet.told(sleeper) if how == "assigned"] == [PARTITIONS // 2]


def assert_what_stays_is_never_given_up(fleet: Fleet) -> None:
    """A partition that was revoked is another member's next."""
    owned = sorted(spans(fleet.histories, "g", fleet.halted), key=lambda s: s.start)
    for nth, span in enumerate(owned):
        following = next((s for s in owned[nth + 1 :] if s.partition == span.partition), None)
        assert span.ended != "revoked" or following is None or following.owner != span.owner, (span, following)


@pytest.mark.timeout(120)
def test_static_members_restart_one_by_one_without_a_rebalance_beside_another_group(
    fleet_of: Callable[..., Fleet],
) -> None:
    """Killed or closed, each comes back under its name; the generation stays, and both groups get everything."""
    fleet = fleet_of("range", session_ms=20_000)
    (a,), (b,), (a2,), (b2,) = (fleet.prepare(1, instance=name) for name in "abab")
    (other,) = fleet.prepare(1, group="other")

    with fleet.producing():
        fleet.join(a, b, other)
        fleet.shared_by(2)
        generation = fleet.roster().generation
        for halt, old, new in ((fleet.kill, a, a2), (fleet.leave, b, b2)):
            halt(old)
            fleet.join(new)
            fleet.member_of(new)
    fleet.drained()
    fleet.drained("other")

    assert fleet.roster().generation == generation
    assert fleet.read_by(a, b, a2, b2) == fleet.read_by(other) != set()
    for name in (a2, b2, other):
        fleet.leave(name)
    fleet.verdict()


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_fifty_changes_of_membership_break_nothing(fleet_of: Callable[..., Fleet], strategy: str) -> None:
    """Random joins, kills, stops and leaves, from one to five members."""
    chance = random.Random(strategy)
    fleet = fleet_of(strategy)
    fleet.join(*fleet.prepare(2))
    with fleet.producing():
        for _ in range(50):
            fleet.shared_by(len(fleet.live))
            change = chance.choice(["join", "kill", "stop", "leave"])
            if len(fleet.live) == 1 or (change == "join" and len(fleet.live) < 5):
                fleet.join(*fleet.prepare(1))
                continue
            name = chance.choice(sorted(fleet.live))
            if change == "stop" and name not in fleet.halted:
                fleet.stop(name)
                fleet.shared_by(len(fleet.live) - 1)
                fleet.resume(name)
            elif change == "kill":
                fleet.kill(name)
            else:
                fleet.leave(name)
    fleet.shared_by(len(fleet.live))
    fleet.drained()
    for name in list(fleet.live):
        fleet.leave(name)

    report = fleet.verdict()
    assert report["counts"]["acked"] == report["counts"]["read"]
