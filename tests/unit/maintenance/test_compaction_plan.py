"""Compaction's plan against Kafka's rolling and cleaning, one record after another."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalike.model.maintenance.log_cleanup import (
    Cleaned,
    CompactionPlan,
    CompactionPolicy,
    active_start,
    plan_compaction,
)
from kafkalike.model.segments import Segment

NOW = 1_000_000
LONG_MAX = 2**63 - 1
EAGER = CompactionPolicy(
    compact=True,
    min_dirty_ratio=0.0,
    min_lag_ms=0,
    max_lag_ms=LONG_MAX,
    delete_retention_ms=100,
    segment_bytes=10,
    segment_ms=LONG_MAX,
)


def segment(start: int, *, time: int = NOW, size: int = 10, count: int = 1) -> Segment:
    return Segment(
        partition=0,
        start=start,
        stop=start + count,
        num_records=count,
        min_timestamp=time,
        max_timestamp=time,
        size_bytes=size,
        path=f"{start}.parquet",
        modification_ms=time,
    )


def plan(segments: list[Segment], policy: CompactionPolicy, cleaned: Cleaned | None = None) -> CompactionPlan:
    return plan_compaction(3, segments, cleaned or Cleaned(), NOW, policy)


# --- the active segment ----------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 100)), min_size=1, max_size=15), st.integers(14, 60))
@example([(10, 0), (10, 0)], 20)
@example([(20, 0), (10, 0), (10, 0)], 20)
@example([(1, 0), (1, 50), (1, 51)], 60)
def test_the_active_segment_is_the_one_that_kafka_would_still_write_to(
    batches: list[tuple[int, int]], limit: int
) -> None:
    """Appending batch after batch to Kafka's segments, rolled by size and by time."""
    rolled: list[list[tuple[int, int]]] = []
    for size, time in batches:
        full = bool(rolled) and sum(s for s, _ in rolled[-1]) > limit - size
        late = bool(rolled) and time - rolled[-1][0][1] > 50
        if not rolled or full or late:
            rolled.append([])
        rolled[-1].append((size, time))

    found = active_start([segment(at, size=s, time=t) for at, (s, t) in enumerate(batches)], limit, 50)

    assert found == len(batches) - len(rolled[-1])


def test_the_active_segment_is_never_touched() -> None:
    """Here three files of 10 bytes, where a segment takes 20."""
    segments = [segment(at) for at in range(5)]

    found = plan(segments, replace(EAGER, segment_bytes=20))

    assert [s.start for s in found.dirty] == [0, 1, 2, 3]
    assert [s.start for s in found.untouched] == [4]


def test_a_long_compaction_lag_closes_the_active_segment_sooner() -> None:
    """Kafka rolls after the smaller one of `segment.ms` and `max.compaction.lag.ms`."""
    segments = [segment(0, time=0, size=1), segment(1, time=50, size=1)]
    policy = replace(EAGER, segment_bytes=1000, max_lag_ms=20)

    assert [s.start for s in plan(segments, policy).dirty] == [0]


# --- what is due -----------------------------------------------------------------------------------


def test_a_ratio_of_exactly_the_minimum_is_not_enough() -> None:
    """Kafka asks for more than `min.cleanable.dirty.ratio`."""
    segments = [segment(at) for at in range(3)]
    half = Cleaned(dirty=1)

    assert not plan(segments, replace(EAGER, min_dirty_ratio=0.5), half).due
    assert plan(segments, replace(EAGER, min_dirty_ratio=0.49), half).due


def test_a_record_past_the_longest_lag_makes_compaction_due() -> None:
    """Whatever the ratio."""
    segments = [segment(0, size=1000), segment(1, time=NOW - 500), segment(2)]
    policy = replace(EAGER, min_dirty_ratio=0.9, segment_bytes=1000)

    assert not plan(segments, policy, Cleaned(dirty=1)).due
    assert not plan(segments, replace(policy, segment_bytes=10, max_lag_ms=500), Cleaned(dirty=1)).due
    assert plan(segments, replace(policy, segment_bytes=10, max_lag_ms=499), Cleaned(dirty=1)).due
    assert plan(segments, replace(policy, max_lag_ms=400), Cleaned(dirty=1)).reason == "max.compaction.lag.ms"


def test_what_is_younger_than_the_shortest_lag_stays_with_all_above_it() -> None:
    """Order would not allow a hole in what is clean."""
    times = [NOW - 100, NOW - 10, NOW - 100, NOW]
    segments = [replace(segment(at, time=time), modification_ms=NOW) for at, time in enumerate(times)]

    assert [s.start for s in plan(segments, replace(EAGER, min_lag_ms=50)).dirty] == [0]


