"""Replicas under a seeded scheduler: writers, helpers, movers, cleaners, readers, one act at a time.

The acts come from courses of `kafkalike.model.replication`; roots, the controller and the network are simulated here.
Whoever is in the middle of something may stop for ever, or for so long that everything has changed; a put whose answer
was lost may land much later. The obligations are checked when they could break, against a book that shares no code with
the rules: what was published or acknowledged, and by whom.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, NamedTuple

from kafkalike.model.replication import acts, course, joining
from kafkalike.model.replication.values import (
    Configuration,
    FellBehindError,
    NoReplicaLeftError,
    OtherBytesError,
    Registration,
    Replica,
    ReplicaError,
    UnreachableError,
    View,
)

Steps = Generator[Any, Any, Any]


class Content(NamedTuple):
    """What a version's file holds."""

    append_id: str
    configuration: Configuration | None = None
    file: str = ""
    """The data file that it adds."""
    removed: str = ""
    """The data file that it takes out."""
    fence: bool = False


class Table:
    """A replica on its root."""

    __slots__ = ("checkpoint", "files", "last", "log", "state")

    def __init__(self) -> None:
        self.log: dict[int, Content] = {}
        self.last = -1
        self.checkpoint = -1
        self.state: State | None = None
        """What the checkpoint says."""
        self.files: set[str] = set()


class State(NamedTuple):
    """What a log says up to a version."""

    view: View
    contents: tuple[Content, ...]
    """Of all versions: a checkpoint would keep the outcome of them."""

    def live(self) -> set[str]:
        return live_files(self.contents)


def live_files(contents: Any) -> set[str]:
    live: set[str] = set()
    for content in contents:
        if content.file:
            live.add(content.file)
        live.discard(content.removed)
    return live


class Faults(NamedTuple):
    """How much goes wrong in one history."""

    cut: float
    """Chance that a step cuts, or mends, a way between an actor and a root."""
    lost: float
    """Chance that an answer is lost."""
    stop: float
    """Chance that an actor sleeps."""
    patience: float
    """Chance that a failed act is tried again before the replica is given up."""
    die: int
    """How many roots may be lost for good."""
    unclean: bool


class ControllerError(Exception):
    """The controller gives no answer."""


