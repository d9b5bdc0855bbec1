"""Claims of those who are no members: a query commits its progress only for a group without members, and its topics."""

from __future__ import annotations

import pytest

from kafkalike.errors import CommitFailedError, UnknownTopicOrPartitionError
from kafkalike.model.group_rows import roster_row, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.group_claims import GroupClaim, check_partitions, joined_lives
from kafkalike.model.transactions.rules import CommitRequest, plan_commit, plan_init
from kafkalike.model.transactions.transactional_id import Entries, TransactionAttempt, WriteName

TP = TopicPartition("in", 0)
NAME = WriteName("stream:q", 7)


def groups(*, members: bool) -> GroupsState:
    state = GroupsState()
    if members:
        member = Member(member_id="m", client_id="c", protocols=("range",), subscription=("in",))
        state = state.applied([roster_row(1, "g", Roster(members={"m": member}, generation=3, changed_ms=5))])
    made = plan_init(state, "q", settled=0, timeout_ms=5, client_id="c", now_ms=5)
    assert made is not None
    return state.applied(transaction_rows(state.seq + 1, made))


def commit(state: GroupsState, claim: GroupClaim, topic_id: str = "new") -> Entries | None:
    known = state.transactions["q"]
    wanted = CommitRequest(
        transactional_id="q",
        attempt=TransactionAttempt(known.producer_id, known.epoch, 1),
        offsets={claim: {TP: OffsetAndMetadata(4)}},
        settled=0,
        name=NAME,
    )
    return plan_commit(state, wanted, {"in": topic_id}, 6)


@pytest.mark.parametrize("alone", [True, False])
def test_whoever_must_be_alone_commits_for_no_group_with_members(*, alone: bool) -> None:
    """With the group's id only, nobody's membership is looked at, as in Kafka."""
    claim = GroupClaim(group_id="g", alone=alone)

    if alone:
        with pytest.raises(CommitFailedError):
            commit(groups(members=True), claim)
    else:
        assert commit(groups(members=True), claim) is not None
    assert commit(groups(members=False), claim) is not None


def test_offsets_of_a_topic_that_was_deleted_do_not_count_for_the_next_one() -> None:
    claim = GroupClaim(group_id="g", lives=(("in", "old"),))

    with pytest.raises(UnknownTopicOrPartitionError, match="created again"):
        commit(groups(members=False), claim)
    assert commit(groups(members=False), claim, "old") is not None


def test_a_decision_keeps_the_name_of_its_write() -> None:
    """Also when later rows of the id stand in its place: a rerun finds it."""
    state = groups(members=False)
    made = commit(state, GroupClaim(group_id="g"))
    assert made is not None
    state = state.applied(transaction_rows(state.seq + 1, made))
    decided = state.transactions["q"].committed
    assert decided is not None
    assert decided.name == NAME

    again = plan_init(state, "q", settled=decided.seq, timeout_ms=5, client_id="c", now_ms=9)
    assert again is not None
    state = state.applied(transaction_rows(state.seq + 1, again))

    kept = state.transactions["q"].committed
    assert kept is not None
    assert (kept.name, kept.seq, kept.groups) == (NAME, decided.seq, ())


def test_offsets_of_a_partition_that_is_not_there_are_refused() -> None:
    """A topic that is not there is left to whoever makes rows of them."""
    info = TopicInfo(name=TopicName("t"), topic_id=TopicId("id"), num_partitions=2, configs={}, location="t")
    there, gone, unknown = (TopicPartition(*at) for at in (("t", 1), ("t", 2), ("u", 7)))

    position, claim = OffsetAndMetadata(1), GroupClaim(group_id="g")

    check_partitions({claim: {there: position, unknown: position}}, {"t": info})
    with pytest.raises(UnknownTopicOrPartitionError, match="t-2 does not exist; nothing was committed"):
        check_partitions({claim: {gone: position}}, {"t": info})


def test_offsets_of_a_topic_that_was_created_again_are_not_joined() -> None:
    """Those that were given before belong to the earlier topic."""
    assert joined_lives({"orders": "a"}, {"orders": "a", "bills": "b"}) == {"orders": "a", "bills": "b"}
    with pytest.raises(UnknownTopicOrPartitionError, match="'orders' cannot be added: the topic was deleted"):
        joined_lives({"orders": "a"}, {"orders": "c"})
