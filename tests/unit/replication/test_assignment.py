"""Assignment: whatever happens to a consumer in whatever order, cut short anywhere: its listener knows what it holds.

A small world plays the consumer's part: it replaces the phase, does what the rule says, and is interrupted before or
after any single act. Its group is the real protocol; its rivals join, leave and give up between the acts.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalike.errors import FencedInstanceIdError
from kafkalike.log.group.assignors import schemes_of
from kafkalike.model.groups import assignment, group_protocol
from kafkalike.model.groups.assignment import (
    Assigned,
    Assigning,
    CallListener,
    CommitPositions,
    Done,
    Fenced,
    HoldPartitions,
    Losing,
    Matched,
    NotAMember,
    Release,
    Revoking,
    RosterSeen,
    Take,
    TakenOver,
    Unassigned,
    WaitingForOthers,
    step,
)
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import examples

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
EAGER, COOPERATIVE = schemes_of("range"), schemes_of("cooperative-sticky")
STOLEN = FencedInstanceIdError("a rival has its name")


def known(
    schemes: Mapping[str, group_protocol.Scheme], partitions: int = 2, life: str = "1"
) -> group_protocol.GroupFacts:
    return group_protocol.GroupFacts(schemes=schemes, topics={"t": (life, partitions)}, metadata_seq=1, now_ms=0)


def member(name: str, schemes: Mapping[str, group_protocol.Scheme]) -> Member:
    return Member(member_id=name, subscription=("t",), protocols=tuple(schemes))


def alone(schemes: Mapping[str, group_protocol.Scheme]) -> Roster:
    """A group of one member, `me`, who owns both partitions."""
    return group_protocol.join(Roster(), member("me", schemes), known(schemes))


def shared(schemes: Mapping[str, group_protocol.Scheme]) -> Roster:
    """The same, and another one has joined: `me` has to give something up."""
    return group_protocol.join(alone(schemes), member("you", schemes), known(schemes))


HELD = {T0: "1", T1: "1"}


# --- examples ----------------------------------------------------------------------------------


def test_the_first_assignment_of_an_eager_member() -> None:
    """It hears that it begins with nothing, then of everything."""
    seen = RosterSeen(alone(EAGER), "me", {})

    joining, first = step(Unassigned(), seen)
    joined, _ = step(joining, Done())
    assigning, second = step(joined, seen)
    assigned, _ = step(assigning, Done())

    assert first == (CommitPositions(), CallListener("on_partitions_revoked", frozenset()), HoldPartitions({}))
    assert second == (Take(HELD), CallListener("on_partitions_assigned", frozenset({T0, T1})))
    assert assigned == Assigned(1, waits=False)
    assert step(assigned, RosterSeen(alone(EAGER), "me", HELD)) == (assigned, ())


def test_a_cooperative_member_gives_up_what_moves_and_nothing_else() -> None:
    """First the listener, then the group; what stays is not told again."""
    roster = shared(COOPERATIVE)
    (moves,) = group_protocol.pending_partitions(roster, roster.members["me"])
    (stays,) = {T0, T1} - {moves}

    revoking, first = step(Assigned(1, waits=False), RosterSeen(roster, "me", HELD))
    still, second = step(revoking, RosterSeen(roster, "me", {stays: "1"}))
    after = group_protocol.release(roster, "me", [moves], known(COOPERATIVE))
    assigned, third = step(still, RosterSeen(after, "me", {stays: "1"}))

    assert first == (
        CommitPositions(),
        CallListener("on_partitions_revoked", frozenset({moves})),
        HoldPartitions({stays: "1"}),
    )
    assert second == (Release((moves,)),)
    assert (assigned, third) == (Assigned(after.generation, waits=False), ())


def test_an_eager_member_gives_up_everything_and_waits() -> None:
    """A rebalance that another one has to take part in."""
    before = shared(EAGER)
    both = group_protocol.release(before, "me", HELD, known(EAGER))
    roster = group_protocol.join(both, member("them", EAGER), known(EAGER))

    revoking, first = step(Assigned(3, waits=False), RosterSeen(roster, "me", HELD))
    waiting, none = step(
        Revoking(fresh=False, going=frozenset(), untold=None, waits=False), RosterSeen(before, "you", {})
    )

    assert isinstance(revoking, Revoking)
    assert first == (CommitPositions(), CallListener("on_partitions_revoked", frozenset({T0, T1})), HoldPartitions({}))
    assert (waiting, none) == (WaitingForOthers(before.generation, fresh=False), ())


def test_a_topic_that_was_created_again_is_told_as_new() -> None:
    """Its partitions are others, though they have the same names."""
    again = group_protocol.renew(
        alone(COOPERATIVE),
        group_protocol.GroupFacts(schemes=COOPERATIVE, topics={"t": ("2", 2)}, metadata_seq=2, now_ms=0),
    )

    _, acts = step(Assigned(1, waits=False), RosterSeen(again, "me", {T0: None, T1: None}))

    assert acts == (Take({T0: "2", T1: "2"}), CallListener("on_partitions_assigned", frozenset({T0, T1})))


def test_a_member_that_nobody_owes_anything_waits_no_more() -> None:
    """What it holds stays as it is."""
    settled = alone(COOPERATIVE)

    phase, acts = step(Assigned(settled.generation, waits=True), RosterSeen(settled, "me", HELD))

    assert phase == Assigned(settled.generation, waits=False)
    assert acts == ()


def test_one_that_is_fenced_stays_so() -> None:
    """Until it is made anew; what is left to be lost is lost."""
    fenced, first = step(Assigned(1, waits=False), TakenOver(STOLEN, HELD))
    again, second = step(fenced, NotAMember(HELD))

    assert fenced == again == Fenced(STOLEN)
    assert first == second == (CallListener("on_partitions_lost", frozenset({T0, T1})), HoldPartitions({}))
    assert step(fenced, NotAMember({})) == (fenced, ())
    assert step(fenced, RosterSeen(alone(EAGER), "me", {})) == (fenced, ())


def test_without_a_group_everything_is_given_up_and_taken_when_something_changes() -> None:
    """And nothing is done when nothing does."""
    assigning, first = step(Unassigned(), Matched({T0: "1"}, {}, changed=True))
    assigned, _ = step(assigning, Done())
    _, more = step(assigned, Matched(HELD, {T0: "1"}, changed=False))

    assert first == (
        CallListener("on_partitions_revoked", frozenset()),
        Take({T0: "1"}),
        CallListener("on_partitions_assigned", frozenset({T0})),
    )
    assert step(assigned, Matched({T0: "1"}, {T0: "1"}, changed=False)) == (assigned, ())
    assert more == (
        CallListener("on_partitions_revoked", frozenset({T0})),
        Take(HELD),
        CallListener("on_partitions_assigned", frozenset({T0, T1})),
    )


@pytest.mark.parametrize(
    ("phase", "is_settled"),
    [
        (Unassigned(), False),
        (Revoking(fresh=False, going=frozenset(), untold=None, waits=False), False),
        (WaitingForOthers(1, fresh=False), True),
        (Assigning(1, frozenset(), waits=False), False),
        (Assigned(1, waits=True), True),
        (Losing(), False),
        (Fenced(STOLEN), False),
    ],
)
def test_what_is_not_done_has_another_look(phase: assignment.Phase, is_settled: bool) -> None:  # noqa: FBT001
    """A consumer that holds what its generation gave it, or waits for others, may live on its buffer for a while."""
    assert assignment.settled(phase) is is_settled


# --- any history ---------------------------------------------------------------------------------


class Interrupted(BaseException):
    """Comes at any act."""


class Consumer:
    """One consumer of a group: does what the rule says, as far as it gets.

    Args:
        chance: says when it is interrupted, and what its rivals do meanwhile.
        schemes: the group's assignor.
    """

    def __init__(self, chance: Random, schemes: Mapping[str, group_protocol.Scheme]) -> None:
        self.chance = chance
        self.schemes = schemes
        self.phase: assignment.Phase = Unassigned()
        self.roster = Roster()
        self.held: dict[TopicPartition, str | None] = {}
        self.told: set[TopicPartition] = set()
        """What its listener believes to be held, of calls that came to their end."""
        self.calls: list[CallListener] = []
        self.partitions = 2
        self.life = 1
        self.harm = 0.0
        """Chance of an interrupt, and of a rival's doing, before and after each act."""

    @property
    def known(self) -> group_protocol.GroupFacts:
        topics = {"t": (str(self.life), self.partitions)}
        seq = 10 * self.life + self.partitions
        return group_protocol.GroupFacts(schemes=self.schemes, topics=topics, metadata_seq=seq, now_ms=0)

    def look(self) -> None:
        """What `Assigner.look` does."""
        if isinstance(self.phase, Fenced):
            self.enter(NotAMember(self.held))
            return
        if "me" not in self.roster.members:
            self.enter(NotAMember(self.held))
            self.roster = group_protocol.join(self.roster, member("me", self.schemes), self.known)
        self.roster = group_protocol.renew(self.roster, self.known)
        for _ in range(40):
            if "me" not in self.roster.members or not self.enter(RosterSeen(self.roster, "me", dict(self.held))):
                return
        pytest.fail(f"it does not come to rest: {self.phase}")

    def enter(self, event: assignment.Event) -> assignment.Acts:
        self.phase, acts = step(self.phase, event)
        for act in acts:
            self.disturb()
            self.do(act)
            self.disturb()
        if acts and not isinstance(acts[0], Release):
            self.phase, nothing = step(self.phase, Done())
            assert nothing == ()
        return acts

    def do(self, act: assignment.Act) -> None:
        match act:
            case CallListener("on_partitions_assigned", partitions):
                assert partitions <= self.held.keys(), (act, self.held)
            case CallListener(_, partitions):
                assert partitions <= self.held.keys(), (act, self.held)
            case HoldPartitions(target) | Take(target):
                self.held = dict(target)
            case Release(given_up):
                assert self.held.keys().isdisjoint(given_up), "the group is told before the consumer lets go"
                self.roster = group_protocol.release(self.roster, "me", given_up, self.known)
            case CommitPositions():
                pass
        if isinstance(act, CallListener):
            self.calls.append(act)
            self.disturb()
            if act.name == "on_partitions_assigned":
                self.told |= act.partitions
            else:
                self.told -= act.partitions

    def disturb(self) -> None:
        if self.chance.random() < self.harm:
            self.rival()
        if self.chance.random() < self.harm:
            raise Interrupted

    def rival(self) -> None:
        """Something happens to the group."""
        others = [i for i in self.roster.members if i != "me"]
        what = self.chance.choice(("join", "leave", "release", "release", "topics", "again", "bury"))
        if what == "join" and len(others) < 3:
            name = self.chance.choice([name for name in "abcd" if name not in others])
            self.roster = group_protocol.join(self.roster, member(name, self.schemes), self.known)
        elif what == "leave" and others:
            self.roster = group_protocol.leave(self.roster, [self.chance.choice(others)], self.known)
        elif what == "release":
            self.give_up()
        elif what == "topics" and self.partitions < 5:
            self.partitions += 1
        elif what == "again":
            self.life += 1
        elif what == "bury" and self.chance.random() < 0.3:
            self.roster = group_protocol.leave(self.roster, ["me"], self.known)

    def give_up(self) -> None:
        """All rivals give up what they owe."""
        for name in sorted(self.roster.members.keys() - {"me"}):
            given = group_protocol.pending_partitions(self.roster, self.roster.members[name])
            self.roster = group_protocol.release(self.roster, name, given, self.known)

    def settle(self) -> None:
        """Nothing comes in between any more."""
        self.harm = 0.0
        for _ in range(6):
            self.look()
            self.give_up()


