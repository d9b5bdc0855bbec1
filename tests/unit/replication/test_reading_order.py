"""Who is asked for a data file: the near replicas first; with striped reads, the one whose turn it is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.brokers import by_turns, nearest_first

IN_SYNC = st.lists(st.integers(1, 9), min_size=1, max_size=5, unique=True)


@given(IN_SYNC, st.sets(st.integers(1, 9)), st.text(max_size=20))
def test_everybody_is_asked_once_and_the_near_ones_first(in_sync: list[int], near: set[int], name: str) -> None:
    known, turns = nearest_first(in_sync, near.__contains__)

    striped = list(by_turns(known, turns, name))

    there = [one for one in in_sync if one in near]
    assert list(known) == there + [one for one in in_sync if one not in near]
    assert sorted(striped) == sorted(in_sync)
    assert set(striped[: len(there)]) == set(there)


def test_without_a_rack_the_leader_is_asked_first_and_all_take_turns() -> None:
    assert nearest_first([3, 1, 2], None) == ([3, 1, 2], 3)


def test_a_rack_with_nobody_in_sync_is_as_if_no_rack_were_named() -> None:
    assert nearest_first([3, 1, 2], lambda one: one == 9) == ((3, 1, 2), 3)


def test_only_the_near_ones_take_turns() -> None:
    assert nearest_first([3, 1, 2], lambda one: one != 3) == ((1, 2, 3), 2)


def test_files_are_spread_evenly_and_each_always_goes_to_the_same_one() -> None:
    names = [f"partition=0/{number:032x}.parquet" for number in range(3000)]

    first = Counter(by_turns((1, 2, 3), 3, name)[0] for name in names)

    assert set(first) == {1, 2, 3}
    assert min(first.values()) > 900
    assert all(by_turns((1, 2, 3), 3, name) == by_turns((1, 2, 3), 3, name) for name in names)


def test_with_one_turn_nothing_changes() -> None:
    assert by_turns([5, 6], 1, "any name") == [5, 6]
