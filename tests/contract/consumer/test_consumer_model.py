"""Positions of a consumer against a list: whatever the order of calls, no record is skipped or handed out twice."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from kafkalike.admin.testing import MemoryCluster
from kafkalike.consumer import KafkaConsumer
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import examples

PARTITIONS = [TopicPartition("orders", p) for p in range(3)]

partitions = st.sampled_from(PARTITIONS)


class PositionsModel(RuleBasedStateMachine):
    """A consumer of three partitions, and what it should be: a list and three numbers per partition."""

    @initialize()
    def start(self) -> None:
        self.cluster = MemoryCluster()
        self.cluster.create_topic("orders", len(PARTITIONS), {})
        self.log: dict[TopicPartition, list[bytes]] = {tp: [] for tp in PARTITIONS}
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.committed: dict[TopicPartition, int | None] = dict.fromkeys(PARTITIONS)
        self.paused: set[TopicPartition] = set()
        self.start_consumer()

    def start_consumer(self) -> None:
        # 64 bytes a read: a buffer holds two or three records, so that its end is met often.
        self.consumer = KafkaConsumer(
            "orders",
            bootstrap_servers=self.cluster,
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=10**12,
            consumer_timeout_ms=0,
            max_partition_fetch_bytes=64,
            max_poll_records=4,
        )
        self.paused = set()
        self.poll(max_records=1)

    def pending(self) -> int:
        return sum(len(self.log[tp]) - self.position[tp] for tp in PARTITIONS if tp not in self.paused)

    def got(self, tp: TopicPartition, offset: int, value: bytes) -> None:
        assert tp not in self.paused
        assert offset == self.position[tp]
        assert value == self.log[tp][offset]
        self.position[tp] += 1

    @rule(tp=partitions, count=st.integers(1, 6))
    def append(self, tp: TopicPartition, count: int) -> None:
        batch = RecordBatch()
        for _ in range(count):
            value = b"%d" % len(self.log[tp])
            self.log[tp].append(value)
            batch.add(tp.partition, None, value, 1)
        self.cluster.log("orders").append(batch)

    @rule(max_records=st.integers(1, 7))
    def poll(self, max_records: int) -> None:
        pending = self.pending()

        polled = self.consumer.poll(max_records=max_records)

        assert sum(map(len, polled.values())) == min(pending, max_records)
        for tp, records in polled.items():
            for record in records:
                self.got(tp, record.offset, record.value)

    @rule(max_records=st.integers(1, 7))
    def poll_arrow(self, max_records: int) -> None:
        pending = self.pending()

        table = self.consumer.poll_arrow(max_records=max_records)

        rows = [] if table is None else table.to_pylist()
        assert len(rows) == min(pending, max_records)
        for row in rows:
            self.got(TopicPartition(row["topic"], row["partition"]), row["offset"], row["value"])

    @rule(count=st.integers(1, 5))
    def iterate(self, count: int) -> None:
        for _ in range(min(count, self.pending())):
            record = next(self.consumer)
            self.got(TopicPartition(record.topic, record.partition), record.offset, record.value)

    @rule(tp=partitions, part=st.floats(0, 1))
    def seek(self, tp: TopicPartition, part: float) -> None:
        self.position[tp] = int(part * len(self.log[tp]))
        self.consumer.seek(tp, self.position[tp])

    @rule(tp=partitions)
    def seek_to_end(self, tp: TopicPartition) -> None:
        self.position[tp] = len(self.log[tp])
        self.consumer.seek_to_end(tp)

    @rule(tp=partitions)
    def seek_to_beginning(self, tp: TopicPartition) -> None:
        self.position[tp] = 0
        self.consumer.seek_to_beginning(tp)

    @rule(tp=partitions)
    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)
        self.consumer.pause(tp)

    @rule(tp=partitions)
    def resume(self, tp: TopicPartition) -> None:
        self.paused.discard(tp)
        self.consumer.resume(tp)

    @rule()
    def commit(self) -> None:
        self.committed = dict(self.position)
        self.consumer.commit()

    @rule(autocommit=st.booleans())
    def restart(self, *, autocommit: bool) -> None:
        self.consumer.close(autocommit=autocommit)
        if autocommit:
            self.committed = dict(self.position)
        self.position = {tp: offset or 0 for tp, offset in self.committed.items()}
        self.start_consumer()

    @invariant()
    def the_consumer_stands_where_the_list_says(self) -> None:
        assert {tp: self.consumer.position(tp) for tp in PARTITIONS} == self.position

    @invariant()
    def what_is_committed_is_what_was_committed(self) -> None:
        assert {tp: self.consumer.committed(tp) for tp in PARTITIONS} == self.committed


TestPositionsModel = PositionsModel.TestCase
TestPositionsModel.settings = settings(max_examples=examples(60, 5), stateful_step_count=30, deadline=None)
