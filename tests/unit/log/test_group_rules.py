"""Rules of the group protocol one by one: what a change of a roster leaves, moves, seals and says."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberCommitError,
)
from kafkalike.model.groups.group_protocol import (
    EXCLUSIVE,
    GroupFacts,
    Scheme,
    Subscriber,
    join,
    leave,
    owners_awaited,
    pending_partitions,
    release,
    renew,
)
from kafkalike.model.groups.roster import Member, Partitions, Roster, check_commit, dump_roster, load_roster
from kafkalike.model.structs import TopicPartition

T0, T1, T2 = (TopicPartition("t", p) for p in range(3))


class Plan:
    """An assignor that does what it is told, and keeps what it was asked."""

    def __init__(self, **shares: Partitions) -> None:
        self.shares = shares
        self.asked: list[Mapping[str, Subscriber]] = []

    def __call__(
        self, counts: Mapping[str, int], members: Mapping[str, Subscriber]
    ) -> Mapping[str, Iterable[TopicPartition]]:
        self.asked.append(members)
        return {name: [tp for tp in self.shares.get(name, ()) if tp.partition < counts.get("t", 0)] for name in members}


def knowing(
    plan: Plan, *, cooperative: bool = False, names: tuple[str, ...] = ("own",), now: int = 1, **facts: Any
) -> GroupFacts:
    topics = {"t": (facts.get("topic_id", "id"), facts.get("count", 2))}
    schemes = {name: Scheme(name, plan, cooperative) for name in names}
    return GroupFacts(schemes=schemes, topics=topics, metadata_seq=facts.get("seq", 1), now_ms=now)


def member(name: str, instance: str | None = None, joined: int = 0, protocols: tuple[str, ...] = ("own",)) -> Member:
    return Member(
        member_id=name, subscription=("t",), protocols=protocols, group_instance_id=instance, joined_ms=joined
    )


def two_of_them() -> tuple[Roster, Plan]:
    """A static member with both partitions, in since generation 1, and an idle one since generation 2."""
    plan = Plan(a=(T0, T1))
    one = join(Roster(), member("a", instance="i", joined=5), knowing(plan))
    two = join(one, member("b", joined=6), knowing(plan, now=2))
    assert (two.generation, two.members["a"].since, two.members["a"].assignment) == (2, 1, (T0, T1))
    return two, plan


# --- who is a member ---------------------------------------------------------------------------


def test_a_new_member_may_commit_from_its_generation_on_and_an_old_one_from_its_own() -> None:
    """An idle one does not wait for anything."""
    two, _ = two_of_them()

    assert (two.members["b"].since, two.members["b"].assignment, two.members["b"].released) == (2, (), False)
    assert (two.topics, two.metadata_seq, two.changed_ms, two.protocol) == ({"t": ("id", 2)}, 1, 2, "own")
    assert two.pending is False
    assert (two.owner(T1), two.owner(T2)) == (two.members["a"], None)


def test_a_member_that_joins_again_keeps_its_place() -> None:
    """With the generation under which it may commit, and the time when it came."""
    two, plan = two_of_them()

    again = join(two, member("a", instance="i", joined=9), knowing(plan, now=7))

    assert again == replace(two, changed_ms=7)


def test_a_static_member_that_comes_back_under_another_id_takes_its_place_over() -> None:
    """From here on it may commit; the process before it may not any more."""
    two, plan = two_of_them()

    back = join(two, member("a2", instance="i", joined=9), knowing(plan, now=7))

    assert back.members == {
        "b": two.members["b"],
        "a2": replace(two.members["a"], member_id="a2", since=2, joined_ms=5),
    }
    assert (back.generation, back.changed_ms) == (2, 7)


def test_a_static_member_that_comes_back_with_another_wish_opens_a_generation() -> None:
    """Though it keeps what it had."""
    two, plan = two_of_them()
    wish = replace(member("a2", instance="i"), subscription=("t", "unknown"))
    plan.shares = {"a2": (T0, T1)}

    back = join(two, wish, knowing(plan, now=7))

    assert (back.generation, back.members["a2"].since, back.members["a2"].assignment) == (3, 3, (T0, T1))


def test_a_wish_that_moves_nothing_opens_no_generation() -> None:
    """A topic that does not exist."""
    two, plan = two_of_them()

    after = join(two, replace(member("a", instance="i"), subscription=("t", "unknown")), knowing(plan, now=7))

    assert (after.generation, after.changed_ms, after.members["a"].since) == (2, 7, 1)
    assert after.members["a"].subscription == ("t", "unknown")


def test_a_member_that_has_given_up_everything_waits_on_when_it_joins_again() -> None:
    """What it is to get is still its own then."""
    plan = Plan(a=(T0,), b=(T1,))
    three = join(two_of_them()[0], member("c"), knowing(Plan(a=(T0,), b=(T1,)), now=3))
    holding = replace(three.members["b"], assignment=(T2,), released=False)
    waiting = replace(three, members={**three.members, "b": holding})
    waiting = release(waiting, "a", (T0, T1), knowing(plan))
    assert waiting.members["a"].released

    again = join(waiting, member("a", instance="i"), knowing(plan))

    assert again.members["a"] == waiting.members["a"]
    assert again.members["a"].target == (T0,)


def test_an_idle_member_that_leaves_opens_a_generation() -> None:
    """Nothing moves by it."""
    two, plan = two_of_them()

    one = leave(two, ["b"], knowing(plan, now=8))

    assert (one.generation, set(one.members), one.changed_ms) == (3, {"a"}, 8)
    assert leave(one, ["a"], knowing(plan, now=9)) == Roster(generation=4, changed_ms=9)


def test_a_batch_job_is_told_who_is_in_its_way() -> None:
    """By id, in order."""
    two, plan = two_of_them()

    with pytest.raises(NonEmptyGroupError) as refused:
        join(two, Member(member_id="job", protocols=(EXCLUSIVE,)), knowing(plan))

    assert str(refused.value) == "'job' needs the group for itself, but it has members: 'a', 'b'"


# --- topics and assignors ------------------------------------------------------------------------


def test_a_topic_that_was_made_anew_opens_a_generation_though_nothing_moves() -> None:
    """Its partitions are others. A view of the topics that is no newer than the roster's says nothing."""
    two, plan = two_of_them()

    after = renew(two, knowing(plan, seq=2, topic_id="another"))

    assert (after.generation, after.topics, after.metadata_seq) == (3, {"t": ("another", 2)}, 2)
    assert renew(two, knowing(plan, seq=1, topic_id="another")) is two


