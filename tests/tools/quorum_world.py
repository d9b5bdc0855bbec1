"""Voters of the metadata under a seeded scheduler: clients, cleaners, takeovers, one act at a time.

The obligations are checked here against a book that shares no code with the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from random import Random
from typing import Any, NamedTuple

from kafkalike.model.replication import quorum_protocol, registers, takeover
from kafkalike.model.replication.quorum_protocol import VoterFellBehindError, looking, putting
from kafkalike.model.replication.registers import NoMajorityError, SlotState, UnreachableVoterError, VotersReplacedError
from kafkalike.model.replication.takeover import OtherTakeoverError, VoterSet, taking_over
from tests.tools.histories import played

Steps = Generator[Any, Any, Any]


class Voter(NamedTuple):
    """A root, as a voter of one set."""

    root: int
    epoch: int


class Content(NamedTuple):
    """What a version's file holds."""

    name: str
    opens: int | None = None


class StoreFile(NamedTuple):
    """Give a voter a client's own data file, before its version is put."""

    voter: Voter
    file: str


class FindVoters(NamedTuple):
    """The newest set that any root in reach names."""


class Clean(NamedTuple):
    """Make a checkpoint at a voter, or remove what is below it."""

    voter: Voter
    what: str
    version: int


class Root:
    """A folder."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Voter, int], list[Any]] = {}
        self.log: dict[int, Content] = {}
        self.checkpoint = -1
        self.files: set[str] = set()
        self.marks: dict[int, VoterSet] = {}
        self.open: set[int] = set()
        self.closed: set[int] = set()
        """Of which sets it votes no more, for ever."""

    @property
    def last(self) -> int:
        return max((self.checkpoint, *self.log))


class Client:
    """Somebody at work: a course after the other."""

    def __init__(self, world: Voters, name: str, task: Callable[[Voters, Client], Steps]) -> None:
        self.world, self.name = world, name
        self.steps = task(world, self)
        self.send: Any = None
        self.sleeps = 0
        self.done = False
        self.nones = 0
        """Open voters that have said in this look that they do not have the version."""
        self.cleaned = False
        """Whether one of them had it once."""

    def step(self) -> None:
        if self.done:
            return
        try:
            act = self.steps.send(self.send)
            while True:
                try:
                    self.send = self.world.carry_out(self, act)
                except UnreachableVoterError as failed:
                    act = self.steps.throw(failed)
                else:
                    return
        except StopIteration:
            self.done = True


class Voters:
    """Everything.

    Args:
        seed: says all that happens.
    """

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        chance = self.chance
        self.size = chance.choice((3, 3, 3, 5))
        self.roots = [Root() for _ in range(self.size + 1)]
        first = VoterSet(0, tuple(Voter(n, 0) for n in range(self.size)))
        for voter in first.voters:
            self.roots[voter.root].marks[0] = first
            self.roots[voter.root].open.add(0)
        self.sets = {0: first}
        self.truth: dict[int, Content] = {}
        self.refused: set[str] = set()
        self.acked: dict[str, int] = {}
        self.newest_shown = -1
        self.names = 0
        self.late: list[Any] = []
        self.blocked: set[tuple[str, int]] = set()
        self.lost = chance.choice((0.0, 0.03, 0.1))
        self.dead: set[int] = set()
        self.may_die = chance.random() < 0.3
        self.faulty = True
        self.counts: Counter[str] = Counter()
        self.clients = [Client(self, f"w{n}", writer) for n in range(chance.choice((1, 2, 3)))]
        self.clients += [Client(self, "r", reader), Client(self, "c", cleaner)]
        if chance.random() < 0.5:
            self.clients.append(Client(self, "t", taker))
            if chance.random() < 0.5:
                self.clients.append(Client(self, "u", taker))

    # --- the schedule ------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        chance, tick = self.chance, 0
        while tick < steps:
            tick += 1
            client = chance.choice(self.clients)
            if client.sleeps > tick:
                continue
            for _ in range(chance.choice((1, 1, 3, 10, 30))):
                tick += 1
                client.step()
                if chance.random() < 0.01:
                    client.sleeps = tick + int(10 ** (3 * chance.random()))
                    break
            if self.late and chance.random() < 0.05:
                self.land(self.late.pop(chance.randrange(len(self.late))))
            if chance.random() < 0.03:
                way = chance.choice(self.clients).name, chance.randrange(len(self.roots))
                self.blocked ^= {way}
                if len(self.blocked) > 4:
                    self.blocked.discard(chance.choice(sorted(self.blocked)))
            if self.may_die and chance.random() < 0.002 and not self.dead:
                self.dead.add(chance.randrange(len(self.roots)))

    def settle(self) -> None:
        """No more faults: everything goes on, and is the same everywhere."""
        while self.late:
            self.land(self.late.pop())
        self.faulty = False
        self.blocked.clear()
        for client in self.clients:
            client.sleeps = 0
        for _ in range(4_000):
            for client in self.clients:
                if client.name in {"t", "u"} and not client.done:
                    client.step()
        last = Client(self, "last", last_writer)
        for _ in range(6_000):
            last.step()
        newest = self.sets[max(self.sets)]
        votes = sum(v.root not in self.dead and v.epoch in self.roots[v.root].open for v in newest.voters)
        assert last.done or votes < registers.majority(self.size), "nobody can write though a majority is there"
        self.counts["stuck"] += not last.done
        for name, version in self.acked.items():
            assert self.truth[version].name == name, (name, version, "was acknowledged, and is not there")

    # --- acts ----------------------------------------------------------------------------------------

    def carry_out(self, client: Client, act: Any) -> Any:
        if isinstance(act, registers.ProposalBackoff):
            return None
        if isinstance(act, quorum_protocol.NewProposer):
            return self.new_name(client)
        if isinstance(act, FindVoters):
            return self.find_voters(client)
        if isinstance(act, takeover.NewRecord):
            return Content(self.new_name(client), act.after.epoch)
        voter = act.voter
        if voter.root in self.dead or (client.name, voter.root) in self.blocked:
            raise UnreachableVoterError
        if self.faulty and self.chance.random() < self.lost:
            if isinstance(act, (registers.PutRequest, quorum_protocol.PutVersion)):
                self.late.append(act)
            elif self.chance.random() < 0.5:
                self.do(client, act)
            raise UnreachableVoterError
        return self.do(client, act)

    def new_name(self, client: Client) -> str:
        self.names += 1
        return f"{client.name}.{self.names}"

    def land(self, act: Any) -> None:
        if act.voter.root not in self.dead:
            self.counts["late"] += 1
            self.do(None, act)

    def find_voters(self, client: Client) -> VoterSet | None:
        found = [
            mark
            for n, root in enumerate(self.roots)
            if n not in self.dead and (client.name, n) not in self.blocked
            for mark in root.marks.values()
        ]
        return max(found, default=None)

    def do(self, client: Client | None, act: Any) -> Any:  # noqa: C901, PLR0911, PLR0912 - one branch for each act
        root = self.roots[act.voter.root]
        known = act.voter.epoch in root.marks
        if isinstance(act, registers.ReadRow):
            return root.rows.get((act.voter, act.slot), [])[act.since :]
        if isinstance(act, registers.PutRequest):
            row = root.rows.setdefault((act.voter, act.slot), [])
            if act.place > len(row):
                # Its row was removed meanwhile: the file is there, behind a gap, and nobody reads it.
                return True
            if act.place < len(row):
                return False
            row.append(act.request)
            return True
        if isinstance(act, registers.Stand):
            if known and act.slot < 0:
                return SlotState()
            if not known or not (act.opening or act.voter.epoch in root.open):
                raise UnreachableVoterError
            closed = root.checkpoint >= act.slot or any(version >= act.slot for version in root.log)
            return SlotState(closed, max(root.marks) > act.voter.epoch)
        if isinstance(act, quorum_protocol.ReadVersion):
            found = root.log.get(act.version)
            if found is None and act.voter.epoch not in root.open:
                raise UnreachableVoterError
            if found is None and client is not None:
                client.nones += 1
                client.cleaned |= root.checkpoint >= act.version
            return found
        if isinstance(act, quorum_protocol.LastVersion):
            if not known:
                raise UnreachableVoterError
            return root.last
        if isinstance(act, quorum_protocol.PutVersion):
            return self.put_version(root, act)
        if isinstance(act, quorum_protocol.SupplyVersion):
            return self.supply(client, root, act)
        if isinstance(act, quorum_protocol.CopyVoterCheckpoint):
            return self.copy_checkpoint(client, root, act)
        if isinstance(act, StoreFile):
            if not known:
                raise UnreachableVoterError
            root.files.add(act.file)
        if isinstance(act, takeover.PutMark):
            if act.voter.epoch < act.after.epoch and not known:
                raise UnreachableVoterError
            mark = root.marks.setdefault(act.after.epoch, act.after)
            assert self.sets.setdefault(mark.epoch, mark) == mark, "two sets of one epoch"
            root.closed |= {epoch for epoch in root.marks if epoch < mark.epoch}
            root.open -= root.closed
            return mark
        if isinstance(act, takeover.OpenVoter):
            if act.epoch not in root.closed:
                root.open.add(act.epoch)
            self.counts["opened"] += 1
        if isinstance(act, Clean):
            self.clean(root, act)
        return None

    def put_version(self, root: Root, act: Any) -> None:
        version, content = act.version, act.content
        if version in root.log or root.checkpoint >= version:
            return
        assert root.last >= version - 1, "a version is put behind a gap"
        assert content.opens is not None or content.name in root.files, "a version names data that are not there"
        known = self.truth.setdefault(version, content)
        assert known == content, (version, known, content, "two contents")
        assert content.name not in self.refused, (content, "was refused")
        root.log[version] = content

    def supply(self, client: Client | None, root: Root, act: Any) -> None:
        if act.content.opens is not None or act.content.name in root.files:
            return
        for voter in act.sources:
            there = voter.root not in self.dead and client and (client.name, voter.root) not in self.blocked
            if there and act.content.name in self.roots[voter.root].files:
                root.files.add(act.content.name)
                return
        raise UnreachableVoterError

    def copy_checkpoint(self, client: Client | None, root: Root, act: Any) -> int:
        source = self.roots[act.source.root]
        there = act.source.root not in self.dead and client and (client.name, act.source.root) not in self.blocked
        if not there:
            raise UnreachableVoterError
        if source.checkpoint > root.checkpoint:
            root.files |= {self.truth[v].name for v in range(source.checkpoint + 1) if self.truth[v].opens is None}
            root.checkpoint = source.checkpoint
            self.counts["copied"] += 1
        return int(source.checkpoint)

    def clean(self, root: Root, act: Clean) -> None:
        if act.what == "checkpoint":
            assert all(v in root.log for v in range(root.checkpoint + 1, act.version + 1)), "a hole"
            root.checkpoint = max(root.checkpoint, act.version)
            self.counts["checkpoint"] += 1
        elif act.what == "sweep":
            for _, slot in list(root.rows):
                if 0 <= slot <= act.version:
                    root.rows = {key: row for key, row in root.rows.items() if key[1] != slot}
                    break
        else:
            root.log = {v: content for v, content in root.log.items() if v > act.version}


# --- those at work -----------------------------------------------------------------------------------


def loaded(world: Voters, voters: VoterSet) -> Steps:
    """The newest version that voters in reach have; that of a majority counts as shown."""
    lasts = []
    for voter in voters.voters:
        try:
            lasts.append((yield quorum_protocol.LastVersion(voter)))
        except UnreachableVoterError:
            continue
    last = max(lasts, default=None)
    if last is not None and last >= 0 and len(lasts) >= registers.majority(len(voters.voters)):
        try:
            yield from quorum_protocol.confirming(last, voters.voters)
        except NoMajorityError:
            return None
        world.newest_shown = max(world.newest_shown, last)
    return last


def seen(world: Voters, client: Client, end: int, voters: VoterSet) -> Steps:
    """Look for news until there are none."""
    while True:
        floor, client.nones, client.cleaned = world.newest_shown, 0, False
        content = yield from looking(end + 1, voters.voters)
        if content is None:
            sure = client.nones >= len(voters.voters) // 2 + 1 and not client.cleaned
            assert not sure or floor <= end, (client.name, end, floor, "was shown or acknowledged, and is not there")
            return end
        assert world.truth[end + 1] == content
        end += 1
        world.newest_shown = max(world.newest_shown, end)


def opened(world: Voters) -> Steps:
    while True:
        voters = yield FindVoters()
        if voters is None:
            continue
        end = yield from loaded(world, voters)
        if end is not None:
            return voters, end


def writer(world: Voters, client: Client) -> Steps:
    voters, end = yield from opened(world)
    while True:
        try:
            end = yield from seen(world, client, end, voters)
            yield from written(world, client, end, voters)
        except (NoMajorityError, VotersReplacedError, VoterFellBehindError):
            voters, end = yield from opened(world)
        if world.chance.random() < 0.1:
            voters, end = yield from opened(world)


def written(world: Voters, client: Client, end: int, voters: VoterSet) -> Steps:
    content, stored = Content(world.new_name(client)), 0
    for voter in voters.voters:
        try:
            yield StoreFile(voter, content.name)
        except UnreachableVoterError:
            continue
        stored += 1
    if stored < registers.majority(len(voters.voters)):
        raise NoMajorityError
    found = yield from putting(end + 1, content, voters.voters)
    if found == content:
        world.acked[content.name] = end + 1
        world.newest_shown = max(world.newest_shown, end + 1)
        world.counts["ack"] += 1
    else:
        world.counts["refused"] += 1
        world.refused.add(content.name)
        assert content not in world.truth.values()


def last_writer(world: Voters, client: Client) -> Steps:
    while not world.counts["last"]:
        voters, end = yield from opened(world)
        try:
            end = yield from seen(world, client, end, voters)
            yield from written(world, client, end, voters)
        except (NoMajorityError, VotersReplacedError, VoterFellBehindError):
            continue
        world.counts["last"] += any(name.startswith("last.") for name in world.acked)


def reader(world: Voters, client: Client) -> Steps:
    voters, end = yield from opened(world)
    while True:
        try:
            end = yield from seen(world, client, end, voters)
        except NoMajorityError:
            voters, end = yield from opened(world)
        if world.chance.random() < 0.2:
            voters, end = yield from opened(world)
        yield registers.ProposalBackoff(0)


def cleaner(world: Voters, client: Client) -> Steps:
    while True:
        voters, _ = yield from opened(world)
        voter = world.chance.choice(voters.voters)
        try:
            last = yield quorum_protocol.LastVersion(voter)
            if last < 0 or world.chance.random() < 0.5:
                continue
            yield Clean(voter, "checkpoint", last)
            for _ in range(world.chance.randrange(8)):
                yield Clean(voter, "sweep", last)
            if world.chance.random() < 0.5:
                yield Clean(voter, "log", last - world.chance.randrange(3))
        except UnreachableVoterError:
            continue


def taker(world: Voters, client: Client) -> Steps:
    """Has one voter replaced by the root that is none, and ends what others began."""
    for _ in range(world.chance.choice((1, 2))):
        before, _ = yield from opened(world)
        # Where it was not ended, it is ended by the same course.
        after = None
        votes = sum(before.epoch in world.roots[v.root].open for v in before.voters)
        if before.epoch and votes < registers.majority(len(before.voters)):
            before, after = world.sets[before.epoch - 1], before
        else:
            spare = next(n for n in range(len(world.roots)) if n not in {v.root for v in before.voters})
            gone = world.chance.choice(before.voters)
            dead = [v for v in before.voters if v.root in world.dead]
            gone = dead[0] if dead else gone
            if spare in world.dead:
                return
            roots = [v.root for v in before.voters if v != gone] + [spare]
            after = VoterSet(before.epoch + 1, tuple(Voter(n, before.epoch + 1) for n in roots))
        while True:
            try:
                yield from taking_over(before, after)
            except OtherTakeoverError as other:
                after = other.after
            except (NoMajorityError, UnreachableVoterError):
                pass
            except VotersReplacedError:
                break
            else:
                world.counts["takeover"] += 1
                break
            yield registers.ProposalBackoff(0)


def play(seed: int, steps: int) -> Voters:
    """One history, to its end."""
    return played(Voters(seed), seed, steps)
