"""Copiers as real processes: consume, produce to two topics, commit both and the offsets; killed and rebalanced."""

import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from kafkalike.connect import connect
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from tests.tools.children import Child
from tests.tools.findings import errors_of

COPIER = "tests.processes.workers.copier"
PARTITIONS = 4
OUTPUTS = ["a", "b"]
PATIENCE = 90.0
"""Seconds to wait for what must come."""
NOW_MS = 1_700_000_000_000


def await_that(holds: Callable[[], bool], otherwise: Callable[[], str]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, otherwise()
        time.sleep(0.02)


class Pipeline:
    """An input with records, two outputs, and copiers that may be killed."""

    def __init__(self, root: str, records: int, strategy: str) -> None:
        self.root = root
        self.strategy = strategy
        self.cluster = connect(root)
        for topic in ("in", *OUTPUTS):
            self.cluster.create_topic(topic, PARTITIONS, {})
        self.sent = records
        batch = RecordBatch()
        for number in range(records):
            batch.add(number % PARTITIONS, None, str(number).encode(), NOW_MS)
        self.cluster.log("in").append(batch)
        self.live: dict[str, Child] = {}

    def start(self, name: str, *, most: int = 7, session_ms: int = 1500, instance: str | None = None) -> None:
        """Start a copier; one of the same name goes on after the one before."""
        orders = {
            "root": self.root,
            "name": name,
            "input": "in",
            "outputs": OUTPUTS,
            "strategy": self.strategy,
            "session_ms": session_ms,
            "instance": instance,
            "most": most,
        }
        child = self.live[name] = Child(COPIER, orders, {})
        child.wait_ready()
        child.go()

    def kill(self, name: str) -> None:
        """Like `kill -9`."""
        child = self.live.pop(name)
        os.kill(child.pid, signal.SIGKILL)
        child.finish(-signal.SIGKILL)

    def finish(self) -> None:
        """Let all copiers end by themselves."""
        for child in self.live.values():
            child.go()
        for child in self.live.values():
            child.finish()
        self.live.clear()

    def end(self) -> None:
        """Let go of everything."""
        for child in self.live.values():
            os.kill(child.pid, signal.SIGCONT)
            child.kill()

    def copied(self, topic: str = "a") -> int:
        """How many records are in an output."""
        log = self.cluster.log(topic)
        return sum(log.log_end(p) for p in range(PARTITIONS))

    def await_copied(self, number: int) -> None:
        """Wait until so many are."""
        await_that(lambda: self.copied() >= number, lambda: f"{self.copied()} of {number} records were copied")

    def judge(self) -> None:
        """Both outputs are the input, once, in its order; the group has committed the end; nothing is left over."""
        expected = {p: self.values("in", p) for p in range(PARTITIONS)}
        for topic in OUTPUTS:
            assert {p: self.values(topic, p) for p in range(PARTITIONS)} == expected
        ids = {name: info.topic_id for name, info in self.cluster.topics().items()}
        partitions = [TopicPartition("in", p) for p in range(PARTITIONS)]
        found = GroupOffsets.of(self.cluster, SYSTEM_CLOCK).committed("copiers", partitions, ids)
        assert {tp.partition: at.offset for tp, at in found.items()} == {p: len(v) for p, v in expected.items()}
        assert errors_of(self.root) == []

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        """Values of a partition, in offset order."""
        log = self.cluster.log(topic)
        reader = log.reader(partition, 0)
        found: list[bytes | None] = []
        while (chunk := reader.read(1 << 30)) is not None:
            found += chunk.columns().values
        return found


@pytest.fixture
def pipeline_of(root: str) -> Iterator[Callable[..., Pipeline]]:
    """Makes a pipeline, and ends its processes."""
    made: list[Pipeline] = []

    def make(records: int, strategy: str = "range") -> Pipeline:
        made.append(Pipeline(root, records, strategy))
        return made[-1]

    yield make
    for one in made:
        one.end()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.full), "cooperative-sticky"])
def test_copiers_that_are_killed_and_rebalanced_copy_each_record_once(
    pipeline_of: Callable[..., Pipeline], strategy: str
) -> None:
    """One, two, three copiers; each kill is followed by a successor under the same transactional id."""
    pipeline = pipeline_of(1200, strategy)
    chance = random.Random(13)

    pipeline.start("c0")
    pipeline.await_copied(50)
    pipeline.start("c1")
    pipeline.start("c2")
    for _ in range(4):
        pipeline.await_copied(min(pipeline.copied() + chance.randint(30, 150), 1200))
        name = chance.choice(sorted(pipeline.live))
        pipeline.kill(name)
        pipeline.start(name)
    pipeline.await_copied(1200)
    pipeline.finish()

    pipeline.judge()


@pytest.mark.timeout(300)
def test_a_copier_that_was_stopped_past_its_session_commits_nothing_more(pipeline_of: Callable[..., Pipeline]) -> None:
    """Another one takes its partitions; the zombie is refused when it wakes up, joins again, and nothing is doubled."""
    pipeline = pipeline_of(800)

    pipeline.start("c0")
    pipeline.await_copied(30)
    os.kill(pipeline.live["c0"].pid, signal.SIGSTOP)
    pipeline.start("c1")
    pipeline.await_copied(400)
    os.kill(pipeline.live["c0"].pid, signal.SIGCONT)
    pipeline.await_copied(800)
    pipeline.finish()

    pipeline.judge()


@pytest.mark.timeout(300)
def test_a_copier_whose_id_is_taken_by_another_process_ends(pipeline_of: Callable[..., Pipeline]) -> None:
    """Two processes of one transactional id: the first one is fenced, and ends with the error that says so."""
    pipeline = pipeline_of(400)

    pipeline.start("c0", most=1)
    pipeline.await_copied(10)
    first = pipeline.live.pop("c0")
    pipeline.start("c0")
    await_that(lambda: first.ended, lambda: "the first process goes on")
    first.finish(1)
    pipeline.await_copied(400)
    pipeline.finish()

    assert "ProducerFencedError" in first.errors
    pipeline.judge()


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
def test_four_copiers_under_many_kills(pipeline_of: Callable[..., Pipeline], strategy: str) -> None:
    """For some minutes."""
    pipeline = pipeline_of(20_000, strategy)
    chance = random.Random(strategy)
    for number in range(4):
        pipeline.start(f"c{number}", most=chance.randint(5, 60))
    while pipeline.copied() < 20_000:
        pipeline.await_copied(min(pipeline.copied() + chance.randint(50, 600), 20_000))
        name = chance.choice(sorted(pipeline.live))
        pipeline.kill(name)
        pipeline.start(name, most=chance.randint(5, 60))
    pipeline.finish()

    pipeline.judge()