class World:
    """Everything.

    Args:
        seed: says all that happens.
        brokers: how many roots there are; a power of the seed's by default.
    """

    def __init__(self, seed: int) -> None:
        self.chance = chance = Random(seed)
        self.random = chance.random
        brokers = chance.choice((2, 3, 3, 3, 4))
        factor = min(brokers, chance.choice((1, 2, 2, 3, 3)))
        self.brokers = tuple(range(1, brokers + 1))
        self.faults = Faults(
            cut=chance.choice((0.0, 0.02, 0.05)),
            lost=chance.choice((0.0, 0.03, 0.1)),
            stop=chance.choice((0.02, 0.05, 0.15)),
            patience=chance.choice((0.2, 0.6, 0.9)),
            die=chance.choice((0, 0, 1, brokers - 1)),
            unclean=chance.random() < 0.15,
        )
        self.faulty = True
        self.dead: set[int] = set()
        self.blocked: set[tuple[str, int]] = set()
        self.factor = factor
        chain = tuple(Replica(broker) for broker in self.brokers[:factor])
        self.registered = Registration(0, chain)
        self.tables: dict[Replica, Table] = {}
        first = Content("s0", Configuration(0, chain))
        for replica in chain:
            table = self.table(replica)
            table.log[0], table.last = first, 0
        self.lives = 0
        self.known_lives = {0}
        self.exempt: set[str] = set()
        self.files = 0
        self.tick = 0
        self.late: list[tuple[Replica, int, Content]] = []
        """Puts whose answer was lost, and which have not happened yet."""
        self.late_registers: list[acts.Register] = []
        # The book.
        self.truth: dict[int, Content] = {0: first}
        """What was published, by version."""
        self.acknowledged: dict[int, Content] = {}
        self.lost: dict[int, list[Content]] = {}
        """What an unclean election gave up."""
        self.seals: dict[int, Configuration] = {0: first.configuration}  # type: ignore[dict-item]
        self.told: dict[str, str] = {}
        self.counts = dict.fromkeys(
            ("ack", "epoch", "join", "unclean", "late", "behind", "clean", "refused", "evict", "vacuum", "move"), 0
        )
        self.actors = [
            *(Actor(self, f"w{n}", writer) for n in range(chance.choice((1, 2, 3)))),
            Actor(self, "k0", helper),
            *([Actor(self, "k1", helper)] if chance.random() < 0.5 else []),
            Actor(self, "c", cleaner),
            Actor(self, "r", reader),
            *([Actor(self, "m", mover)] if chance.random() < 0.6 else []),
            *([Actor(self, "v", vacuum)] if chance.random() < 0.5 else []),
        ]
        if self.faults.unclean:
            self.actors.append(Actor(self, "u", elector))

    def table(self, replica: Replica) -> Table:
        found = self.tables.get(replica)
        if found is None:
            found = self.tables[replica] = Table()
        return found

    # --- the schedule ------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Play, with faults."""
        random, faults, actors = self.random, self.faults, self.actors
        count = len(actors)
        while steps > 0:
            actor = actors[int(random() * count)]
            if actor.sleeps > self.tick:
                self.tick += 1
                steps -= 1
                continue
            # Runs of one actor reach far into the protocol, single steps in between reach its seams.
            for _ in range(1 if random() < 0.4 else 1 + int(random() * 25)):
                self.tick += 1
                steps -= 1
                actor.step()
                if random() < faults.stop:
                    actor.sleeps = self.tick + int(10 ** (3 * random()))
                    break
            if random() < faults.cut:
                self.cut()
            if self.late and random() < 0.05:
                self.land()

    def cut(self) -> None:
        """Change the network, or lose a root."""
        chance = self.chance
        if len(self.dead) < self.faults.die and chance.random() < 0.15:
            self.dead.add(chance.choice(self.brokers))
        actor = chance.choice(self.actors).name if chance.random() < 0.7 else ""
        way = actor, chance.choice((0, *self.brokers))
        if way in self.blocked:
            self.blocked.discard(way)
        elif len(self.blocked) < 5:
            self.blocked.add(way)
        elif self.blocked:
            self.blocked.discard(chance.choice(sorted(self.blocked)))

    def land(self) -> None:
        """A put of long ago happens."""
        replica, version, content = self.late.pop(int(self.random() * len(self.late)))
        if replica.broker not in self.dead:
            self.counts["late"] += 1
            self.put(replica, version, content)

    def settle(self) -> None:
        """No more faults: everything that can be there is there in the end, the same everywhere."""
        while self.late:
            self.land()
        self.faulty = False
        self.blocked.clear()
        for actor in self.actors:
            actor.sleeps = 0
            actor.finish(4_000)
        self.check_registration("at the end")
        if all(replica.broker in self.dead for replica in self.registered.in_sync):
            return
        last = Actor(self, "last", writer)
        last.memory["appends"] = 1
        last.finish(4_000)
        assert last.memory.get("acknowledged"), "nobody can write though roots are there"
        Actor(self, "heal", healer).finish(8_000)
        alive = [broker for broker in self.brokers if broker not in self.dead]
        assert len(self.registered.in_sync) >= min(self.factor, len(alive)), (self.registered, "replicas did not come")
        self.check_registration("when all is healed")
        end = max(self.truth)
        for replica in self.registered.in_sync:
            table = self.tables[replica]
            for version in range(table.checkpoint + 1, end + 1):
                assert table.log[version] == self.truth[version], (replica, version, "is not the same")
            assert table.last == end, (replica, "has more than was published")

    # --- acts --------------------------------------------------------------------------------------

    def put(self, replica: Replica, version: int, content: Content) -> bool:
        table = self.table(replica)
        if version in table.log:
            return False
        before = version - 1 in table.log or version == 0
        assert before or table.checkpoint >= version - 1, (replica, version, "is put after a hole")
        table.log[version] = content
        table.last = max(table.last, version)
        if content.configuration is not None and replica.life in self.known_lives:
            seal = self.seals.setdefault(content.configuration.epoch, content.configuration)
            assert seal == content.configuration, (content, "two configurations of an epoch")
        return True

    def supply(self, replica: Replica, content: Content, source: Replica | None) -> None:
        if not content.file:
            return
        if source is not None and content.file not in self.table(source).files:
            assert self.is_dead(source, content.file), (source, content, "was removed, and is to be copied")
            return
        self.table(replica).files.add(content.file)

    def make_checkpoint(self, replica: Replica, version: int) -> None:
        table = self.table(replica)
        if table.checkpoint >= version:
            return
        table.state = self.state_of(table, version)
        table.checkpoint = version
        if self.registered.life == replica.life:
            for number, content in enumerate(table.state.contents):
                assert self.truth.get(number, content) == content, (replica, number, "a checkpoint of something else")

    def state_of(self, table: Table, version: int) -> State:
        base = table.state or State(View(Configuration(0, self.seals[0].chain), -1), ())
        view, contents = base.view, list(base.contents)
        for number in range(view.end + 1, version + 1):
            content = table.log[number]
            contents.append(content)
            view = view.after(content)
        return State(view, tuple(contents))

    def copy_checkpoint(self, source: Replica, replica: Replica) -> int:
        mine, theirs = self.table(replica), self.table(source)
        if theirs.checkpoint > mine.checkpoint:
            assert theirs.state is not None
            mine.checkpoint, mine.state = theirs.checkpoint, theirs.state
            for file in theirs.state.live():
                if file in theirs.files:
                    mine.files.add(file)
                else:
                    assert self.is_dead(source, file), (source, file, "was removed, and is to be copied")
            mine.last = max(mine.last, mine.checkpoint)
        return mine.checkpoint

    def discard(self, replica: Replica, below: int) -> None:
        table = self.table(replica)
        assert below <= table.checkpoint
        for version in [number for number in table.log if number < below]:
            del table.log[version]
        self.counts["clean"] += 1

    def register(self, before: Registration, after: Registration) -> bool:
        if self.registered != before:
            return False
        assert after.epoch in {before.epoch, before.epoch + 1}
        assert after.epoch > before.epoch or after.configuration == before.configuration
        self.registered = after
        self.counts["epoch"] += after.epoch > before.epoch
        if after.life != before.life:
            self.known_lives.add(after.life)
            assert self.seals.setdefault(after.epoch, after.configuration) == after.configuration
            self.give_up(after)
        self.check_registration("registered")
        return True

    # --- the book ----------------------------------------------------------------------------------

    def live(self) -> set[str]:
        return live_files(self.truth.values())

    def is_dead(self, replica: Replica, file: str) -> bool:
        """Whether the log takes a file out, though nobody may have been told yet."""
        if file in self.exempt:
            return True
        table = self.tables[replica]
        contents = [*(table.state.contents if table.state else ()), *table.log.values()]
        return any(content.removed == file for content in contents)

    def has(self, replica: Replica, version: int, content: Content) -> bool:
        table = self.tables.get(replica)
        if table is None:
            return False
        if version <= table.checkpoint:
            assert table.state is not None
            return table.state.contents[version] == content
        return table.log.get(version) == content

    def publish(self, version: int, content: Content, life: int) -> None:
        """Somebody was told what a version is."""
        if life != self.registered.life:
            # They still reach the roots whose log was given up: that loss is in the book of the controller.
            assert self.registered.losses, "a log was given up, and nobody wrote it down"
            return
        found = self.truth.get(version)
        if found is None:
            self.truth[version] = content
            for replica in self.registered.in_sync:
                assert self.has(replica, version, content), (replica, version, content, "is shown, and not there")
                if content.file and content.file not in self.tables[replica].files:
                    assert self.is_dead(replica, content.file), (replica, content, "its data are not there")
        else:
            assert found == content, (version, found, content, "two versions were shown")

    def check_registration(self, when: str) -> None:
        """Who is in sync has everything that was shown or acknowledged."""
        live = self.live()
        for replica in self.registered.in_sync:
            for version, content in self.truth.items():
                assert self.has(replica, version, content), (when, self.registered, replica, version, content)
            missing = {f for f in live - self.tables[replica].files if not self.is_dead(replica, f)}
            assert not missing, (when, self.registered, replica, missing)

    def give_up(self, after: Registration) -> None:
        """An unclean election: what the new leader lacks is lost, and must be written down."""
        self.counts["unclean"] += 1
        (chosen,) = after.chain
        gone = [version for version, content in self.truth.items() if not self.has(chosen, version, content)]
        assert after.losses, "a loss was not written down"
        assert after.losses[-1].epoch == after.epoch, "a loss was not written down"
        for version in sorted(gone):
            self.lost.setdefault(version, []).append(self.truth.pop(version))
            self.acknowledged.pop(version, None)
        table = self.tables[chosen]
        held = self.state_of(table, max(table.log, default=table.checkpoint)).contents if table.last >= 0 else ()
        # Retention has taken them by the log that is given up.
        self.exempt |= {file for file in live_files(held) if file not in table.files}