@pytest.mark.slow
@pytest.mark.parametrize("schemes", [EAGER, COOPERATIVE], ids=["eager", "cooperative"])
def test_after_any_history_the_consumer_holds_what_it_owns_and_its_listener_knows(
    schemes: Mapping[str, group_protocol.Scheme],
) -> None:
    """Interrupts and rivals come before, inside and after each act; then all is quiet."""
    interrupts = 0
    for seed in range(examples(5_000, 500)):
        consumer = Consumer(Random(seed), schemes)
        consumer.harm = consumer.chance.choice((0.05, 0.2, 0.4))
        for _ in range(consumer.chance.randrange(1, 9)):
            try:
                consumer.look()
            except Interrupted:
                interrupts += 1
            consumer.rival()

        consumer.settle()

        owned = consumer.roster.members["me"].assignment
        assert consumer.held == {tp: str(consumer.life) for tp in owned}, seed
        assert consumer.told == consumer.held.keys(), (seed, consumer.calls)
        assert consumer.phase == Assigned(consumer.roster.generation, waits=False), seed
    assert interrupts > 100


def test_after_any_history_a_consumer_without_a_group_holds_its_topics_and_its_listener_knows() -> None:
    """Topics come, grow, go and come again; the user subscribes anew."""
    interrupts = 0
    for seed in range(examples(5_000, 500)):
        consumer, chance = Consumer(Random(seed), EAGER), Random(seed)
        target, changed = dict[TopicPartition, str | None](), True

        def look() -> None:
            nonlocal changed
            consumer.enter(Matched(target, dict(consumer.held), changed))  # noqa: B023 - called at once
            changed = False

        for _ in range(8):
            consumer.harm = chance.choice((0.0, 0.2, 0.4))
            target = {tp: chance.choice("12") for tp in (T0, T1) if chance.random() < 0.7}
            changed = changed or chance.random() < 0.2
            try:
                look()
            except Interrupted:
                interrupts += 1
        consumer.harm = 0.0
        look()

        assert consumer.held == target, seed
        assert consumer.told == target.keys(), (seed, consumer.calls)
        assert isinstance(consumer.phase, Assigned), seed
    assert interrupts > 100


