"""Retention's plan against Kafka's own loop over segments, and what is ours: clocks, holds."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.maintenance.log_cleanup import (
    RetentionHold,
    RetentionPlan,
    RetentionPolicy,
    append_times,
    plan_retention,
    segment_times,
)
from kafkalike.model.segments import Segment

NOW = 1_000_000
FOREVER = RetentionPolicy(delete=True, retention_ms=-1, retention_bytes=-1)
SHORT = RetentionPolicy(delete=True, retention_ms=100, retention_bytes=-1)


def segment(start: int, count: int, *, time: int = NOW, size: int = 10, appended: int | None = None) -> Segment:
    return Segment(
        partition=0,
        start=start,
        stop=start + count,
        num_records=count,
        min_timestamp=0,
        max_timestamp=time,
        size_bytes=size,
        path=f"{start}.parquet",
        modification_ms=time if appended is None else appended,
    )


def log_of(*facts: tuple[int, int, int]) -> list[Segment]:
    """Segments one after another, of (records, size, time) each."""
    found: list[Segment] = []
    for count, size, time in facts:
        found.append(segment(found[-1].stop if found else 0, count, size=size, time=time))
    return found


def plan(
    segments: list[Segment],
    policy: RetentionPolicy,
    log_start: int = 0,
    hold: RetentionHold | None = None,
    now_ms: int = NOW,
) -> RetentionPlan:
    return plan_retention(0, segments, log_start=log_start, now_ms=now_ms, policy=policy, hold=hold)


def kafka_deletes(segments: list[Segment], log_start: int, policy: RetentionPolicy) -> list[Segment]:
    """UnifiedLog.deleteOldSegments: each condition takes segments from the front until one stays."""
    left = list(segments)

    def delete_while(condition: Callable[[Segment], bool]) -> None:
        while left and condition(left[0]):
            del left[0]

    delete_while(lambda s: s.stop <= log_start)
    if policy.delete:
        size = sum(s.size_bytes for s in left)
        if 0 <= policy.retention_bytes <= size:
            diff = [size - policy.retention_bytes]

            def over(s: Segment) -> bool:
                if diff[0] - s.size_bytes >= 0:
                    diff[0] -= s.size_bytes
                    return True
                return False

            delete_while(over)
        if policy.retention_ms >= 0:
            delete_while(lambda s: NOW - s.max_timestamp > policy.retention_ms)
    return segments[: len(segments) - len(left)]


facts = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 50), st.integers(NOW - 300, NOW)), max_size=12)
policies = st.builds(
    RetentionPolicy,
    delete=st.booleans(),
    retention_ms=st.sampled_from([-1, 0, 50, 150, 299]),
    retention_bytes=st.one_of(st.just(-1), st.integers(0, 300)),
)


@given(facts, policies, st.floats(0, 1))
def test_the_plan_is_what_kafkas_loop_deletes(
    made: list[tuple[int, int, int]], policy: RetentionPolicy, share: float
) -> None:
    """For any sizes, times, policies and log starts, where records are no younger than their append."""
    # Appends that go back in time are a matter of clocks, which Kafka does not have: see below.
    segments = [replace(s, modification_ms=NOW) for s in log_of(*made)]
    log_start = int((segments[-1].stop if segments else 0) * share)

    found = plan(segments, policy, log_start)

    assert list(found.goes) == kafka_deletes(segments, log_start, policy)


@given(facts, policies, st.floats(0, 1))
def test_what_goes_is_a_prefix_of_whole_segments_and_the_log_start_never_falls(
    made: list[tuple[int, int, int]], policy: RetentionPolicy, share: float
) -> None:
    """Whatever the clocks say: nothing live goes that has something dead above it, and nothing above the log end."""
    segments = log_of(*made)
    log_start = int((segments[-1].stop if segments else 0) * share)

    found = plan(segments, policy, log_start)

    assert list(found.goes) == segments[: len(found.goes)]
    assert found.new_log_start >= log_start
    assert all(s.stop <= found.new_log_start for s in found.goes)
    assert all(s.stop > found.new_log_start for s in segments[len(found.goes) :])


@given(facts, policies)
def test_a_second_run_finds_nothing_more(made: list[tuple[int, int, int]], policy: RetentionPolicy) -> None:
    """Applying a plan settles the partition until time passes or records come."""
    segments = log_of(*made)
    first = plan(segments, policy)

    second = plan(segments[len(first.goes) :], policy, first.new_log_start)

    assert second.goes == ()
    assert not second.moves


@given(facts, policies)
def test_the_next_segment_expires_at_the_planned_time_and_not_before(
    made: list[tuple[int, int, int]], policy: RetentionPolicy
) -> None:
    segments = log_of(*made)
    found = plan(segments, policy)

    if found.next_ms is None:
        assert plan(segments, policy, now_ms=10 * NOW).goes == found.goes
    else:
        assert plan(segments, policy, now_ms=found.next_ms - 1).goes == found.goes
        assert len(plan(segments, policy, now_ms=found.next_ms).goes) > len(found.goes)


def test_a_segment_of_exactly_the_age_stays() -> None:
    """Kafka asks for more than `retention.ms`."""
    segments = log_of((1, 10, NOW - 101), (1, 10, NOW - 100))

    assert plan(segments, SHORT).new_log_start == 1


def test_an_expired_partition_becomes_empty_and_goes_on_from_its_end() -> None:
    """Kafka rolls the active segment when all of it has expired."""
    assert plan(log_of((3, 10, 0), (2, 10, 0)), SHORT).new_log_start == 5


def test_the_newest_segment_stays_whatever_its_size() -> None:
    """Size alone never empties a partition."""
    policy = replace(FOREVER, retention_bytes=1)

    found = plan(log_of((3, 10, 0), (2, 1000, 0)), policy)

    assert [s.start for s in found.goes] == [0]


def test_so_many_segments_go_as_are_above_the_size() -> None:
    """The third one would bring the partition below it."""
    policy = replace(FOREVER, retention_bytes=15)

    assert plan(log_of(*[(1, 10, 0)] * 4), policy).new_log_start == 2
    assert plan(log_of(*[(1, 10, 0)] * 4), replace(FOREVER, retention_bytes=10)).new_log_start == 3


def test_without_delete_only_what_lies_below_the_log_start_goes() -> None:
    """As `cleanup.policy=compact` or an empty one ask."""
    policy = RetentionPolicy(delete=False, retention_ms=0, retention_bytes=0)

    found = plan(log_of((3, 10, 0), (2, 10, 0)), policy, log_start=4)

    assert [s.start for s in found.goes] == [0]
    assert not found.moves


def test_a_dead_segment_behind_a_live_one_goes_and_counts_no_bytes() -> None:
    """A foreign writer's file overlaps others."""
    live, dead, last = segment(0, 5, size=10), segment(3, 1, size=1000), segment(5, 1, size=10)

    found = plan([live, dead, last], replace(FOREVER, retention_bytes=20), log_start=4)

    assert (found.goes, found.new_log_start, found.next_ms) == ((dead,), 4, None)
    assert plan([live, dead, last], SHORT, log_start=4, now_ms=NOW + 101).goes == (live, dead, last)


