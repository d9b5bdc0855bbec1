"""Those who act on simulated replicas: writers, helpers, movers, cleaners, readers, who carry out real courses."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import (
    FellBehindError,
    NoReplicaLeftError,
    Registration,
    Replica,
    ReplicaError,
    UnreachableError,
    View,
)
from tests.tools.replica_roots import Content, ControllerError, Roots, Steps, live_files


class Actor:
    """Somebody who carries out one task after the other, and may stop anywhere."""

    __slots__ = (
        "epoch",
        "error",
        "memory",
        "name",
        "proven",
        "send",
        "sleeps",
        "steps",
        "surely_put",
        "throw",
        "unmade",
        "world",
    )

    def __init__(self, world: Roots, name: str, task: Callable[[Roots, Actor], Steps]) -> None:
        self.world = world
        self.name = name
        self.sleeps = 0
        self.memory: dict[str, Any] = {}
        self.unmade: dict[Replica, tuple[int, int]] = {}
        """As `ProtocolRunner` has it: no time passes here, so it holds until clean-up has been there."""
        self.surely_put: dict[Replica, tuple[int, int]] = {}
        self.proven: dict[Replica, dict[int, Content]] = {}
        self.epoch = -1
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
        return CARRIED_OUT[type(act)](self, act)

    def read(self, act: effects.Read) -> Content | None:
        self.reach(act.replica)
        proven = self.proven.get(act.replica, {})
        if act.version in proven:
            return proven[act.version]
        table = self.world.table(act.replica)
        found = table.log.get(act.version)
        if found is None and self.is_sure(act.replica, act.version):
            self.unmade[act.replica] = act.version, table.cleanings
        return found

    def ahead(self, act: effects.Ahead) -> None:
        self.reach(act.replica)
        table = self.world.table(act.replica)
        wanted = [version for version in sorted(table.log) if version > max(act.since, table.checkpoint)]
        self.world.counts["ahead"] += len(wanted[1 : act.most])
        self.proven[act.replica] = {version: table.log[version] for version in wanted[: act.most]}

    def is_sure(self, replica: Replica, version: int) -> bool:
        """Whether clean-up cannot have emptied a version's place."""
        unmade, cleanings = self.unmade.get(replica, (0, -1))
        return version >= unmade and self.world.table(replica).cleanings == cleanings

    def checkpoint(self, act: effects.Checkpoint) -> int:
        self.reach(act.replica)
        table, about = self.world.table(act.replica), act.about
        sure = about is not None and (
            self.is_sure(act.replica, about)
            or self.surely_put.get(act.replica) == (about, table.cleanings)
            or about in self.proven.get(act.replica, ())
        )
        if about is not None and sure:
            return min(table.checkpoint, about - 1)
        self.unmade[act.replica] = max(table.last, table.checkpoint) + 1, table.cleanings
        return table.checkpoint

    def supply(self, act: effects.Supply) -> None:
        self.reach(act.replica)
        if act.source is not None:
            self.reach(act.source)
        self.world.supply(act.replica, act.content, act.source, partly=act.partly)  # type: ignore[arg-type]

    def end(self, act: effects.End) -> int:
        self.reach(act.replica)
        return self.world.table(act.replica).last

    def load(self, act: effects.Load) -> View | None:
        self.reach(act.replica)
        state = self.world.table(act.replica).state
        return None if state is None else state.view

    def look_at_controller(self, _act: effects.LookAtController) -> Registration:
        self.reach_controller()
        self.note_epoch(self.world.registered.epoch)
        return self.world.registered

    def note_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            # A replica that left and came back has a checkpoint over what it lacks.
            self.epoch = epoch
            self.unmade.clear()
            self.surely_put.clear()
            self.proven.clear()

    def register(self, act: effects.Register) -> bool:
        self.reach_controller()
        done = self.world.register(act.before, act.after)
        if self.world.faulty and self.world.random() < self.world.faults.lost:
            raise ControllerError
        return done

    def make_checkpoint(self, act: effects.MakeCheckpoint) -> None:
        self.reach(act.replica)
        self.world.make_checkpoint(act.replica, act.version)

    def copy_checkpoint(self, act: effects.CopyCheckpoint) -> int:
        self.reach(act.replica)
        self.reach(act.source)
        return self.world.copy_checkpoint(act.source, act.replica, partly=act.partly)

    def counts(self, act: effects.Counts) -> bool:
        if self.is_sure(act.replica, act.version) or act.version in self.proven.get(act.replica, ()):
            return True
        self.reach(act.replica)
        return self.world.table(act.replica).counts(act.version)

    def discard(self, act: effects.Discard) -> None:
        self.reach(act.replica)
        self.world.discard(act.replica, act.below)

    def new_seal(self, act: effects.NewSeal) -> Content:
        return Content(f"s{act.registration.epoch}", act.registration.configuration, removed=act.lost)

    def missing(self, act: effects.Missing) -> tuple[str, ...]:
        self.reach(act.replica)
        return self.world.missing(act.replica)

    def fill(self, act: effects.Fill) -> None:
        self.reach(act.replica)
        self.reach(act.source)
        self.world.fill(act.replica, act.source)

    def new_life(self, _act: effects.NewLife) -> int:
        self.world.lives += 1
        return self.world.lives

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

    def put(self, act: effects.Put) -> bool:
        world = self.world
        self.reach(act.replica)
        if world.faulty and world.random() < world.faults.lost:
            if world.random() < 0.6:
                world.late.append((act.replica, act.version, act.content))  # type: ignore[arg-type]
            else:
                world.put(act.replica, act.version, act.content)  # type: ignore[arg-type]
            raise UnreachableError(act.replica)
        made = world.put(act.replica, act.version, act.content)  # type: ignore[arg-type]
        if made and self.is_sure(act.replica, act.version):
            cleanings = world.table(act.replica).cleanings
            self.surely_put[act.replica] = act.version, cleanings
            self.unmade[act.replica] = act.version + 1, cleanings
        return made


