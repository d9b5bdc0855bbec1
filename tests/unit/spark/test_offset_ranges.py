"""Ranges of a batch: Spark's offset texts and a log in memory in, half-open runs out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import IllegalArgumentError, OffsetOutOfRangeError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.model.record_batch import RecordBatch
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.positions import offsets_json
from kafkalike.spark.reads.conditions import parse_offsets, plan_ranges


@pytest.fixture
def log() -> TopicLog:
    """Partition 0 has the offsets 2 to 4, partition 1 none."""
    cluster = MemoryCluster()
    cluster.create_topic("orders", 2, {})
    batch = RecordBatch()
    for _ in range(5):
        batch.add(0, None, b"x", 1)
    cluster.log("orders").append(batch)
    cluster.move_log_start("orders", {0: 2}, "test", "run")
    return cluster.log("orders")


def test_all_of_a_log_is_read_by_default(log: TopicLog) -> None:
    """Earliest to latest is log start to log end."""
    ranges = plan_ranges(log, "earliest", "latest")

    assert ranges == {0: range(2, 5), 1: range(0)}


def test_marks_stand_for_the_ends_of_the_log(log: TopicLog) -> None:
    """-2 is the log start and -1 the log end, as in Spark."""
    ranges = plan_ranges(log, {0: -2, 1: 0}, {0: 4, 1: -1})

    assert ranges == {0: range(2, 4), 1: range(0)}


@pytest.mark.parametrize(("start", "end"), [({0: 1, 1: 0}, "latest"), ("earliest", {0: 6, 1: 0})])
def test_offsets_outside_the_log_are_refused(log: TopicLog, start: object, end: object) -> None:
    """What retention has let go, or what is not written yet, is never passed over silently."""
    with pytest.raises(OffsetOutOfRangeError, match="orders-0"):
        plan_ranges(log, start, end)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ({0: 2}, "latest"),
        ({0: 2, 1: 0, 2: 0}, "latest"),
        ({0: 4, 1: 0}, {0: 3, 1: 0}),
        ("latest", "latest"),
        ({0: -1, 1: 0}, "latest"),
        ("earliest", {0: -2, 1: 0}),
    ],
)
def test_offsets_that_make_no_batch_are_refused(log: TopicLog, start: object, end: object) -> None:
    """Every partition is named, starts come before ends, and marks stand where Spark allows them."""
    with pytest.raises(IllegalArgumentError):
        plan_ranges(log, start, end)  # type: ignore[arg-type]


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(-2, 2**63 - 1), min_size=1))
def test_offsets_are_read_as_they_are_written(offsets: dict[int, int]) -> None:
    """What a job reports can be given to the next one."""
    named = {TopicPartition("orders", p): at for p, at in offsets.items()}

    assert parse_offsets(json.dumps(offsets_json(named)), "orders") == offsets


@pytest.mark.parametrize(
    "text",
    [
        "",
        "first",
        "5",
        "[]",
        "{}",
        '{"other": {"0": 1}}',
        '{"orders": [1]}',
        '{"orders": {"x": 1}}',
        '{"orders": {"0": -3}}',
        '{"orders": {"0": true}}',
        '{"orders": {"0": "1"}}',
        '{"orders": {"0": 1.5}}',
    ],
)
def test_other_texts_are_no_offsets(text: str) -> None:
    """A text that Spark would not take is refused, with an example of one that it takes."""
    with pytest.raises(IllegalArgumentError, match="is needed"):
        parse_offsets(text, "orders")
