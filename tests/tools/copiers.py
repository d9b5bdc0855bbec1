"""Copiers: a pipeline of transactions under a storm, as processes, and the verdict on what all of them saw."""

import os
import random
import signal
import threading
import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from kafkalike import KafkaProducer
from kafkalike.connect import connect
from kafkalike.errors import KafkaStorageError, KafkaTimeoutError, UnknownOutcomeError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.group_state import GroupsState
from tests.jepsen.checker import check, load
from tests.jepsen.history import Recorder
from tests.tools.children import Child
from tests.tools.findings import errors_of

WORKER = "tests.processes.workers.judged_copier"
GROUP = "copiers"
INPUT, OUTPUTS = "in", ("a", "b")
PARTITIONS, OTHERS = 4, 3
"""Of the input and the first output, and of the second one."""
KEYS = 23
SESSION_MS = 1500
TIMEOUT_MS = 2500
STORM = ("kill", "fault", "twin", "pause", "fault", "leave")
"""What happens to a copier, in turn; to which of them, chance says."""
FAULTS = ("staged", "before_commit", "after_commit", "before_apply", "after_apply", "before_remove", "after_remove")
PATIENCE = 600.0
"""Seconds to wait for what must come, such as the next offset that the group commits: a broken pipeline needs them, and
a slow machine some of them."""
AHEAD = 1500
"""So many records the input is ahead of the group at most: on a slow machine too the copiers come to its end."""
ENOUGH = 500
"""Records that the group has copied at least before the storm ends."""
NO_ANSWER = (KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError)
TOPICS = {INPUT: PARTITIONS, OUTPUTS[0]: PARTITIONS, OUTPUTS[1]: OTHERS}