class Call(NamedTuple):
    """Something that is not a course's: one step of the world's."""

    work: Callable[[], Any]


CARRIED_OUT: dict[type, Callable[[Actor, Any], Any]] = {
    effects.Read: Actor.read,
    effects.Ahead: Actor.ahead,
    effects.Put: Actor.put,
    effects.Checkpoint: Actor.checkpoint,
    effects.Supply: Actor.supply,
    effects.End: Actor.end,
    effects.Load: Actor.load,
    effects.LookAtController: Actor.look_at_controller,
    effects.Register: Actor.register,
    effects.MakeCheckpoint: Actor.make_checkpoint,
    effects.CopyCheckpoint: Actor.copy_checkpoint,
    effects.Counts: Actor.counts,
    effects.Discard: Actor.discard,
    effects.NewSeal: Actor.new_seal,
    effects.Missing: Actor.missing,
    effects.Fill: Actor.fill,
    effects.NewLife: Actor.new_life,
    Call: lambda _actor, act: act.work(),
}


# --- what actors do -------------------------------------------------------------------------------


def opening(world: Roots, *, repair: bool = True) -> Steps:
    """Load the table; all versions, as what a checkpoint says is kept here."""
    seen: dict[int, Any] = {}
    view, loaded, source = yield from protocol.opening(seen, repair=repair)
    known: list[Content] = []
    if loaded is not None:
        known += world.table(source).state.contents[: loaded.end + 1]  # type: ignore[union-attr]
    take(world, known, seen)
    return view, known


def looked(world: Roots, view: View, known: list[Content]) -> Steps:
    """What is published beyond a view, with a failed leader replaced."""
    seen: dict[int, Any] = {}
    try:
        view = yield from protocol.following(view, seen)
    except ReplicaError as failed:
        view = yield from protocol.mending(view, failed, seen)
    take(world, known, seen)
    return view


def take(world: Roots, known: list[Content], seen: dict[int, Any]) -> None:
    for version in sorted(seen):
        assert version == len(known), "a version was left out"
        known.append(seen[version])


def life_of(view: View) -> int:
    return view.configuration.chain[-1].life


def tell(world: Roots, view: View, known: list[Content], since: int) -> None:
    """This actor goes by these versions from now on."""
    life = life_of(view)
    for version in range(since, view.end + 1):
        world.publish(version, known[version], life)


def writer(world: Roots, actor: Actor) -> Steps:  # noqa: C901
    """Append, settle by id what is in doubt."""
    number = 0
    view: View | None = None
    known: list[Content] = []
    most = actor.memory.get("appends", 6)
    while number < most and (world.faulty or actor.name == "last"):
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
                seen: dict[int, Any] = {}
                view, done = yield from protocol.appending(view, content, seen)
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
        if done and view is not None:
            version = next(n for n, c in enumerate(known) if c.append_id == append_id)
            tell(world, view, known, 0)
            if world.is_true(life_of(view)):
                world.acknowledged[version] = known[version]
            world.counts["ack"] += 1
            actor.memory["acknowledged"] = True


def plan(world: Roots, append_id: str, known: list[Content]) -> Content:
    removed: tuple[str, ...] = ()
    if world.random() < 0.3:
        removed = tuple(sorted(live_files(known))[:1])
    return Content(append_id, None, f"f{world.files}", removed)


