"""Planning of format("kafkalike"): offsets in; how far a batch goes and what each task reads out."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.segments import Segment, SegmentIndex
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch_plan import OffsetRun, grouped, rate_limited, split, waits
from kafkalike.spark.format.positions import offsets_json, offsets_of
from kafkalike.spark.format.query import offsets_behind

MAX_LONG = 2**63 - 1


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def runs(*sizes: int, start: int = 0) -> list[OffsetRun]:
    return [OffsetRun(tp(p), range(start, start + size)) for p, size in enumerate(sizes)]


def bounds(pieces: list[OffsetRun]) -> list[tuple[int, int, int]]:
    return [(piece.tp.partition, piece.offsets.start, piece.offsets.stop) for piece in pieces]


offsets = st.dictionaries(st.integers(0, 9).map(tp), st.integers(0, 10_000), min_size=1)


# --- limits ------------------------------------------------------------------------------------


def test_behaviour_25_a_limit_is_shared_in_proportion_and_nobody_starves() -> None:
    """Spark's own example: 101, 11 and 1 waiting, limit 10."""
    start = {tp(0): 0, tp(1): 0, tp(2): 0}

    assert rate_limited(10, start, {tp(0): 101, tp(1): 11, tp(2): 1}) == {tp(0): 8, tp(1): 1, tp(2): 1}


def test_behaviour_26_the_largest_limit_does_not_overflow() -> None:
    """Nor lose a digit, as doubles would."""
    start, until = {tp(0): 5, tp(1): 0}, {tp(0): 2**60 + 1, tp(1): 7}

    assert rate_limited(MAX_LONG, start, until) == until


@given(offsets, st.integers(1, 20_000), st.integers(0, 500))
def test_a_limited_batch_stays_within_what_is_there(until: dict[TopicPartition, int], limit: int, begun: int) -> None:
    """Every partition with something waiting moves, none beyond its end, and the sum is about the limit."""
    start = {p: min(begun, end) for p, end in until.items()}

    ends = rate_limited(limit, start, until)

    moved = {p: ends[p] - start[p] for p in until}
    waiting = [p for p in until if until[p] > start[p]]
    assert all(0 < moved[p] <= until[p] - start[p] for p in waiting)
    assert all(moved[p] == 0 for p in until if p not in waiting)
    assert sum(moved.values()) <= max(limit, len(waiting)) + len(waiting)
    if sum(until[p] - start[p] for p in waiting) <= limit:
        assert ends == until


def test_a_partition_that_was_taken_back_stays_as_it_is() -> None:
    """Its end below its start is for others to report."""
    assert rate_limited(5, {tp(0): 9}, {tp(0): 3}) == {tp(0): 3}


def test_behaviour_27_a_batch_waits_while_less_than_the_minimum_is_there() -> None:
    """Counted over all partitions."""
    start = {tp(0): 10, tp(1): 10}

    assert waits(6, start, {tp(0): 13, tp(1): 12})
    assert not waits(5, start, {tp(0): 13, tp(1): 12})


# --- splitting ---------------------------------------------------------------------------------


def test_behaviour_21_ranges_are_split_in_proportion_to_their_size() -> None:
    """Empty ones are left out, small ones left whole."""
    pieces = split(runs(100, 0, 300, 3), min_parts=5)

    assert bounds(pieces) == [(0, 0, 100), (2, 0, 100), (2, 100, 200), (2, 200, 300), (3, 0, 3)]


def test_behaviour_21_ranges_stay_whole_when_there_are_enough() -> None:
    """As many as wanted, or more."""
    assert split(runs(5, 500), min_parts=2) == runs(5, 500)
    assert split(runs(5, 500), min_parts=1) == runs(5, 500)
    assert split(runs(5, 500)) == runs(5, 500)


def test_no_piece_has_more_records_than_allowed() -> None:
    """And with a minimum of pieces the finer cut counts."""
    assert bounds(split(runs(10, 3), max_records=4)) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 0, 3)]
    assert len(split(runs(10, 3), min_parts=8, max_records=4)) == 8
    assert len(split(runs(10, 3), min_parts=3, max_records=1)) == 13