@pytest.mark.parametrize(
    ("lag", "age", "dirty"), [(50, 50, [0]), (50, 49, []), (1, 1, [0]), (1, 0, []), (0, 0, [0]), (0, -1, [0])]
)
def test_the_shortest_lag_is_counted_to_the_millisecond(lag: int, age: int, dirty: list[int]) -> None:
    """Without one, a record is compacted whose writer's clock is ahead."""
    segments = [segment(0, time=NOW - age), segment(1, time=NOW + 9)]

    assert [s.start for s in plan(segments, replace(EAGER, min_lag_ms=lag)).dirty] == dirty


def test_by_the_appends_clock_an_old_record_that_came_late_is_young() -> None:
    """Its own time does not count then."""
    segments = [replace(segment(0, time=NOW - 100), modification_ms=NOW - 10), segment(1)]
    policy = replace(EAGER, min_lag_ms=50)

    assert [s.start for s in plan(segments, policy).dirty] == [0]
    assert plan(segments, replace(policy, clock="append")).dirty == ()


def test_a_far_future_record_is_compacted_by_its_append() -> None:
    """It must not keep its partition from being compacted for ever."""
    future = replace(segment(0, time=NOW - 100), max_timestamp=10**15)

    assert [s.start for s in plan([future, segment(1)], replace(EAGER, min_lag_ms=50)).dirty] == [0]


def test_a_topic_that_is_not_compacted_is_never_due() -> None:
    """Nor one with a single, active segment."""
    segments = [segment(at) for at in range(5)]

    assert not plan(segments, replace(EAGER, compact=False)).due
    assert not plan(segments[:1], EAGER).due
    assert not plan([], EAGER).due


@given(
    st.lists(st.tuples(st.integers(1, 30), st.integers(NOW - 100, NOW)), max_size=12),
    st.integers(0, 12),
    st.integers(0, 60),
)
def test_clean_dirty_and_untouched_make_up_the_log(facts: list[tuple[int, int]], dirty: int, lag: int) -> None:
    """Each segment is in one of them, in order; a pass never goes beyond the active segment."""
    segments = [segment(at, size=s, time=t) for at, (s, t) in enumerate(facts)]

    found = plan(segments, replace(EAGER, min_lag_ms=lag, segment_bytes=30), Cleaned(dirty=dirty))

    assert [*found.clean, *found.dirty, *found.untouched] == segments
    assert all(s.stop <= dirty for s in found.clean)
    assert not segments or found.dirty == () or found.untouched


# --- tombstones ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 300)), max_size=20))
def test_a_tombstone_stays_readable_for_its_time_after_it_was_cleaned_first(steps: list[tuple[int, int]]) -> None:
    """And not longer than twice that, in passes that come often enough."""
    wait = 100
    cleaned, now, first_clean = Cleaned(), 0, dict[int, int]()
    for grown, later in steps:
        now += later
        below = cleaned.tombstones_below(now, wait)
        for offset in range(below):
            assert now - first_clean[offset] >= wait
        due_long_ago = [o for o, since in first_clean.items() if now - since > 3 * wait + 300]
        assert later > 300 or all(o < below or o >= cleaned.horizon for o in due_long_ago)
        end = cleaned.dirty + grown
        cleaned = cleaned.after(end, now, below)
        for offset in range(end):
            first_clean.setdefault(offset, now)


def test_tombstones_past_their_time_make_a_pass_due_once() -> None:
    """Also when nothing new is dirty; afterwards there is nothing to do."""
    segments = [segment(0), segment(1)]
    waiting = Cleaned(dirty=1, horizon=1, horizon_ms=NOW - 100)

    found = plan(segments, EAGER, waiting)

    assert (found.partition, found.tombstones_below) == (3, 1)
    assert found.reason == "tombstones past delete.retention.ms"
    assert not plan(segments, EAGER, waiting.after(1, NOW, 1)).due


def test_tombstones_that_wait_keep_their_time_and_those_cleaned_meanwhile_wait_for_the_next() -> None:
    """When all that waited are gone, the next time begins for all that is clean then."""
    first = Cleaned().after(5, 100, 0)
    second = first.after(9, 150, 3)
    third = second.after(12, 300, 5)

    assert first == Cleaned(dirty=5, horizon=5, horizon_ms=100, settled=0)
    assert second == Cleaned(dirty=9, horizon=5, horizon_ms=100, settled=3)
    assert third == Cleaned(dirty=12, horizon=12, horizon_ms=300, settled=5)


