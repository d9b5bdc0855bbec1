"""Rules of mirrors: what a copy is given next, which committed offsets, and the row that says how it stands."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.cluster_state import TopicChange, parse_row, topic_row
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.mirror import AT_ONCE, FIRST_AT_ONCE, Mirrored, Phase, Step, dump_mirror, load_mirror, next_step
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.replication.mirror_offsets import (
    CLIENT,
    MirroredOffset,
    SyncedTopic,
    may_take,
    offset_rows,
    offsets_due,
)
from kafkalike.model.row_value import parse_json
from kafkalike.model.shares.share_partition import SharePartition
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import Ancestor, RepartitionTarget, TopicInfo

BEGAN = 1_000
"""When the topic became a mirror, ms."""


# --- what a copy of a table is given -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "wanted", "first", "same", "newest", "step"),
    [
        # Nothing is there yet: from the first version on, or from a checkpoint where that is gone.
        (-1, 0, 0, None, 0, Step.FOLLOW),
        (-1, 4, 0, None, 9, Step.FOLLOW),
        (-1, 4, 1, None, 9, Step.RESTART),
        (-1, FIRST_AT_ONCE - 1, 0, None, 9_999, Step.FOLLOW),
        (-1, FIRST_AT_ONCE, 0, None, 9_999, Step.RESTART),
        # A first version of the copy's own gives way to the source's.
        (0, 3, 0, False, 3, Step.RESTART),
        (0, 3, 0, None, 3, Step.RESTART),
        (0, 3, 0, True, 3, Step.FOLLOW),
        (0, 0, 0, False, 0, Step.NOTHING),
        (0, FIRST_AT_ONCE, 0, True, 9_999, Step.FOLLOW),
        (0, FIRST_AT_ONCE + 1, 0, True, 9_999, Step.RESTART),
        # It goes on where it stopped, as long as what comes next is there and is not too much.
        (5, 6, 6, True, 9, Step.FOLLOW),
        (5, 8, 6, None, 9, Step.FOLLOW),
        (5, 8, 7, True, 9, Step.RESTART),
        (5, 8, 9, True, 9, Step.RESTART),
        (1, 1 + AT_ONCE, 0, True, 9_999, Step.FOLLOW),
        (1, 2 + AT_ONCE, 0, True, 9_999, Step.RESTART),
        # It has what is wanted.
        (5, 5, 0, True, 9, Step.NOTHING),
        (6, 5, 0, None, 9, Step.NOTHING),
        (9, 5, 0, True, 9, Step.NOTHING),
        # It has what its source does not have.
        (10, 9, 0, None, 9, Step.DIVERGED),
        (1, 1, 0, False, 9, Step.DIVERGED),
        (5, 8, 0, False, 9, Step.DIVERGED),
        (0, -1, 0, True, -1, Step.DIVERGED),
    ],
)
def test_a_copy_is_given_what_comes_next_or_begins_anew(
    end: int,
    wanted: int,
    first: int,
    same: bool | None,  # noqa: FBT001
    newest: int,
    step: Step,
) -> None:
    there = range(first, newest + 1)

    assert next_step(end=end, wanted=wanted, there=there, same=same, newest=newest) is step


@given(
    st.integers(-1, 8),
    st.integers(-1, 8),
    st.frozensets(st.integers(0, 8)),
    st.sampled_from([True, False, None]),
    st.integers(-1, 8),
)
def test_versions_are_followed_only_where_each_of_them_is_there(
    end: int,
    wanted: int,
    there: frozenset[int],
    same: bool | None,  # noqa: FBT001
    newest: int,
) -> None:
    """A copy that lacks a version in between would read records that nobody wrote in that order."""
    step = next_step(end=end, wanted=wanted, there=there, same=same, newest=newest)

    if step is Step.FOLLOW:
        assert end < wanted
        assert set(range(end + 1, wanted + 1)) <= there
        # Who has nothing has nothing that could be another one.
        assert same is not False or end < 0
    if step is Step.NOTHING:
        assert wanted <= end <= newest


def test_a_copy_that_lacks_one_of_the_next_versions_restarts_at_a_checkpoint() -> None:
    for there in ({6, 7}, {6, 8}, {7, 8}):
        assert next_step(end=5, wanted=8, there=there, same=True, newest=8) is Step.RESTART
    assert next_step(end=5, wanted=8, there={6, 7, 8}, same=True, newest=8) is Step.FOLLOW


# --- committed offsets -------------------------------------------------------------------------------

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
    time_ms=700,
)
OFFERED = MirroredOffset("g", "t", "id", 0, 5, 3, "note", 700)
COPIED = SyncedTopic(topic_id="id", began_ms=BEGAN, ends={0: 9, 1: 9})


def groups(*rows: GroupRow) -> GroupsState:
    """A state in which these rows were numbered from 1 on."""
    return GroupsState().applied(replace(row, seq=nth) for nth, row in enumerate(rows, start=1))


def from_mirror(offset: int, version: int) -> GroupRow:
    """A position that a mirror has brought with a version of its source's groups."""
    return replace(COMMIT, offset=offset, client_id=CLIENT, member_id=f"source-version-{version}", time_ms=2_000)


