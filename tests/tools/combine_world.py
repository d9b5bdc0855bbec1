"""Writers that combine their appends, in virtual time: requests take time, get lost, land late or twice; writers die.

The acts come from `kafkalike.model`; what is simulated here is the object store, and how a writer carries the acts out.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalike.errors import KafkaError, KafkaStorageError, UnknownOutcomeError
from kafkalike.model.appends.group_commit import (
    AskRoom,
    Attempt,
    CommitEffect,
    Contention,
    LeaveRoom,
    Look,
    MoveOn,
    Pause,
    Put,
    Seen,
    Withdraw,
    appending,
    withdrawing,
)
from kafkalike.model.appends.taken_appends import Placed, TakenAppends, WaitingAppend
from kafkalike.model.appends.waiting_appends import (
    GIVES_WAY,
    LOST,
    Room,
    gives_way,
    numbered,
    parse_name,
    parse_room,
    to_take,
)

TRIES: Final = 5
Steps = Generator["Request", Any, Any]


class BrokenError(Exception):
    """A request without an answer."""


@dataclass(frozen=True)
class Request:
    """One request, or several at once."""

    kind: str
    name: str = ""
    content: Any = None
    parts: tuple[Request, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class Payload:
    """Records of one append: whose, the how-manieth, and how many by partition."""

    writer: str
    number: int
    counts: dict[int, int]


@dataclass(frozen=True)
class Commit:
    """The file of a table version."""

    id: str
    parts: tuple[tuple[WaitingAppend, Payload, dict[int, range]], ...] = ()
    own: tuple[Payload, dict[int, range]] | None = None
    looked: bool = False

    @property
    def held(self) -> list[tuple[Payload, dict[int, range]]]:
        """All appends that it brings."""
        return [(payload, runs) for _, payload, runs in self.parts] + ([self.own] if self.own else [])

    @property
    def deaf(self) -> bool:
        """See `Seen`."""
        return bool(self.held) and not self.looked


@dataclass
class Trouble:
    """How probable it is, for a request."""

    broken: float = 0.0
    killed: float = 0.0
    hasty: float = 0.0
    """Appends that have less than a second."""
    silent: float = 0.0
    """Share of the requests that break while the storage is out of order, for three seconds."""


@dataclass
class Ledger:
    """What appends came to."""

    sent: list[Payload] = field(default_factory=list)
    acked: list[tuple[Payload, Placed]] = field(default_factory=list)
    refused: list[Payload] = field(default_factory=list)
    unknown: list[Payload] = field(default_factory=list)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    """How long acknowledged appends took, by writer."""


class World:
    """An object store, and what happens in it."""

    def __init__(
        self, seed: int, trouble: Trouble | None = None, *, get: float = 0.015, put: float = 0.025, same: bool = False
    ) -> None:
        self.rng = random.Random(seed)
        self.trouble = trouble or Trouble()
        self.took = {"get": get, "list": get, "put": put, "create": put, "delete": put}
        self.same = same
        """Whether a request always takes the same time."""
        self.now = 0.0
        self.silence = self.rng.uniform(0.0, 2.0)
        self.objects: dict[str, Any] = {"v0": Commit("first")}
        self.ledger = Ledger()
        self.requests: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    # --- time ----------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), what))

    def run(self, until: float) -> None:
        """Let happen what happens until then."""
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    def start(self, steps: Steps, on_kill: Callable[[], None] | None = None, delay: float = 0.0) -> None:
        """Let a writer run, whose requests may break, and who may die at each."""
        self.at(self.now + delay, lambda: self._advance(steps, None, None, on_kill))

    def _advance(self, steps: Steps, answer: Any, error: Exception | None, on_kill: Callable[[], None] | None) -> None:
        try:
            request = steps.send(answer) if error is None else steps.throw(error)
        except StopIteration:
            return
        killed = on_kill is not None and self.rng.random() < self.trouble.killed
        if killed:
            self.happened["killed"] += 1
            if self.rng.random() < 0.5:
                self.do(request, lambda *_: None)
            steps.close()
            assert on_kill is not None
            self.at(self.now + self.rng.random(), on_kill)
            return
        self.do(request, lambda found, cause: self._advance(steps, found, cause, on_kill))

    def do(self, request: Request, answer: Callable[[Any, Exception | None], None]) -> None:
        """Carry out a request, and answer."""
        if request.kind == "sleep":
            self.at(self.now + request.seconds, lambda: answer(None, None))
        elif request.kind == "all":
            self._do_all(request.parts, answer)
        else:
            self._do_one(request, answer)

    def _do_all(self, parts: tuple[Request, ...], answer: Callable[[Any, Exception | None], None]) -> None:
        found: dict[int, Any] = {}
        if not parts:
            self.at(self.now, lambda: answer([], None))

        def one(number: int, value: Any, error: Exception | None) -> None:
            found[number] = error or value
            if len(found) == len(parts):
                errors = [e for e in found.values() if isinstance(e, Exception)]
                answer([found[n] for n in range(len(parts))], errors[0] if errors else None)

        for number, part in enumerate(parts):
            self._do_one(part, lambda value, error, n=number: one(n, value, error))  # type: ignore[misc]

    def _do_one(self, request: Request, answer: Callable[[Any, Exception | None], None]) -> None:
        self.requests[request.kind] += 1
        took = self.took[request.kind] * (1.0 if self.same else self.rng.uniform(0.5, 2.0))
        done, told = self.now + took * self.rng.uniform(0.2, 0.9), self.now + took
        kind = ""
        silent = self.silence < self.now < self.silence + 3.0
        if self.rng.random() < (self.trouble.silent if silent else 0.0) + self.trouble.broken:
            kind = self.rng.choice(["lost", "not done", "late", "twice", "slow"])
            self.happened[kind] += 1
        broken = BrokenError(kind)
        if kind == "slow":
            told += self.rng.uniform(0.0, 1.0)
            done += self.rng.uniform(0.0, told - done)
        if kind == "late":
            self.at(told + self.rng.uniform(0.0, self.rng.choice([1.0, 8.0])), lambda: self._effect(request))
            self.at(told, lambda: answer(None, broken))
        elif kind == "not done":
            self.at(told, lambda: answer(None, broken))
        else:
            if kind == "twice":
                self.at(told + self.rng.uniform(0.0, self.rng.choice([1.0, 8.0])), lambda: self._effect(request))
            found: list[Any] = []
            self.at(done, lambda: found.append(self._effect(request)))
            self.at(told, lambda: answer(found[0], broken if kind == "lost" else None))

    def _effect(self, request: Request) -> Any:
        name = request.name
        match request.kind:
            case "get":
                return self.objects.get(name)
            case "list":
                return [n.removeprefix(name) for n in self.objects if n.startswith(name)]
            case "create":
                return name not in self.objects and self.objects.setdefault(name, request.content) is not None
            case "put":
                self.objects[name] = request.content
            case "delete":
                self.objects.pop(name, None)
        return None

    # --- the end -------------------------------------------------------------------------------

    def versions(self) -> list[Commit]:
        """All table versions."""
        return [
            self.objects[f"v{n}"] for n in itertools.takewhile(lambda n: f"v{n}" in self.objects, itertools.count())
        ]

    def judge(self) -> None:
        """Nothing lost, nothing twice, no hole, each writer's appends in order, and everybody was told the truth."""
        ends: Counter[int] = Counter()
        places: dict[tuple[str, int], tuple[int, dict[int, range]]] = {}
        latest: dict[str, int] = {}
        for version, commit in enumerate(self.versions()):
            for payload, runs in commit.held:
                key = payload.writer, payload.number
                assert key not in places, f"{key} is in versions {places[key][0]} and {version}"
                places[key] = version, runs
                assert latest.get(payload.writer, -1) < payload.number, f"{key} comes after {latest[payload.writer]}"
                latest[payload.writer] = payload.number
            for partition, run in sorted(
                ((p, run) for _, runs in commit.held for p, run in runs.items()), key=lambda found: found[1].start
            ):
                assert run.start == ends[partition], f"version {version}: {run} does not begin at {ends[partition]}"
                ends[partition] = run.stop
            assert all({p: len(r) for p, r in runs.items()} == payload.counts for payload, runs in commit.held)
        for payload, placed in self.ledger.acked:
            found = places.get((payload.writer, payload.number))
            assert found == (placed.version, dict(placed.ranges)), f"{payload} was told {placed}, and is at {found}"
        for payload in self.ledger.refused:
            assert (payload.writer, payload.number) not in places, f"{payload} was refused, and is there"