class Actor:
    """Somebody who carries out one task after the other, and may stop anywhere."""

    __slots__ = ("error", "memory", "name", "send", "sleeps", "steps", "throw", "world")

    def __init__(self, world: World, name: str, task: Callable[[World, Actor], Steps]) -> None:
        self.world = world
        self.name = name
        self.sleeps = 0
        self.memory: dict[str, Any] = {}
        self.steps: Steps | None = task(world, self)
        self.send: Any = None

    def step(self) -> None:
        """Carry out one act."""
        if self.steps is None:
            return
        try:
            act = self.steps.send(self.send)
            self.send = None
            while True:
                try:
                    self.send = self.carry_out(act)
                except (ReplicaError, ControllerError) as failed:
                    act = self.steps.throw(failed)
                    continue
                return
        except StopIteration:
            self.steps = None

    def finish(self, most: int) -> None:
        for _ in range(most):
            if self.steps is None:
                return
            self.step()
        message = f"{self.name} does not come to an end"
        raise AssertionError(message)

    def carry_out(self, act: Any) -> Any:
        kind = type(act)
        world = self.world
        if kind is acts.Read:
            self.reach(act.replica)
            return world.table(act.replica).log.get(act.version)
        if kind is acts.Checkpoint:
            self.reach(act.replica)
            return world.table(act.replica).checkpoint
        if kind is acts.Put:
            return self.put(act)
        if kind is acts.Supply:
            self.reach(act.replica)
            if act.source is not None:
                self.reach(act.source)
            return world.supply(act.replica, act.content, act.source)
        if kind is acts.End:
            self.reach(act.replica)
            return world.table(act.replica).last
        if kind is acts.Load:
            self.reach(act.replica)
            state = world.table(act.replica).state
            return None if state is None else state.view
        if kind is acts.LookAtController:
            self.reach_controller()
            return world.registered
        if kind is acts.Register:
            self.reach_controller()
            done = world.register(act.before, act.after)
            if world.faulty and world.random() < world.faults.lost:
                raise ControllerError
            return done
        if kind is acts.MakeCheckpoint:
            self.reach(act.replica)
            return world.make_checkpoint(act.replica, act.version)
        if kind is acts.CopyCheckpoint:
            self.reach(act.replica)
            self.reach(act.source)
            return world.copy_checkpoint(act.source, act.replica)
        if kind is acts.Discard:
            self.reach(act.replica)
            return world.discard(act.replica, act.below)
        if kind is acts.NewSeal:
            return Content(f"s{act.registration.epoch}", act.registration.configuration)
        if kind is acts.NewLife:
            world.lives += 1
            return world.lives
        if kind is Call:
            return act.work()
        raise AssertionError(act)

    def reach(self, replica: Replica) -> None:
        world = self.world
        broker = replica.broker
        if broker in world.dead:
            raise UnreachableError(replica)
        if not world.faulty:
            return
        if (self.name, broker) in world.blocked or ("", broker) in world.blocked:
            if world.random() < world.faults.patience:
                # It waits, and in the meantime the way is there again.
                world.blocked.discard((self.name, broker))
                world.blocked.discard(("", broker))
                return
            raise UnreachableError(replica)

    def reach_controller(self) -> None:
        world = self.world
        if world.faulty and ((self.name, 0) in world.blocked or ("", 0) in world.blocked):
            if world.random() < world.faults.patience:
                world.blocked.discard((self.name, 0))
                world.blocked.discard(("", 0))
                return
            raise ControllerError

    def put(self, act: acts.Put) -> bool:
        world = self.world
        self.reach(act.replica)
        if world.faulty and world.random() < world.faults.lost:
            if world.random() < 0.6:
                world.late.append((act.replica, act.version, act.content))  # type: ignore[arg-type]
            else:
                world.put(act.replica, act.version, act.content)  # type: ignore[arg-type]
            raise UnreachableError(act.replica)
        return world.put(act.replica, act.version, act.content)  # type: ignore[arg-type]


