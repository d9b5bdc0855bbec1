"""Compacted control tables say the same as whole ones, to a client that comes new."""

import json
from dataclasses import replace
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.cluster_state import ClusterState, MetadataRow, log_start_row, topic_row
from kafkalike.model.group_rows import CONFIG, OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Roster
from kafkalike.model.maintenance.control_rows import MERGE_FACTOR, files_to_merge, kept_group_rows, kept_metadata_rows
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import TopicInfo

R = TypeVar("R", MetadataRow, GroupRow)

NAMES = ("a", "b")
moves = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(["create", "configs", "start", "delete"]), st.integers(0, 9)),
    max_size=25,
)


clocks = st.lists(st.integers(0, 40), min_size=1, max_size=40)
"""What the writers' clocks show, row by row, from the first again when there are no more."""


def timed(rows: list[R], clock: list[int]) -> list[R]:
    """The same rows with times of clocks that go as they like."""
    return [replace(row, time_ms=clock[n % len(clock)]) for n, row in enumerate(rows)]


def metadata_rows(made: list[tuple[str, str, int]]) -> list[MetadataRow]:
    """Rows as a cluster would write them; what makes no sense for a topic is left out."""
    rows: list[MetadataRow] = []
    living: dict[str, TopicInfo] = {}
    for name, what, number in made:
        seq = len(rows) + 1
        info = living.get(name)
        if what == "create" and info is None:
            living[name] = TopicInfo(
                name=TopicName(name), topic_id=TopicId(f"{name}-{seq}"), location=name, num_partitions=2
            )
            rows.append(topic_row(seq, seq, living[name], "created"))
        elif what == "configs" and info is not None:
            living[name] = replace(info, configs={"retention.ms": str(number)})
            rows.append(topic_row(seq, seq, living[name], "configs changed"))
        elif what == "start" and info is not None:
            starts = {p: number + p for p in range(2) if number % 3 != p}
            rows.append(log_start_row(seq, seq, info, starts, reason="retention", run="r"))
        elif what == "delete" and info is not None:
            rows.append(topic_row(seq, seq, living.pop(name), "deleted", deleted=True))
    return rows


def cluster_state(rows: list[MetadataRow]) -> object:
    state = ClusterState().applied(rows)
    return state.topics, (state.topics.keys() | state.gone.keys())


@given(moves, st.integers(0, 30))
def test_the_topics_are_the_same_and_recent_rows_stay(made: list[tuple[str, str, int]], since: int) -> None:
    """Configs, ids, log starts, and names that were ever used."""
    rows = metadata_rows(made)

    kept = kept_metadata_rows(rows, since)

    assert cluster_state(kept) == cluster_state(rows)
    assert [r for r in kept if r.time_ms >= since] == [r for r in rows if r.time_ms >= since]
    assert kept_metadata_rows(kept, since) == kept
    if since > len(rows):
        assert len(kept) <= len(NAMES) * 3 + 1


@given(moves, clocks, st.integers(0, 41))
def test_the_topics_are_the_same_whatever_the_clocks_said(
    made: list[tuple[str, str, int]], clock: list[int], since: int
) -> None:
    """What came after what is in the numbers of the rows."""
    rows = timed(metadata_rows(made), clock)

    kept = kept_metadata_rows(rows, since)

    assert cluster_state(kept) == cluster_state(rows)
    assert [r for r in kept if r.time_ms >= since] == [r for r in rows if r.time_ms >= since]


commits = st.lists(
    st.tuples(st.sampled_from(["g", "h"]), st.integers(0, 1), st.one_of(st.none(), st.integers(0, 9))), max_size=25
)


def group_rows(made: list[tuple[str, int, int | None]]) -> list[GroupRow]:
    """Commits, deletions of commits, and a change of members after every third one."""
    rows: list[GroupRow] = []
    for group_id, partition, offset in made:
        seq = len(rows) + 1
        if seq % 3 == 0:
            rows.append(roster_row(seq, group_id, Roster(generation=seq, changed_ms=seq)))
            seq += 1
        rows.append(
            GroupRow(
                seq=seq, kind=OFFSET, group_id=group_id, topic="t", partition=partition, offset=offset, time_ms=seq
            )
        )
    return rows


