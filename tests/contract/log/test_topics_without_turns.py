"""Topics come, go, are written, maintained and restored at the same time; safety is compare-and-set alone.

Nobody takes turns here, so a writer may be stopped anywhere, for hours, while all others go on.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from kafkalike.errors import (
    IllegalArgumentError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    TopicAlreadyExistsError,
    TopicDeletedError,
    UnknownOutcomeError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.cluster.root_tables import RootTables
from kafkalike.log.cluster.topic_changes import TopicTables
from kafkalike.maintenance.fork import restore_as
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.brokers import ReplicatedTable
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.names import TopicId, TopicName
from kafkalike.storage.port import Storage
from tests.tools.clusters import UnqueuedStore, on_disk
from tests.tools.effort import seeds
from tests.tools.records import NOW_MS
from tests.tools.schedule import Schedule
from tests.tools.upkeep import AT_ONCE, EAGER, HOUR_MS, ShiftedClock, keyed, open_cluster, pairs_of, run

GONE = (TopicDeletedError, UnknownTopicOrPartitionError)
NAMES = ("a", "b")
DAY_MS = 24 * HOUR_MS


class Race:
    """Actors on one root, and what they were promised."""

    def __init__(self, root: str, seed: int) -> None:
        self.root = root
        self.schedule = Schedule(seed)
        self.seed = seed
        self.acknowledged: dict[str, list[tuple[int, str | None, str | None]]] = {}
        """Offset, key and value by id of the topic."""
        self.wrong: list[str] = []

    def creator(self, chance: random.Random) -> None:
        for _ in range(6):
            cluster = self.schedule.cluster(self.root)
            configs = chance.choice([EAGER, {**AT_ONCE, "retention.ms": "-1"}])
            try:
                cluster.create_topic(chance.choice(NAMES), 1, configs)
            except TopicAlreadyExistsError:
                continue

    def deleter(self, chance: random.Random) -> None:
        cluster = self.schedule.cluster(self.root)
        for _ in range(4):
            try:
                cluster.delete_topic(chance.choice(NAMES))
            except UnknownTopicOrPartitionError:
                self.schedule.step()

    def appender(self, chance: random.Random) -> None:
        cluster = self.schedule.cluster(self.root)
        for number in range(8):
            name = chance.choice(NAMES)
            value, info = f"{chance.random()}-{number}", None
            try:
                log = cluster.log(name)
                info = log.info
                for turn in range(2):
                    key, each = chance.choice("xyz"), f"{value}-{turn}"
                    done = log.append(keyed((key, each), at_ms=self.schedule.now_ms()))
                    self.acknowledged.setdefault(log.info.topic_id, []).append((done.ranges[0].start, key, each))
            except GONE:
                self.schedule.step()
            except (KafkaStorageError, UnknownOutcomeError) as error:
                # The folder was put aside between the look and the write.
                if self.schedule.cluster(self.root).topics().get(name) == info:
                    self.wrong.append(f"append to {name}: {error!r}")

    def maintainer(self, chance: random.Random) -> None:
        del chance
        for _ in range(3):
            report = maintain(self.schedule.cluster(self.root), clock=self.schedule)
            for topic in report.topics:
                self.wrong += [
                    f"maintain {topic.topic}: {problem}"
                    for problem in topic.problems
                    if topic.status == "failed" and "try again" not in problem
                ]
            self.wrong += [f"maintain: {problem}" for problem in report.problems]

    def restorer(self, chance: random.Random) -> None:
        for number in range(3):
            cluster = self.schedule.cluster(self.root)
            name = chance.choice(NAMES)
            try:
                log = cluster.log(name)
                held, version = pairs_of(log), log.version
                made = restore_as(cluster, name, version, f"r{number}-{chance.random()}", "run")
            except (*GONE, IllegalArgumentError, KafkaStorageError, KafkaTimeoutError):
                continue
            self.acknowledged.setdefault(made.topic_id, []).extend(held)

    def time(self, chance: random.Random) -> None:
        """It passes while some are stopped."""
        for _ in range(3):
            for _ in range(chance.randrange(60)):
                self.schedule.step()
            self.schedule.ahead_ms += 2 * HOUR_MS

    def run(self) -> None:
        acts: dict[str, Callable[[random.Random], None]] = {
            "creator": self.creator,
            "second creator": self.creator,
            "deleter": self.deleter,
            "second deleter": self.deleter,
            "appender": self.appender,
            "second appender": self.appender,
            "maintainer": self.maintainer,
            "second maintainer": self.maintainer,
            "restorer": self.restorer,
            "time": self.time,
        }
        chosen = random.Random(self.seed)

        def bound(act: Callable[[random.Random], None], seed: float) -> Callable[[], None]:
            return lambda: act(random.Random(seed))

        raised = self.schedule.run({name: bound(act, chosen.random()) for name, act in acts.items()})
        self.wrong += [f"{name}: {error!r}" for name, error in raised.items()]

    def judge(self) -> list[str]:
        found = list(self.wrong)
        cluster = open_cluster(self.root)
        topics = cluster.topics()
        for name, info in topics.items():
            held = pairs_of(cluster.log(name))
            promised = self.acknowledged.get(info.topic_id, [])
            if len({offset for offset, _, _ in promised}) != len(promised):
                found.append(f"{name}: an offset was given twice: {promised}")
            last = {key: offset for offset, key, _ in held} if "cleanup.policy" in info.configs else {}
            found += [
                f"{name}: {record} was acknowledged, and there is {held}"
                for record in promised
                if record not in held and record[0] >= last.get(record[1], 0)
            ]
        found += [f"verify: {f}" for f in verify(cluster, topics).findings]
        later = ShiftedClock()
        later.ahead_ms = self.schedule.ahead_ms + 3 * DAY_MS
        report = maintain(open_cluster(self.root, later), clock=later)
        found += [f"maintain in the end: {problem}" for problem in report.problems]
        found += [f"maintain in the end: {topic}" for topic in report.topics if topic.status == "failed"]
        left = {path.name for path in Path(self.root).iterdir() if not path.name.startswith("__")}
        wanted = {info.location for info in topics.values()}
        if left != wanted:
            found.append(f"folders {sorted(left)} in place of {sorted(wanted)}")
        return found


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(60, quick=6))
def test_whatever_the_order_nothing_acknowledged_is_lost_and_nothing_is_left(tmp_path: Path, seed: int) -> None:
    """Creators, deleters, writers, maintenance and restores on two names, in an order drawn from a seed."""
    race = Race(str(tmp_path / "root"), seed)

    race.run()

    assert not (found := race.judge()), "\n".join(found)


class Hooked(UnqueuedStore):
    """A folder without turns, at one of whose calls something else happens first, once."""

    def __init__(self, uri: str, root: Any = None, hooks: dict[str, Callable[[], object]] | None = None) -> None:
        super().__init__(uri, root)
        self.hooks: dict[str, Callable[[], object]] = {} if hooks is None else hooks
        """What happens, by how the name of the file begins that is made or looked for."""

    def at(self, folder: str) -> Hooked:
        return Hooked(f"{self.uri}/{folder}", self.coordination, self.hooks)

    def _passes(self, call: str) -> None:
        if call in self.hooks:
            self.hooks.pop(call)()

    def size(self, name: str) -> int:
        found = super().size(name)
        self._passes(f"size of {name.partition('/')[0]}")
        return found

    def put_if_absent(self, name: str, content: bytes, *, durable: bool = False) -> bool:
        self._passes("put")
        return super().put_if_absent(name, content, durable=durable)

    def copy(self, source: str, target: Storage, name: str) -> bool:
        shared = super().copy(source, target, name)
        self._passes("copy")
        return shared


def hours_later(root: str) -> None:
    """Maintenance removes what looks like leftovers, in another process."""
    clock = ShiftedClock()
    clock.ahead_ms = 5 * HOUR_MS
    report = maintain(on_disk(root, queue=False, clock=clock), clock=clock, works=["vacuum"])
    assert not report.failed
    assert sum(topic.vacuumed_files for topic in report.topics) > 0


def values(root: str, topic: str) -> list[str | None]:
    return [value for _, _, value in pairs_of(open_cluster(root).log(topic))]


def filled(root: str, configs: Mapping[str, str], *keys: str) -> Cluster:
    cluster = on_disk(root, queue=False)
    cluster.create_topic("t", 1, configs)
    log = cluster.log("t")
    for number, keys_of_one in enumerate(keys):
        log.append(keyed(*((key, f"{key}{number}") for key in keys_of_one), at_ms=NOW_MS + 10 * number))
    return cluster


@pytest.mark.parametrize(
    ("configs", "kept"),
    [({**AT_ONCE, "retention.ms": "-1"}, ["k0", "m0", "k1", "k2", "l3"]), (EAGER, ["m0", "k2", "l3"])],
    ids=["merge", "compaction"],
)
def test_a_run_that_was_stopped_for_hours_does_not_name_the_file_that_was_removed(
    root: str, configs: Mapping[str, str], kept: list[str]
) -> None:
    """Between writing it and looking again: nobody has planned anything on a version with it yet."""
    filled(root, configs, "km", "k", "k", "l")
    stopped = Hooked(root, hooks={"size of partition=0": lambda: hours_later(root)})

    maintain(Cluster(stopped), clock=SYSTEM_CLOCK, works=["compaction", "merge"])

    assert stopped.hooks == {}
    maintain(open_cluster(root), clock=SYSTEM_CLOCK)
    assert values(root, "t") == kept
    assert not verify(open_cluster(root), open_cluster(root).topics()).findings


def test_a_restore_that_was_stopped_for_hours_names_no_file_that_was_removed(root: str) -> None:
    """Linked files are as old as the first ones, and no version names them yet: it fails, and says to try again."""
    cluster = filled(root, {**AT_ONCE, "retention.ms": "-1"}, "k", "l")
    stopped = Hooked(root, hooks={"copy": lambda: hours_later(root)})

    with pytest.raises(KafkaStorageError, match=r"a maintenance run has replaced files .* nothing was made; try again"):
        restore_as(Cluster(stopped), "t", cluster.log("t").version, "back", "run")

    assert set(open_cluster(root).topics()) == {"t"}
    assert values(root, "t") == ["k0", "l1"]


def test_a_topic_created_again_has_a_folder_that_no_late_writer_knows(root: str) -> None:
    """An append that has numbered its records and written its files, and then is stopped."""
    cluster = filled(root, {}, "k")
    late = on_disk(root, queue=False).log("t")

    def meanwhile() -> None:
        cluster.delete_topic("t")
        cluster.create_topic("t", 1, {})
        for number in range(2):
            cluster.log("t").append(keyed(("k", f"new{number}"), at_ms=number))

    stopped = Hooked(root, hooks={"put": meanwhile})
    with pytest.raises(KafkaError):
        Cluster(stopped).log("t").append(keyed(("k", "late"), at_ms=1))
    with pytest.raises(TopicDeletedError):
        late.append(keyed(("k", "later"), at_ms=1))

    assert stopped.hooks == {}
    assert values(root, "t") == ["new0", "new1"]
    assert {path.name for path in Path(root).iterdir() if path.name[0] != "_"} == {
        open_cluster(root).topic("t").location
    }


def test_a_creation_that_was_stopped_for_days_makes_its_table_anew(root: str) -> None:
    """Maintenance has removed the one that looked like a killed creation's."""
    cluster = filled(root, {}, "k")
    cluster.delete_topic("t")

    class SlowTables(RootTables):
        stopped = True

        def create(self, name: TopicName, location: str, placed: ReplicatedTable | None, *, closed: bool) -> TopicId:
            made = super().create(name, location, placed, closed=closed)
            if self.stopped:
                self.stopped = False
                os.utime(Path(root, location), (0, 0))
                run(root)
                assert not Path(root, location).exists()
            return made

    class Slow(Cluster):
        @cached_property
        def _tables(self) -> TopicTables:
            return SlowTables(self.root, self.store, self.clock, self.metadata, self.metadata_on_disk)

    Slow(UnqueuedStore(root)).create_topic("t", 1, {})
    open_cluster(root).log("t").append(keyed(("k", "new"), at_ms=1))

    assert values(root, "t") == ["new"]