def with_a_member(*rows: GroupRow) -> GroupsState:
    member = Member(member_id="m", client_id="c")
    return groups(*rows, roster_row(9, "g", Roster(generation=1, members={"m": member}, changed_ms=1)))


def test_a_position_of_the_source_comes_with_all_that_is_known_of_it() -> None:
    due = offsets_due(groups(COMMIT), groups(), {"t": COPIED}, ["g"], 4)

    assert (due.offsets, due.held, due.ahead) == ([OFFERED], [], [])


def test_only_groups_and_topics_of_the_pass_are_brought() -> None:
    """A topic of the same name that was made anew is another one."""
    source = groups(
        COMMIT,
        replace(COMMIT, topic="other"),
        replace(COMMIT, group_id="not-mirrored"),
        replace(COMMIT, topic="made-anew", topic_id="old"),
        replace(COMMIT, partition=1, offset=6),
    )
    topics = {"t": COPIED, "made-anew": replace(COPIED, topic_id="new")}

    due = offsets_due(source, groups(), topics, ["g"], 4)

    assert due.offsets == [OFFERED, OFFERED._replace(partition=1, offset=6)]


def test_groups_are_brought_in_the_order_of_their_names() -> None:
    source = groups(COMMIT, replace(COMMIT, group_id="a"))

    due = offsets_due(source, groups(), {"t": COPIED}, ["g", "a", "nobody"], 4)

    assert [offset.group_id for offset in due.offsets] == ["a", "g"]


def test_a_position_that_is_there_is_not_brought_again() -> None:
    """Whoever wrote it. One of another life of the topic is not that position."""
    there = groups(replace(COMMIT, client_id="somebody", time_ms=5_000))
    of_another_life = groups(replace(COMMIT, topic_id="old", client_id="somebody", time_ms=5_000))

    due = offsets_due(groups(COMMIT), there, {"t": COPIED}, ["g"], 4)
    assert (due.offsets, due.held) == ([], [])
    assert offsets_due(groups(COMMIT), of_another_life, {"t": COPIED}, ["g"], 4).offsets == [OFFERED]


def test_positions_behind_others_that_stay_are_brought() -> None:
    """Of a topic outside of the pass, and a position that is there already."""
    source = groups(replace(COMMIT, topic="another"), COMMIT, replace(COMMIT, partition=1))

    due = offsets_due(source, groups(COMMIT), {"t": COPIED}, ["g"], 4)

    assert [(o.topic, o.partition) for o in due.offsets] == [("t", 1)]


def test_offsets_of_a_share_group_of_the_copys_cluster_stay() -> None:
    """Its clients work under that id."""
    share = share_row(1, "g", TopicPartition("t", 0), SharePartition("id"), now_ms=1)

    assert not may_take(groups(share), OFFERED, BEGAN, 4)
    assert may_take(groups(replace(share, group_id="h")), OFFERED, BEGAN, 4)


def test_a_position_beyond_the_records_waits_for_them() -> None:
    """At the log end it may come; of a partition that is not known no record is there."""
    source = groups(
        replace(COMMIT, offset=9),
        replace(COMMIT, partition=1, offset=10),
        replace(COMMIT, partition=2, offset=1),
        replace(COMMIT, group_id="h", partition=2, offset=0),
    )

    due = offsets_due(source, groups(), {"t": COPIED}, ["g", "h"], 4)

    assert [(o.group_id, o.partition, o.offset) for o in due.offsets] == [("g", 0, 9), ("h", 2, 0)]
    assert (due.held, due.ahead) == ([], ["g"])


