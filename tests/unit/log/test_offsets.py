"""Runs of offsets: dense, disjoint, in order, whatever is appended; against brute force."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.offset_commit import shifted, storable
from kafkalike.model.segments import MAX_OFFSET, Gap, Overlap, gaps_and_overlaps, plan_offsets, requirements
from kafkalike.model.structs import TopicPartition

partition_lists = st.lists(st.integers(0, 4), max_size=30)
ranges = st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda run: range(run[0], run[0] + run[1]))


@given(appends=st.lists(partition_lists, max_size=8))
def test_appends_give_each_partition_dense_offsets_in_order(appends: list[list[int]]) -> None:
    """Every record its own offset, none left out, later records above earlier ones."""
    ends: dict[int, int] = {}
    given_out: dict[int, list[int]] = {p: [] for p in range(5)}

    for partitions in appends:
        plan = plan_offsets(ends, Counter(partitions))
        for p, run in plan.items():
            given_out[p] += run
        ends.update({p: run.stop for p, run in plan.items()})

    assert all(offsets == list(range(len(offsets))) for offsets in given_out.values())


@given(
    ends=st.dictionaries(st.integers(0, 4), st.integers(0, 100)),
    counts=st.dictionaries(st.integers(0, 4), st.integers(0, 5)),
)
def test_a_plan_holds_as_long_as_its_log_ends_do(ends: dict[int, int], counts: dict[int, int]) -> None:
    """A rival's append to a partition of the plan breaks it, one to another partition does not."""
    plan = plan_offsets(ends, counts)
    needed = requirements(plan)

    assert {p: len(run) for p, run in plan.items()} == {p: n for p, n in counts.items() if n}
    assert all(need.holds(ends) for need in needed)
    for p in range(5):
        later = {**ends, p: ends.get(p, 0) + 1}
        assert all(need.holds(later) for need in needed) == (p not in plan)


@given(runs=st.lists(ranges, max_size=6), start=st.integers(0, 12))
def test_gaps_and_overlaps_are_those_a_count_finds(runs: list[range], start: int) -> None:
    """Offsets from the log start to the last run: missing where no run has them, doubled where two or more do.

    Nothing is told of runs that meet: no flaw is empty.
    """
    covered = Counter(offset for run in runs for offset in run if offset >= start)
    stop = max(covered, default=start - 1) + 1

    found = gaps_and_overlaps(7, runs, start)

    missing = [offset for flaw in found if isinstance(flaw, Gap) for offset in flaw.missing]
    doubled = {offset for flaw in found if isinstance(flaw, Overlap) for offset in flaw.doubled}
    assert sorted(missing) == [offset for offset in range(start, stop) if not covered[offset]]
    assert doubled == {offset for offset, times in covered.items() if times > 1}
    assert all(flaw.partition == 7 for flaw in found)
    assert all(flaw.missing if isinstance(flaw, Gap) else flaw.doubled for flaw in found)


def test_offsets_are_shifted_where_something_is_committed() -> None:
    """Beyond both ends too: `storable` brings them into what a table can hold."""
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)

    assert shifted({first: 5, second: 7}, [first], -9) == {first: -4}
    assert [storable(offset) for offset in (-4, 3, 2**70)] == [0, 3, MAX_OFFSET]
    with pytest.raises(IllegalArgumentError, match="t-1"):
        shifted({first: 5}, [first, second], 1)
