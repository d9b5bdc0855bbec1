"""The index of segments, against a plain list of them."""

import itertools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalike.model.segments import Segment, SegmentIndex
from tests.tools.effort import examples

PARTITIONS = 2


def segment(partition: int, start: int, length: int, at: int, path: str) -> Segment:
    return Segment(
        partition=partition,
        start=start,
        stop=start + length,
        num_records=length,
        min_timestamp=at - 1,
        max_timestamp=at,
        size_bytes=1,
        path=path,
    )


class IndexAndList(RuleBasedStateMachine):
    """Appends, removals and merges on an index and on a list; both must answer alike."""

    def __init__(self) -> None:
        super().__init__()
        self.index = SegmentIndex()
        self.live: list[Segment] = []
        self.ends = [0] * PARTITIONS
        self.named = 0

    @rule(partition=st.integers(0, PARTITIONS - 1), length=st.integers(1, 4), at=st.integers(1, 9))
    def append(self, partition: int, length: int, at: int) -> None:
        self.named += 1
        made = segment(partition, self.ends[partition], length, at, f"f{self.named}")
        self.index.add(made)
        self.index.add(made)
        self.live.append(made)
        self.ends[partition] = made.stop

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        if self.live:
            gone = data.draw(st.sampled_from(self.live))
            self.index.remove(gone.path)
            self.index.remove(gone.path)
            self.live.remove(gone)

    @rule(partition=st.integers(0, PARTITIONS - 1))
    def merge(self, partition: int) -> None:
        old = self.of(partition)
        if len(old) < 2 or any(a.stop != b.start for a, b in itertools.pairwise(old)):
            return
        self.named += 1
        length, at = old[-1].stop - old[0].start, max(s.max_timestamp for s in old)
        made = segment(partition, old[0].start, length, at, f"f{self.named}")
        for gone in old:
            self.index.remove(gone.path)
            self.live.remove(gone)
        self.index.add(made)
        self.live.append(made)

    def of(self, partition: int) -> list[Segment]:
        return sorted((s for s in self.live if s.partition == partition), key=lambda s: s.start)

    @invariant()
    def answers_are_alike(self) -> None:
        for p in range(PARTITIONS):
            mine = self.of(p)
            assert list(self.index.segments(p)) == mine
            assert self.index.end(p) == self.ends[p]
            for offset in range(self.ends[p] + 2):
                found = next((s for s in mine if s.stop > offset), None)
                assert self.index.at_or_after(p, offset) == found
            later = [s for s in mine if s.max_timestamp >= 5 and s.stop > 3]
            assert list(self.index.first_with_time(p, 5, 3)) == later
        assert len(self.index) == len(self.live)
        assert list(self.index) == [s for p in range(PARTITIONS) for s in self.of(p)]
        assert all(self.index.has(s.path) for s in self.live)


TestSegmentIndex = IndexAndList.TestCase


@given(order=st.permutations(range(5)))
def test_an_index_made_of_segments_in_any_order_is_the_same(order: list[int]) -> None:
    """As when a table's state is loaded."""
    made = [segment(0, n * 2, 2, 1, f"f{n}") for n in order]

    index = SegmentIndex(made)

    assert [s.start for s in index.segments(0)] == [0, 2, 4, 6, 8]
    assert (index.end(0), index.end(1), index.segments(1)) == (10, 0, ())


spans = st.tuples(st.integers(0, 1), st.integers(0, 9), st.integers(1, 5))


@pytest.mark.slow
@settings(max_examples=examples(300, 100))
@given(
    loaded=st.lists(spans, max_size=4),
    steps=st.lists(spans | st.integers(0, 7), max_size=10),
    wanted=st.tuples(st.integers(0, 15), st.integers(0, 15)),
)
@example(loaded=[(0, 0, 9), (0, 9, 3), (0, 2, 1), (0, 4, 1)], steps=[], wanted=(8, 9))
@example(loaded=[(0, 0, 3), (0, 3, 3)], steps=[(0, 3, 3), 2, 1], wanted=(3, 3))
@example(loaded=[(0, 0, 3), (0, 3, 3), (0, 6, 3)], steps=[(1, 0, 3), (0, 4, 1), 4], wanted=(3, 6))
@example(loaded=[(0, 0, 3), (0, 6, 3)], steps=[], wanted=(6, 3))
@example(loaded=[(0, 0, 3), (0, 3, 3), (0, 3, 3)], steps=[], wanted=(2, 3))
def test_segments_of_foreign_writers_may_hold_an_offset_twice(
    loaded: list[tuple[int, int, int]], steps: list[tuple[int, int, int] | int], wanted: tuple[int, int]
) -> None:
    """Whatever they cover, the index answers as a list of them does. A number removes that one of the live segments."""
    live = [segment(p, start, length, 1, f"f{n}") for n, (p, start, length) in enumerate(loaded)]
    index, ends = SegmentIndex(live), {p: max((s.stop for s in live if s.partition == p), default=0) for p in (0, 1)}

    for n, step in enumerate(steps, start=len(loaded)):
        if isinstance(step, int):
            for gone in live[step : step + 1]:
                index.remove(gone.path)
                live.remove(gone)
        else:
            live.append(segment(*step, 1, f"f{n}"))
            index.add(live[-1])
            ends[step[0]] = max(ends[step[0]], live[-1].stop)

    for p in (0, 1):
        mine = sorted((s for s in live if s.partition == p), key=lambda s: s.start)
        assert (list(index.segments(p)), index.end(p)) == (mine, ends[p])
        for offset in range(16):
            assert index.at_or_after(p, offset) == next((s for s in mine if s.stop > offset), None)
        for run in (range(*wanted), range(wanted[0], wanted[0] + 1), range(10, 10)):
            assert index.within(p, run) == [s for s in mine if run and s.start < run.stop and s.stop > run.start]
        for one in mine:
            others = (s for s in mine if s is not one and s.start < one.stop and s.stop > one.start)
            assert index.overlap(one) == next(others, None)
    assert index.paths == {s.path for s in live}
    assert dict(index.ends) == {p: end for p, end in ends.items() if end}


def test_a_segment_covers_its_first_offset_and_not_the_one_after_its_last() -> None:
    assert segment(0, 5, 3, 1, "a").offsets == range(5, 8)


def test_raise_end_to_keeps_a_higher_end() -> None:
    index = SegmentIndex()
    index.raise_end_to(0, 7)
    index.raise_end_to(0, 5)

    assert index.ends == {0: 7}
