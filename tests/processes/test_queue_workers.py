"""Queue workers that are killed -9 and stopped for longer than their locks: each record has exactly one result."""

from __future__ import annotations

import math
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer, TopicPartition
from kafkalike.admin.share_group_operations import share_partitions
from kafkalike.connect import connect
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.group_rows import SHARE, share_of
from kafkalike.model.shares.share_partition import RecordRun, RecordState
from tests.tools.children import Child
from tests.tools.findings import errors_of

WORKER = "tests.processes.workers.queue_worker"
PARTITIONS = 2
ENDS = ("results", "dead")


class Queue:
    """A topic of jobs, its workers, and what they do."""

    def __init__(self, root: str, folder: Path, *, lock_ms: int, records: int, work_ms: int) -> None:
        self.root = root
        self.cluster: Cluster = connect(root)
        self.cluster.create_topic("jobs", PARTITIONS, {})
        for topic in ENDS:
            self.cluster.create_topic(topic, 1, {})
        self._folder = folder
        self._orders = {"root": root, "lock_ms": lock_ms, "records": records, "work_ms": work_ms}
        self._count = 0
        self._names: dict[int, str] = {}
        self._troubles: dict[str, list[tuple[float, float]]] = {}
        """When each worker was stopped or dead, ms since the epoch."""
        self.sent = 0

    def fill(self, count: int) -> None:
        with KafkaProducer(bootstrap_servers=self.root, linger_ms=20) as producer:
            for n in range(count):
                producer.send("jobs", b"job", partition=n % PARTITIONS)
        self.sent += count

    def worker(self) -> Child:
        self._count += 1
        name = f"w{self._count}"
        child = Child(WORKER, {**self._orders, "name": name, "seed": self._count, "seen": str(self._folder / name)}, {})
        child.wait_ready()
        child.go()
        self._names[child.pid] = name
        return child

    @contextmanager
    def trouble(self, child: Child) -> Iterator[None]:
        """Note that the worker is stopped inside, or dead from now on."""
        troubles = self._troubles.setdefault(self._names[child.pid], [])
        troubles.append((time.time() * 1000, math.inf))
        yield
        if not child.ended:
            troubles[-1] = troubles[-1][0], time.time() * 1000

    def acquisitions(self) -> dict[tuple[int, int, int], RecordRun]:
        """By place and number of each delivery that the group has counted, the run with which it was acquired."""
        found: dict[tuple[int, int, int], RecordRun] = {}
        for row in self.cluster.groups.rows:
            share = share_of(row)[1] if row.kind == SHARE else None
            for run in () if share is None else share.runs:
                # A returned record is acquired with the same number again; the last one counts.
                if run.state is RecordState.ACQUIRED and run.since_ms == row.time_ms:
                    places = ((int(row.partition or 0), n, run.deliveries) for n in range(run.first, run.last + 1))
                    found.update((place, run) for place in places)
        return found

    @property
    def lag(self) -> int:
        found = list(share_partitions(self.cluster))
        ends = self.cluster.log("jobs")
        known = {report.tp.partition for report in found}
        return sum(report.lag for report in found) + sum(ends.log_end(p) for p in range(PARTITIONS) if p not in known)

    def await_end(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        while self.lag:
            assert time.monotonic() < limit, f"{self.lag} records are not finished"
            time.sleep(0.2)

    def judge(self) -> None:
        """Each record has one result or dead letter, of its last delivery, and no delivery was made twice."""
        with KafkaConsumer(bootstrap_servers=self.root, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0) for topic in ENDS])
            results: dict[tuple[int, int], list[int]] = {}
            while polled := consumer.poll(max_records=10_000):
                for record in (record for records in polled.values() for record in records):
                    partition, offset, delivery = map(int, record.value.split())
                    results.setdefault((partition, offset), []).append(delivery)
        assert len(results) == self.sent
        assert {place: found for place, found in results.items() if len(found) != 1} == {}
        seen: Counter[tuple[int, int, int]] = Counter()
        takers: dict[tuple[int, int, int], str] = {}
        for path in self._folder.iterdir():
            # A killed worker may have left half a line.
            lines = [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
            own = [(int(p), int(offset), int(delivery)) for p, offset, delivery in lines]
            seen.update(own)
            takers.update(dict.fromkeys(own, path.name))
        assert [delivery for delivery, times in seen.items() if times > 1] == []
        last: dict[tuple[int, int], int] = {}
        for partition, offset, delivery in seen:
            last[partition, offset] = max(delivery, last.get((partition, offset), 0))
        assert {place: deliveries[0] for place, deliveries in results.items()} == last
        self._judge_counts(takers, last)
        assert errors_of(self.root) == []

    def _judge_counts(self, takers: dict[tuple[int, int, int], str], last: dict[tuple[int, int], int]) -> None:
        """Each delivery that counts was handed out by the worker that acquired it, or else its lock has ended."""
        acquired = self.acquisitions()
        counted = {(*place, nth): acquired[*place, nth] for place, count in last.items() for nth in range(1, count + 1)}
        owners = {place: run.member_id.split("-")[0] for place, run in counted.items()}
        assert {place: owners[place] for place in takers} == takers
        causes: Counter[str] = Counter()
        for partition, offset, nth in counted.keys() - takers.keys():
            run, owner = counted[partition, offset, nth], owners[partition, offset, nth]
            assert counted[partition, offset, nth + 1].since_ms >= run.until_ms
            in_trouble = any(a <= run.until_ms and b >= run.since_ms for a, b in self._troubles.get(owner, ()))
            causes["of a killed or stopped worker" if in_trouble else "of a worker that ran too slowly"] += 1
        unseen = ", ".join(f"{count} {cause}" for cause, count in causes.items()) or "none"
        print(f"{len(counted)} deliveries of {len(last)} records; never handed out: {unseen}")  # noqa: T201


@contextmanager
def workers(queue: Queue, count: int) -> Iterator[list[Child]]:
    children = [queue.worker() for _ in range(count)]
    try:
        yield children
    finally:
        for child in children:
            child.kill()


def test_killed_and_stopped_workers_leave_one_result_for_each_record(root: str, tmp_path: Path) -> None:
    folder = tmp_path / "seen"
    folder.mkdir()
    queue = Queue(root, folder, lock_ms=1_000, records=5, work_ms=20)
    queue.fill(120)
    with workers(queue, 3) as children:
        time.sleep(0.3)
        with queue.trouble(children[0]):
            children[0].shoot()
        with queue.trouble(children[1]):
            os.kill(children[1].pid, signal.SIGSTOP)
            time.sleep(1.5)
            os.kill(children[1].pid, signal.SIGCONT)
        queue.await_end(60)
        for child in children[1:]:
            child.go()
            child.finish()
    queue.judge()


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_twenty_workers_under_chaos_leave_one_result_for_each_record(root: str, tmp_path: Path) -> None:
    """For KAFKALIKE_QUEUE_SECONDS, 15 minutes by default."""
    seconds = float(os.environ.get("KAFKALIKE_QUEUE_SECONDS", "900"))
    folder = tmp_path / "seen"
    folder.mkdir()
    queue = Queue(root, folder, lock_ms=3_000, records=10, work_ms=100)
    chance = random.Random(39)
    end = time.monotonic() + seconds
    kills = stops = 0
    with workers(queue, 20) as children:
        while time.monotonic() < end:
            if queue.lag < 2_000:
                queue.fill(1_000)
            time.sleep(chance.random() * 2)
            at = chance.randrange(len(children))
            if chance.random() < 0.5:
                with queue.trouble(children[at]):
                    children[at].kill()
                children[at] = queue.worker()
                kills += 1
            else:
                with queue.trouble(children[at]):
                    os.kill(children[at].pid, signal.SIGSTOP)
                    time.sleep(chance.choice([0.5, 4]))
                    os.kill(children[at].pid, signal.SIGCONT)
                stops += 1
        queue.await_end(600)
        for child in children:
            child.go()
            child.finish()
    print(f"{queue.sent} records, {kills} kills, {stops} stops")  # noqa: T201 - for the record of a soak
    queue.judge()
