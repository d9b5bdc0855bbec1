"""Ranges of offsets in share groups: equal neighbors merge, and gaps are what no range covers."""

from __future__ import annotations

import pytest

from kafkalike.model.shares.share_runs import gaps, merged_offsets


@pytest.mark.parametrize(
    ("covered", "expected"),
    [
        pytest.param([], [(2, 9)], id="nothing-covered"),
        pytest.param([(0, 9)], [], id="all-covered"),
        pytest.param([(0, 3), (5, 6)], [(4, 4), (7, 9)], id="between-and-after"),
        pytest.param([(0, 1), (10, 12)], [(2, 9)], id="ranges-outside"),
        pytest.param([(4, 7), (5, 6), (6, 8)], [(2, 3), (9, 9)], id="ranges-that-overlap"),
        pytest.param([(3, 20)], [(2, 2)], id="range-beyond-the-end"),
    ],
)
def test_gaps_are_the_offsets_that_no_range_covers(
    covered: list[tuple[int, int]], expected: list[tuple[int, int]]
) -> None:
    assert list(gaps(2, 9, covered)) == expected


def test_offsets_merge_while_they_follow_each_other_and_have_equal_facts() -> None:
    offsets = [(1, ("a",)), (2, ("a",)), (3, ("b",)), (5, ("b",)), (6, ("b",))]

    assert list(merged_offsets(offsets)) == [(1, 2, ("a",)), (3, 3, ("b",)), (5, 6, ("b",))]
    assert list(merged_offsets([])) == []