def test_a_clock_that_goes_back_keeps_tombstones() -> None:
    """Too long is safe, too short is not."""
    assert Cleaned(dirty=9, horizon=9, horizon_ms=NOW + 50).tombstones_below(NOW, 10) == 0


# --- what stays ------------------------------------------------------------------------------------

records = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", None]), st.booleans()), max_size=25)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedRecord:
    """What compaction looks at in a record; for the reference rule and its tests."""

    offset: int
    key: bytes | None
    tombstone: bool = False


def survivors(
    records: Iterable[KeyedRecord], cleaned_to: int, clean_end: int, tombstones_below: int
) -> list[KeyedRecord]:
    """The records of a partition that one pass leaves, in order: the rule that the applying code must keep.

    Args:
        records: in offset order.
        cleaned_to: offsets below it were cleaned before: their keys shadow nothing.
        clean_end: offsets from it on are not touched.
        tombstones_below: tombstones below this offset go.
    """
    held = list(records)
    latest = {r.key: r.offset for r in held if r.key is not None and cleaned_to <= r.offset < clean_end}
    kept = []
    for r in held:
        if r.offset >= clean_end:
            kept.append(r)
        elif r.key is None or r.offset < latest.get(r.key, r.offset):
            continue
        elif not (r.tombstone and r.offset < tombstones_below):
            kept.append(r)
    return kept


def numbered(made: list[tuple[bytes | None, bool]]) -> list[KeyedRecord]:
    return [KeyedRecord(offset=at, key=key, tombstone=gone) for at, (key, gone) in enumerate(made)]


def latest_values(kept: list[KeyedRecord]) -> dict[bytes, int | None]:
    """What a reader from the beginning ends up with; a tombstone takes the key away."""
    state: dict[bytes, int | None] = {}
    for record in kept:
        if record.key is not None:
            state[record.key] = None if record.tombstone else record.offset
    return {key: offset for key, offset in state.items() if offset is not None}


@given(records, st.lists(st.integers(0, 25), max_size=4))
def test_passes_one_after_another_keep_the_last_value_of_each_key(
    made: list[tuple[bytes | None, bool]], ends: list[int]
) -> None:
    """Offsets and order stay, and after any number of passes one record per key is left of the clean part."""
    whole = numbered(made)
    kept, cleaned = whole, 0
    for end in sorted(ends):
        kept = survivors(kept, cleaned, min(end, len(whole)), 0)
        cleaned = min(end, len(whole))

    assert latest_values(kept) == latest_values(whole)
    assert [r.offset for r in kept] == sorted(r.offset for r in kept)
    clean_keys = [r.key for r in kept if r.offset < cleaned]
    assert len(clean_keys) == len(set(clean_keys))
    assert None not in clean_keys
    assert [r for r in kept if r.offset >= cleaned] == [r for r in whole if r.offset >= cleaned]


@given(records, st.integers(0, 25), st.integers(0, 25))
def test_dropping_clean_tombstones_changes_no_value(
    made: list[tuple[bytes | None, bool]], first: int, second: int
) -> None:
    """As what they deleted is gone since the pass before."""
    whole = numbered(made)
    middle, end = sorted((min(first, len(whole)), min(second, len(whole))))
    once = survivors(whole, 0, middle, 0)

    twice = survivors(once, middle, end, middle)

    assert latest_values(twice) == latest_values(whole)
    assert not [r for r in twice if r.tombstone and r.offset < middle]


@pytest.mark.parametrize(
    ("cleaned_to", "clean_end", "kept"),
    [
        (0, 4, [3]),
        (0, 3, [2, 3]),
        (0, 1, [0, 1, 2, 3]),
        (2, 4, [3]),
        (3, 4, [3]),
        (4, 4, [0, 1, 2, 3]),
    ],
)
def test_only_a_record_of_the_part_that_is_cleaned_shadows_those_before_it(
    cleaned_to: int, clean_end: int, kept: list[int]
) -> None:
    """Four values of one key: those cleaned before, and those above the end of the pass, shadow nothing."""
    values = numbered([(b"a", False)] * 4)

    assert [r.offset for r in survivors(values, cleaned_to, clean_end, 0)] == kept


def test_what_is_at_a_bound_is_above_it() -> None:
    """A record without a key at the end of the pass, and a tombstone at the offset below which they go."""
    assert survivors(numbered([(None, False)]), 0, 0, 0) == numbered([(None, False)])
    assert survivors(numbered([(b"a", True)]), 0, 1, 0) == numbered([(b"a", True)])
    assert survivors(numbered([(b"a", True)]), 0, 1, 1) == []
