"""Which own versions of a replica count."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.replication.registration import Span, begun, compared, counts, holding


def not_counted(spans: Sequence[Span], newest: int, until: int = 12) -> list[int]:
    return [version for version in range(until) if not counts(version, spans, newest)]


def test_nothing_noted_and_all_counts() -> None:
    assert not_counted([], 5) == []
    assert not_counted([], -1) == []


def test_versions_of_a_span_do_not_count_and_their_neighbours_do() -> None:
    assert not_counted([Span(3, 5)], 5) == [3, 4, 5]
    assert not_counted([Span(3, 5), Span(8, 9)], 9) == [3, 4, 5, 8, 9]


def test_a_span_holds_once_its_checkpoint_is_there() -> None:
    assert not_counted([Span(3, 5)], 4) == []
    assert not_counted([Span(3, 5), Span(4, 8, final=False)], 7) == [3, 4, 5]


def test_a_final_span_replaces_one_that_was_begun() -> None:
    assert holding([Span(1, 5, final=False), Span(4, 5)], 5) == [Span(4, 5)]
    assert not_counted([Span(1, 5, final=False), Span(4, 5)], 5) == [4, 5]


def test_of_two_final_ones_both_hold() -> None:
    """Clean-up took all up to there; or two helpers have compared with different replicas."""
    assert not_counted([Span(4, 5), Span(0, 5)], 5) == [0, 1, 2, 3, 4, 5]


def test_a_span_begins_behind_what_was_right_for_sure() -> None:
    assert begun([], -1, 7) == Span(0, 7, final=False)
    assert begun([], 4, 7) == Span(5, 7, final=False)
    assert begun([Span(2, 5)], 5, 7) == Span(6, 7, final=False)
    # One whose checkpoint never came says nothing.
    assert begun([Span(2, 6)], 4, 7) == Span(5, 7, final=False)


@pytest.mark.parametrize(
    ("own", "theirs", "first"),
    [
        pytest.param("abc", "abc", 3, id="all are right"),
        pytest.param("abx", "abcd", 2, id="the last one is its own"),
        pytest.param("xyz", "abcd", 0, id="all are its own"),
        pytest.param("abx", "??c", 0, id="what the other one lacks is not known"),
        pytest.param("abc", "??c", 3, id="before a right one all are"),
        pytest.param("ab-d", "abcd", 2, id="what stands after a hole has landed late"),
        pytest.param("", "abcd", 0, id="nothing is there"),
    ],
)
def test_versions_count_up_to_the_last_one_that_another_replica_has_too(own: str, theirs: str, first: int) -> None:
    there = [number for number, letter in enumerate(own) if letter != "-"]
    span = Span(0, 6, final=False)

    found = compared(span, there, lambda v: None if theirs[v : v + 1] in {"", "?"} else own[v] == theirs[v])

    assert found == Span(first, 6)


@given(right=st.integers(0, 6), own=st.integers(0, 4), more=st.integers(0, 4), known=st.sets(st.integers(0, 12)))
def test_no_wrong_version_counts_and_right_ones_do_as_far_as_known(
    right: int, own: int, more: int, known: set[int]
) -> None:
    """Whatever the other replica has of it."""
    end = right + own
    span = begun([], -1, end + more)

    final = compared(span, range(end), lambda v: None if v not in known else v < right)

    assert all(not counts(version, [span, final], end + more) for version in range(right, end))
    last = max((version for version in known if version < right), default=-1)
    assert all(counts(version, [span, final], end + more) for version in range(last + 1))
