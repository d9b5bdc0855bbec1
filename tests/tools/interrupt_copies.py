"""Interrupted copies: passes and promotions of mirrors, appends and joins of replicas."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kafkalike.admin.cluster_mirror import Mirror, promote
from kafkalike.errors import MirrorError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.storage.memory import MemoryStorage
from tests.tools.away import away, back
from tests.tools.clusters import on_three_disks
from tests.tools.interrupt_world import PATIENCE_MS, view_of
from tests.tools.interrupts import Case
from tests.tools.records import NOW_MS, batch, everything, open_log

AT: Final = TopicPartition("m", 0)


class Mirroring(Case):
    """A mirror that has made one pass, and a source that has gone on since."""

    def __init__(self) -> None:
        self.store, self.source = MemoryStorage("memory://target"), Cluster(MemoryStorage("memory://source"))
        self.source.create_topic("m", 2, {"retention.ms": "-1"})
        self.write("a", 1)
        self.target = Cluster(self.store)
        self.mirror().run()
        self.write("b", 2)
        self.source.set_configs("m", {"retention.ms": "-1", "retention.bytes": "-1"})

    def write(self, value: str, offset: int) -> None:
        open_log(self.source, "m").append(batch((0, value), (1, value)))
        ids = {"m": str(self.source.topic("m").topic_id)}
        wanted = {AT: OffsetAndMetadata(offset, value)}
        GroupOffsets.of(self.source, SYSTEM_CLOCK).commit(Membership(group_id="g"), wanted, ids, PATIENCE_MS)

    def mirror(self) -> Mirror:
        return Mirror(self.source, self.target)

    def operate(self) -> None:
        self.mirror().run()

    def judge(self) -> Iterator[str]:
        yield from self.differences("afterwards")
        yield from self.go_on()
        yield from self.differences("after it was used again")
        fresh = Cluster(self.store)
        yield from (f"verify: {f}" for f in verify(fresh, fresh.topics()).findings if not f.warning)

    def go_on(self) -> Iterator[str]:
        """The same process makes the next passes."""
        for _ in range(2):
            passed = self.mirror().run()
            if not passed.sound:
                yield f"the next pass: {passed}"
        yield from self.copied(["a", "b"], 2)

    def copied(self, values: list[str], offset: int) -> Iterator[str]:
        """What the copy has must be this."""
        fresh = Cluster(self.store)
        if (found := everything(fresh.log("m"))) != {p: list(enumerate(values)) for p in range(2)}:
            yield f"the copy holds {found}"
        known = fresh.groups.refresh().group("g").offsets.get(AT)
        if known is None or known.position.offset != offset:
            yield f"the group is at {known}"
        if fresh.topic("m").configs != self.source.topic("m").configs:
            yield f"settings are {fresh.topic('m').configs}"

    def differences(self, when: str) -> Iterator[str]:
        """Where the client sees something else than a fresh one."""
        mine, theirs = view_of(self.target), view_of(Cluster(self.store))
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                yield f"{when}, {name}: the client has {mine.get(name)}, a fresh one {theirs.get(name)}"

    def close(self) -> None:
        self.target.settle()
        self.source.settle()


class MirrorAnew(Mirroring):
    """The first pass of a mirror, which makes the topic."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStorage("memory://other")
        self.target = Cluster(self.store)


