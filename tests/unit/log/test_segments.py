"""The index of segments, against a plain list of them."""

import itertools
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalike.errors import LogCorruptError
from kafkalike.model.segments import Segment, SegmentIndex, segment_path
from tests.tools.effort import examples

PARTITIONS = 2


def named(partition: int, start: int, number: int) -> str:
    """Return the name of a file: every third is a foreign writer's."""
    return segment_path(partition, start, f"{number:08d}".rjust(32, "7")) if number % 3 else f"f{number}"


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
        start = self.ends[partition]
        made = segment(partition, start, length, at, named(partition, start, self.named))
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
        made = segment(partition, old[0].start, length, at, named(partition, old[0].start, self.named))
        self.index.remove(*(gone.path for gone in old))
        for gone in old:
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
            assert list(self.index.segments(p, 3)) == [s for s in mine if s.stop > 3]
            assert list(self.index.segments(p)[-2:]) == mine[-2:]
            assert self.index.end(p) == self.ends[p]
            for offset in range(self.ends[p] + 2):
                found = next((s for s in mine if s.stop > offset), None)
                assert self.index.at_or_after(p, offset) == found
            later = [s for s in mine if s.max_timestamp >= 5 and s.stop > 3]
            assert list(self.index.first_with_time(p, 5, 3)) == later
        assert len(self.index) == len(self.live)
        assert list(self.index) == [s for p in range(PARTITIONS) for s in self.of(p)]
        assert all(self.index.has(s.path) for s in self.live)
        assert self.index.paths - {"f0"} == {s.path for s in self.live}


TestSegmentIndex = IndexAndList.TestCase


@given(order=st.permutations(range(5)))
def test_an_index_made_of_segments_in_any_order_is_the_same(order: list[int]) -> None:
    """As when a table's state is loaded."""
    made = [segment(0, n * 2, 2, 1, named(0, n * 2, n)) for n in order]

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
    live = [segment(p, start, length, 1, named(p, start, n)) for n, (p, start, length) in enumerate(loaded)]
    index, ends = SegmentIndex(live), {p: max((s.stop for s in live if s.partition == p), default=0) for p in (0, 1)}

    for n, step in enumerate(steps, start=len(loaded)):
        if isinstance(step, int):
            for gone in live[step : step + 1]:
                index.remove(gone.path)
                live.remove(gone)
        else:
            live.append(segment(*step, 1, named(*step[:2], n)))
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


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("partition=0/part-00000000000000000005-" + "a" * 32 + ".parquet", id="ours"),
        pytest.param("partition=00/part-00000000000000000005-" + "a" * 32 + ".parquet", id="another_number"),
        pytest.param("partition=1/part-00000000000000000005-" + "a" * 32 + ".parquet", id="another_partition"),
        pytest.param("partition=0/part-00000000000000000006-" + "a" * 32 + ".parquet", id="another_offset"),
        pytest.param("partition=0/part-00000000000000000005-" + "0" * 32 + ".parquet", id="no_uuid"),
        pytest.param("partition=0/part-99999999999999999999-" + "a" * 32 + ".parquet", id="beyond_bigint"),
        pytest.param("partition=0/part-00000000000000000005-" + "A" * 32 + ".parquet", id="capitals"),
        pytest.param("partition=0/part-00000000000000000005-" + "a" * 32 + ".parquet\n", id="more"),
        pytest.param("part-00000-\udcff.c000.snappy.parquet", id="foreign"),
    ],
)
def test_an_index_returns_the_path_of_a_file_as_it_was_given(path: str) -> None:
    index, made = SegmentIndex(), segment(0, 5, 2, 1, path)
    index.add(segment(0, 5, 2, 1, "other"))
    index.add(made)

    assert [s.path for s in index.segments(0)] == ["other", path]
    assert (index.has(path), index.has(path + "x"), index.overlap(segment(0, 5, 2, 1, "other"))) == (True, False, made)
    index.remove(path)
    assert (index.has(path), set(index.paths), SegmentIndex([made]).at_or_after(0, 6)) == (False, {"other"}, made)


@pytest.mark.parametrize("at", [slice(1, 3), slice(None, None, -1), slice(0, None, 2), slice(-1, None)], ids=str)
def test_slice_of_segments_has_the_segments_that_a_list_would_have(at: slice) -> None:
    made = [segment(0, n * 2, 2, 1, segment_path(0, n * 2, f"{n + 1:08d}".rjust(32, "7"))) for n in range(4)]

    assert list(SegmentIndex(made).segments(0)[at]) == made[at]


def test_a_number_that_no_file_can_have_is_refused_and_leaves_the_index_as_it_was() -> None:
    index = SegmentIndex()

    with pytest.raises(LogCorruptError, match="a number that no file can have, of f1"):
        index.add(segment(0, 5, 2**64, 1, "f1"))

    assert (len(index), index.ends, index.has("f1")) == (0, {}, False)


def test_a_segment_takes_a_hundred_bytes_of_memory() -> None:
    """A topic of small appends has hundred thousands of files until maintenance merges them."""
    index, count = SegmentIndex(), 2000
    names = [f"{n:032x}"[::-1] for n in range(1, count + 1)]
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for n, name in enumerate(names):
        index.add(segment(0, 1000 + n, 1, 1_700_000_000_000 + n, segment_path(0, 1000 + n, name)))
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert len(index) == count
    assert taken < 100 * count