class Writer:
    """One process that appends to the table, one append after the other.

    Args:
        world: the object store.
        name: whose records they are.
        first: number of its first append.
        large: seconds that its records take to be written; if any, they cannot wait beside the table.
    """

    def __init__(self, world: World, name: str, first: int = 0, *, large: float = 0.0) -> None:
        self.world = world
        self.large = large
        self.name = name
        self.id = f"{world.rng.getrandbits(64):016x}"
        self.number = first
        self.sequence = 0
        self.ids = itertools.count()
        self.version = -1
        self.taken = TakenAppends(0)
        self.ends: Counter[int] = Counter()
        self.led = -1
        self.deaf = False
        self.moved = world.now
        """When the latest version was seen."""
        self.company = Contention()
        self.pending: WaitingAppend | None = None
        """An append of which it is not known whether it may still land."""

    # --- the program ---------------------------------------------------------------------------

    def work(self, until: float, think: Callable[[], float] = lambda: 0.0) -> Steps:
        """Append until then."""
        while self.version < 0:
            with contextlib.suppress(KafkaError):
                yield from self.load()
        while self.world.now < until:
            payload = Payload(self.name, self.number, {0: 1, **({1: 2} if self.number % 3 == 0 else {})})
            self.number += 1
            self.world.ledger.sent.append(payload)
            hasty = self.world.rng.random() < self.world.trouble.hasty
            seconds = self.world.rng.uniform(0.0, 0.8) if hasty else 60.0
            begun = self.world.now
            try:
                placed = yield from self.append(payload, begun + seconds)
            except UnknownOutcomeError:
                self.world.ledger.unknown.append(payload)
            except KafkaError as error:
                self.world.happened[type(error).__name__] += 1
                self.world.ledger.refused.append(payload)
            else:
                self.world.ledger.acked.append((payload, placed))
                self.world.ledger.seconds.setdefault(self.name, []).append(self.world.now - begun)
            yield from self.idle(think())

    def idle(self, seconds: float) -> Steps:
        """Do nothing but look now and then, as members of a group do."""
        end = self.world.now + seconds
        while self.world.now < end:
            yield Request("sleep", seconds=min(0.5, end - self.world.now))
            if self.world.now < end:
                with contextlib.suppress(KafkaError):
                    yield from self.look()

    def append(self, payload: Payload, deadline: float) -> Steps:
        """Append one payload, which comes to where it is."""
        if self.pending is not None:
            try:
                yield from self.driven(withdrawing(self.pending), None)
            except UnknownOutcomeError as cause:
                raise KafkaStorageError("an earlier append is in doubt") from cause
            self.pending = None

        def make(version: int) -> WaitingAppend:
            self.sequence += 1
            self.pending = WaitingAppend(version, self.id, self.sequence)
            return self.pending

        def make_room(version: int, seconds: float) -> Room:
            return Room(version, self.id, int(seconds * 1000))

        steps = appending(
            make,
            make_room,
            alone=self.company.alone(self.world.now),
            leading=self.led == self.version,
            storable=not self.large,
            pace=lambda: self.company.pace,
            jitter=self.world.rng.random,
            deadline=deadline,
        )
        try:
            placed = yield from self.driven(steps, payload)
        except UnknownOutcomeError:
            raise
        except KafkaError:
            self.pending = None
            raise
        self.leave()
        return placed

    def leave(self) -> None:
        """Remove what waited, which was taken."""
        done, self.pending = self.pending, None
        if done is not None:
            self.meet()
            self.world.do(Request("delete", f"w/{done.name}"), lambda *_: None)

    def driven(self, steps: Generator[CommitEffect, Any, Any], payload: Payload | None) -> Steps:
        """Carry out the acts of an append."""
        answer: Any = None
        error: Exception | None = None
        while True:
            try:
                act = steps.send(answer) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            answer, error = None, None
            try:
                answer = yield from self.carry_out(act, payload)
            except KafkaError as cause:
                error = cause

    def carry_out(self, act: CommitEffect, payload: Payload | None) -> Steps:
        """One act."""
        match act:
            case Look():
                yield from self.look()
                return self.seen()
            case Pause(seconds):
                yield Request("sleep", seconds=seconds)
            case Put(part):
                yield from self.put(part, payload)
            case AskRoom(room):
                yield from self.again(Request("create", f"w/{room.name}", self.world.now))
            case LeaveRoom(room):
                self.world.do(Request("delete", f"w/{room.name}"), lambda *_: None)
            case Withdraw(part):
                self.world.happened["withdrawn"] += 1
                yield from self.withdraw(part)
            case MoveOn(version):
                yield from self.move_on(version)
                return self.seen()
            case Attempt():
                assert payload is not None
                return (yield from self.attempt(act, payload))
        return None

    def seen(self) -> Seen:
        if self.pending is not None and not self.taken.knows(self.pending):
            raise UnknownOutcomeError("append", self.id)
        return Seen(
            self.version, self.taken, self.world.now, self.deaf, self.led == self.version, self.world.now - self.moved
        )

    # --- the table -----------------------------------------------------------------------------

    def load(self) -> Steps:
        """Know the table as of now, but not what its commits took before."""
        found = [int(n) for n in (yield from self.again(Request("list", "v")))]
        for version in range(max(found) + 1):
            self.apply(version, self.world.objects[f"v{version}"])
        self.taken = TakenAppends(self.version)

    def apply(self, version: int, commit: Commit) -> None:
        self.version = version
        self.deaf = commit.deaf
        self.moved = self.world.now
        if commit.held and not commit.id.startswith(self.id):
            self.meet()
        for _, runs in commit.held:
            for partition, run in runs.items():
                self.ends[partition] = max(self.ends[partition], run.stop)
        self.taken = self.taken.after(
            {part.writer: Placed(part.sequence, version, runs) for part, _, runs in commit.parts}
        )

    def again(self, request: Request) -> Steps:
        """A request that may be made again."""
        failed: BrokenError | None = None
        for attempt in range(TRIES):
            try:
                return (yield request)
            except BrokenError as cause:
                failed = cause
                yield Request("sleep", seconds=0.05 * 2**attempt * self.world.rng.random())
        raise KafkaStorageError("no answer") from failed

    def look(self) -> Steps:
        while True:
            found = yield from self.again(Request("get", f"v{self.version + 1}"))
            if found is None:
                return
            self.apply(self.version + 1, found)

    def attempt(self, act: Attempt, payload: Payload) -> Steps:
        """Make the next version, for others too if asked to."""
        begun = self.world.now
        yield from self.look()
        self.seen()
        if act.part is not None and (placed := self.taken.of(act.part)) is not None:
            return placed
        if act.leading and self.version != self.led:
            self.meet()
            return LOST
        waiting: list[tuple[WaitingAppend, Payload]] = []
        if act.combine:
            found = yield from self.waiting(act.part, act.room)
            if found is None:
                self.world.happened["gave way"] += 1
                return GIVES_WAY
            waiting = found
        if act.part is not None:
            waiting = sorted([*waiting, (act.part, payload)], key=lambda found: found[0])
        payloads = [found for _, found in waiting] + ([payload] if act.part is None else [])
        runs = numbered({0: self.ends[0], 1: self.ends[1]}, [p.counts for p in payloads])
        commit = Commit(
            f"{self.id}/{next(self.ids)}",
            tuple((part, found, run) for (part, found), run in zip(waiting, runs, strict=False)),
            None if act.part is not None else (payload, runs[-1]),
            looked=act.combine,
        )
        yield Request("sleep", seconds=self.large)
        yield from self.again(Request("put", f"data/{commit.id}", payloads))
        landed = yield from self.commit(commit)
        self.company = self.company.attempted(self.world.now - begun)
        if act.combine and landed:
            self.company = self.company.crowded(len(payloads))
        if act.combine and (not landed or len(payloads) > 1):
            self.meet()
        if not landed:
            self.meet()
            return LOST
        self.led = self.version
        own = (
            runs[-1]
            if act.part is None
            else next(r for (part, _), r in zip(waiting, runs, strict=True) if part == act.part)
        )
        return Placed(act.part.sequence if act.part else -1, self.version, own)

    def meet(self) -> None:
        self.company = self.company.seen(self.world.now)

    def waiting(self, own: WaitingAppend | None, room: Room | None) -> Steps:
        """What waits: only now, after the version was seen on top of which it is committed. None to give way."""
        names = yield from self.again(Request("list", "w/"))
        rooms = {found: self.world.objects.get(f"w/{name}", 0.0) for name in names if (found := parse_room(name))}
        if gives_way({found: 1000 * (self.world.now - begun) for found, begun in rooms.items()}, room):
            return None
        chosen = [p for p in to_take(self.parsed(names), self.taken) if p != own]
        contents = yield from self.again(Request("all", parts=tuple(Request("get", f"w/{p.name}") for p in chosen)))
        return [(p, c) for p, c in zip(chosen, contents, strict=True) if isinstance(c, Payload)]

    @staticmethod
    def parsed(names: Iterable[str]) -> list[WaitingAppend]:
        return [part for name in names if (part := parse_name(name)) is not None]

    def commit(self, commit: Commit) -> Steps:
        """Put the next version, and find out what became of it."""
        version = self.version + 1
        landed = yield from self.settled(version, commit)
        if landed:
            self.apply(version, commit)
        return landed

    def settled(self, version: int, commit: Commit) -> Steps:
        failed = False
        for attempt in range(TRIES):
            try:
                if (yield Request("create", f"v{version}", commit)):
                    return True
                found = yield Request("get", f"v{version}")
            except BrokenError:
                failed = True
            else:
                if found is not None:
                    return bool(found.id == commit.id)
            yield Request("sleep", seconds=0.05 * 2**attempt * self.world.rng.random())
        assert failed
        fence = Commit(f"fence of {commit.id}")
        for attempt in range(TRIES):
            try:
                made = yield Request("create", f"v{version}", fence)
                found = fence if made else (yield Request("get", f"v{version}"))
            except BrokenError:
                pass
            else:
                if found.id == fence.id:
                    raise KafkaStorageError("refused")
                return bool(found.id == commit.id)
            yield Request("sleep", seconds=0.05 * 2**attempt * self.world.rng.random())
        raise UnknownOutcomeError("commit", commit.id)

    def move_on(self, version: int) -> Steps:
        """See to it that there is a version above one."""
        yield from self.look()
        while self.version <= version:
            if (yield from self.commit(Commit(f"{self.id}/{next(self.ids)}"))):
                self.led = self.version
                self.world.happened["empty"] += 1
            yield from self.look()

    # --- what waits ----------------------------------------------------------------------------

    def put(self, part: WaitingAppend, payload: Payload | None) -> Steps:
        begun = self.world.now
        for _ in range(TRIES):
            try:
                yield Request("create", f"w/{part.name}", payload)
            except BrokenError:
                continue
            self.company = self.company.took(self.world.now - begun)
            return
        raise KafkaStorageError("no answer")

    def withdraw(self, part: WaitingAppend) -> Steps:
        try:
            yield from self.again(Request("put", f"w/{part.name}", "withdrawn"))
        except KafkaStorageError as cause:
            raise UnknownOutcomeError("append", self.id) from cause


def writers(
    world: World,
    count: int,
    until: float,
    think: Callable[[], float] = lambda: 0.0,
    *,
    spread: float = 0.01,
    large: Sequence[float] = (),
) -> None:
    """Let so many writers append until then; one that dies is followed by another one, as a program that is restarted.

    Args:
        world: where.
        count: how many.
        until: when each has its last append.
        think: seconds between two appends of one.
        spread: within how many seconds they begin.
        large: seconds that the records of further ones take to be written, which cannot wait beside the table.
    """

    def begin(name: str, life: int, size: float) -> None:
        writer = Writer(world, f"{name}.{life}", large=size)
        world.start(writer.work(until, think), lambda: begin(name, life + 1, size), world.rng.random() * spread)

    for number in range(count):
        begin(f"p{number}", 0, 0.0)
    for number, size in enumerate(large):
        begin(f"large{number}", 0, size)
