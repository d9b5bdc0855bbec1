"""Queue workers that are killed -9 and stopped for longer than their locks: each record has exactly one result."""

from __future__ import annotations

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
        return child

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
        for path in self._folder.iterdir():
            # A killed worker may have left half a line.
            lines = [line.split() for line in path.read_text(encoding="utf-8").split("\n")[:-1]]
            seen.update((int(p), int(offset), int(delivery)) for p, offset, delivery in lines)
        assert [delivery for delivery, times in seen.items() if times > 1] == []
        last: dict[tuple[int, int], int] = {}
        for partition, offset, delivery in seen:
            last[partition, offset] = max(delivery, last.get((partition, offset), 0))
        assert {place: deliveries[0] for place, deliveries in results.items()} == last
        # Nobody has noted deliveries to workers that were killed, or whose locks ended before they handed them out.
        unseen = sum(last.values()) - len(seen)
        print(f"{sum(last.values())} deliveries, {unseen} of them never handed out")  # noqa: T201
        assert errors_of(self.root) == []


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
        children[0].shoot()
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
                children[at].kill()
                children[at] = queue.worker()
                kills += 1
            else:
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