def test_members_whose_assignor_nobody_knows_are_pending_under_its_name() -> None:
    """Whoever knows it makes the targets; that opens a generation, though everybody keeps what he has."""
    plan = Plan(a=(T0, T1))
    both = join(Roster(), member("a", protocols=("x", "y")), knowing(plan, names=("x", "y")))
    both = join(both, member("b", protocols=("y",)), knowing(plan, names=("x", "y")))
    assert both.protocol == "y"

    pending = leave(both, ["b"], knowing(plan, names=("y",)))
    settled = renew(pending, knowing(plan, names=("x",)))

    assert (pending.pending, pending.protocol, pending.generation) == (True, "x", 3)
    assert (settled.pending, settled.protocol, settled.generation) == (False, "x", 4)
    assert settled.members["a"].assignment == (T0, T1)


@pytest.mark.parametrize(
    ("lists", "said"),
    [
        ([()], "'a' has none"),
        ([("x", "y"), ()], "'a' has x, y; 'b' has none"),
        ([("x", "y"), ("z",)], "'a' has x, y; 'b' has z"),
    ],
)
def test_members_without_an_assignor_in_common_are_told_what_they_have(lists: list[tuple[str, ...]], said: str) -> None:
    """Each with its list."""
    known = knowing(Plan(), names=("x", "y", "z"))
    *before, last = [member(name, protocols=protocols) for name, protocols in zip("ab", lists, strict=False)]
    roster = Roster(members={m.member_id: m for m in before})

    with pytest.raises(InconsistentGroupProtocolError) as refused:
        join(roster, last, known)

    assert str(refused.value) == f"the members have no assignor in common: {said}"


