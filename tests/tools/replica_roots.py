"""Roots, the controller, and a book of what was shown: the storage of the simulated replicas.

The obligations are checked here when they could break, against a book that shares no code with the rules: what was
published or acknowledged, and by whom.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any, Final, NamedTuple

from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication.registration import (
    Configuration,
    Registration,
    Replica,
    Span,
    UnreachableError,
    View,
    begun,
    compared,
    counts,
    holding,
)

Steps = Generator[Any, Any, Any]

BEHIND: Final = 1
"""Which of four histories has somebody who reads versions long after others. By the seed: those that are known to show
a rare fault go on to show it."""


class Content(NamedTuple):
    """What a version's file holds."""

    append_id: str
    configuration: Configuration | None = None
    file: str = ""
    """The data file that it adds."""
    removed: tuple[str, ...] = ()
    """The data files that it takes out."""
    fence: bool = False


class Table:
    """A replica on its root."""

    __slots__ = ("checkpoint", "cleanings", "files", "last", "log", "notes", "state")

    def __init__(self) -> None:
        self.log: dict[int, Content] = {}
        self.last = -1
        self.checkpoint = -1
        self.notes: list[Span] = []
        """Which of its own versions do not count."""
        self.cleanings = 0
        """How often clean-up has removed versions."""
        self.state: State | None = None
        """What the checkpoint says."""
        self.files: set[str] = set()

    def counts(self, version: int) -> bool:
        """Whether one of its own versions does."""
        return counts(version, self.notes, self.checkpoint)


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
        live.difference_update(content.removed)
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


