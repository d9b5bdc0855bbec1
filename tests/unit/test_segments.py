"""The index of segments, against a plain list of them."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from kafkalike.model.segments import Segment, SegmentIndex

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
