"""Transactions under a seeded scheduler: producers, zombies, helpers, maintenance and readers, one act at a time.

The acts come from courses of `kafkalike.model.transactions`, the rows from its rules and `GroupsState`; the storage is
simulated here: the groups' table, the topics' tables, the staged files. Whoever is in the middle of something may
stop for ever, or for so long that everything has changed. Every rule of the protocol is checked when it could break,
against a record of what has happened that shares no code with the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from kafkalike.errors import (
    CommitFailedError,
    IllegalGenerationError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    KafkaError,
    KafkaStorageError,
    LogCorruptError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.model.group_rows import TRANSACTION, GroupRow, roster_row, transaction_rows
from kafkalike.model.group_state import GroupsState
from kafkalike.model.groups.roster import Member, Roster
from kafkalike.model.maintenance.control_rows import kept_group_rows
from kafkalike.model.record_batch import Appended
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.transactions import roll_forward
from kafkalike.model.transactions import roll_forward as effects
from kafkalike.model.transactions import transaction_protocol as protocol
from kafkalike.model.transactions import transaction_protocol as upkeep
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.model.transactions.rules import CommitRequest
from kafkalike.model.transactions.transaction_views import TopicCut
from kafkalike.model.transactions.transactional_id import (
    CommittedTransaction,
    StagedFile,
    StagedFolder,
    TopicLife,
    TransactionalIdState,
    TransactionAttempt,
    TransactionPart,
    Why,
)

Steps = Generator[None, None, Any]
TIMEOUT_MS = 60
EXPIRATION_MS = 2_000
NAMES = ("one", "two")
TOPICS = ("a", "b", "c")
LARGEST = 3


@dataclass
class Table:
    """One life of a topic."""

    topic: TopicLife
    versions: list[tuple[int, TransactionAttempt | None, int]] = field(default_factory=list)
    """By version: number and attempt of the decision that it brings, and how many records; 0 and None for others."""
    applied: int = 0
    most: int = LARGEST
    """So many records may be staged at a time: a rule of the topic, which somebody tightens and loosens."""
    full: bool = False
    """Whether there is no room where its records go."""


@dataclass
class Staged:
    """Staged files of a transaction."""

    since: int
    files: dict[str, tuple[TopicLife, int]] = field(default_factory=dict)


@dataclass
class Broken:
    """What a mutant of the storage does wrong."""

    doubles: bool = False
    """An append is made though the topic has the decision."""
    by_name: bool = False
    """Topics are taken by their names."""
    checks_again: bool = False
    """The rules of a topic count once more when a decision comes into it."""


class World:
    """Everything.

    Args:
        seed: says all that happens.
        broken: what the storage does wrong, for mutants.
    """

    def __init__(self, seed: int, broken: Broken | None = None) -> None:
        self.chance = Random(seed)
        self.broken = broken or Broken()
        self.now = 1_000_000
        self.lives = count(1)
        self.rows: list[GroupRow] = []
        self.state = GroupsState()
        self.older: list[GroupsState] = [self.state]
        self.tables: dict[str, Table] = {}
        self.names: dict[str, str] = {}
        self.staged: dict[TransactionAttempt, Staged] = {}
        self.faulty = True
        self.actors: list[Actor] = []
        self.steps = 0
        # What has happened, by a book of our own.
        self.outcomes: dict[TransactionAttempt, str] = {}
        self.decisions: dict[TransactionAttempt, tuple[int, dict[TopicLife, int]]] = {}
        self.fenced: dict[int, int] = {}
        """Highest epoch by producer id."""
        self.done_number: dict[tuple[int, int], int] = {}
        self.told: dict[TransactionAttempt, str] = {}
        self.forgotten: set[int] = set()
        self.offsets: dict[TransactionAttempt, int] = {}
        """The offset that a transaction commits, which is no other one's."""
        self.counts = {"commit": 0, "abort": 0, "fence": 0, "forget": 0, "cut": 0, "helped": 0, "doubt": 0}
        self.counts |= {"refused": 0, "tightened": 0, "full": 0}
        for name in TOPICS:
            self.create(name)
        self.write([roster_row(1, "g", self._roster(1))])

    # --- the groups' table -------------------------------------------------------------------------

    def _roster(self, generation: int) -> Roster:
        member = Member(member_id=f"m{generation}", subscription=("a",), since=generation, client_id="c")
        return Roster(generation=generation, members={f"m{generation}": member}, protocol="range", changed_ms=self.now)

    def rebalance(self) -> None:
        generation = self.state.group("g").generation + 1
        self.write([roster_row(self.state.seq + 1, "g", self._roster(generation))])

    def write(self, rows: Sequence[GroupRow]) -> None:
        for row in rows:
            assert row.seq == self.state.seq + 1 + rows.index(row)
        before, self.state = self.state, self.state.applied(rows)
        self.rows += rows
        self.older = [*self.older[-3:], self.state]
        decides = False
        for row in rows:
            if row.kind == TRANSACTION:
                decides = self._note(before, row, rows)
        assert decides or all(row.offset is None for row in rows), "offsets are there, and nothing is decided"

    def _note(self, before: GroupsState, row: GroupRow, rows: Sequence[GroupRow]) -> bool:
        """Write a row into the book, and judge it. Returns whether it decides something."""
        old, new = before.transactions.get(row.group_id), self.state.transactions.get(row.group_id)
        if old is not None and old.committed is not None and old.why is Why.COMMIT and old != new:
            self._all_have(old.committed.attempt, "a row follows a decision that is not everywhere")
        if new is None:
            assert old is not None
            self.forgotten.add(old.producer_id)
            self.counts["forget"] += 1
            return False
        assert new.producer_id not in self.forgotten, "a producer id that was forgotten came back"
        assert new.epoch >= self.fenced.get(new.producer_id, 0), (row, "an older epoch decides")
        key = new.producer_id, new.epoch
        if new.epoch > self.fenced.get(new.producer_id, -1):
            self.fenced[new.producer_id] = new.epoch
            self.done_number[key] = 0
            self.counts["fence"] += 1
        attempt = TransactionAttempt(new.producer_id, new.epoch, new.number)
        if new.why is Why.COMMIT:
            assert attempt not in self.outcomes, (attempt, "has two outcomes")
            assert new.number > self.done_number[key], (attempt, "is over")
            assert new.committed is not None
            self.outcomes[attempt] = "commit"
            self.decisions[attempt] = row.seq, {p.topic: sum(p.counts.values()) for p in new.committed.parts}
            self.counts["commit"] += 1
            for part in new.committed.parts:
                files = self.staged[attempt].files if attempt in self.staged else {}
                assert all(f.name in files for f in part.files), (attempt, "is decided, and its files are gone")
            for other in rows:
                if other.kind != TRANSACTION and other.generation >= 0:
                    assert other.generation == before.group("g").generation, "a consumer of an old generation commits"
        elif new.why is Why.ABORT:
            assert self.outcomes.get(attempt, "abort") == "abort", (attempt, "has two outcomes")
            self.outcomes[attempt] = "abort"
            self.counts["abort"] += 1
        self.done_number[key] = max(self.done_number[key], new.number)
        if new.why is not Why.COMMIT:
            return False
        offsets = {other.offset for other in rows if other.kind != TRANSACTION}
        assert offsets == ({self.offsets[attempt]} if attempt in self.offsets else set()), (attempt, "other offsets")
        return True

    def compact(self) -> None:
        """Keep only the rows that count: the state is the same."""
        kept = kept_group_rows(self.rows, self.now)
        made = GroupsState().applied(kept)
        assert made.transactions == self.state.transactions
        self.rows, self.state = kept, made

    # --- topics ------------------------------------------------------------------------------------

    def create(self, name: str) -> None:
        topic = TopicLife(name, f"{name}{next(self.lives)}")
        self.tables[topic.topic_id] = Table(topic)
        self.names[name] = topic.topic_id

    def delete(self, name: str, *, again: bool) -> None:
        if name in self.names:
            del self.tables[self.names.pop(name)]
        if again:
            self.create(name)

    def table(self, topic: TopicLife) -> Table | None:
        if self.broken.by_name:
            return self.tables.get(self.names.get(topic.name, ""))
        return self.tables.get(topic.topic_id)

    def _all_have(self, attempt: TransactionAttempt, what: str) -> None:
        seq, parts = self.decisions[attempt]
        for topic in parts:
            table = self.tables.get(topic.topic_id)
            assert table is None or any(a == attempt for _, a, _ in table.versions), (attempt, topic, what, seq)

    def append(self, table: Table, committed: CommittedTransaction, part: TransactionPart) -> None:
        attempt = committed.attempt
        assert self.outcomes.get(attempt) == "commit", (attempt, "becomes visible undecided")
        assert part.topic == table.topic, (attempt, "goes into another life of the topic")
        assert all(a != attempt for _, a, _ in table.versions), (attempt, "is there twice")
        assert committed.seq > table.applied, (attempt, "comes out of order")
        table.versions.append((committed.seq, attempt, sum(part.counts.values())))
        table.applied = committed.seq

    # --- acts --------------------------------------------------------------------------------------

    def carry_out(self, todo: effects.TransactionProtocol) -> Steps:
        """Carry out a course; every `yield` is a place where others go on, or where this one stops for ever."""
        answer: Any = None
        error: KafkaError | None = None
        while True:
            try:
                act = todo.throw(error) if error is not None else todo.send(answer)
            except StopIteration as end:
                return end.value
            yield
            answer, error = None, None
            try:
                answer = yield from self._act(act)
            except KafkaError as cause:
                error = cause

    def _act(self, act: effects.TransactionEffect) -> Steps:  # noqa: C901, PLR0911, PLR0912 - one branch for each act
        fate = self.chance.random() if self.faulty else 1.0
        if fate < 0.02 and not isinstance(act, effects.Beside | effects.Remove):
            raise KafkaStorageError("refused")
        match act:
            case effects.LookAtGroups():
                return self.state
            case effects.LookAtTopics():
                return dict(self.names)
            case effects.Write(plan, _):
                return self._write(plan, fate)
            case effects.LookAtTopic(topic, fresh):
                table = self.table(topic)
                if table is None:
                    return None
                seen = table.applied
                if not fresh and table.versions and self.chance.random() < 0.5:
                    seen = self.chance.choice(table.versions)[0] - 1
                return seen
            case effects.Apply(committed, part):
                return (yield from self._apply(committed, part, fate))
            case effects.Find(committed, part):
                table = self.table(part.topic)
                if table is None:
                    return Appended(version=0, ranges={}, append_time_ms=0)
                assert any(a == committed.attempt for _, a, _ in table.versions), (committed, "is to be found")
                return Appended(version=0, ranges={}, append_time_ms=0, duplicate=True)
            case effects.CutAt(topic, seq):
                table = self.table(topic)
                if table is None:
                    return None
                later = [v for v, (s, _, _) in enumerate(table.versions) if s > seq]
                return TopicCut(topic_id=topic.topic_id, version=min(later, default=len(table.versions)), ends={})
            case effects.Beside(courses):
                return (yield from self._beside(courses))
            case effects.Remove(producer_id, epoch, number):
                if fate < 0.1:
                    return None
                for attempt in [a for a in self.staged if a[:2] == (producer_id, epoch) and number in {None, a.number}]:
                    self._remove(attempt)
                    yield
                return None
            case effects.ListFolders():
                return [
                    StagedFolder(
                        attempt, self.now - staged.since, tuple({t.topic_id for t, _ in staged.files.values()})
                    )
                    for attempt, staged in self.staged.items()
                ]

    def _write(self, plan: effects.Plan, fate: float) -> GroupsState:
        if self.faulty and self.chance.random() < 0.2:
            # Somebody else was faster: what was planned on the state before is planned again.
            try:
                plan(self.chance.choice(self.older), self.now)
            except KafkaError as error:
                # As on what was known before a look: nobody believes it.
                del error
        made = plan(self.state, self.now)
        if 0.02 <= fate < 0.05:
            self.counts["doubt"] += 1
            raise UnknownOutcomeError("not landed", "")
        if made is not None:
            self.write(transaction_rows(self.state.seq + 1, made))
        if 0.05 <= fate < 0.08:
            self.counts["doubt"] += 1
            raise UnknownOutcomeError("landed", "")
        return self.state

    def _apply(self, committed: CommittedTransaction, part: TransactionPart, fate: float) -> Steps:
        staged = self.staged.get(committed.attempt)
        if staged is None or any(f.name not in staged.files for f in part.files):
            table = self.table(part.topic)
            if table is None:
                return None
            if table.applied >= committed.seq:
                return Appended(version=0, ranges={}, append_time_ms=0, duplicate=True)
            raise AssertionError((committed.attempt, part.topic, "its files are gone, and the topic does not have it"))
        yield  # its records are in hand, for years perhaps
        table = self.table(part.topic)
        if table is None:
            return None
        if table.applied >= committed.seq and not self.broken.doubles:
            return Appended(version=0, ranges={}, append_time_ms=0, duplicate=True)
        if 0.02 <= fate < 0.05:
            raise UnknownOutcomeError("not landed", "")
        if self.broken.checks_again and max(staged.files[f.name][1] for f in part.files) > table.most:
            raise MessageSizeTooLargeError("the topic does not take it any more")
        if table.full:
            self.counts["full"] += 1
            raise KafkaStorageError("the disk is full")
        self.append(table, committed, part)
        if 0.05 <= fate < 0.08:
            raise UnknownOutcomeError("landed", "")
        return Appended(version=len(table.versions) - 1, ranges={}, append_time_ms=0)

    def _beside(self, courses: Sequence[effects.TransactionProtocol]) -> Steps:
        running = {n: self.carry_out(c) for n, c in enumerate(courses)}
        results: list[Any] = [None] * len(running)
        while running:
            n = self.chance.choice(list(running))
            try:
                next(running[n])
            except StopIteration as end:
                results[n] = end.value
                del running[n]
            except KafkaError as error:
                results[n] = error
                del running[n]
            else:
                yield
        return results

    def _remove(self, attempt: TransactionAttempt) -> None:
        outcome = self.outcomes.get(attempt)
        if outcome == "commit":
            self._all_have(attempt, "its files go before it is everywhere")
        elif outcome is None:
            over = (
                attempt.producer_id in self.forgotten
                or attempt.epoch < self.fenced[attempt.producer_id]
                or attempt.number <= self.done_number[attempt[:2]]
            )
            assert over, (attempt, "its files go while it is open")
        self.staged.pop(attempt, None)

    def stage(self, attempt: TransactionAttempt, topic: TopicLife, records: int) -> StagedFile:
        staged = self.staged.setdefault(attempt, Staged(self.now))
        name = str(len(staged.files)) + "." + topic.topic_id
        staged.files[name] = topic, records
        return StagedFile(name, records, records)

    # --- what happens --------------------------------------------------------------------------------

    def tell(self, attempt: TransactionAttempt, what: str) -> None:
        """What a producer was told of a transaction must be so, and stay so."""
        assert self.told.setdefault(attempt, what) == what, (attempt, "was told both")
        committed = self.outcomes.get(attempt) == "commit"
        assert committed == (what == "commit"), (attempt, "was told", what)

    def step(self) -> None:
        """One act of somebody, or something that happens."""
        self.steps += 1
        dice = self.chance.random()
        if dice < 0.9 and self.actors:
            actor = self.actors[self.chance.randrange(len(self.actors))]
            if not actor.step():
                self.actors.remove(actor)
            return
        self.now += self.chance.choice((0, 1, 5, 20, 70))
        if dice < 0.94 and len(self.actors) < 5:
            self.actors.append(Actor(self))
        elif dice < 0.96 and self.actors:
            del self.actors[self.chance.randrange(len(self.actors))]
        elif dice < 0.975:
            self.rebalance()
        elif dice < 0.982:
            self.delete(self.chance.choice(TOPICS), again=self.chance.random() < 0.7)
        elif dice < 0.99:
            self.compact()
        else:
            self.rarely(dice)

    def rarely(self, dice: float) -> None:
        """A long time passes, a clock goes back, or a topic takes less, or more, than it took."""
        if dice < 0.9915:
            self.now += 2 * EXPIRATION_MS
        elif dice < 0.993:
            self.now -= 50
        elif dice < 0.999 and self.names:
            table = self.tables[self.names[self.chance.choice(sorted(self.names))]]
            if dice < 0.997:
                table.most = self.chance.randint(1, LARGEST)
                decided = [seq for seq, parts in self.decisions.values() if table.topic in parts]
                self.counts["tightened"] += any(seq > table.applied for seq in decided)
            else:
                table.full = not table.full

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def settle(self) -> None:
        """Everybody stops; maintenance comes, and everything that was decided is everywhere, once; no file is left.

        Where a disk is full it does what can be done, says so, and keeps what it needs when there is room.
        """
        self.actors.clear()
        self.faulty = False
        if any(table.full for table in self.tables.values()):
            problems = finish(self.carry_out(upkeep.maintaining(10**9, self.now)))
            assert all(isinstance(p, KafkaStorageError) for p in problems), problems
            for table in self.tables.values():
                table.full = False
        for _ in range(2):
            self.now += TIMEOUT_MS + 1
            problems = finish(self.carry_out(upkeep.maintaining(10**9, self.now)))
            assert problems == []
        for attempt in self.decisions:
            self._all_have(attempt, "is decided, and not everywhere")
        assert not self.staged, "files are left"
        for attempt, what in self.told.items():
            self.tell(attempt, what)


