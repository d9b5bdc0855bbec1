"""Acknowledgements in a producer's transaction: one outcome with its records; over all clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kafkalike import AcknowledgeType, KafkaConsumer, KafkaProducer, KafkaShareConsumer, TopicPartition, errors
from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.structs import ConsumerRecord, ShareGroupMetadata

T0 = TopicPartition("jobs", 0)
SETTINGS: dict[str, Any] = {
    "group_id": "work",
    "share_auto_offset_reset": "earliest",
    "session_timeout_ms": 10_000_000,
}


@contextmanager
def worker(cluster: Cluster, clock: ManualClock, **settings: Any) -> Iterator[KafkaShareConsumer]:
    with KafkaShareConsumer("jobs", bootstrap_servers=cluster, clock=clock, **{**SETTINGS, **settings}) as consumer:
        yield consumer


@contextmanager
def transactional(cluster: Cluster, name: str = "worker-1") -> Iterator[KafkaProducer]:
    with KafkaProducer(bootstrap_servers=cluster, transactional_id=name) as producer:
        producer.init_transactions()
        yield producer


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_000)


def fill(cluster: Cluster, *values: bytes) -> None:
    for topic in ("jobs", "results", "dead"):
        cluster.create_topic(topic, 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for value in values:
            producer.send("jobs", value)


def read(cluster: Cluster, topic: str) -> list[Any]:
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        return [record.value for records in consumer.poll().values() for record in records]


def start_of(cluster: Cluster) -> int:
    return cluster.groups.refresh().shares["work"][T0].start


def add(producer: KafkaProducer, consumer: KafkaShareConsumer) -> None:
    acks = consumer.take_acknowledgements()
    producer.send_share_acknowledgements_to_transaction(acks, consumer.share_group_metadata())


def test_results_dead_letter_and_acknowledgements_have_one_outcome(cluster: Cluster, clock: ManualClock) -> None:
    fill(cluster, b"a", b"b", b"bad")
    with worker(cluster, clock) as consumer, transactional(cluster) as producer:
        producer.begin_transaction()
        for record in consumer.poll():
            producer.send("dead" if record.value == b"bad" else "results", record.value.upper())
            if record.value == b"bad":
                consumer.acknowledge(record, AcknowledgeType.REJECT)
        add(producer, consumer)
        before = (read(cluster, "results"), read(cluster, "dead"), start_of(cluster))
        producer.commit_transaction()
        assert before == ([], [], 0)
        assert (read(cluster, "results"), read(cluster, "dead")) == ([b"A", b"B"], [b"BAD"])
        assert start_of(cluster) == 3
        assert consumer.poll() == []


def test_member_that_lost_its_lock_commits_nothing(cluster: Cluster, clock: ManualClock) -> None:
    fill(cluster, b"a", b"b")
    with worker(cluster, clock) as slow, transactional(cluster) as producer, worker(cluster, clock) as quick:
        producer.begin_transaction()
        for record in slow.poll():
            producer.send("results", record.value)
        add(producer, slow)
        clock.seconds += 31
        again = quick.poll(max_records=1)
        with pytest.raises(errors.InvalidRecordStateError, match=r"work.*jobs-0 @ 0-0: the lock of .* has ended"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert [(record.value, record.delivery_count) for record in again] == [(b"a", 2)]
        assert read(cluster, "results") == []
        quick.commit()
    assert start_of(cluster) == 1


# --- in memory -----------------------------------------------------------------------------------


@pytest.fixture
def memory(clock: ManualClock) -> Cluster:
    cluster = MemoryCluster()
    fill(cluster, b"a", b"b", b"c")
    return cluster


def offsets(records: list[ConsumerRecord]) -> list[tuple[int, int | None]]:
    return [(record.offset, record.delivery_count) for record in records]


def test_records_of_an_aborted_transaction_are_released(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock) as consumer, transactional(memory) as producer:
        producer.begin_transaction()
        records = consumer.poll()
        add(producer, consumer)
        producer.abort_transaction()
        for record in records:
            consumer.acknowledge(record, AcknowledgeType.RELEASE)
        assert offsets(consumer.poll()) == [(0, 2), (1, 2), (2, 2)]


def test_records_of_an_aborted_transaction_wait_for_their_lock(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock) as consumer, transactional(memory) as producer:
        producer.begin_transaction()
        consumer.poll()
        add(producer, consumer)
        producer.abort_transaction()
        assert consumer.poll() == []
        clock.seconds += 30
        assert offsets(consumer.poll()) == [(0, 2), (1, 2), (2, 2)]


def test_two_consumers_acknowledge_in_one_transaction(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock, max_poll_records=2) as one, worker(memory, clock) as two:
        with transactional(memory) as producer:
            producer.begin_transaction()
            got = [offsets(one.poll()), offsets(two.poll())]
            add(producer, two)
            add(producer, one)
            producer.commit_transaction()
        assert got == [[(0, 1), (1, 1)], [(2, 1)]]
        assert start_of(memory) == 3


def test_several_polls_go_into_one_transaction(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock, max_poll_records=1) as consumer, transactional(memory) as producer:
        producer.begin_transaction()
        for _ in range(3):
            consumer.poll()
            add(producer, consumer)
        open_start = start_of(memory)
        producer.commit_transaction()
        assert (open_start, start_of(memory)) == (0, 3)
        assert memory.groups.state.transactions["worker-1"].committed is not None


def test_lost_lock_is_found_when_acknowledgements_are_added(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock) as slow, worker(memory, clock) as quick, transactional(memory) as producer:
        slow.poll()
        clock.seconds += 31
        quick.poll()
        producer.begin_transaction()
        with pytest.raises(errors.InvalidRecordStateError, match="abort the transaction"):
            add(producer, slow)
        with pytest.raises(errors.TransactionAbortableError):
            producer.commit_transaction()
        producer.abort_transaction()


def test_acknowledgements_need_an_open_transaction(memory: Cluster, clock: ManualClock) -> None:
    with worker(memory, clock) as consumer, transactional(memory) as producer:
        with pytest.raises(
            errors.IllegalStateError, match="send_share_acknowledgements_to_transaction is out of order"
        ):
            add(producer, consumer)
        producer.begin_transaction()
        with pytest.raises(TypeError, match="must be a ShareGroupMetadata, not 'work'"):
            producer.send_share_acknowledgements_to_transaction({}, "work")  # type: ignore[arg-type]
        producer.send_share_acknowledgements_to_transaction({}, ShareGroupMetadata("work", "nobody"))
        assert producer.commit_transaction() == {}


# --- dead letters --------------------------------------------------------------------------------


def letters(cluster: Cluster) -> list[tuple[bytes, str, str]]:
    """Value, origin and reason of each dead letter."""
    found = []
    with KafkaConsumer(bootstrap_servers=cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("dead", 0)])
        for record in (record for records in consumer.poll().values() for record in records):
            about = {name.removeprefix("__connect.errors."): (text or b"").decode() for name, text in record.headers}
            found.append((record.value, f"{about['topic']} {about['offset']}", about["exception.class.name"]))
    return found


def test_rejected_record_becomes_a_dead_letter(cluster: Cluster, clock: ManualClock) -> None:
    fill(cluster, b"a", b"bad", b"c")
    with worker(cluster, clock, errors_deadletterqueue_topic_name="dead") as consumer:
        records = consumer.poll()
        consumer.acknowledge(records[1], AcknowledgeType.REJECT)
        assert consumer.commit_sync() == {T0: None}
        assert letters(cluster) == [(b"bad", "jobs 1", "RecordRejected")]
        assert start_of(cluster) == 3
        assert consumer.poll() == []
    assert dict(cluster.groups.refresh().transactions) == {}


def test_record_that_is_never_accepted_becomes_a_dead_letter(memory: Cluster, clock: ManualClock) -> None:
    settings: dict[str, Any] = {"errors_deadletterqueue_topic_name": "dead", "share_delivery_count_limit": 2}
    seen = []
    with worker(memory, clock, **settings) as consumer:
        for _ in range(4):
            for record in consumer.poll():
                seen.append((record.value, record.delivery_count))
                consumer.acknowledge(
                    record, AcknowledgeType.RELEASE if record.value == b"b" else AcknowledgeType.ACCEPT
                )
    assert seen == [(b"a", 1), (b"b", 1), (b"c", 1), (b"b", 2)]
    assert letters(memory) == [(b"b", "jobs 1", "DeliveryCountLimitExceeded")]
    assert start_of(memory) == 3


def test_record_of_a_lost_lock_becomes_no_dead_letter(memory: Cluster, clock: ManualClock) -> None:
    with (
        worker(memory, clock, errors_deadletterqueue_topic_name="dead") as slow,
        worker(memory, clock, share_acknowledgement_mode="explicit") as quick,
    ):
        late = slow.poll()
        clock.seconds += 31
        quick.poll()
        for record in late:
            slow.acknowledge(record, AcknowledgeType.REJECT)
        assert isinstance(slow.commit_sync()[T0], errors.InvalidRecordStateError)
        assert letters(memory) == []


def test_record_that_cannot_be_deserialized_becomes_a_dead_letter(memory: Cluster, clock: ManualClock) -> None:
    settings: dict[str, Any] = {"value_deserializer": int, "errors_deadletterqueue_topic_name": "dead"}
    failed = 0
    with worker(memory, clock, share_delivery_count_limit=2, max_poll_records=1, **settings) as consumer:
        for _ in range(12):
            try:
                assert consumer.poll() == []
            except errors.RecordDeserializationError:
                failed += 1
    assert failed == 6
    assert [value for value, _, _ in letters(memory)] == [b"a", b"b", b"c"]
