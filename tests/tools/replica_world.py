"""Replicas under a seeded scheduler: writers, helpers, movers, cleaners, readers, one act at a time.

The acts come from courses of `kafkalike.model.replication`; roots, the controller and the network are simulated.
Whoever is in the middle of something may stop for ever, or for so long that everything has changed; a put whose answer
was lost may land much later.
"""

from __future__ import annotations

from typing import Final

from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from tests.tools.histories import played
from tests.tools.replica_actors import (
    Actor,
    cleaner,
    elector,
    emptier,
    healer,
    helper,
    late_reader,
    mover,
    reader,
    vacuum,
    writer,
)
from tests.tools.replica_roots import Roots

EMPTIED: Final = 2
"""Which of four histories has somebody who removes files of replicas that are out."""

FEW: Final = 8
"""Versions that are read ahead at most."""


class World(Roots):
    """Everything.

    Args:
        seed: says all that happens.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
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
        if seed % 4 == EMPTIED:
            # By the seed: those that are known to show a rare fault go on to show it.
            self.actors.append(Actor(self, "e", emptier))
        if self.behind:
            self.actors.append(Actor(self, "b", late_reader))

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


def play(seed: int, steps: int) -> World:
    """One history, to its end. So few versions are read ahead that it comes past them."""
    most = effects.AHEAD
    try:
        for module in (protocol, isr_changes):
            vars(module)["AHEAD"] = FEW
        return played(World(seed), seed, steps)
    finally:
        for module in (protocol, isr_changes):
            vars(module)["AHEAD"] = most