class Call(NamedTuple):
    """Something that is not a course's: one step of the world's."""

    work: Callable[[], Any]


# --- what actors do -------------------------------------------------------------------------------


def opening(world: World, *, repair: bool = True) -> Steps:
    """Load the table from what the controller says: its leader, newest checkpoint."""
    registered, view, source = yield from course.finding(repair=repair)
    known: list[Content] = []
    if view is None:
        view = View(world.seals[0], -1)
    else:
        known += world.table(source).state.contents[: view.end + 1]  # type: ignore[union-attr]
    seen: dict[int, Content] = {}
    view = yield from course.following(view, seen, registered)
    if repair:
        view = yield from course.mending(view, course.StaleError(source), seen)
    take(world, known, seen)
    return view, known


def looked(world: World, view: View, known: list[Content]) -> Steps:
    """What is published beyond a view, with a failed leader replaced."""
    seen: dict[int, Content] = {}
    try:
        view = yield from course.following(view, seen)
    except ReplicaError as failed:
        view = yield from course.mending(view, failed, seen)
    take(world, known, seen)
    return view


def take(world: World, known: list[Content], seen: dict[int, Content]) -> None:
    for version in sorted(seen):
        assert version == len(known), "a version was left out"
        known.append(seen[version])


def life_of(view: View) -> int:
    return view.configuration.chain[-1].life