phases = st.sampled_from(
    [
        Unassigned(),
        assignment.Joining(),
        Revoking(fresh=True, going=frozenset(), untold=None, waits=False),
        Revoking(fresh=False, going=frozenset({T1}), untold=frozenset({T0}), waits=False),
        Revoking(fresh=False, going=frozenset({T0}), untold=None, waits=True),
        WaitingForOthers(1, fresh=True),
        WaitingForOthers(1, fresh=False),
        Assigning(1, frozenset({T0}), waits=False),
        Assigning(None, frozenset(), waits=True),
        Assigned(1, waits=False),
        Assigned(None, waits=True),
        Losing(),
        Fenced(STOLEN),
    ]
)
holdings = st.dictionaries(st.sampled_from([T0, T1]), st.sampled_from(["1", "2", None]))
rosters = st.sampled_from([kind(schemes) for kind in (alone, shared) for schemes in (EAGER, COOPERATIVE)])
events = st.one_of(
    st.builds(RosterSeen, rosters, st.just("me"), holdings),
    st.builds(NotAMember, holdings),
    st.builds(TakenOver, st.just(STOLEN), holdings),
    st.builds(Matched, holdings, holdings, st.booleans()),
    st.just(Done()),
)


@given(phases, events)
def test_any_event_may_come_in_any_phase_and_come_again(phase: assignment.Phase, event: assignment.Event) -> None:
    """One that was cut short before its first act comes again and says the same.

    But it need not take the partitions that the member holds already: that changes nothing.
    """
    after, acts = step(phase, event)

    if not isinstance(event, Done):
        held = assignment.Take(event.held)
        assert [act for act in step(after, event)[1] if act != held] == [act for act in acts if act != held]
    calls = [act for act in acts if isinstance(act, CallListener)]
    assert len({call.name for call in calls}) == len(calls)
    assert not acts or not any(isinstance(act, Release) for act in acts) or len(acts) == 1
