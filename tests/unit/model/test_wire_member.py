"""Clients of both group protocols, through gateways that die, never share a partition, and end up with all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest

from kafkalike.errors import CommitFailedError, KafkaError
from kafkalike.log.group.assignors import schemes_of
from kafkalike.model.groups import group_protocol
from kafkalike.model.groups.group_protocol import GroupFacts
from kafkalike.model.groups.roster import Member, Roster, check_commit
from kafkalike.model.groups.wire_member import (
    WIRE_HOST,
    ClientView,
    is_unclear,
    may_answer_join,
    must_rejoin,
    permitted,
    released_by_heartbeat,
    released_by_join,
)
from kafkalike.model.structs import TopicPartition
from tests.tools.effort import seeds

PARTITIONS = 7
TOPIC = "orders"
ALL = [TopicPartition(TOPIC, p) for p in range(PARTITIONS)]


@dataclass
class Gateway:
    """A gateway's memory: it is lost when the gateway dies, and outdated when a client comes back from another one."""

    views: dict[str, tuple[int, ClientView]] = field(default_factory=dict)
    """By client, the connection over which it came last, and its view."""


@dataclass
class Client:
    """A foreign client with the state machine of its protocol."""

    name: str
    consumer: bool
    owned: set[TopicPartition] = field(default_factory=set)
    wanted: set[TopicPartition] | None = None
    """KIP-848: the assignment that it moves to."""
    reported: set[TopicPartition] | None = None
    """KIP-848: what it reported last."""
    epoch: int = -1
    gateway: int = 0
    """Gateway that it is connected to."""
    connection: int = 0
    state: str = "out"
    """`out`, `joining`, `syncing` or `stable`."""


class Group:
    """A group, its clients and its gateways; each step is what one request or one client does."""

    def __init__(self, chance: random.Random, assignor: str) -> None:
        self.chance = chance
        self.assignor = assignor
        self.roster = Roster()
        self.gateways = [Gateway(), Gateway()]
        self.clients: dict[str, Client] = {}
        self.commits = 0

    @property
    def known(self) -> GroupFacts:
        schemes = schemes_of([self.assignor])
        return GroupFacts(schemes=schemes, topics={TOPIC: ("id", PARTITIONS)}, metadata_seq=1, now_ms=0)

    def view(self, client: Client) -> ClientView:
        connection, view = self.gateways[client.gateway].views.get(client.name, (-1, ClientView()))
        return view if connection == client.connection else ClientView()

    def keep(self, client: Client, view: ClientView) -> ClientView:
        self.gateways[client.gateway].views[client.name] = client.connection, view
        return view

    def reconnect(self, client: Client) -> None:
        client.connection += 1
        client.gateway = self.chance.randrange(2)

    def release(self, name: str, given_up: tuple[TopicPartition, ...]) -> None:
        if given_up:
            self.roster = group_protocol.release(self.roster, name, given_up, self.known)

    def join(self, client: Client) -> None:
        member = Member(member_id=client.name, client_host=WIRE_HOST, subscription=(TOPIC,), protocols=(self.assignor,))
        self.roster = group_protocol.join(self.roster, member, self.known)

    # --- classic -------------------------------------------------------------------------------

    def classic(self, client: Client) -> None:  # noqa: C901 - a state machine as a whole
        me = self.roster.members.get(client.name)
        if me is None and client.state != "out":
            client.owned, client.state = set(), "out"  # unknown member: all is lost
            return
        if client.state in {"out", "joining"}:
            if client.state == "out":
                self.join(client)
                client.state = "joining"
            if not self.roster.cooperative:
                client.owned = set()  # an eager client gives up everything before it joins
            while True:
                me = self.roster.members[client.name]
                given_up = released_by_join(self.roster, me, frozenset(client.owned))
                if not given_up:
                    break
                self.release(client.name, given_up)
            if may_answer_join(self.roster, me):
                client.epoch, client.state = self.roster.generation, "syncing"
        elif client.state == "syncing":
            assert me is not None
            if not may_answer_join(self.roster, me):
                client.state = "joining"
                return
            held = permitted(self.roster, me)
            self.keep(client, ClientView(given=held))
            lost = client.owned - set(held)
            client.owned, client.state = set(held), "joining" if lost else "stable"
        else:
            assert me is not None
            view = self.view(client)
            if view.given is None and client.epoch == self.roster.generation:
                view = self.keep(client, ClientView(given=permitted(self.roster, me)))
            if must_rejoin(self.roster, me, view):
                client.state = "joining"

    # --- KIP-848 -------------------------------------------------------------------------------

    def consumer(self, client: Client) -> None:
        if client.wanted is not None and self.chance.random() < 0.5:
            self.reconcile(client)
            return
        me = self.roster.members.get(client.name)
        if me is None and client.state != "out":
            self.start_over(client)
            return
        if client.state == "out":
            if me is None:
                self.join(client)
            self.keep(client, ClientView(reported=frozenset()))
            client.state, client.reported = "stable", set()
        view = self.view(client)
        if client.owned != client.reported:
            client.reported = set(client.owned)
            view = replace(view, reported=frozenset(client.owned))
        me = self.roster.members[client.name]
        if is_unclear(self.roster, me, view):
            self.gateways[client.gateway].views.pop(client.name, None)
            self.start_over(client)
            return
        self.release(client.name, released_by_heartbeat(self.roster, me, view))
        me = self.roster.members[client.name]
        held = permitted(self.roster, me)
        self.keep(client, replace(view, given=held))
        client.epoch = self.roster.generation
        if self.chance.random() < 0.9:  # else the answer is lost
            client.wanted = set(held)

    @staticmethod
    def start_over(client: Client) -> None:
        client.owned, client.wanted, client.reported, client.state = set(), None, None, "out"

    @staticmethod
    def reconcile(client: Client) -> None:
        """Give up first; take new partitions in a later step."""
        assert client.wanted is not None
        if client.owned - client.wanted:
            client.owned &= client.wanted
        else:
            client.owned, client.wanted = set(client.wanted), None

    # --- steps ---------------------------------------------------------------------------------

    def step(self, client: Client) -> None:
        (self.consumer if client.consumer else self.classic)(client)
        self.check()

    def leave(self, client: Client) -> None:
        self.roster = group_protocol.leave(self.roster, [client.name], self.known)
        del self.clients[client.name]
        self.check()

    def check(self) -> None:
        owners: dict[TopicPartition, str] = {}
        for client in self.clients.values():
            if client.name not in self.roster.members:
                continue  # its session has expired, and its commits are refused
            for tp in client.owned:
                assert owners.setdefault(tp, client.name) == client.name, f"{tp} has two owners"

    def commit_of_everyone_lands(self) -> None:
        for client in self.clients.values():
            if client.owned:
                check_commit(self.roster, "g", client.name, client.epoch)
                self.commits += 1

    def settle(self) -> None:
        for _ in range(80):
            for client in list(self.clients.values()):
                self.step(client)