def tell(world: World, view: View, known: list[Content], since: int) -> None:
    """This actor goes by these versions from now on."""
    life = life_of(view)
    for version in range(since, view.end + 1):
        world.publish(version, known[version], life)


def writer(world: World, actor: Actor) -> Steps:
    """Append, settle by id what is in doubt."""
    number = 0
    view: View | None = None
    known: list[Content] = []
    most = actor.memory.get("appends", 6)
    while number < most:
        number += 1
        append_id = f"{actor.name}.{number}"
        content: Content | None = None
        done = False
        for _ in range(12):
            try:
                if view is None:
                    view, known = yield from opening(world)
                    done = any(c.append_id == append_id for c in known)
                before = len(known)
                view = yield from looked(world, view, known)
                done = done or any(c.append_id == append_id for c in known[before:])
                if done:
                    break
                if content is None or any(c.fence for c in known[before:]):
                    world.files += 1
                    content = plan(world, append_id, known)
                before = len(known)
                seen: dict[int, Content] = {}
                view, done = yield from course.appending(view, content, seen)
                take(world, known, seen)
                done = done or any(c.append_id == append_id for c in known[before:])
                if any(c.fence for c in known[before:]):
                    content = None
                if done:
                    break
            except FellBehindError:
                world.counts["behind"] += 1
                view, content = None, None
            except NoReplicaLeftError:
                view, content = None, None
                yield Call(lambda: None)
            except (ReplicaError, ControllerError):
                view, content = None, None
                world.counts["refused"] += 1
        if done:
            assert view is not None
            version = next(n for n, c in enumerate(known) if c.append_id == append_id)
            tell(world, view, known, 0)
            if life_of(view) == world.registered.life:
                world.acknowledged[version] = known[version]
            world.counts["ack"] += 1
            actor.memory["acknowledged"] = True