def test_an_assignor_is_told_who_owns_what_and_who_is_static() -> None:
    """What somebody was promised counts, unless another one still has it, and only partitions that there are."""
    two, plan = two_of_them()
    promised = replace(two.members["b"], released=True, target=(T0, T2))
    roster = replace(two, members={**two.members, "b": promised})

    join(roster, member("c"), knowing(plan, count=3))
    join(roster, member("c"), knowing(plan, count=1))
    join(roster, member("c"), replace(knowing(plan), topics={"u": ("id", 9)}))

    wide, narrow, none = plan.asked[-3:]
    assert {name: (s.owned, s.group_instance_id) for name, s in wide.items()} == {
        "a": ((T0, T1), "i"),
        "b": ((T2,), None),
        "c": ((), None),
    }
    assert {name: s.owned for name, s in narrow.items()} == {"a": (T0,), "b": (), "c": ()}
    assert {name: s.owned for name, s in none.items()} == {"a": (), "b": (), "c": ()}


# --- giving up and getting -----------------------------------------------------------------------


def test_an_eager_member_has_given_up_when_nothing_is_left() -> None:
    """A part is not enough, and what is free is handed out when all have given up."""
    two, _ = two_of_them()
    plan = Plan(a=(T0,), b=(T1,))
    moving = join(two, replace(member("b"), client_id="c", subscription=("t", "u")), knowing(plan, now=3))
    assert pending_partitions(moving, moving.members["a"]) == (T0, T1)

    part = release(moving, "a", [T1], knowing(plan, now=4))
    all_of_it = release(part, "a", [T0], knowing(plan, now=5))

    assert (part.members["a"].assignment, part.members["a"].released) == ((T0,), False)
    assert {m.member_id: m.assignment for m in all_of_it} == {"a": (T0,), "b": (T1,)}
    assert [m.released for m in all_of_it] == [False, False]
    assert [type(m.released) for m in all_of_it] == [bool, bool]
    assert (part.generation, all_of_it.generation, all_of_it.changed_ms) == (3, 4, 5)
    assert (all_of_it.members["a"].since, all_of_it.members["b"].since) == (4, 2)


def test_a_cooperative_member_is_never_waiting() -> None:
    """Also when it has nothing left, and when it gets something."""
    plan = Plan(a=(T0, T1))
    one = join(Roster(), member("a"), knowing(plan, cooperative=True))
    plan.shares = {"b": (T0, T1)}
    two = join(one, member("b"), knowing(plan, cooperative=True))

    after = release(two, "a", [T0, T1], knowing(plan, cooperative=True))

    assert {m.member_id: m.assignment for m in after} == {"a": (), "b": (T0, T1)}
    assert [m.released for m in (*one, *two, *after)] == [False] * 5
    assert {type(m.released) for m in (*one, *two, *after)} == {bool}


# --- what a refused commit is told -----------------------------------------------------------------


HEAD = "group 'g': offsets were not committed: "


@pytest.mark.parametrize(
    ("who", "error", "said"),
    [
        (("x", 2, None), UnknownMemberCommitError, "'x' is not a member; 'a', 'b' hold it in generation 2"),
        (("x", 2, "i"), FencedInstanceIdError, "'a' has taken over as 'i'"),
        (("a", 9, None), CommitFailedError, "generation 9 has ended; the current one is 2"),
        (("b", 1, None), CommitFailedError, "generation 1 has ended; the current one is 2"),
    ],
)
def test_who_may_not_commit_is_told_why(who: tuple[str, int, str | None], error: type[Exception], said: str) -> None:
    """With the group, and what holds now."""
    two, _ = two_of_them()

    with pytest.raises(error) as refused:
        check_commit(two, "g", *who)

    assert said in str(refused.value)
    assert HEAD in str(refused.value)


