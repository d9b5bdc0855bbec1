"""Look-ups by time, against a search through all records; over the log in memory and the log on Delta tables."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import OffsetAndTimestamp
from tests.tools.effort import examples
from tests.tools.records import ANY_TIME

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog

appends = st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=5), min_size=1, max_size=5)
"""Times of the records, append by append: equal ones, and ones that go back."""


def log_of(cluster: Cluster, times: list[list[int]], log_start: int = 0) -> TopicLog:
    """The log of a new topic whose one partition was appended to once for each list."""
    name = f"t-{uuid.uuid4().hex}"
    cluster.create_topic(name, 1, ANY_TIME)
    log = cluster.log(name)
    for run in times:
        batch = RecordBatch()
        for at in run:
            batch.add(0, None, b"v", at)
        log.append(batch)
    if log_start:
        cluster.move_log_start(name, {0: log_start}, "retention", "r")
    log.refresh()
    return log


@pytest.mark.slow
@settings(max_examples=examples(15, 3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=appends, data=st.data())
def test_look_ups_by_time_find_what_a_full_search_finds(
    log_cluster: Cluster, times: list[list[int]], data: st.DataObject
) -> None:
    """The first offset at or after each time, and the first record with the largest time, from any log start."""
    records = list(enumerate(at for run in times for at in run))
    start = data.draw(st.integers(0, len(records)))
    log = log_of(log_cluster, times, start)
    live = [OffsetAndTimestamp(offset, at) for offset, at in records if offset >= start]

    for wanted in range(14):
        found = next((record for record in live if record.timestamp >= wanted), None)
        assert log.offset_for_time(0, wanted) == found
    largest = max((record.timestamp for record in live), default=-1)
    assert log.max_timestamp(0) == next((record for record in live if record.timestamp == largest), None)


def test_an_empty_partition_has_no_times(log_cluster: Cluster) -> None:
    """Neither a first record at a time nor a largest time."""
    log = log_of(log_cluster, [])

    assert (log.offset_for_time(0, 0), log.max_timestamp(0)) == (None, None)


def test_times_at_both_ends_are_found(log_cluster: Cluster) -> None:
    """The epoch and the last millisecond of the year 9999; nothing is later."""
    log = log_of(log_cluster, [[0], [MAX_TIMESTAMP_MS], [5]])

    assert log.offset_for_time(0, -1) == OffsetAndTimestamp(0, 0)
    assert log.offset_for_time(0, 6) == OffsetAndTimestamp(1, MAX_TIMESTAMP_MS)
    assert log.offset_for_time(0, MAX_TIMESTAMP_MS) == OffsetAndTimestamp(1, MAX_TIMESTAMP_MS)
    assert log.offset_for_time(0, MAX_TIMESTAMP_MS + 1) is None
    assert log.max_timestamp(0) == OffsetAndTimestamp(1, MAX_TIMESTAMP_MS)


def test_another_handle_finds_the_same(log_cluster: Cluster) -> None:
    """One that loads the table's state instead of having written it."""
    log = log_of(log_cluster, [[3, 9], [1], [MAX_TIMESTAMP_MS], [9]])

    other = log_cluster.log(log.info.name)

    for at in (0, 2, 5, 10):
        assert other.offset_for_time(0, at) == log.offset_for_time(0, at)
    assert other.max_timestamp(0) == OffsetAndTimestamp(3, MAX_TIMESTAMP_MS)
    assert [(s.min_timestamp, s.max_timestamp) for s in other.segments(0)] == [
        (3, 9),
        (1, 1),
        (MAX_TIMESTAMP_MS, MAX_TIMESTAMP_MS),
        (9, 9),
    ]
