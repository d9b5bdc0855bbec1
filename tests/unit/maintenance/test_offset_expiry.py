"""When committed offsets go, in Kafka's rule (KIP-211)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.model.frozen_map import FrozenMap
from kafkalike.model.group_rows import OFFSET, GroupRow, roster_row
from kafkalike.model.group_state import Group, GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.offset_commit import deletion_rows, expired, orphaned
from kafkalike.model.structs import CommittedOffset, OffsetAndMetadata, TopicPartition

READ, LEFT = TopicPartition("read", 0), TopicPartition("left", 0)


def committed(at_ms: int, topic_id: str = "id") -> CommittedOffset:
    return CommittedOffset(
        position=OffsetAndMetadata(5), topic_id=topic_id, time_ms=at_ms, member_id="", client_id=""
    )  # fmt: skip


def group(members: dict[str, Member] | None = None, changed_ms: int = 0, *, pending: bool = False) -> Group:
    roster = Roster(generation=1, members=members or {}, changed_ms=changed_ms, pending=pending)
    return Group(offsets=FrozenMap({READ: committed(100), LEFT: committed(200)}), roster=roster)


def test_offsets_are_kept_from_when_the_last_member_left() -> None:
    """However old the commits are."""
    empty = group(changed_ms=1_000)

    assert expired(empty, 1_499, 500) == []
    assert expired(empty, 1_500, 500) == [LEFT, READ]


def test_offsets_of_a_group_without_members_are_kept_from_their_commit() -> None:
    """A consumer that assigns its partitions itself never joins."""
    assert expired(group(), 650, 500) == [READ]
    assert expired(group(), 700, 500) == [LEFT, READ]


def test_a_live_group_loses_the_offsets_of_topics_that_it_reads_no_more() -> None:
    """Those of its subscription stay for ever."""
    live = group({"m": Member(member_id="m", subscription=("read",))}, changed_ms=10_000)

    assert expired(live, 10**12, 500) == [LEFT]
    assert expired(live, 10_001, 500) == [LEFT]


def test_nothing_expires_while_a_group_is_being_rebalanced() -> None:
    """Who reads what is not known then."""
    assert expired(group({"m": Member(member_id="m")}, pending=True), 10**12, 500) == []


@given(st.integers(0, 1_000), st.integers(0, 1_000), st.integers(0, 2_000), st.integers(1, 500))
def test_an_offset_goes_when_both_its_commit_and_the_group_are_old(
    commit_ms: int, empty_ms: int, now_ms: int, retention_ms: int
) -> None:
    """One that an administrator has set after the group became empty lives from then on."""
    one = Group(offsets=FrozenMap({READ: committed(commit_ms)}), roster=Roster(generation=1, changed_ms=empty_ms))

    gone = bool(expired(one, now_ms, retention_ms))

    assert gone == (now_ms - commit_ms >= retention_ms and now_ms - empty_ms >= retention_ms)


def test_offsets_of_topics_that_are_gone_are_orphaned() -> None:
    """Also when a new topic has the name."""
    one = group()

    assert orphaned(one, {"read": "id", "left": "id"}, {}) == []
    assert orphaned(one, {"read": "another"}, {}) == [LEFT, READ]


@pytest.mark.parametrize("after", [0, 3])
def test_deleting_all_offsets_of_an_empty_group_deletes_the_group(after: int) -> None:
    """Its generation goes on when it comes back."""
    commit = GroupRow(seq=1, kind=OFFSET, group_id="g", topic="read", topic_id="id", partition=0, offset=5, time_ms=1)
    state = GroupsState().applied([commit, roster_row(2, "g", Roster(generation=7))])

    rows = deletion_rows(state, "g", [READ, LEFT], 9, after)
    state = state.applied(rows)

    assert [row.seq for row in rows] == [3 + after]
    assert state.groups == {}
    assert state.group("g").generation == 7
