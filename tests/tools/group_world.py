"""GroupWorld: a seed in, one interleaving of several members of a group out, with every rule checked at every step.

The members are the real ones (`GroupMember`, `group_protocol`, `assignment`, the assignors, `Sessions`); store, leases
and clock are this world's. A write may succeed, meet a rival that was faster, be refused, or have an unknown outcome
whether it landed or not. Members pause, crash, come back, leave, subscribe to other topics, by name or by pattern;
topics are created, get partitions, are deleted and created again, also between the moment in which a member looks at
them and that of its write. What a member does around the protocol (hold, read, commit) is done here as `KafkaConsumer`
does it.
"""

import contextlib
from collections.abc import Callable, Iterable
from itertools import count
from random import Random

from kafkalike.admin.testing import ManualClock
from kafkalike.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    InconsistentGroupProtocolError,
    KafkaStorageError,
    KafkaTimeoutError,
    RebalanceInProgressError,
    UnknownOutcomeError,
)
from kafkalike.log.group.assignors import schemes_of
from kafkalike.log.group.member import GroupMember
from kafkalike.log.group.membership import KnownTopics, MemberSettings, Membership, RosterChange, SessionWatch
from kafkalike.model.groups import assignment
from kafkalike.model.groups.roster import Roster, check_commit
from kafkalike.model.names import TopicId, TopicName
from kafkalike.model.structs import GroupState, TopicPartition
from kafkalike.model.topic import TopicInfo