def test_a_member_of_a_group_that_is_empty_now_may_not_commit() -> None:
    """Only who never was in a membership may: generation 0 is one."""
    check_commit(Roster(), "g", "", -1)

    with pytest.raises(UnknownMemberCommitError) as refused:
        check_commit(Roster(), "g", "a", 0)

    assert f"{HEAD}'a' is not a member; it is empty" in str(refused.value)


def test_a_member_that_waits_is_told_to_poll() -> None:
    """As with Kafka."""
    two, _ = two_of_them()
    held = replace(two.members["b"], target=(T1,))
    waiting = replace(two, members={"a": replace(two.members["a"], released=True), "b": held})

    with pytest.raises(RebalanceInProgressError) as refused:
        check_commit(waiting, "g", "a", 2)

    assert f"{HEAD}the group is being rebalanced; poll() finishes that" in str(refused.value)


# --- JSON ------------------------------------------------------------------------------------


def test_a_roster_is_this_text() -> None:
    """Other releases read it. The target is null where a member owns what it is to own."""
    moving = replace(member("b", instance="i"), target=(T0, T1), assignment=(T2,), session_timeout_ms=10.5)
    roster = Roster(
        generation=7,
        protocol="own",
        members={"b": moving, "a": replace(member("a"), assignment=(T0,), target=(T0,), since=3, joined_ms=4)},
        topics={"t": ("id", 3)},
        metadata_seq=9,
    )
    rest = '"session_timeout_ms":45000,"heartbeat_interval_ms":3000,"rebalance_timeout_ms":300000'

    assert dump_roster(roster) == (
        '{"v":1,"protocol":"own","cooperative":false,"pending":false,"metadata_seq":9,"topics":{"t":["id",3]},"members":['
        '{"member_id":"a","group_instance_id":null,"client_id":"","client_host":"","subscription":["t"],'
        f'"protocols":["own"],{rest},"assignment":{{"t":[0]}},"target":null,"since":3,"released":false,"joined_ms":4}},'
        '{"member_id":"b","group_instance_id":"i","client_id":"","client_host":"","subscription":["t"],'
        f'"protocols":["own"],{rest.replace("45000", "10.5")},"assignment":{{"t":[2]}},"target":{{"t":[0,1]}},'
        '"since":0,"released":false,"joined_ms":0}]}'
    )


@pytest.mark.parametrize(
    ("part", "bad", "said"),
    [
        ("topics", {"t": [1, 2]}, "'topics' is 1, not a text"),
        ("topics", {"t": ["id", "2"]}, "'topics' is '2', not a whole number from 0"),
        ("subscription", [1], "'subscription or protocols' is 1, not a text"),
        ("protocols", [None], "'subscription or protocols' is None, not a text"),
        ("session_timeout_ms", "10", "'session_timeout_ms' is '10', not a number"),
        ("heartbeat_interval_ms", True, "'heartbeat_interval_ms' is True, not a number"),
        ("assignment", {"t": ["0"]}, "'t' is '0', not a whole number from 0"),
        ("target", {"t": [-1]}, "'t' is -1, not a whole number from 0"),
    ],
)
def test_a_damaged_roster_is_refused_by_what_is_wrong_with_it(part: str, bad: object, said: str) -> None:
    """For whoever has to repair it."""
    found = json.loads(dump_roster(two_of_them()[0]))
    (found if part in found else found["members"][0])[part] = bad

    with pytest.raises(TypeError) as refused:
        load_roster(found, 1, 1)

    assert str(refused.value) == said


def test_owners_awaited_by_a_member_without_partitions_are_those_of_its_topics() -> None:
    roster = Roster(members={"a": replace(member("a"), assignment=(T0,)), "b": member("b")})

    assert [m.member_id for m in owners_awaited(roster, "b")] == ["a"]
    assert owners_awaited(roster, "a") == []
    assert owners_awaited(roster, "unknown") == []