def helper(world: Roots, actor: Actor) -> Steps:
    """Bring replicas back, one after the other."""
    while world.faulty:
        try:
            yield from helped(world, actor)
        except FellBehindError:
            world.counts["behind"] += 1
        except (ReplicaError, ControllerError, NoReplicaLeftError):
            pass


def helped(world: Roots, actor: Actor) -> Steps:
    view, known = yield from opening(world)
    view = yield from looked(world, view, known)
    registered = yield effects.LookAtController()
    if registered.joining is None:
        if len(registered.chain) >= world.factor:
            return
        absent = [b for b in world.brokers if all(r.broker != b for r in registered.chain)]
        broker = absent[int(world.random() * len(absent))]
    else:
        broker = registered.joining.broker
    yield from joined(world, actor, broker, registered, view, known)


def joined(
    world: Roots, actor: Actor, broker: int, registered: Registration, view: View, known: list[Content], **how: Any
) -> Steps:
    seen: dict[int, Any] = {}
    try:
        found = yield from isr_changes.joining(broker, registered, view, seen, **how)
    except ReplicaError as failed:
        if registered.joining is None or failed.replica != registered.joining:
            found = yield effects.LookAtController()
            if found.joining is not None and found.joining == failed.replica:
                registered = found
        if registered.joining == failed.replica:
            yield from protocol.mending(view._replace(configuration=registered.configuration), failed, {})
        return
    if found is None:
        # The log must go on, for instance past what only that replica has.
        world.files += 1
        view, known = yield from opening(world)
        view = yield from looked(world, view, known)
        yield from protocol.appending(view, Content(f"e{world.files}"), {})
    else:
        world.counts["join"] += 1


def cleaner(world: Roots, actor: Actor) -> Steps:
    """Clean logs up."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            chain = view.configuration.chain
            replica = chain[int(world.random() * len(chain))]
            yield from isr_changes.cleaning(replica, view, int(world.random() * 3))
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 60)):
            yield Call(lambda: None)


def reader(world: Roots, actor: Actor) -> Steps:
    """Read what leaders show; it asks the controller who that is, and takes nobody out."""
    shown: list[Content] = []
    lineage = 0
    while world.faulty:
        try:
            view, known = yield from opening(world, repair=False)
            while True:
                before = len(known)
                seen: dict[int, Any] = {}
                view = yield from protocol.following(view, seen)
                take(world, known, seen)
                tell(world, view, known, before)
                found = world.lineages[life_of(view)]
                if found == lineage:
                    both = min(len(shown), len(known))
                    assert known[:both] == shown[:both], "a reader saw the log change"
                if found != lineage or len(known) > len(shown):
                    shown, lineage = list(known), found
                yield Call(lambda: None)
                if world.random() < 0.1:
                    break
        except (FellBehindError, ReplicaError, ControllerError):
            pass


def late_reader(world: Roots, actor: Actor) -> Steps:
    """Read versions one by one that this process has known to be published for long; asks the controller seldom.

    It helps now and then, and remembers what it has seen of logs meanwhile.
    """
    while world.faulty:
        try:
            if world.random() < 0.2:
                yield from helped(world, actor)
            view, known = yield from opening(world, repair=False)
            tell(world, view, known, 0)
            registered = yield effects.LookAtController()
            while world.faulty:
                for _ in range(int(world.random() * 20)):
                    yield Call(lambda: None)
                if world.random() < 0.5:
                    registered = yield effects.LookAtController()
                if view.configuration.epoch < registered.lineage:
                    break
                view = yield from protocol.following(view, {}, registered)
                # A table of this process that is that far.
                for version in range(int(world.random() * (view.end + 1)), view.end + 1):
                    actor.note_epoch(max(registered.epoch, view.configuration.epoch))
                    content = yield from protocol.looking_up(version, view, registered)
                    if content is None:
                        asked = {*registered.in_sync, view.configuration.leader}
                        assert any(world.table(r).checkpoint >= version for r in asked), (version, "is nowhere")
                        break
                    world.counts["looked up"] += 1
                    world.publish(version, content, life_of(view))  # type: ignore[arg-type]
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass


def mover(world: Roots, actor: Actor) -> Steps:
    """Move the leader: the wanted one leaves, and comes back as the last."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            registered = yield effects.LookAtController()
            if registered.joining is None and len(registered.chain) > 1:
                target = registered.chain[int(world.random() * (len(registered.chain) - 1))]
                left = yield from isr_changes.leaving(target, registered, view, {})
                if left is not None:
                    world.counts["move"] += 1
                    view, known = yield from opening(world)
                    view = yield from looked(world, view, known)
                    registered = yield effects.LookAtController()
                    if all(r.broker != target.broker for r in registered.chain):
                        yield from joined(world, actor, target.broker, registered, view, known, leads=True)
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 200)):
            yield Call(lambda: None)


