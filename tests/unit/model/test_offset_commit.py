"""Offset commits: the rows of a commit, and what is refused by the state that it meets."""

from dataclasses import replace

import pytest

from kafkalike.errors import CommitFailedError, GroupIdNotFoundError, RebalanceInProgressError
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row, share_row
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.offset_commit import OffsetCommit, Position, moved_offsets
from kafkalike.model.shares.share_partition import SharePartition
from kafkalike.model.structs import TopicPartition
from kafkalike.model.topic import RepartitionTarget, TopicInfo

COMMIT = OffsetCommit(
    group_id="g",
    generation=-1,
    member_id="",
    group_instance_id=None,
    client_id="c",
    time_ms=70,
    positions=(Position("t", "id", 1, 9, 4, "note"), Position("u", "other", 0, 0, -1, "")),
)
ROW = GroupRow(
    seq=1,
    kind=OFFSET,
    group_id="g",
    topic="t",
    topic_id="id",
    partition=1,
    offset=9,
    leader_epoch=4,
    metadata="note",
    generation=-1,
    member_id="",
    client_id="c",
    time_ms=70,
)
OTHER = replace(ROW, seq=2, topic="u", topic_id="other", partition=0, offset=0, leader_epoch=-1, metadata="")

ROSTER = Roster(generation=5, members={"m": Member(member_id="m", since=2)}, changed_ms=1)
BY_MEMBER = replace(COMMIT, member_id="m", generation=3)


def test_commit_from_outside_of_a_group_has_a_row_for_each_position() -> None:
    assert list(COMMIT(GroupsState())) == [ROW, OTHER]


def test_rows_of_a_member_have_its_id_and_the_groups_present_generation() -> None:
    """The member knows an earlier one in which it had its partitions already."""
    state = GroupsState().applied([roster_row(1, "g", ROSTER)])

    made = [replace(row, seq=row.seq + 1, member_id="m", generation=5) for row in (ROW, OTHER)]
    assert list(BY_MEMBER(state)) == made


def test_commit_of_a_member_is_refused_by_a_group_that_does_not_know_it() -> None:
    for state in (GroupsState(), GroupsState().applied([roster_row(1, "g", replace(ROSTER, members={}))])):
        with pytest.raises(CommitFailedError):
            BY_MEMBER(state)
    with pytest.raises(CommitFailedError):
        COMMIT(GroupsState().applied([roster_row(1, "g", ROSTER)]))


def test_offsets_of_a_share_group_are_not_committed() -> None:
    """Whether it has share partitions already, or only members."""
    share = share_row(1, "g", TopicPartition("t", 0), SharePartition("id"), now_ms=1)

    with pytest.raises(GroupIdNotFoundError, match="'g' is a share group, not a consumer group: use another group id"):
        COMMIT(GroupsState().applied([share]))
    assert COMMIT(GroupsState().applied([replace(share, group_id="h")]))


def test_share_consumers_are_refused_by_a_group_with_offsets() -> None:
    state = GroupsState().applied([ROW])

    with pytest.raises(GroupIdNotFoundError, match="'g' is a consumer group, not a share group"):
        state.check_type("g", share=True)
    state.check_type("h", share=True)
    state.check_type("g", share=False)


def test_offsets_of_a_topic_that_was_moved_to_its_successor_are_not_committed() -> None:
    """Of any topic of the commit; the same name under the successor's id is open."""
    target = RepartitionTarget(topic_id=TopicId("new"), location="t~1", num_partitions=2)
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), location="t", num_partitions=1, target=target)
    state = GroupsState().applied(moved_offsets(GroupsState(), info, target, 50))
    first, second = COMMIT.positions

    for positions in ((first, second), (second, first)):
        with pytest.raises(RebalanceInProgressError, match="topic 't' is being repartitioned"):
            replace(COMMIT, positions=positions)(state)
    assert replace(COMMIT, positions=(second, replace(first, topic_id="new")))(state)