def plan(world: World, append_id: str, known: list[Content]) -> Content:
    removed = ""
    if world.random() < 0.3:
        live = sorted(live_files(known))
        removed = live[0] if live else ""
    return Content(append_id, None, f"f{world.files}", removed)


def helper(world: World, actor: Actor) -> Steps:
    """Bring replicas back, one after the other."""
    while world.faulty:
        try:
            yield from helped(world, actor)
        except FellBehindError:
            world.counts["behind"] += 1
        except (ReplicaError, ControllerError, NoReplicaLeftError):
            pass


def helped(world: World, actor: Actor) -> Steps:
    view, known = yield from opening(world)
    view = yield from looked(world, view, known)
    registered = yield acts.LookAtController()
    if registered.joining is None:
        if len(registered.chain) >= world.factor:
            return
        absent = [b for b in world.brokers if all(r.broker != b for r in registered.chain)]
        broker = absent[int(world.random() * len(absent))]
    else:
        broker = registered.joining.broker
    yield from joined(world, actor, broker, registered, view, known)


def joined(
    world: World, actor: Actor, broker: int, registered: Registration, view: View, known: list[Content], **how: Any
) -> Steps:
    seen: dict[int, Content] = {}
    try:
        found = yield from joining.joining(broker, registered, view, seen, **how)
    except ReplicaError as failed:
        if registered.joining is None or failed.replica != registered.joining:
            found = yield acts.LookAtController()
            if found.joining is not None and found.joining == failed.replica:
                registered = found
        if registered.joining == failed.replica:
            yield from course.mending(view._replace(configuration=registered.configuration), failed, {})
        return
    if found is None:
        # The log must go on, for instance past what only that replica has.
        world.files += 1
        view, known = yield from opening(world)
        view = yield from looked(world, view, known)
        yield from course.appending(view, Content(f"e{world.files}"), {})
    else:
        world.counts["join"] += 1


def cleaner(world: World, actor: Actor) -> Steps:
    """Clean logs up."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            chain = view.configuration.chain
            replica = chain[int(world.random() * len(chain))]
            yield from joining.cleaning(replica, view, int(world.random() * 3))
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 60)):
            yield Call(lambda: None)


def reader(world: World, actor: Actor) -> Steps:
    """Read what leaders show; it asks the controller who that is, and takes nobody out."""
    shown: list[Content] = []
    life = 0
    while world.faulty:
        try:
            view, known = yield from opening(world, repair=False)
            while True:
                before = len(known)
                seen: dict[int, Content] = {}
                view = yield from course.following(view, seen)
                take(world, known, seen)
                tell(world, view, known, before)
                if life_of(view) == life:
                    both = min(len(shown), len(known))
                    assert known[:both] == shown[:both], "a reader saw the log change"
                if life_of(view) != life or len(known) > len(shown):
                    shown, life = list(known), life_of(view)
                yield Call(lambda: None)
                if world.random() < 0.1:
                    break
        except (FellBehindError, ReplicaError, ControllerError):
            pass


def mover(world: World, actor: Actor) -> Steps:
    """Move the leader: the wanted one leaves, and comes back as the last."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            registered = yield acts.LookAtController()
            if registered.joining is None and len(registered.chain) > 1:
                target = registered.chain[int(world.random() * (len(registered.chain) - 1))]
                left = yield from joining.leaving(target, registered, view, {})
                if left is not None:
                    world.counts["move"] += 1
                    view, known = yield from opening(world)
                    view = yield from looked(world, view, known)
                    registered = yield acts.LookAtController()
                    if all(r.broker != target.broker for r in registered.chain):
                        yield from joined(world, actor, target.broker, registered, view, known, leads=True)
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 200)):
            yield Call(lambda: None)


