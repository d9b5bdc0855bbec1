"""World: a client on a cluster of its own in, what differs from a fresh client, the log and what was promised out."""

from __future__ import annotations

import abc
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from tests.tools.records import batch, everything
from tests.tools.upkeep import open_cluster

HELD: Final = {("t", 0): ["a0", "a1", "a2"], ("t", 1): ["b0", "b1"], ("u", 0): ["u0", "u1", "u2"]}
"""What the base holds: values by topic and partition. The log of `u` begins at offset 1."""
PATIENCE_MS: Final = 60_000
"""How long a call waits that must not wait at all: a lock that nobody lets go of is found out so."""

Place = tuple[str, int]


def make_base(root: str) -> str:
    """Two topics, one with a log start that was moved, and a group that has committed."""
    cluster = open_cluster(root)
    for topic, partitions in (("t", 2), ("u", 1)):
        cluster.create_topic(topic, partitions, {"retention.ms": "-1"})
        records = [(p, v) for (name, p), values in HELD.items() if name == topic for v in values]
        cluster.log(topic).append(batch(*records))
    cluster.move_log_start("u", {0: 1}, "delete_records", "base")
    commit(cluster, "g", TopicPartition("t", 1), 1)
    return root


def commit(cluster: Cluster, group: str, tp: TopicPartition, offset: int) -> None:
    """Commit from outside the group's membership."""
    ids = {tp.topic: str(cluster.topic(tp.topic).topic_id)}
    wanted = {tp: OffsetAndMetadata(offset, "")}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(Membership(group_id=group), wanted, ids, PATIENCE_MS)


class Copies:
    """New copies of a cluster; its files are only ever replaced, so that links are enough."""

    def __init__(self, base: str, scratch: Path) -> None:
        self._base = base
        self._scratch = scratch
        self._numbers = itertools.count()

    def new(self) -> str:
        """The root of one more."""
        root = str(self._scratch / f"copy-{next(self._numbers)}")
        shutil.copytree(self._base, root, copy_function=os.link, ignore=shutil.ignore_patterns("*.lock*"))
        return root


