"""Merging's plan: runs are adjacent, within their limits, and a byte is rewritten only a few times."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.maintenance.log_cleanup import MergePolicy, Run, plan_merges
from kafkalike.model.segments import Segment

NOW = 1_000_000
POLICY = MergePolicy(target_bytes=1000, max_span_ms=10**9, min_age_ms=0)


def segment(start: int, size: int, *, time: int = 1) -> Segment:
    return Segment(
        partition=0,
        start=start,
        stop=start + 1,
        num_records=1,
        min_timestamp=0,
        max_timestamp=0,
        size_bytes=size,
        path=f"{start}-{size}",
        modification_ms=time,
    )


def of(*sizes: int) -> list[Segment]:
    return [segment(at, size) for at, size in enumerate(sizes)]


def applied(segments: list[Segment], runs: list[Run]) -> list[Segment]:
    """The segments after merging."""
    left = {s.path: s for s in segments}
    for run in runs:
        for part in run:
            del left[part.path]
        size = sum(s.size_bytes for s in run)
        whole = replace(run[0], stop=run[-1].stop, size_bytes=size, path=f"{run[0].start}-{run[-1].stop}-{size}")
        left[whole.path] = replace(whole, modification_ms=max(s.modification_ms for s in run))
    return sorted(left.values(), key=lambda s: s.start)


sizes = st.lists(st.integers(1, 1200), max_size=40)
policies = st.builds(
    MergePolicy,
    target_bytes=st.integers(10, 2000),
    max_span_ms=st.integers(0, 50),
    min_age_ms=st.integers(0, 60),
    min_run=st.integers(2, 6),
)


@given(st.lists(st.tuples(st.integers(1, 1200), st.integers(0, 100)), max_size=40), policies)
def test_runs_are_adjacent_disjoint_and_within_every_limit(facts: list[tuple[int, int]], policy: MergePolicy) -> None:
    """No run is larger, longer or younger than allowed, and none is a single file."""
    times = sorted(time for _, time in facts)
    segments = [
        segment(at, size, time=NOW - 100 + t) for at, ((size, _), t) in enumerate(zip(facts, times, strict=True))
    ]

    runs = plan_merges(segments, NOW, policy)

    seen = [s.start for run in runs for s in run]
    assert seen == sorted(set(seen))
    for run in runs:
        assert len(run) >= 2
        assert [s.start for s in run] == list(range(run[0].start, run[-1].start + 1))
        assert sum(s.size_bytes for s in run) <= policy.target_bytes
        assert run[-1].modification_ms - run[0].modification_ms <= policy.max_span_ms
        assert NOW - run[-1].modification_ms >= policy.min_age_ms


@given(sizes)
def test_merging_again_and_again_comes_to_an_end(made: list[int]) -> None:
    """With as few files as the target allows, about: two neighbours of a closed run never fit into one."""
    segments = of(*made)
    for _ in range(len(made) + 2):
        runs = plan_merges(segments, NOW, POLICY)
        if not runs:
            break
        segments = applied(segments, runs)

    assert plan_merges(segments, NOW, POLICY) == []
    total = sum(made)
    assert len(segments) <= 2 * (total // POLICY.target_bytes + 1) + 4 * 12


@given(st.integers(50, 300), st.integers(1, 9))
def test_small_appends_are_rewritten_a_few_times_at_most(count: int, every: int) -> None:
    """However often maintenance runs; each time a byte moves, its file at least doubles or reaches its end."""
    segments: list[Segment] = []
    written = 0
    for at in range(count):
        segments.append(segment(at, 10))
        if at % every == 0:
            runs = plan_merges(segments, NOW, replace(POLICY, target_bytes=10_000))
            written += sum(s.size_bytes for run in runs for s in run)
            segments = applied(segments, runs)

    assert written <= 10 * count * 9


def test_the_hot_tail_is_left_alone() -> None:
    """Files that are too young, and those above them."""
    segments = [segment(at, 10, time=NOW - 100 if at < 6 else NOW) for at in range(12)]

    (run,) = plan_merges(segments, NOW, replace(POLICY, min_age_ms=50))

    assert [s.start for s in run] == list(range(6))


def test_a_large_file_among_small_ones_stays_as_it_is() -> None:
    """The small ones on either side are merged by themselves."""
    runs = plan_merges(of(10, 10, 10, 10, 500, 10, 10, 10, 10), NOW, POLICY)

    assert [[s.start for s in run] for run in runs] == [[0, 1, 2, 3], [5, 6, 7, 8]]


def test_no_run_goes_over_lost_records() -> None:
    """Readers notice a hole between two files; where compaction made it, it is none."""
    segments = [s for s in of(*[10] * 9) if s.start != 4]

    runs = plan_merges(segments, NOW, POLICY)

    assert [[s.start for s in run] for run in runs] == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert [[s.start for s in run] for run in plan_merges(segments, NOW, POLICY, 4)] == [[0, 1, 2, 3], [5, 6, 7, 8]]
    assert [len(run) for run in plan_merges(segments, NOW, POLICY, 5)] == [8]


def test_few_files_wait_for_more() -> None:
    """Until the next file does not fit: then even two are put together."""
    assert plan_merges(of(10, 10, 10), NOW, POLICY) == []
    assert [len(run) for run in plan_merges(of(10, 10, 10, 990), NOW, POLICY)] == [3]


def runs_of(segments: list[Segment], policy: MergePolicy = POLICY) -> list[list[int]]:
    return [[s.start for s in run] for run in plan_merges(segments, NOW, policy)]


def test_two_files_before_one_that_does_not_fit_are_put_together() -> None:
    """Nothing can join them any more; the same holds before lost records, and at the end of the span of time."""
    short = replace(POLICY, max_span_ms=30)

    assert runs_of(of(10, 10, 990)) == [[0, 1]]
    assert runs_of([s for s in of(10, 10, 10, 10) if s.start != 2]) == [[0, 1]]
    assert runs_of([segment(at, 10, time=NOW - 100 + 16 * at) for at in range(3)], short) == [[0, 1]]


def test_a_run_may_take_exactly_the_longest_span_and_be_of_exactly_the_age() -> None:
    """A millisecond more is too much."""
    segments = [segment(at, 10, time=NOW - 100 + 10 * at) for at in range(4)]

    assert runs_of(segments, replace(POLICY, max_span_ms=30, min_age_ms=70)) == [[0, 1, 2, 3]]
    assert runs_of(segments, replace(POLICY, max_span_ms=29)) == [[0, 1, 2]]
    assert runs_of(segments, replace(POLICY, min_age_ms=71)) == []


def test_a_large_file_joins_when_the_others_together_are_as_large() -> None:
    """The result is twice as large then. Too few small ones beside a larger one wait."""
    assert runs_of(of(30, 10, 10, 10)) == [[0, 1, 2, 3]]
    assert runs_of(of(31, 10, 10, 10)) == []
    assert runs_of(of(10, 10, 500, 10, 10, 10, 10)) == [[3, 4, 5, 6]]


def test_ten_thousand_files_are_planned_at_once() -> None:
    """All of them in runs of the target's size."""
    runs = plan_merges([segment(at, 10) for at in range(10_000)], NOW, POLICY)

    assert {len(run) for run in runs} == {100}