@pytest.mark.slow
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_random_schedule_never_gives_a_partition_two_owners_and_ends_with_all_owned(assignor: str) -> None:
    for seed in seeds(2000, 50):
        chance = random.Random(seed)
        group = Group(chance, assignor)
        for number in range(100):
            what = chance.random()
            if what < 0.12 and len(group.clients) < 5:
                name = f"c{number}"
                group.clients[name] = Client(name, consumer=chance.random() < 0.5)
            elif what < 0.16 and group.clients:
                group.leave(chance.choice(list(group.clients.values())))
            elif what < 0.20:
                dead = chance.randrange(2)
                group.gateways[dead] = Gateway()
                for client in group.clients.values():
                    if client.gateway == dead:
                        group.reconnect(client)
            elif what < 0.36 and group.clients:
                group.reconnect(chance.choice(list(group.clients.values())))
            elif group.clients:
                group.step(chance.choice(list(group.clients.values())))
        group.clients.setdefault("last", Client("last", consumer=bool(seed % 2)))
        group.settle()

        held = sorted(tp for client in group.clients.values() for tp in client.owned)
        assert held == ALL, f"seed {seed}"
        group.commit_of_everyone_lands()
        assert group.commits


def test_former_owner_cannot_commit_after_its_release() -> None:
    group = Group(random.Random(1), "cooperative-sticky")
    first = group.clients["a"] = Client("a", consumer=False)
    for _ in range(3):
        group.step(first)
    old_epoch = first.epoch
    group.clients["b"] = Client("b", consumer=True)
    group.settle()

    assert len(first.owned) in {3, 4}
    with pytest.raises(CommitFailedError) as refused:
        check_commit(group.roster, "g", "a", old_epoch)
    assert isinstance(refused.value, KafkaError)


def test_partition_just_given_is_not_released_because_the_client_does_not_name_it_yet() -> None:
    tp = TopicPartition(TOPIC, 0)
    member = Member(member_id="m", assignment=(tp,), target=())
    roster = Roster(generation=2, protocol="cooperative-sticky", cooperative=True, members={"m": member})

    taking = ClientView(given=(tp,), reported=frozenset())
    assert released_by_heartbeat(roster, member, taking) == ()
    assert released_by_heartbeat(roster, member, ClientView(given=(), reported=frozenset())) == (tp,)
    assert released_by_heartbeat(roster, member, ClientView(given=(), reported=frozenset({tp}))) == ()
    assert is_unclear(roster, member, ClientView(given=(), reported=None))


def test_join_of_an_eager_group_waits_until_all_have_given_up() -> None:
    tp = TopicPartition(TOPIC, 0)
    waiting = Member(member_id="m", assignment=(), target=(tp,), released=True)
    holding = Member(member_id="n", assignment=(tp,), target=())
    roster = Roster(generation=2, protocol="range", members={"m": waiting, "n": holding})

    assert not may_answer_join(roster, waiting)
    assert not may_answer_join(roster, holding)
    assert released_by_join(roster, holding, frozenset({tp})) == (tp,)
    stable = replace(waiting, assignment=(tp,), released=False)
    assert may_answer_join(replace(roster, members={"m": stable}), stable)


def test_adopted_member_joins_again_although_it_may_hold_nothing() -> None:
    member = Member(member_id="m")
    roster = Roster(generation=2, protocol="range", members={"m": member})

    assert must_rejoin(roster, member, ClientView(given=None))
    assert not must_rejoin(roster, member, ClientView(given=()))


def test_rebalance_is_seen_in_each_roster_that_follows_another() -> None:
    """The answer is kept in the roster, as each member asks at each heartbeat."""
    moving = Member(member_id="a", assignment=(), target=(TopicPartition("t", 0),))
    stable = Roster(members={"a": replace(moving, assignment=moving.target)})
    rosters = [stable, replace(stable, members={"a": moving}), replace(stable, pending=True), replace(stable)]

    assert [roster.rebalancing for roster in [*rosters, *rosters]] == [False, True, True, False] * 2
    assert rosters[3] == stable