class Actor:
    """Somebody: a producer, a helper, maintenance, an administrator or a reader of a cut."""

    def __init__(self, world: World) -> None:
        self.world = world
        roles: list[Callable[[], Steps]] = [self._produce] * 6 + [self._maintain, self._help, self._cut, self._fence]
        self._doing = world.chance.choice(roles)()

    def step(self) -> bool:
        try:
            next(self._doing)
        except StopIteration:
            return False
        return True

    def _try(self, make: Callable[[], effects.TransactionProtocol]) -> Steps:
        """Until it works, or is refused for good."""
        while True:
            try:
                return (yield from self.world.carry_out(make()))
            except (KafkaStorageError, UnknownOutcomeError):
                yield

    def _produce(self) -> Steps:
        world = self.world
        name = world.chance.choice(NAMES)
        standing: TransactionalIdState = yield from self._try(
            lambda: protocol.beginning(name, timeout_ms=TIMEOUT_MS, client_id="c")
        )
        settled = 0
        for number in range(1, 100):
            attempt = TransactionAttempt(standing.producer_id, standing.epoch, number)
            parts: dict[TopicLife, list[tuple[StagedFile, int]]] = {}
            for _ in range(world.chance.randint(0, 3)):
                if world.names:
                    there = world.chance.choice(sorted(world.names))
                    topic = TopicLife(there, world.names[there])
                    records = world.chance.randint(1, LARGEST)
                    if records > world.tables[topic.topic_id].most:
                        # The record's future fails, and its sender goes on without it.
                        world.counts["refused"] += 1
                        continue
                    parts.setdefault(topic, []).append((world.stage(attempt, topic, records), records))
                    yield
            offsets = {}
            if world.chance.random() < 0.5:
                generation = world.state.group("g").generation
                claim = GroupClaim(group_id="g", generation=generation, member_id=f"m{generation}")
                world.offsets[attempt] = world.steps
                offsets = {claim: {TopicPartition("a", 0): OffsetAndMetadata(world.steps)}}
                yield
            wanted = CommitRequest(
                transactional_id=name,
                attempt=attempt,
                parts=tuple(
                    TransactionPart(topic=t, counts={0: sum(n for _, n in fs)}, files=tuple(f for f, _ in fs))
                    for t, fs in parts.items()
                ),
                offsets=offsets,
                settled=settled,
                in_doubt=True,
            )
            ended = yield from self._end(wanted, commit=world.chance.random() < 0.8)
            if ended is None:
                return
            settled = ended or settled

    def _end(self, wanted: CommitRequest, *, commit: bool) -> Generator[None, None, int | None]:
        """Commit or abort. Returns the decision's number, 0 for an abort; None when this producer is over."""
        world, attempt, refused = self.world, wanted.attempt, False
        while True:
            try:
                if commit:
                    committed, _ = yield from world.carry_out(protocol.committing(wanted))
                    world.tell(attempt, "commit")
                    return int(committed.seq)
                yield from world.carry_out(
                    protocol.aborting(wanted.transactional_id, attempt, settled=wanted.settled, in_doubt=True)
                )
            except (ProducerFencedError, InvalidProducerEpochError) as error:
                if "nothing was committed" in str(error):
                    world.tell(attempt, "nothing")
                return None
            except (CommitFailedError, UnknownTopicOrPartitionError, IllegalGenerationError):
                # As in Kafka, a producer that was refused this may only abort.
                world.tell(attempt, "nothing")
                commit, refused = False, True
            except InvalidTxnStateError as error:
                if "was aborted" in str(error):
                    world.tell(attempt, "nothing")
                    return 0
                commit = True
            except (KafkaStorageError, UnknownOutcomeError):
                commit = not refused and world.chance.random() < 0.6
                yield
            else:
                world.tell(attempt, "nothing")
                return 0

    def _maintain(self) -> Steps:
        for _ in range(5):
            yield
        world = self.world
        problems = yield from self._try(lambda: upkeep.maintaining(EXPIRATION_MS, world.now))
        assert not any(isinstance(p, LogCorruptError) for p in problems), problems

    def _help(self) -> Steps:
        world = self.world
        known = world.state
        yield
        topics = [TopicLife(name, topic_id) for name, topic_id in world.names.items()]
        problems = yield from world.carry_out(roll_forward.helping(dict.fromkeys(topics, known.seq), known))
        assert not any(isinstance(p, LogCorruptError) for p in problems), problems
        world.counts["helped"] += 1

    def _fence(self) -> Steps:
        for _ in range(self.world.chance.randint(0, 30)):
            yield
        name = self.world.chance.choice(NAMES)
        try:
            yield from self._try(lambda: protocol.fencing(name, Why.ADMIN))
        except KafkaError:
            return

    def _cut(self) -> Steps:
        world = self.world
        topics = [TopicLife(name, topic_id) for name, topic_id in world.names.items()]
        try:
            known, cuts = yield from self._try(lambda: roll_forward.cutting(topics))
        except UnknownTopicOrPartitionError:
            return
        for attempt, (seq, parts) in world.decisions.items():
            for topic, cut in zip(topics, cuts, strict=True):
                table = world.tables.get(topic.topic_id)
                if topic in parts and table is not None:
                    there = any(a == attempt for _, a, _ in table.versions[: cut.version])
                    assert there == (seq <= known.seq), (attempt, topic, "a cut shows a part")
        world.counts["cut"] += 1


def finish(steps: Steps) -> Any:
    """All of it at once."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