class World(abc.ABC):
    """A client that is going to be interrupted, and its judge. See `tests.tools.interrupts.Case`."""

    gone: frozenset[str] = frozenset()
    """Topics that may be gone after the operation."""
    rewritten: frozenset[str] = frozenset()
    """Topics whose records `check` judges."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.cluster = open_cluster(root)
        self.before: dict[Place, list[str]] = {place: list(values) for place, values in HELD.items()}
        self.before["u", 0].pop(0)
        self.attempted: dict[Place, list[str]] = {}
        """Values that were sent, by topic and partition; no value twice."""
        self.acknowledged: dict[Place, dict[str, int]] = {}
        """Values and offsets whose writer was told so."""
        self.prepare()

    def prepare(self) -> None:  # noqa: B027 - not every case needs it
        """Bring the client to where the operation begins."""

    @abc.abstractmethod
    def operate(self) -> None:
        """What is interrupted."""

    def check(self) -> Iterator[str]:
        """Go on with the same client; says what is wrong."""
        return iter(())

    def logs(self) -> Mapping[str, TopicLog]:
        """Logs that the client holds open, by topic."""
        return {}

    def close(self) -> None:
        """Let go of everything."""
        self.end()
        self.cluster.settle()
        shutil.rmtree(self.root)

    def end(self) -> None:  # noqa: B027 - not every case has any
        """Close the client's own objects."""

    # --- writing -------------------------------------------------------------------------------

    def sends(self, place: Place, value: str) -> str:
        """Note that a value is sent from now on."""
        self.attempted.setdefault(place, []).append(value)
        return value

    def told(self, place: Place, value: str, offset: int) -> None:
        """Note that a value was acknowledged."""
        self.acknowledged.setdefault(place, {})[value] = offset

    # --- the judge -----------------------------------------------------------------------------

    def judge(self) -> Iterator[str]:
        """What is wrong with the client, the log and the acknowledgements."""
        fresh = open_cluster(self.root)
        yield from self._differences(fresh, "afterwards")
        yield from self.check()
        fresh = open_cluster(self.root)
        yield from self._use(fresh)
        fresh = open_cluster(self.root)
        yield from self._differences(fresh, "after it was used again")
        yield from self._records(fresh)
        found = verify(fresh, fresh.topics()).findings
        yield from (f"verify: {finding}" for finding in found if not finding.warning)

    def _differences(self, fresh: Cluster, when: str) -> Iterator[str]:
        """Where the client sees something else than a fresh one."""
        mine, theirs = view_of(self.cluster), view_of(fresh)
        for topic, log in self.logs().items():
            if topic in fresh.topics():
                log.refresh()
                mine[f"open log {topic}"], theirs[f"open log {topic}"] = log_view(log), log_view(fresh.log(topic))
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                yield f"{when}, {name}: the client has {mine.get(name)}, a fresh one {theirs.get(name)}"

    def _use(self, fresh: Cluster) -> Iterator[str]:
        """Write through the client: offsets go on, no topic is made anew, a commit is there."""
        for name, info in fresh.topics().items():
            if self.cluster.ensure_topic(name).topic_id != info.topic_id:
                yield f"ensure_topic made {name} anew"
        end = fresh.log("t").log_end(0)
        log = self.logs().get("t") or self.cluster.log("t")
        done = log.append(batch((0, self.sends(("t", 0), "after"))), timeout_ms=PATIENCE_MS)
        self.told(("t", 0), "after", done.ranges[0].start)
        if done.ranges[0] != range(end, end + 1):
            yield f"t-0: the next append got {done.ranges[0]}, and the log ended at {end}"
        commit(self.cluster, "after", TopicPartition("t", 0), end)
        self.cluster.create_topic("after", 1, {})

    def _records(self, fresh: Cluster) -> Iterator[str]:
        topics = fresh.topics()
        kept = {topic for topic, _ in self.before} - self.gone
        if not kept <= topics.keys():
            yield f"topics {sorted(kept - topics.keys())} are gone"
        for topic in topics.keys() - self.rewritten:
            for p, found in everything(fresh.log(topic)).items():
                yield from self._partition((topic, p), found)

    def _partition(self, place: Place, found: list[tuple[int, str]]) -> Iterator[str]:
        values = [value for _, value in found]
        known = self.before.get(place, [])
        if values[: len(known)] != known:
            yield f"{place}: begins with {found[: len(known)]} in place of {known}"
        counts = Counter(values[len(known) :])
        offsets = {value: offset for offset, value in found}
        for value, offset in self.acknowledged.get(place, {}).items():
            if offsets.get(value) != offset:
                yield f"{place}: {value} was acknowledged at {offset}, and is at {offsets.get(value)}"
        for value, times in counts.items():
            if times > 1 or value not in self.attempted.get(place, ()):
                yield f"{place}: {value} is there {times} times"


def log_view(log: TopicLog) -> dict[str, Any]:
    """What a log says of itself."""
    parts = log.info.partitions
    return {
        "version": log.version,
        "id": log.info.topic_id,
        "starts": [log.log_start(p) for p in parts],
        "ends": [log.log_end(p) for p in parts],
        "files": sorted(log.live_paths()),
        "segments": [[s.path for s in log.table_segments(p)] for p in parts],
    }


def view_of(cluster: Cluster) -> dict[str, Any]:
    """Everything that a client knows of its cluster, fresh."""
    metadata, groups = cluster.metadata.refresh(), cluster.groups.refresh()
    found: dict[str, Any] = {
        "rows of the metadata": metadata.seq,
        "rows of the groups": groups.seq,
        "names ever used": set(metadata.topics.keys() | metadata.gone.keys()),
    }
    found |= {f"topic {name}": info for name, info in metadata.topics.items()}
    for group, known in groups.groups.items():
        found[f"offsets of {group}"] = dict(known.offsets)
        found[f"members of {group}"] = known.roster
    return found
