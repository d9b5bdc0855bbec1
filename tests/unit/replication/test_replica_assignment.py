"""Replica assignment: Kafka's published rule, with its examples, and what holds for any brokers and racks."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError
from kafkalike.model.replication.replica_assignment import alternated, assigned, check_assignment, check_factor, late


def test_without_racks_the_example_of_kafkas_documentation() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(5))

    found = assigned(brokers, 10, 3, start=0, shift=0)

    assert found == [
        (0, 1, 2),
        (1, 2, 3),
        (2, 3, 4),
        (3, 4, 0),
        (4, 0, 1),
        (0, 2, 3),
        (1, 3, 4),
        (2, 4, 0),
        (3, 0, 1),
        (4, 1, 2),
    ]


def test_with_racks_the_example_of_kip_36() -> None:
    racks: dict[int, str | None] = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}

    found = assigned(racks, 6, 3, start=0, shift=0)

    assert alternated(racks) == [0, 3, 1, 5, 4, 2]
    assert found == [(0, 3, 1), (3, 1, 5), (1, 5, 4), (5, 4, 2), (4, 2, 0), (2, 0, 3)]


def test_partitions_that_are_added_go_on_where_the_others_ended() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(4))

    whole = assigned(brokers, 12, 2, start=1, shift=0)

    assert whole[5:] == assigned(brokers, 7, 2, start=1, shift=1, first_partition=5)


def test_the_shift_rises_at_the_first_partition_too_when_it_begins_a_round() -> None:
    brokers: dict[int, str | None] = dict.fromkeys(range(4))

    assert assigned(brokers, 1, 2, start=0, shift=0, first_partition=4) == [(0, 2)]


def _racks() -> st.SearchStrategy[dict[int, str | None]]:
    named = st.dictionaries(st.integers(0, 40), st.sampled_from("abcd"), min_size=1, max_size=9)
    return named.flatmap(lambda racks: st.sampled_from([dict(racks), dict.fromkeys(racks)]))


@given(brokers=_racks(), partitions=st.integers(1, 30), data=st.data())
def test_replicas_are_on_different_brokers_and_racks_and_spread_evenly(
    brokers: dict[int, str | None], partitions: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start, shift = data.draw(st.integers(0, 20)), data.draw(st.integers(0, 20))

    found = assigned(brokers, partitions, factor, start=start, shift=shift)

    racks = set(brokers.values())
    assert len(found) == partitions
    for replicas in found:
        assert len(set(replicas)) == factor
        assert len({brokers[b] for b in replicas}) == min(factor, len(racks)) or racks == {None}
    leaders = Counter(replicas[0] for replicas in found)
    assert max(leaders.values()) - min(leaders.get(b, 0) for b in brokers) <= 1


@given(size=st.integers(1, 8), data=st.data())
def test_a_whole_number_of_rounds_gives_each_broker_as_many_replicas(size: int, data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, size))
    found = assigned(dict.fromkeys(range(size)), size * 3, factor, start=data.draw(st.integers(0, 9)), shift=0)

    assert set(Counter(b for replicas in found for b in replicas).values()) == {3 * factor}


@pytest.mark.parametrize("racks", [dict.fromkeys(range(4)), {0: "a", 1: "b", 2: "a", 3: "b"}])
def test_the_round_begins_where_it_is_told_to(racks: dict[int, str | None]) -> None:
    """And goes on from there, forward; so of two topics each has its own first leader."""
    rounds = [[found[0] for found in assigned(racks, 4, 2, start=start, shift=0)] for start in range(5)]

    assert all(later == [*earlier[1:], earlier[0]] for earlier, later in pairwise(rounds))
    assert rounds[4] == rounds[0]


def test_more_replicas_than_brokers_are_refused_in_kafkas_words() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="Replication factor: 3 larger than available brokers: 2"):
        check_factor(3, 2)
    with pytest.raises(InvalidReplicationFactorError, match="larger than 0"):
        check_factor(0, 2)


def test_some_brokers_without_a_rack_are_refused() -> None:
    with pytest.raises(InvalidReplicationAssignmentError, match=r"Not all brokers have rack info.*\[2, 3\] lack"):
        assigned({3: None, 1: "a", 2: None}, 1, 1, start=0, shift=0)


@pytest.mark.parametrize(
    ("assignment", "why"),
    [
        ({}, "partitions should be a consecutive 0-based integer sequence"),
        ({1: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: [1], 2: [1]}, "partitions should be a consecutive 0-based integer sequence"),
        ({0: []}, "partition 0 has replicas []: at least one broker is required"),
        ({0: [1, 1]}, "Duplicate brokers not allowed in replica assignment: partition 0 has replicas [1, 1]"),
        (
            {0: [1, 2], 1: [1]},
            "partition 1 has replicas [1], others have 2: all partitions need the same number of replicas",
        ),
        ({0: [1, 4, 5]}, "partition 0 has replicas [1, 4, 5]: broker 4 does not exist"),
    ],
)
def test_an_assignment_by_hand_is_refused_as_in_kafka(assignment: dict[int, list[int]], why: str) -> None:
    with pytest.raises(InvalidReplicationAssignmentError, match=f"^{re.escape(why)}$"):
        check_assignment(assignment, {1: None, 2: None, 3: None})


def test_an_assignment_by_hand_is_taken() -> None:
    check_assignment({0: [1, 2], 1: [3, 1]}, {1: None, 2: None, 3: None})


@given(brokers=_racks(), data=st.data())
def test_those_that_are_away_come_last_in_racks_that_have_none_first(
    brokers: dict[int, str | None], data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.sampled_from(sorted(brokers)), max_size=len(brokers) - 1))
    away = {broker: brokers[broker] for broker in gone}
    there = {broker: rack for broker, rack in brokers.items() if broker not in gone}
    count = data.draw(st.integers(0, len(away)))

    found = late(there, away, count)

    assert len(found) == count == len(set(found))
    assert set(found) <= set(away)
    new = set(away.values()) - set(there.values())
    assert len({away[broker] for broker in found} & new) == min(count, len(new))