def test_a_group_that_is_at_work_in_the_copys_cluster_is_left_alone() -> None:
    """It is named once, and is held back also where only a part of it is."""
    source = groups(COMMIT, replace(COMMIT, partition=1), replace(COMMIT, group_id="h"))

    due = offsets_due(source, with_a_member(), {"t": COPIED}, ["g", "h"], 4)

    assert ([o.group_id for o in due.offsets], due.held, due.ahead) == (["h"], ["g"], [])


@pytest.mark.parametrize(
    ("target", "taken"),
    [
        (groups(), True),
        (with_a_member(), False),
        (groups(replace(COMMIT, topic_id="old", time_ms=BEGAN)), True),
        # Of before the mirror began: the source's is the newer truth. Since then: somebody works here.
        (groups(replace(COMMIT, offset=4, time_ms=BEGAN - 1)), True),
        (groups(replace(COMMIT, offset=4, time_ms=BEGAN)), False),
        (groups(from_mirror(4, 3)), True),
        (groups(from_mirror(4, 4)), False),
        (groups(from_mirror(4, 5)), False),
        (groups(replace(from_mirror(4, 0), member_id="something")), True),
        (groups(replace(COMMIT, partition=1, time_ms=BEGAN)), True),
        (groups(replace(COMMIT, topic="other", time_ms=BEGAN)), True),
    ],
)
def test_a_position_gives_way_to_a_newer_one_of_the_source_alone(target: GroupsState, *, taken: bool) -> None:
    assert may_take(target, OFFERED, BEGAN, 4) is taken
    due = offsets_due(groups(COMMIT), target, {"t": COPIED}, ["g"], 4)
    assert (due.offsets, due.held) == (([OFFERED], []) if taken else ([], ["g"]))


def test_a_position_without_a_version_is_older_than_any() -> None:
    """An earlier release may have written it; the source's first version counts as newer."""
    target = groups(replace(from_mirror(4, 0), member_id="source-version-"))

    assert may_take(target, OFFERED, BEGAN, 0)


def test_rows_are_written_as_far_as_they_are_still_wanted() -> None:
    """Between the decision and the rows a topic may have been promoted, and a group have begun to work."""
    target = with_a_member(replace(COMMIT, group_id="x"))
    offers = [
        OFFERED._replace(group_id="h"),
        OFFERED,  # is at work
        OFFERED._replace(group_id="h", topic="promoted", topic_id="id2"),
        OFFERED._replace(group_id="i", partition=1),
    ]

    rows = offset_rows(target, offers, {"id": BEGAN}, 4)

    first = GroupRow(
        seq=target.seq + 1,
        kind=OFFSET,
        group_id="h",
        topic="t",
        topic_id="id",
        partition=0,
        offset=5,
        leader_epoch=3,
        metadata="note",
        member_id="source-version-4",
        client_id=CLIENT,
        time_ms=700,
    )
    assert rows == [first, replace(first, seq=target.seq + 2, group_id="i", partition=1)]


def test_a_topic_that_began_later_takes_what_came_before_it() -> None:
    """Each topic of a pass has a beginning of its own."""
    target = groups(
        replace(COMMIT, offset=1, time_ms=1_500), replace(COMMIT, topic="u", topic_id="id2", offset=1, time_ms=1_500)
    )
    offers = [OFFERED, OFFERED._replace(topic="u", topic_id="id2")]

    assert [row.topic for row in offset_rows(target, offers, {"id": 1_000, "id2": 2_000}, 4)] == ["u"]


positions = st.lists(
    st.builds(
        lambda group, partition, offset, mirrored, at: replace(
            from_mirror(offset, at) if mirrored else replace(COMMIT, offset=offset, time_ms=at * 500),
            group_id=group,
            partition=partition,
        ),
        st.sampled_from("gh"),
        st.integers(0, 1),
        st.integers(0, 9),
        st.booleans(),
        st.integers(0, 4),
    ),
    max_size=6,
)


