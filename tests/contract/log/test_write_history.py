"""WriteHistory: records and bytes by minute, from the times of commits."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.delta.actions import log_name
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.log.topic.write_history import MINUTE_MS, WriteHistory
from kafkalike.maintenance.maintenance_run import maintain
from tests.tools.records import batch

MINUTE = MINUTE_MS // 1000


@pytest.fixture
def clock() -> ManualClock:
    """A clock at the start of a minute."""
    return ManualClock(1000 * MINUTE)


@pytest.fixture
def log(clock: ManualClock) -> TopicLog:
    """The log of an empty topic."""
    cluster = MemoryCluster(clock=clock)
    cluster.create_topic("t", 1, {})
    return cluster.log("t")


def write(log: TopicLog, count: int) -> None:
    """Append records of long ago in one commit."""
    log.append(batch(*["value"] * count, at_ms=1000))


def counts(history: WriteHistory, step_ms: int = MINUTE_MS) -> dict[int, int]:
    """Records by minutes since the first one."""
    return {at // MINUTE_MS - 1000: written.records for at, written in history.by_step(step_ms).items()}


def test_records_count_at_the_time_of_their_commit(log: TopicLog, clock: ManualClock) -> None:
    """Whatever their own times are."""
    for count, minutes in ((3, 0), (4, 0), (5, 2)):
        clock.seconds = (1000 + minutes) * MINUTE + 7
        write(log, count)
    history = WriteHistory()

    reached = history.read(log, 0)

    assert reached
    assert counts(history) == {0: 7, 2: 5}
    assert counts(history, 4 * MINUTE_MS) == {0: 12}
    assert history.since_ms is None
    sizes = [written.size_bytes for written in history.by_step(MINUTE_MS).values()]
    assert sum(sizes) == sum(segment.size_bytes for segment in log.segments(0))


def test_only_new_commits_are_read_again(log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing for a table that did not change."""
    write(log, 3)
    history = WriteHistory()
    history.read(log, 0)
    write(log, 2)
    read: list[str] = []
    once = log.files.read

    def note(name: str) -> bytes:
        read.append(name)
        return once(name)

    monkeypatch.setattr(log.files, "read", note)

    history.read(log, 0)
    history.read(log, 0)

    assert read == [log_name(log.version)]
    assert counts(history) == {0: 5}


def test_merging_writes_nothing(clock: ManualClock) -> None:
    """The records count where they were appended, not where maintenance rewrote their files."""
    cluster = MemoryCluster(clock=clock)
    cluster.create_topic("t", 1, {"kafkalike.merge.min.age.ms": "0"})
    log = cluster.log("t")
    for _ in range(4):
        write(log, 2)
    clock.seconds += 90 * MINUTE

    maintain(cluster, ["t"], clock=clock, works=["merge"])
    log.refresh()
    history = WriteHistory()
    history.read(log, 0)

    assert len(log.segments(0)) == 1
    assert counts(history) == {0: 8}


def test_a_call_reads_few_commits_and_the_next_one_goes_on(log: TopicLog, clock: ManualClock) -> None:
    """The newest first; the history says from when on it is complete."""
    for minute in range(6):
        clock.seconds = (1000 + minute) * MINUTE
        write(log, 1)
    history = WriteHistory()

    first = history.read(log, 0, most=2)
    since, known = history.since_ms, counts(history)
    rest = [history.read(log, 0, most=2) for _ in range(3)]

    assert (first, since, known) == (False, 1004 * MINUTE_MS, {4: 1, 5: 1})
    assert rest[-1]
    assert counts(history) == dict.fromkeys(range(6), 1)


def test_commits_before_the_horizon_are_not_read(log: TopicLog, clock: ManualClock) -> None:
    """And those that were read are forgotten when they are older than it."""
    for minute in range(0, 60, 10):
        clock.seconds = (1000 + minute) * MINUTE
        write(log, 1)
    history, later = WriteHistory(), WriteHistory()

    assert history.read(log, 1035 * MINUTE_MS)
    assert later.read(log, 2000 * MINUTE_MS)

    # The first commit below the horizon is read, to know that it is older.
    assert history.since_ms == 1030 * MINUTE_MS
    assert counts(history) == {30: 1, 40: 1, 50: 1}
    assert counts(later) == {}
    clock.seconds = 1200 * MINUTE
    write(log, 4)
    assert history.read(log, 1100 * MINUTE_MS)
    assert counts(history) == {200: 4}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 3)), max_size=12))
def test_sums_of_steps_grow_with_the_history(writes: list[tuple[int, int]]) -> None:
    """Asked for after each commit or once: the sums are the same."""
    clock = ManualClock(1000 * MINUTE)
    cluster = MemoryCluster(clock=clock)
    cluster.create_topic("t", 1, {})
    log, asked, once = cluster.log("t"), WriteHistory(), WriteHistory()
    for minutes, count in writes:
        clock.seconds += minutes * MINUTE
        write(log, count)
        asked.read(log, 0)
        asked.by_step(7 * MINUTE_MS)
    log.refresh()
    once.read(log, 0)

    for step in (MINUTE_MS, 7 * MINUTE_MS):
        assert asked.by_step(step) == once.by_step(step)
        assert sum(written.records for written in once.by_step(step).values()) == sum(n for _, n in writes)


def test_a_log_that_was_cleaned_up_is_known_as_far_as_it_reaches(log: TopicLog, clock: ManualClock) -> None:
    """Older commits are no error."""
    for minute in range(3):
        clock.seconds = (1000 + minute) * MINUTE
        write(log, 1)
    log.files.remove(log_name(log.version - 2))
    history = WriteHistory()

    assert history.read(log, 0)
    assert counts(history) == {1: 1, 2: 1}
