"""A stream's query: topics that grow, go and come again in; batches that miss nothing and repeat nothing out."""

from __future__ import annotations

from random import Random

import pytest

from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import Offsets
from kafkalike.spark.format.query import (
    BatchLimits,
    PartitionEnds,
    RecordLoss,
    StreamState,
    TopicsLook,
    begin,
    next_end,
    out_of_reach,
    ranges,
)
from tests.tools.effort import examples

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NO_LIMITS = BatchLimits(most=None, least=None, delay_ms=0)


def look(*bounds: tuple[int, int], life: str = "1") -> TopicsLook:
    """Partitions of topic `t` by their log start and end."""
    partitions = {TopicPartition("t", p): PartitionEnds(start=low, stop=high) for p, (low, high) in enumerate(bounds)}
    return TopicsLook(partitions, {"t": life} if bounds else {})


def kinds(losses: list[RecordLoss]) -> list[str]:
    return [loss.kind for loss in losses]


def test_a_query_begins_inside_the_log() -> None:
    """A start that is not there is moved, and that is a loss."""
    query, losses = begin(StreamState(), look((5, 9), (0, 2)), {T0: 1, T1: 2}, frozenset({T1}))

    assert query == StreamState(ids={"t": "1"}, initial={T0: 5, T1: 2}, movable=frozenset({T1}))
    assert kinds(losses) == ["START_OFFSET_RESET"]


def test_the_first_batch_of_one_that_begins_at_the_end_is_empty() -> None:
    """So the checkpoint says where; the next one has what came since."""
    query, _ = begin(StreamState(), look((0, 3)), {T0: 3}, frozenset({T0}))

    query, first, _ = next_end(query, look((0, 5)), {T0: 3}, None, 0.0)
    query, second, _ = next_end(query, look((0, 5)), {T0: 3}, None, 0.0)

    assert (first, second) == ({T0: 3}, {T0: 5})
    assert query.movable == frozenset()


def test_without_partitions_there_is_no_batch() -> None:
    """A checkpoint with no offsets at all would forget where the query stood."""
    _, ends, losses = next_end(StreamState(), look(), {T0: 3}, None, 0.0)

    assert ends is None
    assert kinds(losses) == ["PARTITIONS_DELETED"]


def test_a_topic_created_again_is_told_once_and_read_from_its_beginning() -> None:
    """Also when it has grown beyond where the query stood, or exactly as far."""
    before = StreamState().saw(look((0, 4)))

    query, ends, losses = next_end(before, look((0, 4), life="2"), {T0: 4}, NO_LIMITS, 0.0)
    again, more, none = next_end(query, look((0, 6), life="2"), {T0: 4}, NO_LIMITS, 0.0)
    _, found, quiet = ranges(again, look((0, 6), life="2"), {T0: 4}, {T0: 6}, by_time=False)

    assert ends == {T0: 3}
    assert kinds(losses) == ["PARTITION_OFFSET_CHANGED"]
    assert "topic id 1 is now 2" in losses[0].message
    assert (more, none, quiet) == ({T0: 6}, [], [])
    assert found == {T0: range(6)}


def test_a_topic_created_again_after_planning_is_left_to_the_next_batch() -> None:
    """Its offsets are those of its earlier life."""
    query = StreamState().saw(look((0, 4)))

    after, found, losses = ranges(query, look((0, 9), life="2"), {T0: 1}, {T0: 4}, by_time=False)

    assert found == {}
    assert kinds(losses) == ["PARTITION_OFFSET_CHANGED"]
    assert after.ids == {"t": "1"}


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (look((0, 8)), None),
        (look((0, 4)), "it ends at 4 now"),
        (look(), "it is gone"),
        (look((0, 9), life="2"), "it ends at 9 now"),
    ],
)
def test_the_end_of_available_now_is_there_or_it_is_not(now: TopicsLook, why: str | None) -> None:
    """Another topic of the name does not count."""
    query = StreamState(ids={"t": "1"}, target={T0: 7})

    found = out_of_reach(query, now)

    assert (found is None) == (why is None)
    assert why is None or why in (found or "")


def test_a_batch_waits_for_the_least_or_the_delay() -> None:
    """The first one does not wait; a target ends the waiting."""
    limits = BatchLimits(most=None, least=5, delay_ms=1000)
    query, first, _ = next_end(StreamState(), look((0, 1)), {T0: 0}, limits, 10.0)
    waiting, second, _ = next_end(query, look((0, 3)), {T0: 1}, limits, 10.5)
    _, third, _ = next_end(waiting, look((0, 3)), {T0: 1}, limits, 11.0)
    _, fourth, _ = next_end(waiting, look((0, 6)), {T0: 1}, limits, 10.6)
    _, fifth, _ = next_end(StreamState(ids={"t": "1"}, target={T0: 3}), look((0, 3)), {T0: 1}, limits, 10.5)

    assert (first, second, third, fourth, fifth) == ({T0: 1}, None, {T0: 3}, {T0: 6}, {T0: 3})


@pytest.mark.slow
def test_after_any_history_without_a_loss_each_offset_was_read_once() -> None:
    """Records come, partitions are added, batches are limited and run again; the planner is made anew at any time."""
    for seed in range(examples(2_000, 300)):
        chance = Random(seed)
        ends = [chance.randrange(4)]
        limits = BatchLimits(most=chance.choice((None, 1, 3)), least=chance.choice((None, 2)), delay_ms=100)
        query, losses = begin(StreamState(), look((0, ends[0])), {T0: 0}, frozenset())
        at: Offsets = {T0: 0}
        read = dict[TopicPartition, list[int]]()
        for turn in range(12):
            for p, end in enumerate(ends):
                ends[p] = end + chance.randrange(3)
            if len(ends) == 1 and chance.random() < 0.1:
                ends.append(chance.randrange(3))
            if chance.random() < 0.2:
                query = StreamState()
            now = look(*((0, end) for end in ends))
            query, until, lost = next_end(query, now, at, None if turn == 11 else limits, turn / 20)
            losses += lost
            if until is None:
                continue
            query, found, lost = ranges(query, now, at, until, by_time=False)
            losses += lost
            if chance.random() < 0.3:
                assert ranges(query, now, at, until, by_time=False) == (query, found, []), seed
            for tp, offsets in found.items():
                read.setdefault(tp, []).extend(offsets)
            at = until

        assert losses == [], seed
        assert read == {TopicPartition("t", p): list(range(end)) for p, end in enumerate(ends)}, seed