@given(positions, positions, st.integers(0, 4))
def test_a_pass_that_was_carried_out_has_nothing_left_to_bring(
    there: list[GroupRow], here: list[GroupRow], version: int
) -> None:
    """Whoever repeats it writes nothing; what was committed here since the mirror began is as it was."""
    source, target = groups(*there), groups(*here)
    due = offsets_due(source, target, {"t": COPIED}, ["g", "h"], version)

    after = target.applied(offset_rows(target, due.offsets, {"id": BEGAN}, version))

    again = offsets_due(source, after, {"t": COPIED}, ["g", "h"], version)
    assert (again.offsets, again.held, again.ahead) == ([], due.held, due.ahead)
    assert offset_rows(after, due.offsets, {"id": BEGAN}, version) == []
    for group_id, group in target.groups.items():
        for tp, known in group.offsets.items():
            if known.client_id != CLIENT and known.time_ms >= BEGAN:
                assert after.group(group_id).offsets[tp] == known


# --- the row -----------------------------------------------------------------------------------------

MIRROR = Mirrored(
    source="/source",
    phase=Phase.PROMOTING,
    version=7,
    groups_version=3,
    run="run",
    seal="seal",
    began_ms=BEGAN,
    time_ms=2_000,
)
SAID = {
    "v": 1,
    "source": "/source",
    "phase": "promoting",
    "version": 7,
    "groups_version": 3,
    "run": "run",
    "seal": "seal",
    "began_ms": BEGAN,
}


def test_what_is_known_of_a_mirror_is_in_its_row() -> None:
    """The row's own time is that of the last pass."""
    assert parse_json(dump_mirror(MIRROR)) == SAID
    assert load_mirror(SAID, 2_000) == MIRROR
    assert list(parse_json(dump_mirror(MIRROR))) == sorted(SAID)


def test_a_mirror_that_had_no_pass_yet_is_at_version_minus_1() -> None:
    new = Mirrored(source="/source", began_ms=BEGAN)

    assert load_mirror(parse_json(dump_mirror(new)), 0) == new


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source", 5),
        ("phase", "resting"),
        ("phase", None),
        ("version", -2),
        ("version", -1.0),
        ("version", True),
        ("groups_version", -1),
        ("groups_version", "3"),
        ("run", None),
        ("seal", 0),
        ("began_ms", -1),
    ],
)
def test_a_damaged_row_of_a_mirror_is_refused(name: str, value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        load_mirror(SAID | {name: value}, 0)


@pytest.mark.parametrize("name", sorted(SAID.keys() - {"v"}))
def test_a_row_of_a_mirror_that_lacks_something_is_refused(name: str) -> None:
    with pytest.raises(KeyError, match=name):
        load_mirror({key: value for key, value in SAID.items() if key != name}, 0)


# --- the two ids of a topic ----------------------------------------------------------------------


def test_row_of_a_topic_with_another_table_id_comes_back_and_needs_this_release() -> None:
    info = TopicInfo(
        name=TopicName("t"), topic_id=TopicId("new"), origin_id=TopicId("old"), location="t~1", num_partitions=2
    )

    row = topic_row(1, 5, info, "created")

    assert parse_row(row) == TopicChange(info=info, deleted=False)
    assert (info.table_id, json.loads(row.value)["v"]) == ("old", 2)
    plain = replace(info, origin_id=None)
    assert (plain.table_id, json.loads(topic_row(1, 5, plain, "created").value)["v"]) == ("new", 1)


def ancestor(topic_id: str, table_id: str, partitions: int) -> Ancestor:
    return Ancestor(topic_id=TopicId(topic_id), table_id=TopicId(table_id), num_partitions=partitions)


@pytest.mark.parametrize(
    "moved",
    [
        {"ancestors": (ancestor("a", "b", 2), ancestor("c", "c", 4))},
        {"target": RepartitionTarget(topic_id=TopicId("n"), location="t~2", num_partitions=8)},
    ],
    ids=["before", "after"],
)
def test_row_of_a_repartitioned_topic_comes_back_and_needs_this_release(moved: dict[str, Any]) -> None:
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("i"), location="t", num_partitions=4, **moved)

    row = topic_row(1, 5, info, "created")

    assert parse_row(row) == TopicChange(info=info, deleted=False)
    assert json.loads(row.value)["v"] == 3


def test_committed_offsets_get_the_id_that_the_topic_has_at_the_target() -> None:
    copied = {"t": replace(COPIED, topic_id="mine", source_id="theirs")}

    due = offsets_due(groups(replace(COMMIT, topic_id="theirs")), groups(), copied, ["g"], 7)
    none = offsets_due(groups(replace(COMMIT, topic_id="mine")), groups(), copied, ["g"], 7)

    assert [offset.topic_id for offset in due.offsets] == ["mine"]
    assert none.offsets == []
