"""Fleet: members of a group as processes, a producer that never rests, and the verdict on what they saw."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafkalike import KafkaProducer, TopicPartition
from kafkalike.connect import connect
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.groups.roster import Roster
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

    def __init__(self, root: str, folder: Path, strategy: str, session_ms: int, **orders: int) -> None:
        self.root = root
        self.cluster = connect(root)
        self.cluster.create_topic("t", PARTITIONS, {})
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.strategy = strategy
        self.session_ms = session_ms
        self.orders = orders
        """More of what members are told."""
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
                **self.orders,
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

    def drained(self, group: str = "g", patience: float = PATIENCE) -> None:
        """Wait until everything that was sent is committed."""
        log = self.cluster.log("t")
        partitions = [TopicPartition("t", p) for p in range(PARTITIONS)]
        offsets = GroupOffsets.of(self.cluster, SYSTEM_CLOCK)

        def done() -> bool:
            log.refresh()
            found = offsets.committed(group, partitions, {"t": log.info.topic_id})
            return {tp: at.offset for tp, at in found.items()} == {tp: log.log_end(tp.partition) for tp in partitions}

        self.await_that(done, lambda: f"group {group} does not come to the end", patience)

    @staticmethod
    def await_that(holds: Callable[[], bool], otherwise: Callable[[], str], patience: float = PATIENCE) -> None:
        end = time.monotonic() + patience
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
                        return [future.get().offset for future in futures]

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
