"""Partitioners: where records with and without key go, and which foreign objects are taken."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.model.partitioner import (
    Cluster,
    ClusterView,
    DefaultPartitioner,
    Partitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    as_partitioner,
)

CLUSTER = ClusterView(partitions={"orders": frozenset(range(4)), "other": frozenset(range(2))})


@dataclass
class HalfDown:
    """A cluster of 4 partitions of which only some can be written to."""

    available: set[int] = field(default_factory=lambda: {1, 3})

    def partitions_for_topic(self, topic: str) -> set[int]:  # noqa: ARG002
        return {0, 1, 2, 3}

    def available_partitions_for_topic(self, topic: str) -> set[int]:  # noqa: ARG002
        return self.available


def choose(
    partitioner: Partitioner, key: bytes | None = None, topic: str = "orders", cluster: Cluster = CLUSTER
) -> int:
    return partitioner.partition(topic, key, key, b"value", b"value", cluster)


@pytest.mark.parametrize("partitioner", [DefaultPartitioner(), StickyPartitioner()])
@pytest.mark.parametrize(("key", "partition"), [(b"", 1), (b"a", 4), (b"ab", 4), (b"abc", 7)])
def test_a_key_goes_where_kafkas_java_client_sends_it(partitioner: Partitioner, key: bytes, partition: int) -> None:
    """Of 10 partitions, the last digits of the published partitions of 1000 are met."""
    cluster = ClusterView(partitions={"orders": frozenset(range(10))})

    assert choose(partitioner, key, cluster=cluster) == partition


@pytest.mark.parametrize("partitioner", [DefaultPartitioner(), StickyPartitioner()])
def test_a_key_keeps_its_partition_while_that_cannot_be_written_to(partitioner: Partitioner) -> None:
    """Availability does not move keys, else their order would be lost."""
    for key in (b"a", b"b", b"c", b"d", b"e"):
        assert choose(partitioner, key, cluster=HalfDown()) == choose(partitioner, key)


def test_records_without_key_spread_at_random() -> None:
    """Every partition gets about its share."""
    partitioner = DefaultPartitioner(rng=Random(1))

    counts = Counter(choose(partitioner) for _ in range(4000))

    assert set(counts) == {0, 1, 2, 3}
    assert min(counts.values()) > 850


def test_the_same_seed_gives_the_same_random_partitions() -> None:
    """Randomness is an argument."""
    first, second = DefaultPartitioner(rng=Random(7)), DefaultPartitioner(rng=Random(7))

    assert [choose(first) for _ in range(20)] == [choose(second) for _ in range(20)]


@pytest.mark.parametrize(
    "partitioner",
    [DefaultPartitioner(), RoundRobinPartitioner(), StickyPartitioner()],
    ids=lambda made: type(made).__name__,
)
def test_records_without_key_go_to_available_partitions(partitioner: Partitioner) -> None:
    """A partition that cannot be written to is left out."""
    assert {choose(partitioner, cluster=HalfDown()) for _ in range(50)} <= {1, 3}


def test_with_none_available_all_partitions_are_used() -> None:
    """A record waits for a partition rather than fail."""
    cluster = HalfDown(available=set())

    assert [choose(RoundRobinPartitioner(), cluster=cluster) for _ in range(2)] == [0, 0]
    assert choose(DefaultPartitioner(), cluster=cluster) in {0, 1, 2, 3}


def test_round_robin_takes_turns_topic_by_topic_whatever_the_key() -> None:
    """Each topic has its own turn, and keys do not count."""
    partitioner = RoundRobinPartitioner()

    orders = [choose(partitioner, b"same") for _ in range(6)]
    other = [choose(partitioner, topic="other") for _ in range(3)]

    assert orders == [0, 1, 2, 3, 0, 1]
    assert other == [0, 1, 0]


def test_a_sticky_partition_stays_until_the_batch_is_closed() -> None:
    """All records without key of one batch go together, and the next batch goes elsewhere."""
    partitioner = StickyPartitioner(rng=Random(3))
    seen = []

    for _ in range(50):
        batch = {choose(partitioner) for _ in range(10)}
        assert len(batch) == 1
        seen.append(batch.pop())
        partitioner.on_new_batch("orders", CLUSTER, seen[-1])

    assert all(before != after for before, after in pairwise(seen))
    assert set(seen) == {0, 1, 2, 3}


def test_a_late_word_of_a_closed_batch_changes_nothing() -> None:
    """Another thread has moved on already: the partition in use stays."""
    partitioner = StickyPartitioner(rng=Random(3))
    used = choose(partitioner)

    for other in {0, 1, 2, 3} - {used}:
        partitioner.on_new_batch("orders", CLUSTER, other)
    partitioner.on_new_batch("gone", CLUSTER, used)

    assert choose(partitioner) == used


def test_the_only_partition_stays_after_a_closed_batch() -> None:
    """A topic of one partition has nowhere else to go."""
    partitioner = StickyPartitioner()
    single = ClusterView(partitions={"orders": frozenset({0})})
    choose(partitioner, cluster=single)

    partitioner.on_new_batch("orders", single, 0)

    assert choose(partitioner, cluster=single) == 0


def test_a_sticky_partition_that_is_gone_is_replaced() -> None:
    """After the availability changed, records go where they can be written."""
    partitioner = StickyPartitioner(rng=Random(0))
    assert choose(partitioner, cluster=HalfDown(available={3})) == 3

    assert choose(partitioner, cluster=HalfDown(available={1})) == 1


@pytest.mark.parametrize(
    "partitioner",
    [DefaultPartitioner(), RoundRobinPartitioner(), StickyPartitioner(), as_partitioner(lambda *_: 0)],
)
@pytest.mark.parametrize("key", [None, b"key"])
def test_an_unknown_topic_is_an_error(partitioner: Partitioner, key: bytes | None) -> None:
    """The error names the topic."""
    with pytest.raises(UnknownTopicOrPartitionError, match="gone"):
        choose(partitioner, key, topic="gone")


def test_a_partitioner_is_taken_as_it_is() -> None:
    """The adapter adds nothing to what has the interface."""
    partitioner = RoundRobinPartitioner()

    assert as_partitioner(partitioner) is partitioner


class Foreign:
    """What a user of kafka-python 3.x has: no base class of ours."""

    def __init__(self, answer: int) -> None:
        self.answer = answer
        self.closed: list[tuple[object, ...]] = []
        self.asked: list[tuple[object, ...]] = []

    def partition(self, *args: object) -> int:
        self.asked.append(args)
        return self.answer

    def on_new_batch(self, *args: object) -> None:
        self.closed.append(args)


def test_a_foreign_partitioner_object_is_asked_and_hears_of_batches() -> None:
    """All six arguments and the hook reach it."""
    foreign = Foreign(2)
    partitioner = as_partitioner(foreign)

    assert partitioner.partition("orders", "k", b"k", "v", b"v", CLUSTER) == 2
    partitioner.on_new_batch("orders", CLUSTER, 2)

    assert foreign.asked == [("orders", "k", b"k", "v", b"v", CLUSTER)]
    assert foreign.closed == [("orders", CLUSTER, 2)]


def test_a_callable_of_2x_gets_the_key_and_both_lists() -> None:
    """It is called as kafka-python 2.x did, with lists in ascending order, and needs no hook."""
    asked: list[tuple[object, ...]] = []

    def by_callable(key: bytes | None, everything: list[int], available: list[int]) -> int:
        asked.append((key, everything, available))
        return available[-1]

    partitioner = as_partitioner(by_callable)

    assert choose(partitioner, b"k", cluster=HalfDown()) == 3
    partitioner.on_new_batch("orders", CLUSTER, 3)
    assert asked == [(b"k", [0, 1, 2, 3], [1, 3])]


@pytest.mark.parametrize("foreign", [Foreign(4), lambda *_: 4], ids=["object", "callable"])
def test_a_foreign_choice_outside_the_topic_is_refused(foreign: object) -> None:
    """The error names the partition and the topic."""
    with pytest.raises(IllegalArgumentError, match=r"chose 4.*'orders'"):
        choose(as_partitioner(foreign))


@pytest.mark.parametrize("wrong", [StickyPartitioner, Foreign, 7, None], ids=str)
def test_what_is_no_partitioner_is_refused(wrong: object) -> None:
    """A class that was not instantiated is a common slip; the error says so."""
    with pytest.raises(IllegalArgumentError, match="partitioner: an "):
        as_partitioner(wrong)
