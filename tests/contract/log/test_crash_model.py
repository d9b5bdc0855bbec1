"""A log on Delta against a list, through crashes: whatever is killed when, no record is lost, doubled or moved.

Appends are killed with a real SIGKILL in a forked child at a named place of the protocol; consumers crash by being
dropped without a close, and are followed by another of their group in a cluster opened afresh.
"""

import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import open_cluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.maintenance.verify import verify as verify_run
from kafkalike.model.record_batch import RecordBatch, TxnId
from kafkalike.model.structs import ConsumerRecord, TopicPartition
from kafkalike.producer import KafkaProducer
from tests.tools.effort import examples
from tests.tools.forked import killed

PARTITIONS = [TopicPartition("orders", p) for p in range(2)]

BEFORE_COMMIT = ("append.before_files", "append.before_commit", "commit.before")
AFTER_COMMIT = ("commit.after", "append.after_commit")


class CrashModel(RuleBasedStateMachine):
    """A topic of two partitions and a group, and what they should be: two lists and two numbers."""

    @initialize()
    def start(self) -> None:
        self.root = tempfile.mkdtemp()
        self.cluster = open_cluster(self.root)
        self.cluster.create_topic("orders", len(PARTITIONS), {})
        self.log = self.cluster.log("orders")
        self.expected: dict[int, list[bytes]] = {tp.partition: [] for tp in PARTITIONS}
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.committed = dict.fromkeys(PARTITIONS, 0)
        self.sent = 0
        self.clock = ManualClock()
        self.start_consumer()

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)

    def start_consumer(self) -> None:
        self.consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=self.root,
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            clock=self.clock,
        )
        self.position = dict(self.committed)
        # One that died owns its partitions until its session is over.
        while not self.consumer.assignment():
            for tp, records in self.consumer.poll(max_records=1).items():
                self.got(tp, records)
            self.clock.sleep(3)

    def got(self, tp: TopicPartition, records: list[ConsumerRecord]) -> None:
        for record in records:
            assert record.offset == self.position[tp]
            assert record.value == self.expected[tp.partition][record.offset]
            self.position[tp] += 1

    def batch(self, counts: tuple[int, int]) -> tuple[RecordBatch, dict[int, list[bytes]]]:
        made = RecordBatch()
        values: dict[int, list[bytes]] = {0: [], 1: []}
        for partition, count in enumerate(counts):
            for _ in range(count):
                self.sent += 1
                values[partition].append(b"%d" % self.sent)
                made.add(partition, None, values[partition][-1], self.sent)
        return made, values

    def landed(self, values: dict[int, list[bytes]]) -> None:
        for partition, written in values.items():
            self.expected[partition] += written

    counts = st.tuples(st.integers(0, 3), st.integers(1, 3))

    @rule(counts=counts)
    def append(self, counts: tuple[int, int]) -> None:
        batch, values = self.batch(counts)

        done = self.log.append(batch)

        for partition, run in done.ranges.items():
            assert run.start == len(self.expected[partition])
        self.landed(values)

    @rule(count=st.integers(1, 4))
    def send_and_close(self, count: int) -> None:
        with KafkaProducer(bootstrap_servers=self.root) as producer:
            futures = [producer.send("orders", b"p%d.%d" % (self.sent, i), partition=0) for i in range(count)]

        assert [f.get().offset for f in futures] == [len(self.expected[0]) + i for i in range(count)]
        self.expected[0] += [b"p%d.%d" % (self.sent, i) for i in range(count)]
        self.sent += 1

    @rule(counts=counts, place=st.sampled_from(BEFORE_COMMIT))
    def killed_before_the_commit(self, counts: tuple[int, int], place: str) -> None:
        batch, _ = self.batch(counts)

        killed(lambda: self.log.append(batch), place)

    @rule(counts=counts, place=st.sampled_from(AFTER_COMMIT))
    def killed_after_the_commit(self, counts: tuple[int, int], place: str) -> None:
        batch, values = self.batch(counts)

        killed(lambda: self.log.append(batch), place)

        self.landed(values)

    @rule(counts=counts, place=st.sampled_from(BEFORE_COMMIT + AFTER_COMMIT))
    def killed_and_sent_again_under_the_same_name(self, counts: tuple[int, int], place: str) -> None:
        batch, values = self.batch(counts)
        name = TxnId("job", self.sent)
        starts = {p: len(v) for p, v in self.expected.items()}
        # A name that is new is looked up through deltalake, whose threads a forked child lacks: so before the fork.
        assert self.log.already_appended(name) is None

        killed(lambda: self.log.append(batch, txn=name), place)
        done = self.log.append(batch, txn=name)

        assert done.duplicate == (place in AFTER_COMMIT)
        assert done.ranges == {p: range(starts[p], starts[p] + len(v)) for p, v in values.items() if v}
        self.landed(values)

    @rule(most=st.integers(1, 5))
    def poll(self, most: int) -> None:
        for tp, records in self.consumer.poll(max_records=most).items():
            self.got(tp, records)

    @rule(tp=st.sampled_from(PARTITIONS), share=st.floats(0, 1))
    def seek(self, tp: TopicPartition, share: float) -> None:
        offset = int(len(self.expected[tp.partition]) * share)

        self.consumer.seek(tp, offset)

        self.position[tp] = offset

    @rule()
    def commit(self) -> None:
        self.consumer.commit()

        self.committed = dict(self.position)

    @rule()
    def consumer_crashes_and_another_takes_over(self) -> None:
        del self.consumer

        self.start_consumer()

    @rule()
    def everything_is_opened_afresh(self) -> None:
        self.cluster = open_cluster(self.root)
        self.log = self.cluster.log("orders")

    @invariant()
    def the_log_is_as_long_as_the_list(self) -> None:
        self.log.refresh()
        assert {p: self.log.log_end(p) for p in self.expected} == {p: len(v) for p, v in self.expected.items()}


TestCrashes = CrashModel.TestCase
TestCrashes.settings = settings(max_examples=examples(12, 1), stateful_step_count=25)


@pytest.mark.slow
def test_verify_is_clean_after_kills_at_every_place(tmp_path: Path) -> None:
    """Orphans of killed appends are invisible: the check of the cluster finds nothing wrong."""
    cluster = open_cluster(str(tmp_path))
    cluster.create_topic("orders", 1, {})
    log = cluster.log("orders")
    batch = RecordBatch(partitions=[0], keys=[b"k"], values=[b"v"], timestamps=[1], headers=[None])

    for place in BEFORE_COMMIT + AFTER_COMMIT:
        killed(lambda: log.append(batch), place)
        log.append(batch)

    assert log.log_end(0) == len(BEFORE_COMMIT) + 2 * len(AFTER_COMMIT)
    report = verify_run.verify(cluster, ["orders"])
    assert report.records == log.log_end(0)
    assert not report.findings