def test_few_tasks_have_about_the_same_to_read() -> None:
    """A large range has a task of its own."""
    shared = grouped(runs(10, 100, 20, 70, 30), most=2)

    assert [[piece.tp.partition for piece in task] for task in shared] == [[0, 3, 4], [1, 2]]
    assert grouped(runs(5, 6), most=2) == grouped(runs(5, 6), most=None) == [[piece] for piece in runs(5, 6)]


@given(st.lists(st.integers(1, 500), max_size=12), st.integers(1, 8), st.none() | st.integers(1, 100))
def test_sharing_tasks_loses_doubles_and_reorders_nothing(sizes: list[int], most: int, max_records: int | None) -> None:
    """No task has more than an equal share and one piece."""
    pieces = split(runs(*sizes), max_records=max_records)

    tasks = grouped(pieces, most)

    assert len(tasks) == min(most, len(pieces))
    assert all(task == [piece for piece in pieces if piece in task] for task in tasks)
    assert sorted(bounds([piece for task in tasks for piece in task])) == bounds(pieces)
    if tasks:
        fair = sum(sizes) / most + max(len(piece) for piece in pieces)
        assert max(sum(len(piece) for piece in task) for task in tasks) <= fair


@given(
    st.lists(st.integers(0, 500), max_size=8),
    st.none() | st.integers(1, 60),
    st.none() | st.integers(1, 200),
    st.integers(0, 2**62),
)
def test_behaviour_21_splitting_loses_and_doubles_nothing(
    sizes: list[int], min_parts: int | None, max_records: int | None, start: int
) -> None:
    """Pieces follow one another, and there are as many as were asked for, if there are records for them."""
    whole = runs(*sizes, start=start)

    pieces = split(whole, min_parts, max_records)

    for run in whole:
        own = [piece.offsets for piece in pieces if piece.tp == run.tp]
        assert [offset for piece in own for offset in (piece.start, piece.stop)] == sorted(
            offset for piece in own for offset in (piece.start, piece.stop)
        )
        assert sum(len(piece) for piece in own) == len(run)
        assert not own or (own[0].start, own[-1].stop) == (run.offsets.start, run.offsets.stop)
    assert all(len(piece) > 0 for piece in pieces)
    assert len(pieces) >= min(min_parts or 0, sum(sizes))
    assert max_records is None or all(len(piece) <= max_records for piece in pieces)


# --- segments of a range -----------------------------------------------------------------------


@given(st.lists(st.integers(1, 9), max_size=12), st.integers(0, 60), st.integers(0, 60))
def test_the_segments_of_a_range_are_those_that_overlap_it(sizes: list[int], low: int, high: int) -> None:
    """Found by bisection; here by looking at each."""
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    segments = [
        Segment(0, start, start + size, size, 0, 0, 1, f"{start}") for start, size in zip(starts, sizes, strict=True)
    ]
    wanted = range(min(low, high), max(low, high))

    found = SegmentIndex(segments).within(0, wanted)

    assert found == [s for s in segments if s.start < wanted.stop and s.stop > wanted.start and wanted]


# --- JSON --------------------------------------------------------------------------------------


def test_behaviour_35_offsets_come_back_from_their_json() -> None:
    """Topics and partitions in order, partitions by number."""
    given_offsets = {tp(10, "b"): 3, tp(2, "b"): MAX_LONG, tp(0, "a"): 0}

    text = json.dumps(offsets_json(given_offsets), separators=(",", ":"))

    assert text == '{"a":{"0":0},"b":{"2":9223372036854775807,"10":3}}'
    assert offsets_of(json.loads(text)) == given_offsets


@pytest.mark.parametrize("text", ['{"t":5}', '{"t":{"x":1}}', '{"t":{"0":null}}', "[1]"])
def test_a_checkpoint_with_something_else_is_refused(text: str) -> None:
    """Such as that of another source."""
    with pytest.raises(IllegalArgumentError, match="the checkpoint holds"):
        offsets_of(json.loads(text))


def test_behaviour_33_how_far_a_query_is_behind_follows_from_its_progress() -> None:
    """Per partition; nothing before the first batch."""
    source = {"endOffset": '{"t":{"0":10,"1":4}}', "latestOffset": '{"t":{"0":10,"1":9,"2":4}}'}

    assert offsets_behind(source) == {
        "minOffsetsBehindLatest": 0,
        "maxOffsetsBehindLatest": 5,
        "avgOffsetsBehindLatest": 3.0,
    }
    assert offsets_behind({"endOffset": None, "latestOffset": None}) == {}