class Copying:
    """An input that grows, two outputs, copiers in one group, maintenance, and readers of snapshots."""

    def __init__(self, root: str, folder: Path, strategy: str, seed: int, pace: float = 1.0) -> None:
        self.root = root
        self.cluster = connect(root)
        for topic, partitions in TOPICS.items():
            self.cluster.create_topic(topic, partitions, {"retention.ms": "-1"})
        self.histories = folder / "histories"
        self.histories.mkdir()
        self.strategy = strategy
        self.chance = random.Random(seed)
        self.session_ms, self.timeout_ms = SESSION_MS * pace, round(TIMEOUT_MS * pace)
        self.live: dict[str, tuple[Child, str]] = {}
        """By name: a copier and its transactional id."""
        self.sleeping: dict[str, float] = {}
        """By name: until when a copier is stopped."""
        self.done: defaultdict[str, int] = defaultdict(int)
        """How often the storm has done what, and what came of it."""
        self.doomed: set[str] = set()
        """Copiers that a fault will kill, unless something else comes first."""
        self.problems: list[str] = []
        """What maintenance could not do, and what it and those who look got no answer to."""
        self.copied = 0
        """How many records the group has copied, when it was last looked at."""
        self._copied_at = time.monotonic()
        self._errors: list[BaseException] = []
        self._count = 0
        self._storms = 0

    # --- copiers -----------------------------------------------------------------------------

    def start(self, *transactional_ids: str, fault: str = "") -> None:
        """Start copiers, side by side. For `fault` see faults.py."""
        names = [self._spawn(transactional_id, fault) for transactional_id in transactional_ids]
        for name in names:
            self.live[name][0].wait_ready()
        for name in names:
            self.live[name][0].go()

    def _spawn(self, transactional_id: str, fault: str) -> str:
        name = f"c{self._count}"
        self._count += 1
        orders = {
            "root": self.root,
            "name": name,
            "transactional_id": transactional_id,
            "group": GROUP,
            "input": INPUT,
            "outputs": OUTPUTS,
            "others": OTHERS,
            "strategy": self.strategy,
            "session_ms": self.session_ms,
            "timeout_ms": self.timeout_ms,
            "most": self.chance.randint(3, 40),
            "aborts": 0.1,
            "hangs": 0.02,
            "seed": self._count,
            "history": str(self.histories / f"{name}.jsonl"),
        }
        self.live[name] = Child(WORKER, orders, {"KAFKALIKE_FAULT": fault}), transactional_id
        if fault:
            self.doomed.add(name)
        return name

    def kill(self, name: str) -> str:
        """Like `kill -9`; returns its transactional id."""
        child, transactional_id = self.live.pop(name)
        self.sleeping.pop(name, None)
        os.kill(child.pid, signal.SIGKILL)
        self._ended(name, child)
        return transactional_id

    def leave(self, name: str) -> str:
        """Let it end in order; returns its transactional id."""
        if name in self.doomed:
            # It may die of that, too.
            return self.kill(name)
        child, transactional_id = self.live.pop(name)
        with suppress(BrokenPipeError):
            child.go()
        child.finish(patience=PATIENCE)
        return transactional_id

    def _ended(self, name: str, child: Child) -> None:
        """One that was killed, or has ended by itself because another one has its transactional id."""
        if child.wait() == -signal.SIGKILL:
            child.finish(-signal.SIGKILL)
            self.done["died"] += 1
        else:
            assert "fenced" in child.finish(), (name, child.errors)
            self.done["fenced"] += 1

    @property
    def enough(self) -> bool:
        """Whether everything has happened at least once, and something was copied meanwhile."""
        return self.copied >= ENOUGH and set(STORM) <= set(self.done)

    def storm(self) -> None:
        """Do something to one of the copiers, and see to it that there are four afterwards.

        Nothing, while the group has copied nothing since: else a slow machine's copiers would never get anything done.
        """
        self._wake()
        if not self._went_on():
            return
        awake = sorted(self.live.keys() - self.sleeping.keys())
        assert awake, "every copier is stopped"
        what = STORM[self._storms % len(STORM)]
        self._storms += 1
        name = self.chance.choice(awake)
        self.done[what] += 1
        if what == "kill":
            self.start(self.kill(name))
        elif what == "fault":
            # It dies by itself, between two steps of a transaction; `_wake` finds it.
            where = self.chance.choice(FAULTS)
            self.start(self.kill(name), fault=f"transaction.{where}:kill@{self.chance.randint(2, 6)}")
        elif what == "leave":
            # One that is stopped may hold the lock of a topic, which who leaves waits for.
            self._wake(all_of_them=True)
            if name in self.live:
                self.start(self.leave(name))
        elif what == "pause" and len(self.sleeping) < 2:
            # Beyond its session, and sometimes beyond its transaction's timeout.
            os.kill(self.live[name][0].pid, signal.SIGSTOP)
            self.sleeping[name] = time.monotonic() + self.chance.uniform(0.5, 2.5) * self.session_ms / 1000
        elif what == "twin":
            # Another process takes the id while the first one is stopped; woken up, it is a zombie.
            os.kill(self.live[name][0].pid, signal.SIGSTOP)
            self.sleeping[name] = time.monotonic() + self.session_ms / 1000
            self.start(self.live[name][1])

    def _wake(self, *, all_of_them: bool = False) -> None:
        for name, until in list(self.sleeping.items()):
            if all_of_them or time.monotonic() >= until:
                os.kill(self.live[name][0].pid, signal.SIGCONT)
                del self.sleeping[name]
        for name, (child, transactional_id) in list(self.live.items()):
            if child.ended:
                del self.live[name]
                self.sleeping.pop(name, None)
                self._ended(name, child)
                if transactional_id not in {other for _, other in self.live.values()}:
                    self.start(transactional_id)

    # --- beside them -------------------------------------------------------------------------

    @contextmanager
    def beside(self, look_every: float) -> Iterator[None]:
        """Send records, look at snapshots and maintain, until the block ends."""
        stop = threading.Event()

        def run(work: Callable[[threading.Event], None]) -> None:
            try:
                work(stop)
            except Exception as error:  # noqa: BLE001 - the storm raises it
                self._errors.append(error)

        works = (self._produce, lambda end: self._look(end, look_every), self._maintain)
        threads = [threading.Thread(target=run, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        assert self._errors == []

    def _produce(self, stop: threading.Event) -> None:
        number = 0
        with (
            KafkaProducer(bootstrap_servers=self.root) as producer,
            Recorder(str(self.histories / "producer.jsonl"), "producer", INPUT) as recorder,
        ):
            while not stop.wait(0.02):
                if number - self.copied > AHEAD:
                    continue
                records = []
                for _ in range(8):
                    number += 1
                    key = f"k{self._key(number)}"
                    records.append((zlib.crc32(key.encode()) % PARTITIONS, key, f"{key}:{number}"))

                def send(records: list[tuple[int, str, str]] = records) -> list[int]:
                    futures = [producer.send(INPUT, v.encode(), key=k.encode(), partition=p) for p, k, v in records]
                    return [future.get().offset for future in futures]

                recorder.send([(p, value) for p, _, value in records], send, atomic=False)

    @staticmethod
    def _key(number: int) -> int:
        return (number * number) % KEYS

    def _look(self, stop: threading.Event, every: float) -> None:
        """Cuts of all topics and of the group's offsets, which are to show all of a transaction or nothing."""
        cluster = connect(self.root)
        with Recorder(str(self.histories / "looks.jsonl"), "looks", INPUT) as recorder:
            while not stop.wait(every):
                try:
                    self._look_once(cluster, recorder)
                except NO_ANSWER as error:
                    recorder.event("fail", "snapshot", None)
                    self.problems.append(repr(error))

    @staticmethod
    def _look_once(cluster: Cluster, recorder: Recorder) -> None:
        recorder.event("invoke", "snapshot", None)
        cut = cluster.transactions.cut(list(TOPICS), Deadline(SYSTEM_CLOCK, 60_000))
        state = GroupsState().applied(row for row in cluster.groups.rows if row.seq <= cut.seq)
        found = {f"{tp.topic}-{tp.partition}": c.position.offset for tp, c in _offsets(state)}
        ends = {f"{topic}-{p}": end for topic, one in cut.topics.items() for p, end in one.ends.items()}
        recorder.event("ok", "snapshot", ends, offsets={GROUP: found})

        recorder.event("invoke", "committed", None, group=GROUP)
        names = [f"{INPUT}-{p}" for p in range(PARTITIONS)]
        try:
            now = {f"{tp.topic}-{tp.partition}": c.position.offset for tp, c in _offsets(cluster.groups.refresh())}
        except NO_ANSWER:
            recorder.event("fail", "committed", None)
        else:
            recorder.event("ok", "committed", {name: now.get(name) for name in names}, group=GROUP)

    def _maintain(self, stop: threading.Event) -> None:
        cluster = connect(self.root)
        while not stop.wait(1):
            try:
                report = maintain(cluster, clock=SYSTEM_CLOCK, works=("merge", "vacuum", "control"))
            except NO_ANSWER as error:
                self.problems.append(repr(error))
                continue
            self.done["aborted by maintenance"] += report.aborted_transactions
            self.done["finished by maintenance"] += report.finished_transactions
            self.problems += report.problems

    # --- the end -----------------------------------------------------------------------------

    def drained(self) -> None:
        """Wait until the group has committed the end of the input."""
        self._wake(all_of_them=True)
        log = self.cluster.log(INPUT)
        log.refresh()
        ends = {p: log.log_end(p) for p in range(PARTITIONS)}
        while {tp.partition: c.position.offset for tp, c in _offsets(self.cluster.groups.refresh())} != ends:
            self._went_on()
            self._wake()
            time.sleep(0.05)
        for name in sorted(self.live):
            self.leave(name)

    def _went_on(self) -> bool:
        """Whether the group has copied something since the last time that it had.

        Raises:
            AssertionError: it has not for too long.
        """
        assert self._errors == []
        copied = sum(committed.position.offset for _, committed in _offsets(self.cluster.groups.refresh()))
        if copied != self.copied:
            self.copied, self._copied_at = copied, time.monotonic()
            return True
        assert time.monotonic() - self._copied_at < PATIENCE, (
            f"nothing is copied: {_offsets(self.cluster.groups.state)}"
        )
        return False

    def end(self) -> None:
        """Let go of everything."""
        for child, _ in self.live.values():
            if not child.ended:
                os.kill(child.pid, signal.SIGCONT)
            child.kill()

    def verdict(self) -> dict[str, Any]:
        """Both outputs are the input, once, in order by key, and the histories have no anomaly of transactions."""
        now = time.monotonic_ns()
        found = {(t, p): records_of(self.cluster, t, p) for t, count in TOPICS.items() for p in range(count)}
        sent = _by_key(value for (topic, _), values in found.items() if topic == INPUT for value in values)
        for output in OUTPUTS:
            copied = [v.rpartition("@")[0] for (topic, _), values in found.items() if topic == output for v in values]
            assert _by_key(copied) == sent, f"{output} is not the input"
        events = [event for path in sorted(self.histories.glob("*.jsonl")) for event in load(path)]
        events.sort(key=lambda event: event["time"])
        names = [f"{topic}-{p}" for topic, p in found]
        read = {f"{topic}-{p}": [[o, v] for o, v in enumerate(values)] for (topic, p), values in found.items()}
        for kind, f, value in (
            ("invoke", "assign", names), ("ok", "assign", names), ("invoke", "poll", [["poll"]]),
            ("ok", "poll", [["poll", read]]),
        ):  # fmt: skip
            events.append({"process": "end", "type": kind, "f": f, "time": now, "value": value, "seek": "beginning"})
        report: dict[str, Any] = check(events, dense=True, drained=True, eos=True, serial=True, allowed=())
        assert report["valid"], (report["bad"], report["anomalies"])
        assert errors_of(self.root) == []
        report["events"] = len(events)
        report["transactions"] = {
            kind: sum(e["f"] == "txn" and e["type"] == kind for e in events)
            for kind in ("invoke", "ok", "fail", "info")
        }
        report["snapshots"] = sum(e["f"] == "snapshot" and e["type"] == "ok" for e in events)
        return report


def _offsets(state: GroupsState) -> Any:
    return sorted(state.group(GROUP).offsets.items())


def _by_key(values: Any) -> dict[str, list[int]]:
    """Numbers of each key, in the order of the log. A key is in one partition."""
    found: dict[str, list[int]] = {}
    for value in values:
        key, _, number = value.partition(":")
        found.setdefault(key, []).append(int(number))
    return found


def records_of(cluster: Cluster, topic: str, partition: int) -> list[str]:
    """Values of a partition, in offset order, dense from 0 on."""
    log = cluster.log(topic)
    log.refresh()
    reader = log.reader(partition, 0)
    found: list[str] = []
    while (chunk := reader.read(1 << 24)) is not None:
        columns = chunk.columns()
        assert list(columns.offsets) == list(range(len(found), len(found) + len(columns.offsets)))
        found += [(value or b"").decode() for value in columns.values]
    return found