FAULTS = (KafkaTimeoutError, KafkaStorageError, UnknownOutcomeError)
SESSION = 3
STRATEGIES = {name: schemes_of(name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")}


class WorldLeases:
    """Heartbeats in a dictionary."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._stamps: dict[str, int] = {}

    def renew(self, group_id: str, member_id: str) -> None:
        del group_id
        self._stamps[member_id] = int(self._clock.seconds * 1e9)

    def read(self, group_id: str, member_ids: Iterable[str]) -> dict[str, int]:
        del group_id
        return {i: self._stamps[i] for i in member_ids if i in self._stamps}

    def drop(self, group_id: str, member_id: str) -> None:
        del group_id
        self._stamps.pop(member_id, None)


class World:
    """Topics, a group, committed offsets, and actors.

    Args:
        seed: says everything that happens.
        strategy: the members' assignor.
        actors: how many consumers there may be at one time.
        faulty: whether writes may go wrong.
    """

    def __init__(self, seed: int, strategy: str, actors: int = 3, *, faulty: bool = True) -> None:
        self.chance = Random(seed)
        self.clock = ManualClock()
        self.leases = WorldLeases(self.clock)
        self.schemes = STRATEGIES[strategy]
        self.roster = Roster()
        self.committed: dict[TopicPartition, int] = {}
        self.read: dict[TopicPartition, int] = {}
        """By partition, the offset below which every record was read by somebody."""
        self.moved: dict[TopicPartition, int] = {}
        """By partition, how many changes there had been when somebody was its owner no more."""
        self.topics: dict[str, TopicInfo] = {}
        self.topics_seq = 0
        self.topic_changes = 0
        """How often topics changed in the middle of a change of the roster."""
        self.faulty = faulty
        self.names = count()
        self.lives = count()
        self.zombies: list[Actor] = []
        self.trace: list[tuple[str, str, Roster]] = []
        """All changes of the roster: by whom, why, what it was then."""
        self._depth = 0
        self.set_partitions("a", 2)
        self.watch = SessionWatch(1.0) if seed % 2 else None
        """Shared by all, as at one gateway, in every other world."""
        self.actors = [Actor(self, f"s{n}" if n == 0 else None) for n in range(actors)]

    # --- the store ---------------------------------------------------------------------------

    def change(self, change: RosterChange, by: str, why: str, timeout_ms: float | None = None) -> Roster:
        """As `RosterStore.change`."""
        del timeout_ms
        fate = self.chance.random() if self.faulty else 1.0
        if fate < 0.12 and not self._depth:  # a rival is faster: what was planned is planned again
            change(self.roster)
            self._depth = 1
            newer = self.chance.random() < 0.3
            if newer:  # and has seen topics that this one has not
                self.change_topics()
                self.topic_changes += 1
            self.chance.choice(self.actors).step(all_of_it=newer)
            self._depth = 0
        between = 0.2 <= fate < 0.26
        if between and fate < 0.23:  # what was looked up for the plan is old already
            self.change_topics()
        after = change(self.roster)
        if between and fate >= 0.23:  # or it is when the plan is written: that goes into another table
            self.change_topics()
        if between:
            self.topic_changes += 1
        if fate > 0.94 and self.faulty:
            raise (KafkaTimeoutError if fate > 0.97 else KafkaStorageError)("refused")
        if 0.12 <= fate < 0.15:
            raise UnknownOutcomeError("not landed", "")
        if after is not self.roster:
            self.check(self.roster, after)
            self.trace.append((by, why, after))
            self.roster = after
        if 0.15 <= fate < 0.2:
            raise UnknownOutcomeError("landed", "")
        return after

    def see(self) -> Roster:
        return self.roster

    def known_topics(self) -> KnownTopics:
        return KnownTopics(self.topics, self.topics_seq)

    def change_topics(self) -> None:
        """Create a topic, give it another partition, delete it, or create it again as it was."""
        topic = self.chance.choice("ab")
        info = self.topics.get(topic)
        if info is None:
            self.set_partitions(topic, self.chance.randint(1, 2))
            return
        dice = self.chance.random()
        if dice < 0.5:
            self.set_partitions(topic, min(4, info.num_partitions + 1))
            return
        self.delete(topic)
        if dice < 0.75:
            self.set_partitions(topic, info.num_partitions)

    def set_partitions(self, topic: str, partitions: int) -> None:
        known = self.topics.get(topic)
        life = TopicId(f"{topic}-{next(self.lives)}") if known is None else known.topic_id
        info = TopicInfo(name=TopicName(topic), topic_id=life, location=topic, num_partitions=partitions, configs={})
        self.topics = {**self.topics, topic: info}
        self.topics_seq += 1

    def delete(self, topic: str) -> None:
        """What was read and committed of it counts no more, whatever comes after it under its name."""
        self.topics = {name: info for name, info in self.topics.items() if name != topic}
        self.topics_seq += 1
        for kept in (self.committed, self.read, self.moved):
            for tp in [tp for tp in kept if tp.topic == topic]:
                del kept[tp]

    def life(self, tp: TopicPartition) -> str | None:
        """Id of the topic that a partition belongs to; None where there is none."""
        info = self.topics.get(tp.topic)
        return None if info is None or tp.partition not in info.partitions else info.topic_id

    def commit(self, actor: "Actor", member: Membership, held: "Held", begun: int) -> None:
        """Commit in the name of a member; who may not must be refused.

        Args:
            actor: who commits.
            member: in whose name.
            held: the offsets, and the ids of the topics that they belong to.
            begun: how many changes there had been when it began. As long as its partitions stay the member's own, the
                order of its commits is its own affair.
        """
        fate = self.chance.random() if self.faulty else 1.0
        if fate < 0.05:
            raise KafkaTimeoutError("refused")
        check_commit(self.roster, "g", member.member_id, member.generation, member.group_instance_id)
        for tp, (position, life) in held.items():
            owner = self.roster.owner(tp)
            assert owner is not None, (tp, "was committed by one who does not own it", self)
            assert owner.member_id == member.member_id, (tp, "was committed by one who does not own it", self)
            if life != self.life(tp):
                continue
            if self.moved.get(tp, -1) >= begun:
                assert position >= self.committed.get(tp, 0), (tp, "was committed backwards", self)
            assert position <= self.read.get(tp, 0), (tp, "was committed unread", self)
            self.committed[tp] = position
        actor.member.saw(self.roster.generation)
        if 0.05 <= fate < 0.1:
            raise UnknownOutcomeError("landed", "")

    # --- rules -------------------------------------------------------------------------------

    def check(self, before: Roster, after: Roster) -> None:
        """What must hold of every change of a roster."""
        for member_id, member in before.members.items():
            kept = after.members[member_id].assignment if member_id in after.members else ()
            self.moved.update((tp, len(self.trace)) for tp in member.assignment if tp not in kept)
        owned = [tp for m in after.members.values() for tp in m.assignment]
        aimed = [tp for m in after.members.values() for tp in m.target]
        assert len(owned) == len(set(owned)), ("a partition has two owners", self)
        assert len(aimed) == len(set(aimed)), ("a partition is promised twice", self)
        assert after.generation >= before.generation, ("the generation fell", self)
        for member_id, member in after.members.items():
            was = before.members.get(member_id) or before.instance(member.group_instance_id)
            if was is not None and after.generation == before.generation:
                assert set(member.assignment) <= set(was.assignment), ("owned more in the same generation", self)
            assert member.since <= after.generation, ("may commit in no generation", self)
        for actor in self.actors:
            me = after.members.get(actor.member_id)
            if me is not None:  # nobody but itself takes anything from a member
                assert actor.held.keys() <= set(me.assignment), ("was robbed", actor.name, self)

    def check_end(self) -> None:
        """What must hold when everything has come to rest."""
        roster = self.roster
        assert roster.state in {GroupState.STABLE, GroupState.EMPTY}, ("does not come to rest", self)
        wanted = {t for m in roster.members.values() for t in m.subscription}
        everything = {
            TopicPartition(t, p) for t in wanted if t in self.topics for p in range(self.topics[t].num_partitions)
        }
        assert {tp for m in roster.members.values() for tp in m.assignment} == everything, ("is not complete", self)
        lives = {t: (self.topics[t].topic_id, self.topics[t].num_partitions) for t in wanted if t in self.topics}
        assert roster.topics == lives, ("does not know its topics", self)
        alive = [a for a in (*self.actors, *self.zombies) if a.member_id and not a.fenced]
        assert roster.members.keys() == {a.member_id for a in alive}, ("has strangers", self)
        for actor in alive:
            assert actor.held.keys() == set(roster.members[actor.member_id].assignment), ("holds else", self)

    # --- the scheduler -----------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Let things happen, to a group in which some have found their places already."""
        chance = self.chance
        faulty, self.faulty = self.faulty, False
        for actor in self.actors[: chance.randrange(len(self.actors))]:
            actor.step(all_of_it=True)
        self.faulty = faulty
        for _ in range(steps):
            dice = chance.random()
            if dice < 0.75:
                chance.choice(self.actors).step()
            elif dice < 0.87:
                self.clock.seconds += 1
            elif dice < 0.91:
                chance.choice(self.actors).crash()
            elif dice < 0.94:
                chance.choice(self.actors).leave()
            elif dice < 0.96:
                chance.choice(self.actors).choice = chance.choice((("a",), ("a", "b"), ("b",), None))
            elif dice < 0.98:
                self.change_topics()
            elif self.zombies:
                chance.choice(self.zombies).step()

    def settle(self) -> None:
        """No more faults: after a session everything must be at rest."""
        self.faulty = False
        for _ in range(5 * SESSION):
            self.clock.seconds += 1
            for actor in (*self.zombies, *self.actors):
                actor.step(all_of_it=True)
        self.check_end()

    def __repr__(self) -> str:
        lines = [f"{by} {why}: {show(roster)}" for by, why, roster in self.trace[-12:]]
        return "\n" + "\n".join(lines) + f"\nnow: {show(self.roster)}\nheld: { {a.name: a.held for a in self.actors} }"


Held = dict[TopicPartition, tuple[int, str | None]]
"""What a consumer believes to own: the next offset of each partition, and the id of the topic that it belongs to."""


class Actor:
    """One consumer. `step` does the next thing that its poll loop would do."""

    def __init__(self, world: World, instance: str | None) -> None:
        self.world = world
        self.instance = instance
        self.name = f"c{next(world.names)}"
        self.choice: tuple[str, ...] | None = ("a",)
        """Topics that it wants; None is a pattern that matches all."""
        self.held: Held = {}
        self.seen: Roster | None = None
        """What it saw last; by the time it acts on it, it may be old."""
        self.phase: assignment.Phase = assignment.Unassigned()
        self.fenced = False
        self.late: tuple[Membership, Held, int] | None = None
        """A commit that was begun before partitions were given up and comes through long after."""
        settings = MemberSettings(
            group_id="g",
            schemes=world.schemes,
            client_id=self.name,
            group_instance_id=instance,
            session_timeout_ms=SESSION * 1000,
            heartbeat_interval_ms=1000,
            max_poll_interval_ms=60_000,
            host="h",
            watch=world.watch,
        )
        self.member = GroupMember(
            _Store(world), world.leases, world.known_topics, settings, clock=world.clock, new_id=self._new_id
        )

    def _new_id(self) -> str:
        return str(next(self.world.names))

    @property
    def wanted(self) -> tuple[str, ...]:
        """The topics that it subscribes to now."""
        return tuple(sorted(self.world.topics)) if self.choice is None else self.choice

    @property
    def member_id(self) -> str:
        return "" if self.member.membership is None else self.member.membership.member_id

    def step(self, *, all_of_it: bool = False) -> None:
        """Do one thing, or a whole round of them."""
        if self.fenced:
            return
        acts: tuple[Callable[[], object], ...] = (self.beat, self.look, self.follow, self.work, self.commit)
        if self.late is not None:
            acts = (*acts, self.commit_late)
        if not all_of_it:
            acts = (self.world.chance.choice(acts if self.seen is not None else (self.beat, self.look, self.look)),)
        for act in acts:
            try:
                act()
            except FencedInstanceIdError:
                self.lose()
                self.fenced = True
                return
            except (CommitFailedError, RebalanceInProgressError, InconsistentGroupProtocolError, *FAULTS):
                continue

    def beat(self) -> None:
        self.member.polled(self.world.clock.monotonic())
        self.member.beat()

    def look(self) -> None:
        if self.member.membership is None:
            self.lose()
            self.seen = self.member.try_join(self.wanted)
        else:
            self.seen = self.member.look()
            if self.seen is None:
                self.lose()

    def follow(self) -> None:
        """What the consumer does with what it saw."""
        roster = self.seen
        if roster is None or self.member.membership is None:
            return
        if self.member_id not in roster.members:
            return
        roster = self.member.follow(roster, self.wanted)
        if roster is None:
            return
        while roster is not None and not self.member.lapsed:
            held = {tp: life for tp, (_, life) in self.held.items()}
            self.phase, acts = assignment.step(self.phase, assignment.RosterSeen(roster, self.member_id, held))
            match acts:
                case ():
                    self.seen = roster
                    return
                case (assignment.Release(given_up),):
                    roster = self.member.release(given_up)
                case _:
                    self._do(acts)

    def _do(self, acts: assignment.Acts) -> None:
        """What the rule says; a fault cuts it short."""
        for act in acts:
            if isinstance(act, assignment.CommitPositions) and self.held:
                self.commit()
                assert self.member.membership is not None
                self.late = self.member.membership, dict(self.held), len(self.world.trace)
            if isinstance(act, assignment.HoldPartitions | assignment.Take):
                self.held = {tp: self.held.get(tp) or self._resumed(tp) for tp in act.target}
        self.phase, _ = assignment.step(self.phase, assignment.Done())

    def _resumed(self, tp: TopicPartition) -> tuple[int, str | None]:
        return self.world.committed.get(tp, 0), self.world.life(tp)

    def work(self) -> None:
        """Read one record of each partition; the logs have no end. A topic that was created again is begun again.

        Nobody reads what another one owns, but for one whose static name was taken over, who finds out when he looks.
        """
        if self.member.lapsed:
            return
        for tp, (known, life) in self.held.items():
            owner = self.world.roster.owner(tp)
            mine = owner is not None and owner.member_id == self.member_id
            assert mine or self.instance is not None, (tp, "is read by", self.name, "who does not own it", self.world)
            now = self.world.life(tp)
            if now is None:
                continue
            position = known if now == life else self._resumed(tp)[0]
            assert position <= self.world.read.get(tp, 0), (tp, "skips records", self.world)
            self.world.read[tp] = max(self.world.read.get(tp, 0), position + 1)
            self.held[tp] = position + 1, now

    def commit(self) -> None:
        if self.member.membership is not None:
            with contextlib.suppress(UnknownOutcomeError):
                self.world.commit(self, self.member.membership, self.held, 0)

    def commit_late(self) -> None:
        if self.late is not None and self.late[0].member_id == self.member_id:
            late, self.late = self.late, None
            with contextlib.suppress(UnknownOutcomeError):
                self.world.commit(self, *late)

    def lose(self) -> None:
        self.held = {}
        self.seen = None
        self.phase = assignment.Unassigned()

    def leave(self) -> None:
        """Close and begin anew under another id."""
        if self.fenced:
            return
        try:
            self.commit()
            self.held = {}
            if self.instance is None:
                self.member.leave()
            else:
                self.member.forget()
        except (CommitFailedError, FencedInstanceIdError, RebalanceInProgressError, *FAULTS):
            self.member.forget()
        self.lose()

    def crash(self) -> None:
        """Stop working without a word; another begins in its place, and this one may wake up as a zombie."""
        world = self.world
        if self.fenced or world.chance.random() < 0.5:
            self.fenced = False
        else:
            world.zombies.append(self)
        world.actors[world.actors.index(self)] = Actor(world, self.instance)


class _Store:
    """The world's roster, as a member sees it."""

    def __init__(self, world: World) -> None:
        self.read = world.see
        self.change = world.change


def show(roster: Roster) -> str:
    """A roster in one line."""
    members = ", ".join(
        f"{m.member_id}{'*' if m.released else ''}={_short(m.assignment)}"
        + ("" if m.target == m.assignment else f"->{_short(m.target)}")
        for m in roster
    )
    return f"generation {roster.generation}{' pending' if roster.pending else ''}: {members}"


def _short(partitions: Iterable[TopicPartition]) -> str:
    return "+".join(f"{tp.topic}{tp.partition}" for tp in partitions) or "-"
