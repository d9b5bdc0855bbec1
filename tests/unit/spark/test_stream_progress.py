"""Progress of a query: offsets of its batches in, committed offsets of a group out; without Spark."""

import json
import logging

import pytest

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.model.structs import CommittedOffset, TopicPartition
from kafkalike.spark.checkpoint_progress import GroupProgress
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets

T0 = TopicPartition("t", 0)


def batch(number: int, ends: dict[str, dict[str, int]], planned_ms: int | None) -> BatchOffsets:
    """A batch as Spark's checkpoint has it."""
    head = {"batchWatermarkMs": 0} if planned_ms is None else {"batchWatermarkMs": 0, "batchTimestampMs": planned_ms}
    return BatchOffsets(number, f"v1\n{json.dumps(head)}\n{json.dumps(ends)}")


def committed(cluster: MemoryCluster) -> CommittedOffset | None:
    """What the group has for the only partition."""
    return cluster.groups.refresh().group("g").offsets.get(T0)


@pytest.fixture
def cluster(clock: ManualClock) -> MemoryCluster:
    """A cluster with the topic that the query reads, a second old."""
    made = MemoryCluster(clock=clock)
    made.create_topic("t", 1, {})
    clock.sleep(1)
    return made


def create_again(cluster: MemoryCluster, clock: ManualClock) -> None:
    """Give the topic's name to a new one; a second goes by before and after."""
    clock.sleep(1)
    cluster.delete_topic("t")
    cluster.create_topic("t", 1, {})
    clock.sleep(1)


def test_progress_does_not_count_for_a_topic_created_while_the_batch_was_written(
    cluster: MemoryCluster, clock: ManualClock
) -> None:
    """The batch has read the topic before: its offsets would point past the end of the new one."""
    progress = GroupProgress("g", cluster)
    ends = progress.plan(batch(0, {"t": {"0": 100}}, clock.now_ms()))
    read = cluster.topic("t").topic_id
    create_again(cluster, clock)

    progress.commit(ends, client_id="stream")

    known = committed(cluster)
    assert known is not None
    assert (known.position.offset, known.topic_id) == (100, read)
    assert read != cluster.topic("t").topic_id


def test_progress_does_not_count_for_a_topic_created_while_the_query_was_stopped(
    cluster: MemoryCluster, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The checkpoint has offsets of the topic before, and only the name of it."""
    last = batch(7, {"t": {"0": 100}}, clock.now_ms())
    create_again(cluster, clock)
    progress = GroupProgress("g", cluster)

    with caplog.at_level(logging.WARNING):
        planned = progress.plan(last)
        wrote = progress.commit(planned, client_id="stream")

    assert (planned, wrote, committed(cluster)) == ({}, False, None)
    assert "after batch 7 was planned" in caplog.text


def test_the_next_batch_counts_for_the_topic_that_was_created_again(cluster: MemoryCluster, clock: ManualClock) -> None:
    """Its offsets were asked for after that, so they are the new topic's; also where they are equal to the old ones."""
    progress = GroupProgress("g", cluster)
    progress.commit(progress.plan(batch(0, {"t": {"0": 5}}, clock.now_ms())), client_id="stream")
    create_again(cluster, clock)

    wrote = progress.commit(progress.plan(batch(1, {"t": {"0": 5}}, clock.now_ms())), client_id="stream")

    known = committed(cluster)
    assert known is not None
    assert (wrote, known.position.offset, known.topic_id) == (True, 5, cluster.topic("t").topic_id)


def test_progress_of_a_batch_without_a_time_is_not_committed(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Whose offsets they are cannot be known then."""
    progress = GroupProgress("g", cluster)

    with caplog.at_level(logging.WARNING):
        planned = progress.plan(batch(0, {"t": {"0": 5}}, None))

    assert planned == {}
    assert "does not say when batch 0 was planned" in caplog.text