class Roots:
    """All but those who act.

    Args:
        seed: says all that happens.
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
            unclean=chance.random() < 0.25,
        )
        self.faulty = True
        self.behind = seed % 4 == BEHIND
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
        self.lineages = {0: 0}
        """Which log replicas of a life have: the epoch of the unclean election that it began with."""
        self.files = 0
        self.tick = 0
        self.late: list[tuple[Replica, int, Content]] = []
        """Puts whose answer was lost, and which have not happened yet."""
        self.late_registers: list[effects.Register] = []
        # The book.
        self.truth: dict[int, Content] = {0: first}
        """What was published, by version."""
        self.acknowledged: dict[int, Content] = {}
        self.lost: dict[int, list[Content]] = {}
        """What an unclean election gave up."""
        self.seals: dict[int, Configuration] = {0: first.configuration}  # type: ignore[dict-item]
        self.told: dict[str, str] = {}
        self.counts = dict.fromkeys(
            (
                *("ack", "epoch", "join", "unclean", "files", "late", "behind", "clean", "refused", "evict", "vacuum"),
                "ahead",
                "move",
                "given up",
                "looked up",
                "compared",
            ),
            0,
        )

    def table(self, replica: Replica) -> Table:
        found = self.tables.get(replica)
        if found is None:
            found = self.tables[replica] = Table()
        return found

    # --- acts --------------------------------------------------------------------------------------

    def put(self, replica: Replica, version: int, content: Content) -> bool:
        table = self.table(replica)
        if version in table.log:
            return False
        before = version - 1 in table.log or version == 0
        assert before or table.checkpoint >= version - 1, (replica, version, "is put after a hole")
        table.log[version] = content
        table.last = max(table.last, version)
        if content.configuration is not None and replica.life in self.lineages:
            seal = self.seals.setdefault(content.configuration.epoch, content.configuration)
            assert seal == content.configuration, (content, "two configurations of an epoch")
        return True

    def supply(self, replica: Replica, content: Content, source: Replica | None, *, partly: bool) -> None:
        if not content.file:
            return
        if source is not None and content.file not in self.table(source).files:
            self.check_lacking(source, content.file, partly=partly)
            return
        self.table(replica).files.add(content.file)

    def make_checkpoint(self, replica: Replica, version: int) -> None:
        table = self.table(replica)
        if table.checkpoint >= version:
            return
        table.state = self.state_of(table, version)
        table.checkpoint = version
        if self.is_true(replica.life):
            for number, content in enumerate(table.state.contents):
                assert self.truth.get(number, content) == content, (replica, number, "a checkpoint of something else")

    def missing(self, replica: Replica) -> tuple[str, ...]:
        """Live files of a replica's log that it lacks."""
        table = self.table(replica)
        return tuple(sorted(live_files(self.contents_of(table)) - table.files))

    def fill(self, replica: Replica, source: Replica) -> None:
        """Bring what it lacks."""
        missing, there = set(self.missing(replica)), self.table(source).files
        for file in sorted(missing - there):
            self.check_lacking(source, file, partly=False)
        self.table(replica).files |= missing & there
        self.finish_notes(self.table(replica), self.table(source))

    def check_lacking(self, source: Replica, file: str, *, partly: bool) -> None:
        """A source that is asked for a file, and lacks it."""
        registered = self.registered
        if source not in registered.chain and source != registered.name(source.broker):
            # It was given up, and this helper is late: somebody in sync is asked, or the copy fails.
            raise UnreachableError(source)
        assert partly or self.is_dead(source, file), (source, file, "was removed, and is to be copied")

    def contents_of(self, table: Table) -> tuple[Content, ...]:
        return self.state_of(table, table.last).contents

    def state_of(self, table: Table, version: int) -> State:
        base = table.state or State(View(Configuration(0, self.seals[0].chain), -1), ())
        view, contents = base.view, list(base.contents)
        for number in range(view.end + 1, version + 1):
            content = table.log[number]
            contents.append(content)
            view = view.after(content)
        return State(view, tuple(contents))

    def copy_checkpoint(self, source: Replica, replica: Replica, *, partly: bool) -> int:
        mine, theirs = self.table(replica), self.table(source)
        if theirs.checkpoint > mine.checkpoint:
            assert theirs.state is not None
            live = theirs.state.live()
            for file in sorted(live - theirs.files):
                self.check_lacking(source, file, partly=partly)
            mine.files |= live & theirs.files
            mine.notes.append(begun(mine.notes, mine.checkpoint, theirs.checkpoint))
            self.cut_off(replica)
            mine.checkpoint, mine.state = theirs.checkpoint, theirs.state
            mine.last = max(mine.last, mine.checkpoint)
            self.cut_off(replica)
            self.finish_notes(mine, theirs)
        return mine.checkpoint

    def cut_off(self, replica: Replica) -> None:
        """A helper may be killed here."""
        if self.behind and self.faulty and self.random() < self.faults.lost:
            raise UnreachableError(replica)

    def finish_notes(self, mine: Table, theirs: Table) -> None:
        """Find out where versions cease to count that it has itself."""

        def is_same(version: int) -> bool | None:
            found = theirs.log.get(version)
            if found is None or version > theirs.checkpoint or not theirs.counts(version):
                return None
            return found == mine.log[version]

        for span in [span for span in holding(mine.notes, mine.checkpoint) if not span.final]:
            mine.notes.append(compared(span, sorted(mine.log), is_same))
            self.counts["compared"] += 1

    def discard(self, replica: Replica, below: int) -> None:
        table = self.table(replica)
        assert below <= table.checkpoint
        table.notes.append(Span(0, below - 1))
        gone = [number for number in table.log if number < below]
        for version in gone:
            del table.log[version]
        table.cleanings += bool(gone)
        self.counts["clean"] += 1

    def register(self, before: Registration, after: Registration) -> bool:
        if self.registered != before:
            return False
        assert after.epoch in {before.epoch, before.epoch + 1}
        assert after.epoch > before.epoch or after.configuration == before.configuration
        self.registered = after
        self.counts["epoch"] += after.epoch > before.epoch
        for replica in after.renamed:
            self.lineages.setdefault(replica.life, before.lineage)
        if after.life != before.life:
            self.lineages[after.life] = after.epoch
            assert self.seals.setdefault(after.epoch, after.configuration) == after.configuration
            self.give_up(after)
        self.check_registration("registered")
        return True

    # --- the book ----------------------------------------------------------------------------------

    def is_true(self, life: int) -> bool:
        """Whether replicas of a life have the log that counts."""
        return self.lineages[life] == self.registered.lineage

    def live(self) -> set[str]:
        return live_files(self.truth.values())

    def is_dead(self, replica: Replica, file: str) -> bool:
        """Whether the log takes a file out, though nobody may have been told yet."""
        table = self.tables[replica]
        contents = [*(table.state.contents if table.state else ()), *table.log.values()]
        return any(file in content.removed for content in contents)

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
        if not self.is_true(life):
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
        # Files of versions that it has, and which are nowhere any more, its seal takes out.
        table = self.tables[chosen]
        kept = (content for content in self.contents_of(table) if content.configuration != after.configuration)
        gone_files = live_files(kept) - table.files
        assert len(gone_files) == after.losses[-1].files, (chosen, gone_files, "lost files were not written down")
        self.counts["files"] += len(gone_files)
