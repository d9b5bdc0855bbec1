"""How lag moved: commits and segments in, lag at past moments out."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.lag import CommitIndex, GrowthIndex, Moment, history, moments
from kafkalike.model.segments import Segment


def appended(start: int, stop: int, at_ms: int, *, first_ms: int | None = None) -> Segment:
    """A segment whose file was made at a time, with records from `first_ms` up to that time."""
    return Segment(
        partition=0,
        start=start,
        stop=stop,
        num_records=stop - start,
        min_timestamp=at_ms if first_ms is None else first_ms,
        max_timestamp=at_ms,
        size_bytes=1,
        path=str(start),
        modification_ms=at_ms,
    )


def found(commits: list[tuple[int, int | None]], segments: list[Segment], *times: int, rate_ms: int) -> list[Moment]:
    return list(history(CommitIndex(commits), GrowthIndex(0, segments), times, rate_ms))


def test_lag_grows_while_nobody_commits() -> None:
    """The group stands at 10 while the log goes on."""
    log = [appended(0, 10, 1_000), appended(10, 40, 2_000), appended(40, 90, 3_000)]

    seen = found([(1_500, 10)], log, 1_000, 1_500, 2_500, 3_500, rate_ms=1_000)

    assert [(m.time_ms, m.committed, m.log_end, m.lag) for m in seen] == [
        (1_500, 10, 10, 0),
        (2_500, 10, 40, 30),
        (3_500, 10, 90, 80),
    ]
    assert [m.catch_up_seconds for m in seen] == [0.0, None, None]


def test_a_group_that_is_faster_than_its_producers_catches_up() -> None:
    """110 offsets behind, gaining 15 a second."""
    log = [appended(0, 300, 0), *(appended(295 + n * 5, 300 + n * 5, n * 1_000) for n in range(1, 16))]
    commits: list[tuple[int, int | None]] = [(n * 1_000, n * 20) for n in range(14)]

    (moment,) = found(commits, log, 13_000, rate_ms=10_000)

    assert (moment.lag, moment.consumed_per_second, moment.produced_per_second) == (105, 20.0, 5.0)
    assert moment.catch_up_seconds == 105 / 15


def test_a_group_that_is_slower_than_its_producers_never_catches_up() -> None:
    """It gains nothing."""
    log = [appended(n * 10, n * 10 + 10, n * 1_000) for n in range(11)]

    (moment,) = found([(0, 0), (10_000, 50)], log, 10_000, rate_ms=10_000)

    assert (moment.lag, moment.consumed_per_second, moment.produced_per_second) == (60, 5.0, 10.0)
    assert moment.catch_up_seconds is None


def test_a_rewind_gives_no_rate() -> None:
    """A reset to an earlier offset is no negative speed, and no speed made of both sides of it."""
    commits: list[tuple[int, int | None]] = [(0, 50), (1_000, 60), (2_000, 5), (3_000, 15)]

    seen = found(commits, [appended(0, 100, 0)], 1_000, 2_000, 3_000, 4_000, rate_ms=1_000)

    assert [m.consumed_per_second for m in seen] == [10.0, None, 10.0, 0.0]


def test_a_rewind_right_after_the_first_commit_gives_no_rate() -> None:
    """The first commit is one to go back behind."""
    (moment,) = found([(0, 50), (1_000, 5)], [appended(0, 100, 0)], 1_000, rate_ms=1_000)

    assert (moment.consumed_per_second, moment.produced_per_second) == (None, None)


def test_a_commit_of_the_same_offset_is_no_rewind() -> None:
    """A group that commits on and on while it waits."""
    commits: list[tuple[int, int | None]] = [(0, 5), (500, 5), (1_000, 9)]

    (moment,) = found(commits, [appended(0, 10, 0)], 1_000, rate_ms=1_000)

    assert moment.consumed_per_second == 4.0


def test_the_order_of_commits_counts_and_not_their_clocks() -> None:
    """The second one comes from a host whose clock is behind."""
    seen = found([(2_000, 5), (1_000, 7)], [appended(0, 10, 0)], 1_500, 2_000, rate_ms=100)

    assert [(m.time_ms, m.committed) for m in seen] == [(2_000, 7)]


def test_a_young_group_has_a_rate_since_its_first_commit() -> None:
    """Though that is less than the span of the rates."""
    (moment,) = found([(8_000, 0), (10_000, 10)], [appended(0, 10, 0)], 10_000, rate_ms=60_000)

    assert (moment.consumed_per_second, moment.produced_per_second) == (5.0, 0.0)


def test_deleted_offsets_leave_a_gap() -> None:
    """Until the next commit there is nothing to be behind of."""
    seen = found([(0, 5), (1_000, None), (3_000, 7)], [appended(0, 10, 0)], 500, 1_500, 2_500, 3_500, rate_ms=100)

    assert [(m.time_ms, m.lag) for m in seen] == [(500, 5), (3_500, 3)]


def test_a_merged_segment_still_tells_how_it_grew() -> None:
    """Its file is younger than that of the segment after it, so the records' times count."""
    merged = replace(appended(0, 100, 10_000, first_ms=0), modification_ms=60_000)
    growth = GrowthIndex(0, [merged, appended(100, 120, 12_000)])

    assert [growth.log_end(at) for at in (0, 2_500, 5_000, 10_000, 12_000, 60_000)] == [0, 25, 50, 100, 120, 120]


def test_a_merged_segment_that_does_not_begin_at_once_grew_between_its_own_times() -> None:
    """Neither before its first record nor beyond its last one; compaction has taken what was below it."""
    merged = replace(appended(20, 100, 10_000, first_ms=2_000), modification_ms=60_000)
    growth = GrowthIndex(0, [merged, appended(100, 120, 12_000)])

    assert [growth.log_end(at) for at in (1_999, 2_000, 4_000, 10_000, 11_000)] == [0, 20, 40, 100, 100]


def test_a_merged_segment_of_two_milliseconds_is_whole_at_the_second() -> None:
    """Its first record comes with the first one."""
    merged = replace(appended(0, 100, 8, first_ms=7), modification_ms=60_000)
    growth = GrowthIndex(0, [merged, appended(100, 120, 9)])

    assert [growth.log_end(at) for at in (6, 7, 8, 9)] == [0, 0, 100, 120]


def test_records_with_old_times_count_from_when_they_were_written() -> None:
    """An import of last year's records does not change last year's lag."""
    growth = GrowthIndex(0, [replace(appended(0, 100, 10_000, first_ms=0), modification_ms=60_000)])

    assert [growth.log_end(at) for at in (5_000, 59_999, 60_000)] == [0, 0, 100]


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500), st.integers(0, 500)), max_size=8), st.data())
def test_the_log_never_shrinks_as_time_goes_on(runs: list[tuple[int, int, int]], data: st.DataObject) -> None:
    """Whatever files and records say about times."""
    segments, at = [], 0
    for length, made, first in runs:
        segments.append(replace(appended(at, at + length, max(made, first), first_ms=first), modification_ms=made))
        at += length
    growth = GrowthIndex(0, segments)
    times = sorted(data.draw(st.lists(st.integers(0, 600), max_size=10)))

    ends = [growth.log_end(t) for t in times]

    assert ends == sorted(ends)
    assert growth.log_end(10_000) == at


def test_moments_end_now() -> None:
    """And are as many as the span has steps, and one."""
    assert moments(1_000, 250, 100) == [800, 900, 1_000]
    assert moments(5, 2, 1) == [3, 4, 5]