def groups_state(rows: list[GroupRow], remembered: set[str]) -> object:
    """Of groups that are gone, only the generation of those that are to be remembered."""
    state = GroupsState().applied(rows)
    places = [TopicPartition("t", p) for p in range(2)]
    return {
        g: (
            [state.group(g).offsets.get(tp) for tp in places],
            state.group(g).generation if g in remembered or g in state.groups else None,
            g in state.groups,
        )
        for g in ("g", "h")
    }


@given(commits, st.integers(0, 40))
def test_offsets_members_and_generations_are_the_same(made: list[tuple[str, int, int | None]], since: int) -> None:
    """Of a group that is gone the generation as long as one of its rows is recent."""
    rows = group_rows(made)

    kept = kept_group_rows(rows, since)

    recent = {r.group_id for r in rows if r.time_ms >= since}
    assert groups_state(kept, recent) == groups_state(rows, recent)
    assert [r for r in kept if r.time_ms >= since] == [r for r in rows if r.time_ms >= since]
    if since > len(rows):
        assert len(kept) <= 2 * 3 + 1


@given(commits, clocks, st.integers(0, 41), st.none() | st.integers(0, 10))
def test_offsets_members_and_generations_are_the_same_whatever_the_clocks_said(
    made: list[tuple[str, int, int | None]], clock: list[int], since: int, at_most: int | None
) -> None:
    """And the bound on rows that stay for their time counts from the last row, not from the latest time."""
    rows = timed(group_rows(made), clock)

    kept = kept_group_rows(rows, since, at_most)

    recent = [r for r in rows[0 if at_most is None else max(0, len(rows) - at_most) :] if r.time_ms >= since]
    groups = {r.group_id for r in recent}
    assert groups_state(kept, groups) == groups_state(rows, groups)
    assert [r for r in kept if r in recent] == recent
    assert len(kept) <= len(recent) + 2 * 3 + 1


def test_rows_of_a_clock_that_was_fast_do_not_stay_above_the_bound() -> None:
    """They are later than everything that came after them by their times, and earlier by the log."""
    row = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", topic_id="id", partition=0, offset=5, time_ms=100)
    fast = [replace(row, seq=seq, time_ms=1000) for seq in range(1, 6)]
    rows = [*fast, *(replace(row, seq=seq) for seq in range(6, 9))]

    kept = kept_group_rows(rows, 50, 2)

    assert kept == rows[-2:]


def test_nothing_of_a_group_stays_that_is_long_gone() -> None:
    """Its last members' row goes too; a group that lives keeps its own."""
    offset = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", topic_id="id", partition=0, offset=5, time_ms=10)
    rows = [
        offset,
        roster_row(2, "g", Roster(generation=7, changed_ms=20)),
        roster_row(3, "h", Roster(generation=2, changed_ms=20)),
        replace(offset, seq=4, group_id="h"),
        replace(offset, seq=5, offset=None, time_ms=30),
        replace(offset, seq=6, group_id="i", time_ms=40),
    ]

    assert [r.seq for r in kept_group_rows(rows, 30)] == [2, 3, 4, 5, 6]
    assert [r.seq for r in kept_group_rows(rows, 31)] == [3, 4, 6]


def moves_of(runs: int, partitions: int) -> list[MetadataRow]:
    """A topic, and maintenance runs that move all its log starts."""
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t", num_partitions=partitions)
    starts = {seq: dict.fromkeys(range(partitions), seq) for seq in range(2, 2 + runs)}
    moves = [log_start_row(seq, seq, info, to, reason="retention", run="r") for seq, to in starts.items()]
    return [topic_row(1, 1, info, "created"), *moves]


