"""The arithmetic of lag against records counted one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.lag import Lag, PartitionIndex, total
from kafkalike.model.segments import Segment
from tests.tools.segments import segment


@st.composite
def dense_partitions(draw: st.DrawFn) -> tuple[list[Segment], list[int]]:
    """Segments of rising times, and the time of each offset: those of a segment are spread evenly."""
    lengths = draw(st.lists(st.integers(1, 6), max_size=6))
    segments: list[Segment] = []
    times: list[int] = []
    at = 0
    for length in lengths:
        first = times[-1] + draw(st.integers(0, 50)) if times else draw(st.integers(0, 50))
        step = draw(st.integers(0, 9))
        own = [first + n * step for n in range(length)]
        segments.append(segment(at, at + length, times=(own[0], own[-1])))
        times += own
        at += length
    return segments, times


@pytest.mark.slow
@given(dense_partitions(), st.integers(0, 40), st.integers(0, 40))
def test_lag_is_what_counting_the_records_gives(
    partition: tuple[list[Segment], list[int]], committed: int, log_start: int
) -> None:
    """Offsets, records and time, wherever the group and the log start stand."""
    segments, times = partition
    end = len(times)
    log_start = min(log_start, end)
    live = [s for s in segments if s.stop > log_start]

    found = PartitionIndex(log_start, end, live).lag(committed)

    unread = range(max(committed, log_start), end)
    assert found.offsets == max(0, end - committed)
    assert found.records == len(unread)
    if unread and committed > log_start:
        assert found.behind_ms == times[-1] - times[committed - 1]
    if not unread:
        assert found.behind_ms == 0
    assert found.oldest_ms == (times[unread[0]] if unread else None)


@given(st.integers(1, 50), st.data())
def test_records_of_a_compacted_segment_are_bounded(length: int, data: st.DataObject) -> None:
    """Never more than the offsets left or the records there are, and never none while one is unread."""
    records = data.draw(st.integers(1, length))
    committed = data.draw(st.integers(0, length + 5))

    found = PartitionIndex(0, length, [segment(0, length, records=records)]).records_from(committed)

    assert found <= min(records, max(0, length - committed))
    assert (found == 0) == (committed >= length)
    if committed == 0:
        assert found == records


def test_offsets_that_compaction_took_are_lag_in_offsets_only() -> None:
    """100 offsets are left, 3 records."""
    index = PartitionIndex(0, 200, [segment(0, 100), segment(150, 200, records=3, times=(5, 9))])

    assert index.lag(100) == Lag(offsets=100, records=3, behind_ms=9, oldest_ms=5)


def test_a_part_of_a_record_counts_as_one() -> None:
    """Three records in ten offsets: from the middle on there is one and a half."""
    index = PartitionIndex(0, 10, [segment(0, 10, records=3)])

    assert [index.records_from(offset) for offset in (0, 5, 9, 10)] == [3, 2, 1, 0]


def test_the_time_of_an_offset_is_in_proportion_between_the_first_and_the_last_record() -> None:
    """Where there is no record, that of the last one before it; none before the first."""
    four = PartitionIndex(10, 20, [segment(10, 14, times=(1_000, 4_000))])
    short = PartitionIndex(0, 3, [segment(0, 1, times=(3, 3)), segment(1, 3, times=(5, 9))])

    assert [four.time_of(offset) for offset in range(9, 16)] == [None, 1_000, 2_000, 3_000, 4_000, 4_000, 4_000]
    assert [short.time_of(offset) for offset in range(4)] == [3, 5, 9, 9]


@pytest.mark.parametrize("committed", [3, 5])
def test_records_below_the_log_start_count_as_read_by_nobody(committed: int) -> None:
    """It was moved into a segment: the time of what was deleted there says nothing about who waits."""
    index = PartitionIndex(5, 10, [segment(0, 10, times=(0, 9_000))])

    assert index.lag(committed) == Lag(offsets=10 - committed, records=5, behind_ms=9_000, oldest_ms=5_000)
    assert index.lag(6).behind_ms == 4_000


def test_who_has_read_nothing_is_as_far_behind_as_the_oldest_record_is_old() -> None:
    """Also a group whose offset is below the log start."""
    index = PartitionIndex(10, 20, [segment(10, 20, times=(1_000, 4_000))])

    assert index.lag(3) == Lag(offsets=17, records=10, behind_ms=3_000, oldest_ms=1_000)
    assert index.lag(10) == Lag(offsets=10, records=10, behind_ms=3_000, oldest_ms=1_000)


def test_times_that_fall_never_make_a_lag_negative() -> None:
    """The newest record by offset is an old one."""
    index = PartitionIndex(0, 20, [segment(0, 10, times=(5_000, 9_000)), segment(10, 20, times=(10, 20))])

    assert index.lag(10).behind_ms == 0
    assert index.lag(5).behind_ms > 0
    assert index.lag(20).behind_ms == 0


@pytest.mark.parametrize("committed", [0, 7])
def test_an_empty_partition_has_no_lag(committed: int) -> None:
    """Wherever the group stands."""
    assert PartitionIndex(0, 0, []).lag(committed) == Lag(offsets=0, records=0, behind_ms=0)


def test_lags_add_up_but_times_do_not() -> None:
    """The slowest partition says how late a group is, and the oldest record how long somebody has waited."""
    lags = [
        Lag(offsets=5, records=3, behind_ms=100, oldest_ms=50),
        Lag(offsets=1, records=1, behind_ms=900, oldest_ms=70),
        Lag(offsets=0, records=0, behind_ms=0),
    ]

    assert total(lags) == Lag(offsets=6, records=4, behind_ms=900, oldest_ms=50)
    assert [total(lags).waiting_ms(now) for now in (40, 90)] == [0, 40]
    assert lags[2].waiting_ms(90) == 0
    assert total([]) == Lag(offsets=0, records=0, behind_ms=0)