class Promote(Mirroring):
    """A mirror becomes a topic like any other; asked again, it is one, at a moment of its source, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.mirror().run()

    def operate(self) -> None:
        promote(self.target, ["m"])

    def go_on(self) -> Iterator[str]:
        with contextlib.suppress(MirrorError):  # it was over
            promote(self.target, ["m"])
        if self.target.topic("m").mirror is not None:
            yield "it is still a mirror"
        yield from self.copied(["a", "b"], 2)
        done = open_log(self.target, "m").append(batch((0, "own"), at_ms=NOW_MS))
        if done.ranges[0] != range(2, 3):
            yield f"the next append got {done.ranges[0]}"


class Replicated(Case):
    """A cluster of three roots, with a topic that has a replica on each of them.

    Args:
        folder: of this test; the roots are the same each time, as their cluster knows where they are.
    """

    settings: Final = {"replica.lag.time.max.ms": "0"}

    def __init__(self, folder: Path) -> None:
        self.roots, base = folder / "roots", folder / "base"
        if not base.exists():
            cluster = on_three_disks(self.roots, **self.settings)
            cluster.create_topic("t", 1, {"retention.ms": "-1"})
            cluster.log("t").append(batch("a"))
            cluster.settle()
            shutil.move(self.roots, base)
        shutil.copytree(base, self.roots, copy_function=os.link, ignore=shutil.ignore_patterns("*.lock*"))
        self.sent: list[str] = []
        self.told: dict[str, int] = {}
        self.cluster = self.opened()
        self.prepare()

    def opened(self) -> ReplicatedCluster:
        """As another process would."""
        return on_three_disks(self.roots, **self.settings)

    def prepare(self) -> None:
        """Bring the client to where the operation begins."""
        self.append("b")

    def append(self, value: str) -> None:
        self.sent.append(value)
        done = self.cluster.log("t").append(batch(value), timeout_ms=PATIENCE_MS)
        self.told[value] = done.ranges[0].start

    def operate(self) -> None:
        self.append("new")

    def away(self, broker: int) -> None:
        away(self.roots / str(broker))

    def back(self, broker: int) -> None:
        back(self.roots / str(broker))

    def gather(self) -> None:
        """Bring back what is away."""

    def judge(self) -> Iterator[str]:
        yield from self.log_of(self.opened(), "afterwards")
        self.append("later")
        yield from self.log_of(self.cluster, "as the client sees it")
        self.gather()
        report = self.cluster.replication.replicate()
        yield from (f"replicate: {problem}" for problem in report.failed)
        self.append("last")
        fresh = self.opened()
        yield from self.log_of(fresh, "in the end")
        isr = fresh.replication.replicas("t").isr
        if set(isr) != {1, 2, 3}:
            yield f"in sync are {isr}"
        held = [self.files(broker) for broker in (1, 2, 3)]
        if not held[0] == held[1] == held[2]:
            yield f"replicas differ: {[sorted(one) for one in held]}"
        yield from (f"verify: {f}" for f in verify(fresh, fresh.topics()).findings if not f.warning)

    def log_of(self, cluster: ReplicatedCluster, when: str) -> Iterator[str]:
        """What was acknowledged is there at its offset, what was sent at most once, and nothing else."""
        found = everything(cluster.log("t"))[0]
        values = [value for _, value in found]
        if [offset for offset, _ in found] != list(range(len(found))) or values[:1] != ["a"]:
            yield f"{when}: {found}"
        if any(dict(found).get(offset) != value for value, offset in self.told.items()):
            yield f"{when}: {found}, and {self.told} were acknowledged"
        if len(set(values)) < len(values) or not set(values) <= {"a", *self.sent}:
            yield f"{when}: {found}, and {self.sent} were sent"

    def files(self, broker: int) -> dict[str, bytes]:
        """Versions and data files of a broker's replica."""
        table = self.roots / str(broker) / self.cluster.topic("t").location
        return {
            str(path.relative_to(table)): path.read_bytes()
            for path in [*table.glob("_delta_log/*.json"), *table.glob("partition=*/*.parquet")]
        }

    def close(self) -> None:
        self.cluster.settle()
        shutil.rmtree(self.roots)


class AppendWithoutARoot(Replicated):
    """An append that finds one of the roots gone, and goes on without it."""

    def prepare(self) -> None:
        super().prepare()
        self.away(2)

    def gather(self) -> None:
        self.back(2)


class BringBack(Replicated):
    """A root that was away comes back in."""

    def prepare(self) -> None:
        super().prepare()
        self.away(3)
        self.append("c")
        self.back(3)

    def operate(self) -> None:
        self.cluster.replication.replicate()


class CreateOnReplicas(Replicated):
    """A topic is made on all roots; asked for again, it is there, and can be written."""

    def operate(self) -> None:
        self.cluster.ensure_topic("new")

    def judge(self) -> Iterator[str]:
        first = self.cluster.ensure_topic("new").topic_id
        if self.opened().topic("new").topic_id != first:
            yield "it was made twice"
        self.cluster.log("new").append(batch("x"), timeout_ms=PATIENCE_MS)
        if (found := everything(self.opened().log("new"))) != {0: [(0, "x")]}:
            yield f"new holds {found}"
        yield from super().judge()


MIRROR_CASES: Final[tuple[type[Mirroring], ...]] = (Mirroring, MirrorAnew, Promote)
REPLICA_CASES: Final[tuple[type[Replicated], ...]] = (Replicated, AppendWithoutARoot, BringBack, CreateOnReplicas)