def vacuum(world: World, actor: Actor) -> Steps:
    """Remove data files that no version names; a fence before makes those plan anew who have put some down."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            registered = yield acts.LookAtController()
            replica = registered.chain[int(world.random() * len(registered.chain))]
            yield acts.Checkpoint(replica)
            there = yield Call(lambda replica=replica: set(world.table(replica).files))
            yield from fenced(world, view, known)
            named = live_files(known)
            for file in sorted(there - named):
                yield acts.Checkpoint(replica)
                yield Call(lambda replica=replica, file=file: world.table(replica).files.discard(file))
            world.counts["vacuum"] += 1
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 100)):
            yield Call(lambda: None)


def fenced(world: World, view: View, known: list[Content]) -> Steps:
    """Make a version without content, and know all up to it."""
    ours = False
    while not ours:
        world.files += 1
        seen: dict[int, Content] = {}
        view, ours = yield from course.appending(view, Content(f"x{world.files}", fence=True), seen)
        take(world, known, seen)


def elector(world: World, actor: Actor) -> Steps:
    """Choose an unclean leader where nobody in sync can be reached, and now and then where that only seems so."""
    while world.faulty:
        try:
            registered = yield acts.LookAtController()
            out = [r for r in world.tables if all(m.broker != r.broker for m in registered.chain)]
            out = [r for r in out if r.life == registered.life]
            gone = all(r.broker in world.dead for r in registered.in_sync)
            if out and (gone or world.random() < 0.5):
                ends = {}
                for replica in out:
                    ends[replica] = yield acts.End(replica)
                chosen = max(ends, key=lambda r: (ends[r], r))
                if ends[chosen] >= 0:
                    yield from joining.choosing_unclean(chosen)
        except (FellBehindError, ReplicaError, ControllerError):
            pass
        for _ in range(int(world.random() * 100)):
            yield Call(lambda: None)


def healer(world: World, actor: Actor) -> Steps:
    """Bring back all that can be brought back."""
    for _ in range(60):
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            registered = yield acts.LookAtController()
            for replica in registered.chain:
                if replica.broker in world.dead:
                    view = yield from course.mending(view, UnreachableError(replica), {})
            registered = yield acts.LookAtController()
            alive = [b for b in world.brokers if b not in world.dead]
            absent = [b for b in alive if all(r.broker != b for r in registered.chain)]
            if registered.joining is not None:
                yield from joined(world, actor, registered.joining.broker, registered, view, known)
            elif absent and len(registered.chain) < world.factor:
                yield from joined(world, actor, absent[0], registered, view, known)
            elif view.configuration == registered.configuration:
                view = yield from looked(world, view, known)
                world.files += 1
                seen: dict[int, Content] = {}
                view, ours = yield from course.appending(view, Content(f"h{world.files}"), seen)
                take(world, known, seen)
                if ours:
                    tell(world, view, known, 0)
                    return
        except (FellBehindError, NoReplicaLeftError, ReplicaError, ControllerError):
            pass


def play(seed: int, steps: int) -> World:
    """One history, to its end."""
    world = World(seed)
    try:
        world.run(steps)
        world.settle()
    except AssertionError as failed:
        message = f"seed {seed}, {steps} steps: {failed}"
        raise AssertionError(message) from failed
    return world


__all__ = ["Content", "OtherBytesError", "World", "play"]
