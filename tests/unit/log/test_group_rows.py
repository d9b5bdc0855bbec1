"""Rows of `__consumer_offsets` one by one: what they hold, and what they make of a group."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from kafkalike.errors import LogCorruptError
from kafkalike.model.group_rows import CONFIG, MEMBER, OFFSET, SHARE, GroupRow, roster_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster, dump_roster
from kafkalike.model.offset_commit import deletion_rows
from kafkalike.model.structs import CommittedOffset, OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
COMMIT = GroupRow(
    seq=1,
    kind=OFFSET,
    group_id="g",
    topic="t",
    topic_id="id",
    partition=0,
    offset=5,
    leader_epoch=3,
    metadata="note",
    member_id="m",
    client_id="c",
    time_ms=7,
)
ROSTER = Roster(generation=4, members={"m": Member(member_id="m", client_id="c")}, changed_ms=9)


def state_of(rows: Iterable[GroupRow]) -> GroupsState:
    return GroupsState().applied(rows)


def test_a_row_of_members_says_whose_doing_the_change_was() -> None:
    """With the client's name, as long as he is in the group; nobody's doing is an administrator's."""
    row = roster_row(2, "g", ROSTER, by="m", why="joined")

    assert row == GroupRow(
        seq=2,
        kind=MEMBER,
        group_id="g",
        generation=4,
        member_id="m",
        client_id="c",
        metadata="joined",
        value=dump_roster(ROSTER),
        time_ms=9,
    )
    gone = roster_row(2, "g", ROSTER, by="another")
    assert (gone.member_id, gone.client_id, gone.metadata) == ("another", "", "")
    assert roster_row(2, "g", ROSTER).member_id == ""


def test_a_committed_offset_is_held_with_whose_it_is() -> None:
    """A commit of an earlier release, without the topic's id, is of no topic that there is."""
    held = CommittedOffset(
        position=OffsetAndMetadata(5, "note", 3), topic_id="id", time_ms=7, member_id="m", client_id="c"
    )

    assert dict(state_of([COMMIT]).group("g").offsets) == {T0: held}
    assert dict(state_of([replace(COMMIT, topic_id=None)]).group("g").offsets) == {T0: held._replace(topic_id="")}


def test_members_without_a_value_are_none() -> None:
    """So a release wrote a group that became empty; its generation goes on."""
    empty = GroupRow(seq=3, kind=MEMBER, group_id="g", generation=6, time_ms=8)

    group = state_of([COMMIT, roster_row(2, "g", ROSTER), empty]).group("g")

    assert group.roster == Roster(generation=6, changed_ms=8)
    assert set(group.offsets) == {T0}


def test_a_group_goes_on_from_where_it_stopped() -> None:
    """One that nobody knows begins at 0, and one that has come back is remembered by itself alone."""
    gone = [roster_row(1, "g", ROSTER), roster_row(2, "g", Roster(generation=5))]
    state = state_of(gone)

    assert (state.group("g").generation, state.group("h").generation) == (5, 0)
    assert (set(state.groups), state.group("h").members) == (set(), {})
    back = state_of(
        [*gone, roster_row(3, "g", replace(ROSTER, generation=8)), roster_row(4, "g", Roster(generation=2))]
    )
    assert back.group("g").generation == 2


def test_a_commit_of_no_partition_is_told() -> None:
    """In words that people can look for."""
    with pytest.raises(LogCorruptError, match=r"cannot be read: ValueError\('no topic or partition'\)$"):
        state_of([replace(COMMIT, partition=None)])


def test_rows_that_delete_offsets_name_the_topic_that_they_were_of() -> None:
    """One for each offset that there is, numbered after those that go before them."""
    state = state_of([COMMIT, replace(COMMIT, seq=2, partition=1, topic_id="id1")])
    row = GroupRow(seq=3, kind=OFFSET, group_id="g", topic="t", topic_id="id1", partition=1, time_ms=99)

    assert deletion_rows(state, "g", [T1, TopicPartition("t", 9), T0], 99) == [
        row,
        replace(row, seq=4, partition=0, topic_id="id"),
    ]
    assert [r.seq for r in deletion_rows(state, "g", [T1], 99, after=2)] == [5]


def test_latest_row_of_settings_replaces_the_settings_of_a_group_and_an_empty_one_deletes_them() -> None:
    row = GroupRow(seq=1, kind=CONFIG, group_id="g", value='{"v":1,"configs":{"a":"1","b":"2"}}', time_ms=7)
    changed = replace(row, seq=2, value='{"v":1,"configs":{"a":"3"}}')
    other = replace(row, seq=3, group_id="h")

    assert dict(state_of([row, changed, other]).configs) == {"g": {"a": "3"}, "h": {"a": "1", "b": "2"}}
    assert dict(state_of([row, other, replace(row, seq=4, value='{"v":1,"configs":{}}')]).configs) == {
        "h": {"a": "1", "b": "2"}
    }


def test_row_of_settings_with_a_number_as_a_value_is_rejected() -> None:
    row = GroupRow(seq=1, kind=CONFIG, group_id="g", value='{"v":1,"configs":{"a":1}}', time_ms=7)

    with pytest.raises(LogCorruptError, match="cannot be read: TypeError"):
        state_of([row])


@pytest.mark.parametrize("missing", ["topic", "partition"])
def test_share_row_without_topic_or_partition_is_rejected(missing: str) -> None:
    row = GroupRow(
        seq=1, kind=SHARE, group_id="g", topic="t", partition=0, offset=0, value='{"v":1,"start":0}', time_ms=7
    )

    with pytest.raises(LogCorruptError, match=r"cannot be read: ValueError\('no topic or partition'\)$"):
        state_of([replace(row, **{missing: None})])  # type: ignore[arg-type]
