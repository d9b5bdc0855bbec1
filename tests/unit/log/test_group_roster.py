"""Rosters: what a row holds, and the rules that need no scheduler to be seen."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberCommitError,
    UnknownMemberIdError,
)
from kafkalike.log.group.assignors import schemes_of
from kafkalike.model.groups.group_protocol import (
    EXCLUSIVE,
    GroupFacts,
    join,
    leave,
    pending_partitions,
    release,
    renew,
)
from kafkalike.model.groups.roster import Member, Roster, check_commit, dump_roster, load_roster
from kafkalike.model.structs import GroupState, TopicPartition

# --- JSON ------------------------------------------------------------------------------------

names = st.text(max_size=8)
partitions = st.lists(
    st.builds(TopicPartition, st.text("abü.-", min_size=1, max_size=4), st.integers(0, 9999)), unique=True, max_size=5
).map(lambda found: tuple(sorted(found)))
members = st.builds(
    Member,
    member_id=names,
    group_instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    subscription=st.lists(names, max_size=3).map(tuple),
    protocols=st.lists(names, max_size=3).map(tuple),
    session_timeout_ms=st.integers(1, 10**12) | st.floats(1, 1e12),
    heartbeat_interval_ms=st.integers(1, 10**12),
    rebalance_timeout_ms=st.integers(1, 10**12),
    assignment=partitions,
    target=partitions,
    since=st.integers(0, 2**31 - 1),
    released=st.booleans(),
    joined_ms=st.integers(0, 10**13),
)
rosters = st.builds(
    Roster,
    generation=st.integers(0, 2**31 - 1),
    protocol=names,
    cooperative=st.booleans(),
    members=st.lists(members, max_size=4).map(lambda found: {m.member_id: m for m in found}),
    topics=st.dictionaries(names, st.tuples(names, st.integers(1, 10_000)), max_size=3),
    metadata_seq=st.integers(0, 2**40),
    pending=st.booleans(),
    changed_ms=st.integers(0, 10**13),
)


@given(roster=rosters)
def test_a_roster_comes_back_from_its_row(roster: Roster) -> None:
    """Every field, whatever the names hold."""
    assert load_roster(json.loads(dump_roster(roster)), roster.generation, roster.changed_ms) == roster


# --- rules -----------------------------------------------------------------------------------

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def known(strategy: str = "range", count: int = 2, seq: int = 1) -> GroupFacts:
    return GroupFacts(schemes=schemes_of(strategy), topics={"t": ("id", count)}, metadata_seq=seq, now_ms=seq)


def member(name: str, strategy: str = "range", instance: str | None = None) -> Member:
    return Member(member_id=name, subscription=("t",), protocols=(strategy,), group_instance_id=instance)


def group(strategy: str = "range", *ids: str) -> Roster:
    """A group at rest."""
    roster = Roster()
    for name in ids:
        roster = join(roster, member(name, strategy), known(strategy))
        for other in ids:
            roster = give_up(roster, other, strategy)
    assert roster.state is GroupState.STABLE
    return roster


def give_up(roster: Roster, name: str, strategy: str = "range") -> Roster:
    me = roster.members.get(name)
    return roster if me is None else release(roster, name, pending_partitions(roster, me), known(strategy))


def owned(roster: Roster) -> dict[str, tuple[TopicPartition, ...]]:
    return {m.member_id: m.assignment for m in roster}


def test_a_member_that_would_idle_disturbs_nobody() -> None:
    """A third member of two partitions: eager members go on without a stop."""
    two = group("range", "a", "b")

    three = join(two, member("c"), known())

    assert owned(three) == {**owned(two), "c": ()}
    assert three.state is GroupState.STABLE
    assert three.generation == two.generation + 1


def test_joining_again_with_the_same_wishes_changes_nothing() -> None:
    """So a join of unknown outcome may be tried again."""
    two = group("range", "a", "b")

    again = join(two, member("a"), known())

    assert (again.generation, owned(again)) == (two.generation, owned(two))


def test_what_was_taken_away_while_giving_up_is_not_handed_on() -> None:
    """A member names what it gave up; what it came to owe meanwhile stays its own until it says so."""
    one = group("cooperative-sticky", "a")
    two = join(one, member("b", "cooperative-sticky"), known("cooperative-sticky"))
    (first,) = pending_partitions(two, two.members["a"])
    (kept,) = {T0, T1} - {first}

    after = release(two, "a", [first, TopicPartition("t", 7)], known("cooperative-sticky"))

    assert owned(after) == {"a": (kept,), "b": (first,)}
    assert release(after, "a", [kept], known("cooperative-sticky")) is after


def test_who_takes_somebody_out_without_the_assignor_leaves_the_sharing_to_the_members() -> None:
    """An administrator knows no custom assignor: the group is pending until a member looks."""
    two = group("sticky", "a", "b")

    pending = leave(two, ["a"], known("range"))
    settled = give_up(renew(pending, known("sticky")), "b", "sticky")

    assert pending.pending
    assert pending.state is GroupState.PREPARING_REBALANCE
    assert owned(pending) == {"b": two.members["b"].assignment}
    assert owned(settled) == {"b": (T0, T1)}
    assert settled.state is GroupState.STABLE


def test_metadata_that_is_older_than_the_roster_changes_nothing() -> None:
    """A member whose view of the topics is late does not undo what others have seen."""
    grown = give_up(renew(group("range", "a"), known(count=3, seq=5)), "a")

    assert renew(grown, known(count=2, seq=4)) is grown
    assert len(grown.members["a"].target) == 3


def test_a_change_made_with_older_metadata_leaves_no_partition_without_an_owner() -> None:
    """A join or leave that was under way while partitions were added: whoever knows of them sees that they lack."""
    old, new = known("cooperative-sticky", count=2, seq=4), known("cooperative-sticky", count=4, seq=5)
    grown = renew(join(Roster(), member("a", "cooperative-sticky"), old), new)
    shrunk = join(grown, member("b", "cooperative-sticky"), old)

    made_good = renew(shrunk, new)

    assert {tp.partition for m in made_good for tp in m.target} == {0, 1, 2, 3}
    assert renew(made_good, old) is made_good


def test_the_last_one_to_leave_leaves_an_empty_group() -> None:
    """Whose generation goes on."""
    one = group("range", "a")

    empty = leave(one, ["a", "nobody"], known())

    assert empty.state is GroupState.EMPTY
    assert empty.generation == one.generation + 1
    assert leave(empty, ["a"], known()) is empty


def test_members_need_an_assignor_in_common_and_a_batch_job_needs_to_be_alone() -> None:
    """The group stays as it was."""
    one = group("range", "a")
    job = Member(member_id="job", subscription=("t",), protocols=(EXCLUSIVE,))

    with pytest.raises(InconsistentGroupProtocolError, match="'b' has sticky"):
        join(one, member("b", "sticky"), known("sticky"))
    with pytest.raises(NonEmptyGroupError, match="'a'"):
        join(one, job, known())


@pytest.mark.parametrize(
    ("member_id", "generation", "instance", "error"),
    [
        ("b", 2, None, UnknownMemberCommitError),
        ("", -1, None, UnknownMemberCommitError),
        ("gone", 2, "i", FencedInstanceIdError),
        ("a", 99, None, CommitFailedError),
    ],
)
def test_only_a_member_of_the_generation_may_commit(
    member_id: str, generation: int, instance: str | None, error: type[Exception]
) -> None:
    """Kafka's rules, and kafka-python's errors; an unknown member's is both of the errors that people catch."""
    roster = join(Roster(), member("a", instance="i"), known())

    with pytest.raises(error):
        check_commit(roster, "g", member_id, generation, instance)

    check_commit(roster, "g", "a", roster.generation, "i")
    check_commit(Roster(), "g", "", -1)
    assert issubclass(UnknownMemberCommitError, CommitFailedError)
    assert issubclass(UnknownMemberCommitError, UnknownMemberIdError)


def test_a_member_commits_until_it_has_given_up_and_again_when_it_has_got_something() -> None:
    """Eager: in between it is told that the rebalance is not over."""
    one = group("range", "a")
    two = join(one, member("b"), known())
    check_commit(two, "g", "a", one.generation)
    three = join(two, member("c"), known(count=3, seq=2))

    waiting = release(three, "a", (T0, T1), known(count=3, seq=2))

    assert waiting.state is GroupState.STABLE
    with pytest.raises(CommitFailedError):
        check_commit(waiting, "g", "a", three.generation)
    check_commit(waiting, "g", "a", waiting.generation)


def test_a_member_that_waits_for_others_is_told_to_wait() -> None:
    """It has given up everything; the others have not."""
    two = group("range", "a", "b")
    three = join(two, member("c"), known(count=3, seq=2))

    waiting = give_up(three, "a")

    with pytest.raises(RebalanceInProgressError):
        check_commit(waiting, "g", "a", waiting.generation)
    check_commit(waiting, "g", "b", two.generation)