def test_a_single_record_expires_like_any_other() -> None:
    """A partition with one record becomes empty."""
    assert plan(log_of((1, 10, NOW - 500)), SHORT).new_log_start == 1


def test_an_empty_partition_has_nothing_to_do() -> None:
    """Neither before its first record nor after its last."""
    assert plan([], SHORT, log_start=7) == RetentionPlan(partition=0, log_start=7, new_log_start=7)


# --- clocks --------------------------------------------------------------------------------------


def test_a_record_from_the_far_future_ages_from_its_append() -> None:
    """In Kafka it would keep its segment, and all after it, for ever."""
    segments = [segment(0, 1, time=10**15, appended=NOW - 200), segment(1, 1, time=NOW)]

    assert plan(segments, SHORT).new_log_start == 1


def test_a_record_from_the_past_goes_when_it_is_the_oldest() -> None:
    """Its time is what counts, as in Kafka, unless the topic says `append`."""
    segments = [segment(0, 1, time=5, appended=NOW), segment(1, 1)]

    assert plan(segments, SHORT).new_log_start == 1
    assert plan(segments, replace(SHORT, clock="append")).new_log_start == 0


def test_old_records_behind_a_young_one_wait_for_it() -> None:
    """Times that go back cannot make a hole."""
    assert not plan(log_of((1, 10, NOW), (1, 10, 0), (1, 10, 0)), SHORT).moves


def test_equal_times_go_together() -> None:
    """No order but the offsets'."""
    assert plan(log_of(*[(1, 10, NOW - 200)] * 3), SHORT).new_log_start == 3