def test_only_so_many_moves_of_log_starts_stay_for_their_time() -> None:
    """The last ones, whole rows of them; the topic's own row stays for what it says."""
    rows = moves_of(runs=100, partitions=10)

    kept = kept_metadata_rows(rows, 0, moves_at_most=35)

    assert kept == [rows[0], *rows[-3:]]
    assert cluster_state(kept) == cluster_state(rows)


def test_of_an_old_row_only_the_log_starts_stay_that_count() -> None:
    """Partitions that have moved on since need nothing of it."""
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t", num_partitions=3)
    rows = [
        topic_row(1, 1, info, "created"),
        log_start_row(2, 2, info, {0: 5, 1: 5, 2: 5}, reason="retention", run="r"),
        log_start_row(3, 3, info, {0: 9, 2: 9}, reason="retention", run="r"),
        topic_row(4, 4, replace(info, configs={"retention.ms": "1"}), "configs changed"),
    ]

    kept = kept_metadata_rows(rows, 100)

    assert kept == [replace(rows[1], value=kept[0].value), *rows[2:]]
    assert json.loads(kept[0].value)["moves"] == [[1, 0, 5]]
    assert cluster_state(kept) == cluster_state(rows)


def test_a_deleted_offset_stays_deleted_when_a_clock_went_back() -> None:
    """The commit is recent by its writer's clock, and its deletion, later, is not."""
    commit = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", topic_id="id", partition=0, offset=5, time_ms=100)
    rows = [commit, replace(commit, seq=2, offset=None, time_ms=50), replace(commit, seq=3, partition=1)]

    kept = kept_group_rows(rows, 80)

    assert kept == rows


@given(st.lists(st.integers(1, 10_000), max_size=30))
def test_merging_leaves_few_files_and_no_large_one_behind_a_small_one(rows: list[int]) -> None:
    """What stays as it was has more rows than a share of all that come after it, so there is little of it."""
    count = files_to_merge(rows)

    left = rows[: len(rows) - count]
    assert count != 1
    for at, own in enumerate(left if count else left[:-1]):
        assert own > MERGE_FACTOR * sum(rows[at + 1 :])


@given(st.integers(1, 64), st.integers(1, 300))
def test_rows_are_written_again_only_as_the_table_grows(each: int, merges: int) -> None:
    """A table of small commits: its files stay a logarithm, and each row is rewritten as often as that."""
    files: list[int] = []
    written = 0

    for _ in range(merges):
        files += [1] * each
        count = files_to_merge(files)
        if count:
            merged = sum(files[-count:])
            files[-count:] = [merged]
            written += merged

    total = each * merges
    assert sum(files) == total
    assert len(files) <= total.bit_length() + 1
    assert written <= total * (MERGE_FACTOR + 2) * total.bit_length()


def test_an_offset_that_was_deleted_long_ago_leaves_nothing_in_a_group_that_lives() -> None:
    """Another of its offsets keeps the group."""
    row = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="t", topic_id="id", partition=0, offset=5, time_ms=1)
    rows = [row, replace(row, seq=2, partition=1), replace(row, seq=3, offset=None), replace(row, seq=4, group_id="h")]

    assert [kept.seq for kept in kept_group_rows(rows, 2)] == [2, 4]


def test_old_rows_of_settings_stay_only_if_they_are_the_latest_and_not_empty() -> None:
    row = GroupRow(seq=1, kind=CONFIG, group_id="g", value='{"v":1,"configs":{"a":"1"}}', time_ms=1)
    deleted = replace(row, value='{"v":1,"configs":{}}')
    rows = [
        row,
        replace(row, seq=2, value='{"v":1,"configs":{"a":"2"}}'),
        replace(row, seq=3, group_id="h"),
        replace(deleted, seq=4, group_id="h"),
        replace(row, seq=5, group_id="i", time_ms=9),
        replace(deleted, seq=6, group_id="i"),
        replace(row, seq=7, kind=OFFSET, topic="t", topic_id="id", partition=0, offset=5, value=""),
    ]

    kept = kept_group_rows(rows, 9)

    assert [one.seq for one in kept] == [2, 5, 6, 7]
    assert GroupsState().applied(kept).configs == {"g": {"a": "2"}}