def vacuum(world: Roots, actor: Actor) -> Steps:
    """Remove data files that no version names; a fence before makes those plan anew who have put some down."""
    while world.faulty:
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            # By the view, not by what the controller says meanwhile: that may be about another log.
            chain = view.configuration.chain
            replica = chain[int(world.random() * len(chain))]
            yield effects.Checkpoint(replica)
            files = world.table(replica).files
            there = yield Call(files.copy)
            yield from fenced(world, view, known)
            for file in sorted(there - live_files(known)):
                yield effects.Checkpoint(replica)
                yield Call(partial(files.discard, file))
            world.counts["vacuum"] += 1
        except (FellBehindError, ReplicaError, ControllerError, NoReplicaLeftError):
            pass
        for _ in range(int(world.random() * 100)):
            yield Call(lambda: None)


def emptier(world: Roots, actor: Actor) -> Steps:
    """Remove the data files of replicas that are out, and will not come back under their names."""
    while world.faulty:
        try:
            registered = yield effects.LookAtController()
            out = [r for r in world.tables if all(m.broker != r.broker for m in registered.chain)]
            if out:
                chosen = out[int(world.random() * len(out))]
                yield from given_up(world, chosen)
                registered = yield effects.LookAtController()
                for file in sorted(world.table(chosen).files):
                    if may_be_emptied(registered, chosen):
                        yield effects.End(chosen)
                        yield Call(partial(world.table(chosen).files.discard, file))
        except (FellBehindError, ReplicaError, ControllerError):
            pass
        for _ in range(int(world.random() * 100)):
            yield Call(lambda: None)


def given_up(world: Roots, chosen: Replica) -> Steps:
    """Say that a replica will not come back under its name."""
    if (yield from isr_changes.giving_up(chosen.broker)) is not None:
        world.counts["given up"] += 1


def may_be_emptied(registered: Registration, replica: Replica) -> bool:
    """Whether a replica is not in the chain, and will not be."""
    return replica not in registered.chain and replica != registered.name(replica.broker)


def fenced(world: Roots, view: View, known: list[Content]) -> Steps:
    """Make a version without content, and know all up to it."""
    ours = False
    while not ours:
        world.files += 1
        seen: dict[int, Any] = {}
        view, ours = yield from protocol.appending(view, Content(f"x{world.files}", fence=True), seen)
        take(world, known, seen)


def elector(world: Roots, actor: Actor) -> Steps:
    """Choose an unclean leader where nobody in sync can be reached, and now and then where that only seems so."""
    while world.faulty:
        try:
            registered = yield effects.LookAtController()
            out = [r for r in world.tables if all(m.broker != r.broker for m in registered.chain)]
            out = [r for r in out if r == registered.name(r.broker)]
            gone = all(r.broker in world.dead for r in registered.in_sync)
            if out and (gone or world.random() < 0.5):
                ends = {}
                for replica in out:
                    ends[replica] = yield effects.End(replica)
                chosen = max(ends, key=lambda r: (ends[r], r))
                if ends[chosen] >= 0:
                    yield from isr_changes.choosing_unclean(chosen)
        except (FellBehindError, ReplicaError, ControllerError):
            pass
        for _ in range(int(world.random() * 100)):
            yield Call(lambda: None)


def healer(world: Roots, actor: Actor) -> Steps:
    """Bring back all that can be brought back."""
    for _ in range(60):
        try:
            view, known = yield from opening(world)
            view = yield from looked(world, view, known)
            registered = yield effects.LookAtController()
            for replica in registered.chain:
                if replica.broker in world.dead:
                    view = yield from protocol.mending(view, UnreachableError(replica), {})
            registered = yield effects.LookAtController()
            alive = [b for b in world.brokers if b not in world.dead]
            absent = [b for b in alive if all(r.broker != b for r in registered.chain)]
            if registered.joining is not None:
                yield from joined(world, actor, registered.joining.broker, registered, view, known)
            elif absent and len(registered.chain) < world.factor:
                yield from joined(world, actor, absent[0], registered, view, known)
            elif view.configuration == registered.configuration:
                view = yield from looked(world, view, known)
                world.files += 1
                seen: dict[int, Any] = {}
                view, ours = yield from protocol.appending(view, Content(f"h{world.files}"), seen)
                take(world, known, seen)
                if ours:
                    tell(world, view, known, 0)
                    return
        except (FellBehindError, NoReplicaLeftError, ReplicaError, ControllerError):
            pass