@given(st.lists(st.integers(0, 1000), max_size=12))
def test_append_times_never_fall_and_are_never_later_than_noted(noted: list[int]) -> None:
    """A writer whose clock was ahead is put right by those after it; 0 stands for not noted."""
    segments = [segment(at, 1, appended=time) for at, time in enumerate(noted)]

    times = append_times(segments)

    known = [t for t in times if t]
    assert known == sorted(known)
    assert all(time <= was for time, was in zip(times, noted, strict=True) if was)


def test_a_segment_without_a_noted_time_was_appended_before_those_after_it() -> None:
    """0 is no time; the first millisecond is one."""
    segments = [segment(at, 1, appended=noted) for at, noted in enumerate([5, 0, 9, 0])]

    assert append_times(segments) == [5, 9, 9, 0]
    assert append_times([segment(0, 1, appended=1), segment(1, 1, appended=7)]) == [1, 7]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 1000)), max_size=12))
def test_a_segments_time_is_at_most_its_newest_record(pairs: list[tuple[int, int]]) -> None:
    """By either clock a segment is at least as old as its append says."""
    segments = [segment(at, 1, time=time, appended=appended) for at, (time, appended) in enumerate(pairs)]

    assert all(
        t <= min(time, appended) for t, (time, appended) in zip(segment_times(segments, "record"), pairs, strict=True)
    )
    assert all(t <= appended for t, (_, appended) in zip(segment_times(segments, "append"), pairs, strict=True))


def test_ten_thousand_segments_are_planned_at_once() -> None:
    """A tenth of them has expired."""
    segments = log_of(*[(1, 10, NOW - 200 if at < 1000 else NOW) for at in range(10_000)])

    assert len(plan(segments, SHORT).goes) == 1000


# --- groups that retention waits for -------------------------------------------------------------


def hold(max_ms: int = 10_000, max_bytes: int = -1, **offsets: int) -> RetentionHold:
    return RetentionHold(offsets=offsets, max_ms=max_ms, max_bytes=max_bytes)


def test_segments_that_a_group_has_not_read_stay() -> None:
    """The slowest group counts, and the plan names it."""
    segments = log_of(*[(10, 10, NOW - 200)] * 4)

    found = plan(segments, SHORT, hold=hold(fast=40, slow=20))

    assert found.new_log_start == 20
    assert [s.start for s in found.held] == [20, 30]
    assert found.held_by == ("slow",)


def test_a_group_holds_a_segment_until_it_has_read_all_of_it() -> None:
    """Whole segments only."""
    assert not plan(log_of((10, 10, NOW - 200), (1, 10, NOW)), SHORT, hold=hold(g=9)).moves


def test_a_group_cannot_hold_records_beyond_the_ceiling() -> None:
    """A dead group must not fill the disk."""
    segments = log_of((10, 10, NOW - 9000), (10, 10, NOW - 200))

    assert plan(segments, SHORT, hold=hold(max_ms=5000, g=0)).new_log_start == 10
    assert plan(segments, SHORT, hold=hold(max_bytes=10, g=0)).new_log_start == 10


def test_records_past_the_size_and_the_ceilings_age_go_unread() -> None:
    """Age counts for the ceiling alone, as the topic keeps its records for ever."""
    segments = log_of((1, 10, NOW - 200), (1, 10, NOW - 150), (1, 10, NOW), (1, 10, NOW))

    found = plan(segments, replace(FOREVER, retention_bytes=10), hold=hold(max_ms=100, g=0))

    assert (found.new_log_start, [s.start for s in found.held], found.held_by) == (2, [2], ("g",))


@given(facts, policies, st.dictionaries(st.sampled_from("abc"), st.integers(0, 60), max_size=3), st.integers(0, 400))
def test_waiting_only_ever_keeps_more_and_never_beyond_the_ceiling(
    made: list[tuple[int, int, int]], policy: RetentionPolicy, offsets: dict[str, int], ceiling: int
) -> None:
    """Between what the policy deletes and what the ceiling deletes."""
    segments = log_of(*made)
    groups = RetentionHold(offsets=offsets, max_ms=ceiling, max_bytes=-1)
    at_ceiling = replace(policy, retention_ms=ceiling, retention_bytes=-1)

    waited, without = plan(segments, policy, hold=groups), plan(segments, policy)

    assert waited.new_log_start <= without.new_log_start
    assert waited.new_log_start >= min(plan(segments, at_ceiling).new_log_start, without.new_log_start)
    assert [*waited.goes, *waited.held] == list(without.goes)
    assert bool(waited.held) == bool(waited.held_by)
    unread = min(offsets.values(), default=10**9)
    if unread < waited.new_log_start:
        assert waited.new_log_start <= plan(segments, at_ceiling).new_log_start
