"""Client-led groups: their rules, and a simulation of clients that join, die and come back in any order."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from kafkalike import errors
from kafkalike.model.groups import client_led_group as client_led
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts
from kafkalike.model.groups.roster import Member, Roster, check_commit, dump_roster, load_roster
from kafkalike.model.structs import GroupState

OFFER = {"own": b"\x00meta"}
FACTS = GroupFacts(schemes={}, topics={}, metadata_seq=0, now_ms=1)


def joined(roster: Roster, member_id: str, offer: client_led.Offer = OFFER, instance: str | None = None) -> Roster:
    return client_led.join(roster, Member(member_id=member_id, group_instance_id=instance), "connect", offer, 1)


def phase(roster: Roster) -> tuple[int, str, str]:
    assert roster.led is not None
    return roster.generation, roster.state.value, roster.led.leader


def stable(*members: str) -> Roster:
    """A group whose first member leads, in the generation after all have joined."""
    roster = Roster()
    for member in members:
        roster = joined(roster, member)
    for member in members:
        if roster.led is not None and roster.led.phase is GroupState.PREPARING_REBALANCE:
            roster = joined(roster, member)
    leader = phase(roster)[2]
    return client_led.sync(roster, leader, roster.generation, {m: m.encode() for m in members}, 1)


CASES: dict[str, tuple[Callable[[], Roster], tuple[int, str, str]]] = {
    "first member leads": (lambda: joined(Roster(), "a"), (1, "CompletingRebalance", "a")),
    "leader assigns": (lambda: stable("a"), (1, "Stable", "a")),
    "second member waits": (lambda: joined(stable("a"), "b"), (1, "PreparingRebalance", "a")),
    "all have joined": (lambda: joined(joined(stable("a"), "b"), "a"), (2, "CompletingRebalance", "a")),
    "follower repeats its join": (lambda: joined(stable("a", "b"), "b"), (2, "Stable", "a")),
    "leader joins again": (lambda: joined(stable("a", "b"), "a"), (2, "PreparingRebalance", "a")),
    "follower has new metadata": (
        lambda: joined(stable("a", "b"), "b", {"own": b"new"}),
        (2, "PreparingRebalance", "a"),
    ),
    "leader leaves": (lambda: client_led.leave(stable("a", "b"), ["a"], 1), (2, "PreparingRebalance", "a")),
    "follower leads after the leader": (
        lambda: joined(client_led.leave(stable("a", "b"), ["a"], 1), "b"),
        (3, "CompletingRebalance", "b"),
    ),
    "leader dies before it assigns": (
        lambda: client_led.leave(joined(joined(stable("a"), "b"), "a"), ["a"], 1),
        (2, "PreparingRebalance", "a"),
    ),
    "last missing member leaves": (
        lambda: client_led.leave(joined(stable("a"), "b"), ["a"], 1),
        (2, "CompletingRebalance", "b"),
    ),
    "missing member times out": (
        lambda: client_led.time_out(joined(stable("a"), "b"), 1, GroupState.PREPARING_REBALANCE, 1),
        (2, "CompletingRebalance", "b"),
    ),
    "timeout of an ended phase": (
        lambda: client_led.time_out(stable("a"), 1, GroupState.COMPLETING_REBALANCE, 1),
        (1, "Stable", "a"),
    ),
    "leader that never assigns times out": (
        lambda: client_led.time_out(joined(joined(stable("a"), "b"), "a"), 2, GroupState.COMPLETING_REBALANCE, 1),
        (2, "PreparingRebalance", "a"),
    ),
    "static leader returns": (
        lambda: joined(stable_static(), "s-2", instance="s"),
        (2, "CompletingRebalance", "s-2"),
    ),
}


def stable_static() -> Roster:
    roster = joined(Roster(), "s-1", instance="s")
    return client_led.sync(roster, "s-1", 1, {"s-1": b"all"}, 1)


@pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES.keys())
def test_each_event_leads_to_kafkas_generation_state_and_leader(
    make: Callable[[], Roster], expected: tuple[int, str, str]
) -> None:
    roster = make()

    assert phase(roster) == expected
    assert load_roster(json.loads(dump_roster(roster)), roster.generation, roster.changed_ms) == roster


def test_static_follower_that_returns_takes_its_place_without_a_rebalance() -> None:
    roster = joined(joined(stable("a"), "s-1", instance="s"), "a")
    roster = client_led.sync(roster, "a", 2, {"s-1": b"mine"}, 1)

    after = joined(roster, "s-2", instance="s")

    assert phase(after) == (2, "Stable", "a")
    assert after.led is not None
    assert after.led.assignments == {"s-2": b"mine"}
    assert set(after.members) == {"a", "s-2"}


def test_last_member_leaves_an_empty_group_of_no_kind() -> None:
    assert client_led.leave(stable("a"), ["a"], 5) == Roster(generation=2, changed_ms=5)


@pytest.mark.parametrize(
    ("protocol_type", "offer"),
    [("sr", OFFER), ("connect", {"other": b""}), ("connect", {})],
    ids=["other type", "no assignor in common", "no assignor"],
)
def test_member_of_another_kind_is_refused(protocol_type: str, offer: client_led.Offer) -> None:
    with pytest.raises(errors.InconsistentGroupProtocolError):
        client_led.join(stable("a"), Member(member_id="b"), protocol_type, offer, 1)


def test_clients_and_native_members_exclude_each_other() -> None:
    native = Roster(members={"n": Member(member_id="n", protocols=("range",))})

    with pytest.raises(errors.InconsistentGroupProtocolError, match="native assignors"):
        joined(native, "a")
    with pytest.raises(errors.InconsistentGroupProtocolError, match="computes the assignments"):
        group_protocol.join(stable("a"), Member(member_id="n", protocols=("range",)), FACTS)


def test_metadata_beyond_the_limit_is_refused() -> None:
    with pytest.raises(errors.GroupMaxSizeReachedError):
        joined(Roster(), "a", {"own": bytes(client_led.MAX_STATE_BYTES + 1)})


def test_waiting_join_is_answered_though_the_next_rebalance_has_begun() -> None:
    again = joined(stable("a", "b"), "a")

    assert client_led.may_answer_join(again, "b")
    assert not client_led.may_answer_join(again, "a")
    assert not client_led.may_answer_join(again, "c")


def test_member_that_joins_twice_in_one_rebalance_counts_once() -> None:
    again = joined(joined(stable("a", "b"), "a"), "a", {"own": b"changed"})

    assert again.led is not None
    assert again.led.joined == ("a",)
    assert phase(again)[1] == "PreparingRebalance"
    assert phase(joined(again, "b"))[1] == "CompletingRebalance"


def test_client_led_group_keeps_its_protocol_type_and_its_rules_when_a_member_is_removed() -> None:
    roster = stable("a", "b")

    assert (Roster().protocol_type, roster.protocol_type) == ("consumer", "connect")
    assert group_protocol.leave(roster, ["b"], FACTS) == client_led.leave(roster, ["b"], FACTS.now_ms)
    assert set(group_protocol.leave(roster, ["b"], FACTS).members) == {"a"}


@pytest.mark.parametrize(
    ("roster", "member_id", "generation", "error"),
    [
        (stable("a"), "b", 1, errors.UnknownMemberIdError),
        (stable("a"), "a", 0, errors.IllegalGenerationError),
        (joined(stable("a"), "b"), "a", 1, errors.RebalanceInProgressError),
    ],
    ids=["not a member", "old generation", "rebalance"],
)
def test_heartbeat_and_sync_name_why_a_client_has_to_join_again(
    roster: Roster, member_id: str, generation: int, error: type[errors.KafkaError]
) -> None:
    with pytest.raises(error):
        client_led.check_member(roster, member_id, generation)
    with pytest.raises(error):
        client_led.sync(roster, member_id, generation, {}, 1)


def test_commit_counts_only_in_the_current_generation_and_after_the_assignment() -> None:
    roster = joined(joined(stable("a"), "b"), "a")

    with pytest.raises(errors.CommitFailedError):
        check_commit(roster, "g", "a", 1)
    with pytest.raises(errors.RebalanceInProgressError):
        check_commit(roster, "g", "a", 2)
    check_commit(client_led.sync(roster, "a", 2, {}, 1), "g", "a", 2)


class World:
    """One group in a row, and clients whose requests come in any order."""

    def __init__(self) -> None:
        self.roster = Roster()
        self._generations: dict[str, int] = {}
        self._parked: set[str] = set()
        self._told: dict[int, client_led.Offer] = {}

    def write(self, after: Roster) -> None:
        """Check the next roster; another gateway reads it."""
        led = after.led
        assert after.generation >= self.roster.generation
        if led is not None:
            assert set(led.offers) == set(after.members)
            assert set(led.joined) <= set(after.members)
            if led.phase is GroupState.STABLE:
                assert self._told.setdefault(after.generation, led.assignments) == led.assignments
        self.roster = load_roster(json.loads(dump_roster(after)), after.generation, after.changed_ms)

    def request(self, member_id: str) -> None:
        """Do what a client does next: join if it has to, else send or get the assignment."""
        roster = self.roster
        if member_id in self._parked & set(roster.members):
            # It waits for the answer, whatever the others do.
            self._answer(roster, member_id)
            return
        try:
            client_led.check_member(roster, member_id, self._generations.get(member_id, -1))
        except errors.KafkaError:
            after = joined(roster, member_id)
            self._parked.add(member_id)
            self._answer(after, member_id)
        else:
            data = f"{member_id}@{roster.generation}".encode()
            after = client_led.sync(roster, member_id, roster.generation, dict.fromkeys(roster.members, data), 1)
        self.write(after)

    def _answer(self, roster: Roster, member_id: str) -> None:
        if client_led.may_answer_join(roster, member_id):
            self._parked.discard(member_id)
            self._generations[member_id] = roster.generation

    def time_out(self) -> None:
        """End the group's phase."""
        if self.roster.led is not None:
            self.write(client_led.time_out(self.roster, self.roster.generation, self.roster.led.phase, 1))


@pytest.mark.parametrize("seed", range(40))
def test_any_order_of_events_gives_each_generation_one_assignment_and_ends_stable(seed: int) -> None:
    choose, world = random.Random(seed), World()
    for _ in range(60):
        member_id, event = choose.choice("abcd"), choose.random()
        if event < 0.15:
            world.write(client_led.leave(world.roster, [member_id], 1))
        elif event < 0.2:
            world.time_out()
        else:
            world.request(member_id)
    world.write(client_led.leave(world.roster, "cd", 1))
    for _ in range(6):
        world.request("a")
        world.request("b")

    roster = world.roster
    assert (roster.state, set(roster.members)) == (GroupState.STABLE, {"a", "b"})
    assert roster.led is not None
    assert set(roster.led.assignments.values()) == {f"{roster.led.leader}@{roster.generation}".encode()}
