"""A slice of a queue for tasks that read it themselves: what is locked, given back, acknowledged and released."""

from __future__ import annotations

import pytest

from kafkalike.consumer.record_builders import record_builder
from kafkalike.consumer.share_delivery import HeldRecords
from kafkalike.consumer.slice_fetcher import SliceFetcher
from kafkalike.errors import InvalidRecordStateError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.config.consumer_config import ShareConsumerConfig
from kafkalike.model.shares.share_partition import Acknowledgement, RecordState, RecordVerdict, SharePartition
from kafkalike.model.structs import TopicPartition
from kafkalike.producer import KafkaProducer

JOBS = TopicPartition("jobs", 0)
LATER = 4_102_444_800_000


def fetcher(cluster: Cluster, member: str, **settings: object) -> SliceFetcher:
    given = {"bootstrap_servers": cluster, "group_id": "workers", "share_auto_offset_reset": "earliest", **settings}
    made = SliceFetcher(
        cluster,
        ShareConsumerConfig.of(given),
        member_id=member,
        held=HeldRecords(),
        build=record_builder(None, None),
        clock=SYSTEM_CLOCK,
    )
    made.topics = ("jobs",)
    return made


@pytest.fixture
def jobs(cluster: Cluster) -> Cluster:
    """Six records, of which the third one is for later."""
    cluster.create_topic("jobs", 1, {})
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        for number in range(6):
            due = LATER if number == 2 else 1
            producer.send("jobs", b"%d" % number, headers=[("deliver_at", b"%d" % due)] if number < 4 else [])
        producer.flush()
    return cluster


def taken(found: SliceFetcher) -> list[tuple[int, int, int]]:
    return [(run.first, run.last, run.deliveries) for _, run in found.slices]


def state(cluster: Cluster) -> SharePartition:
    return cluster.groups.refresh().shares["workers"][JOBS]


def test_slices_are_disjoint_and_without_records_that_are_not_due(jobs: Cluster) -> None:
    one, two, three = (fetcher(jobs, name) for name in ("one", "two", "three"))
    for each, most in ((one, 4), (two, 10), (three, 10)):
        each.acquire(Deadline(SYSTEM_CLOCK, 0), most)

    assert (taken(one), taken(two), taken(three)) == ([(0, 1, 1), (3, 3, 1)], [(4, 5, 1)], [])
    (later,) = [run for run in state(jobs).runs if run.until_ms == LATER]
    assert (later.first, later.last, later.state, later.deliveries) == (2, 2, RecordState.AVAILABLE, 0)
    for each in (one, two, three):
        each.end(1000)
    assert {run.state for run in state(jobs).runs} == {RecordState.AVAILABLE}
    assert jobs.groups.refresh().group("workers").roster.members == {}


def test_slice_begins_behind_records_that_are_not_due(jobs: Cluster) -> None:
    with KafkaProducer(bootstrap_servers=jobs) as producer:
        producer.send("jobs", b"later", deliver_at_ms=LATER)
        producer.send("jobs", b"now")
    one, two = fetcher(jobs, "one"), fetcher(jobs, "two")
    for each, most in ((one, 5), (two, 1)):
        each.acquire(Deadline(SYSTEM_CLOCK, 0), most)

    assert (taken(one), taken(two)) == ([(0, 1, 1), (3, 4, 1)], [(5, 5, 1)])
    two.acquire(Deadline(SYSTEM_CLOCK, 0), 1)
    assert taken(two) == [(7, 7, 1)]
    one.end(1000)
    two.end(1000)


def test_acknowledgements_of_lost_records_are_refused_and_the_others_count(jobs: Cluster) -> None:
    one, two = fetcher(jobs, "one", share_record_lock_duration_ms=1), fetcher(jobs, "two")
    one.acquire(Deadline(SYSTEM_CLOCK, 0), 10)
    two.acquire(Deadline(SYSTEM_CLOCK, 10_000), 1)
    assert taken(two) == [(0, 0, 2)]

    with pytest.raises(InvalidRecordStateError, match="jobs-0 @ 0-0"):
        one.acknowledge({JOBS: [Acknowledgement(0, 1, RecordVerdict.ACCEPT, 1)]}, 1000)
    two.acknowledge({JOBS: [Acknowledgement(0, 0, RecordVerdict.REJECT, 2)]}, 1000)

    assert state(jobs).start == 2
    one.end(1000)
    two.end(1000)


def test_rejected_records_become_dead_letters(jobs: Cluster) -> None:
    jobs.create_topic("dead", 1, {})
    one = fetcher(jobs, "one", errors_deadletterqueue_topic_name="dead")
    one.acquire(Deadline(SYSTEM_CLOCK, 0), 2)
    one.acknowledge({JOBS: [Acknowledgement(0, 1, RecordVerdict.REJECT, 1)]}, 10_000)
    one.end(1000)

    assert jobs.log("dead").log_end(0) == 2
    assert state(jobs).start == 2
