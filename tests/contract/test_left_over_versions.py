"""Versions that only one replica has, below the checkpoint with which it came back: nobody takes them for published."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK
from kafkalike.errors import UnknownOutcomeError
from kafkalike.log.cluster.past import ends_at
from kafkalike.log.cluster.replicated.cluster import ReplicatedCluster
from kafkalike.log.inspect.commits import list_commits
from kafkalike.log.inspect.replica_check import check_replicas
from kafkalike.log.inspect.replica_repair import repair_replicas
from kafkalike.log.inspect.verify import verify
from kafkalike.log.port import TopicLog
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.checkpoints.make import make_checkpoint
from kafkalike.log.table.log_files import note_name
from kafkalike.log.table.replicas import replica_logs
from kafkalike.log.table.replicas.replica_files import counts_at, tidy
from kafkalike.log.table.replicas.version_file import VersionFile
from kafkalike.log.table.snapshot import load_snapshot
from kafkalike.log.topic.topic_log import DeltaTopicLog
from kafkalike.model.replication import joining
from kafkalike.model.replication.counting import Span
from kafkalike.model.replication.values import Replica
from tests.tools.away import away, back
from tests.tools.records import batch_now, records_of
from tests.tools.replicated import Brokers
from tests.tools.three_roots import opened

pytestmark = pytest.mark.slow


OURS = "only here"


class Killed(BaseException):
    """In the place of a process that is killed there."""


def killed_at(monkeypatch: pytest.MonkeyPatch, place: str, work: Callable[[], object], *, visit: int = 1) -> None:
    """Do something in a process that is killed when it comes to a place for the so-manieth time."""

    def killed() -> None:
        raise Killed

    with pytest.raises(Killed):
        stopped_at(monkeypatch, place, work, killed, visit=visit)


def stopped_at(
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    work: Callable[[], object],
    meanwhile: Callable[[], object],
    *,
    visit: int = 1,
) -> None:
    """Do something in a process that stops when it comes to a place for the so-manieth time, and goes on later."""
    visits = 0

    def point(name: str) -> None:
        nonlocal visits
        visits += name == place
        if name == place and visits == visit:
            visits += 1
            meanwhile()

    with monkeypatch.context() as patch:
        patch.setattr(faults, "point", point)
        work()


def values(log: TopicLog) -> list[str]:
    log.refresh()
    return [value for _, value in records_of(log, 0)]


class Roots:
    """Three roots with a topic that has three replicas.

    Args:
        folder: their parent.
    """

    def __init__(self, folder: Path) -> None:
        self.paths = [folder / str(n) for n in (1, 2, 3)]
        cluster = opened(self.paths)
        cluster.create_topic("t", 1, {})
        head = cluster.store.replicas(cluster.topic("t").location).members()[0].broker
        self.head = self.paths[head - 1]

    def log(self) -> TopicLog:
        """The topic as another process has it."""
        return opened(self.paths).log("t")

    def append(self, value: str) -> None:
        self.log().append(batch_now(value))

    def replicate(self) -> None:
        assert not opened(self.paths).replication.replicate().failed

    def of_head(self, version: int) -> Path:
        """The file of a version at the root that is the head at first."""
        (folder,) = self.head.glob("t~*")
        return folder / log_name(version)

    def lose_head_for_a_while(self) -> None:
        """The others go on, with another value."""
        away(self.head)
        self.append("b")
        back(self.head)

    def let_head_lead(self) -> None:
        """The others are lost for a while, and come back out of sync."""
        for root in self.paths:
            if root != self.head:
                away(root)
                self.append("c")
                back(root)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path)


@pytest.mark.parametrize("how", ["a put that lands late", "a helper that is killed"])
@pytest.mark.parametrize("has_written", [False, True])
def test_a_reader_that_is_behind_sees_nothing_of_it(
    roots: Roots, monkeypatch: pytest.MonkeyPatch, how: str, *, has_written: bool
) -> None:
    """Also one that remembers where it has written at that head."""
    behind = roots.log()
    if has_written:
        behind.append(batch_now("a"))
    else:
        roots.append("a")
    assert values(behind) == ["a"]
    own = roots.of_head(behind.version + 1)
    killed_at(monkeypatch, "replicas.before_put", lambda: roots.append(OURS), visit=2)
    content = own.read_bytes()
    roots.lose_head_for_a_while()
    if how == "a helper that is killed":
        killed_at(monkeypatch, "replicas.before_tidying", roots.replicate)
        assert own.exists()
    roots.replicate()
    assert not own.exists()
    if how == "a put that lands late":
        own.write_bytes(content)

    roots.let_head_lead()

    assert values(roots.log()) == ["a", "b", "c", "c"]
    assert values(behind) == ["a", "b", "c", "c"]
    roots.replicate()
    cluster = opened(roots.paths)
    assert list(check_replicas(cluster)) == []
    assert verify(cluster, ["t"]).findings == []


def test_a_writer_that_stopped_in_the_middle_does_not_take_it_for_stored(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots.append("a")
    writer = roots.log()
    own = roots.of_head(writer.version + 1)

    def meanwhile() -> None:
        content = own.read_bytes()
        roots.lose_head_for_a_while()
        roots.replicate()
        own.write_bytes(content)
        roots.let_head_lead()

    with pytest.raises(UnknownOutcomeError):
        stopped_at(monkeypatch, "replicas.before_put", lambda: writer.append(batch_now(OURS)), meanwhile, visit=2)

    assert values(writer) == ["a", "b", "c", "c"]
    writer.append(batch_now(OURS))
    assert values(writer) == values(roots.log()) == ["a", "b", "c", "c", OURS]


def test_versions_count_that_a_killed_helper_has_only_noted(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was killed between its note and the checkpoint: the next one may come back by versions."""
    roots.append("a")
    behind = roots.log()
    roots.lose_head_for_a_while()
    (folder,) = roots.head.glob("t~*")
    (folder / note_name(Span(0, 1_000, final=False))).touch()
    roots.replicate()

    roots.let_head_lead()

    assert values(behind) == ["a", "b", "c", "c"]
    assert values(roots.log()) == ["a", "b", "c", "c"]


# --- what reads single versions -------------------------------------------------------------------


@pytest.fixture
def left_over(roots: Roots, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A version at the former head, in sync again, that nobody else has: a put has landed late."""
    roots.append("a")
    own = roots.of_head(roots.log().version + 1)
    killed_at(monkeypatch, "replicas.before_put", lambda: roots.append(OURS), visit=2)
    content = own.read_bytes()
    roots.lose_head_for_a_while()
    roots.replicate()
    own.write_bytes(content)
    return own


def test_a_damaged_version_is_not_repaired_with_it(roots: Roots, left_over: Path) -> None:
    other = next(root for root in roots.paths if root != roots.head)
    (folder,) = other.glob("t~*")
    damaged = folder / "_delta_log" / left_over.name
    good = damaged.read_bytes()
    damaged.write_bytes(good[: len(good) // 2])

    said = list(repair_replicas(opened(roots.paths), lambda _: True, execute=True))

    assert len(said) == 1
    assert damaged.read_bytes() == good


def test_it_is_no_finding_and_no_commit_where_it_leads(roots: Roots, left_over: Path) -> None:
    for root in roots.paths:
        if root != roots.head:
            away(root)
            roots.append("c")
            back(root)
    own = VersionFile(left_over.read_bytes()).append_id

    leading = [commit.append_id for commit in list_commits(opened(roots.paths), "t")]
    roots.replicate()
    cluster = opened(roots.paths)

    assert own not in leading
    assert left_over.exists()
    assert list(check_replicas(cluster)) == []
    assert verify(cluster, ["t"]).findings == []
    assert own not in [commit.append_id for commit in list_commits(cluster, "t")]


def test_what_was_right_before_can_be_read_when_each_replica_came_back_by_a_checkpoint(roots: Roots) -> None:
    """An ordinary maintenance, one root after the other."""
    for value in "abc":
        roots.append(value)
    last = roots.log().version
    for root in roots.paths:
        away(root)
        roots.append(f"without {root.name}")
        checkpoints(opened(roots.paths))
        back(root)
        roots.replicate()

    cluster = opened(roots.paths)

    versions = [commit.version for commit in list_commits(cluster, "t")]
    assert versions[: last + 1] == list(range(last + 1))
    assert ends_at(cluster, cluster.topic("t"), last)[0] == 3
    assert verify(cluster, ["t"]).findings == []
    assert list(check_replicas(cluster)) == []


def checkpoints(cluster: ReplicatedCluster) -> None:
    """Have the replicas in sync make a checkpoint each."""
    replicas = cluster.store.replicas(cluster.topic("t").location)
    snapshot = load_snapshot(cluster.log("t").files)
    for replica in replicas.in_sync():
        make_checkpoint(replicas.store_of(replica), snapshot, SYSTEM_CLOCK.now_ms())


# --- places that are empty ------------------------------------------------------------------------


def test_who_comes_back_keeps_the_version_that_keeps_a_late_writer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both replicas have come back by a checkpoint since it looked, one after the other: what ended its configuration
    stands at the second one alone, and the source of that one's checkpoint lacks it."""
    brokers = Brokers(tmp_path, [1, 2])
    writer = brokers.client()
    for word in "ab":
        writer.append(word)

    def meanwhile() -> None:
        for gone, left in ((1, 2), (2, 1)):
            brokers.take_away(gone)
            brokers.client().append(f"without {gone}")
            brokers.give_back(gone)
            helper = brokers.client()
            helper.roots.carry_out(joining.cleaning(Replica(left), helper.opened(), 10_000))
            brokers.client().bring_back(gone)
        assert brokers.controller.look().chain == (Replica(1), Replica(2))

    stopped_at(monkeypatch, "replicas.before_put", lambda: writer.append("late"), meanwhile)

    assert brokers.words(1) == brokers.words(2) == sorted(["a", "b", "without 1", "without 2", "late"])


def test_a_source_that_goes_away_takes_no_version_with_it(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, [1, 2])
    writer = brokers.client()
    for word in "ab":
        writer.append(word)
    before = brokers.files(2)
    note = brokers.folder / "2" / "t" / note_name(Span(0, 3, final=False))
    note.touch()
    helper = brokers.client()
    helper.roots.carry_out(joining.cleaning(Replica(2), helper.opened(), 10_000))
    target, source = (brokers.store_of(Replica(n)) for n in (2, 1))
    brokers.take_away(1)

    with pytest.raises(OSError, match="_replica"):
        tidy(target, source)

    assert note.exists()
    brokers.give_back(1)
    tidy(target, source)
    assert not note.exists()
    assert brokers.files(2) == before
    assert all(counts_at(target, version) for version in range(4))


def test_a_reader_that_is_behind_sees_nothing_of_what_stands_where_clean_up_has_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writer and reader have slept for longer than a log stays."""
    paths = [tmp_path / str(n) for n in (1, 2, 3)]
    opened(paths).create_topic("t", 1, {}, replication_factor=1)

    def log() -> TopicLog:
        return opened(paths).log("t")

    log().append(batch_now("a"))
    behind, writer = log(), log()
    assert values(behind) == values(writer) == ["a"]
    (folder,) = tmp_path.glob("*/t~*")
    place = folder / log_name(writer.version + 1)

    def meanwhile() -> None:
        for value in "bcd":
            log().append(batch_now(value))
        long_ago = time.time() - 40 * 86_400
        for file in (folder / "_delta_log").glob("*.json"):
            os.utime(file, (long_ago, long_ago))
        checkpoints(opened(paths))
        cleaned = log()
        assert isinstance(cleaned, DeltaTopicLog)
        cleaned.refresh()
        cleaned.clean_log()
        assert not place.exists()
        # That much later.
        monkeypatch.setattr(replica_logs, "SURE_SECONDS", -1.0)

    with pytest.raises(UnknownOutcomeError):
        stopped_at(monkeypatch, "replicas.before_put", lambda: writer.append(batch_now(OURS)), meanwhile)
    assert place.exists()
    log().append(batch_now("e"))

    assert values(behind) == ["a", "b", "c", "d", "e"]
    assert values(writer) == ["a", "b", "c", "d", "e"]
    assert values(log()) == ["a", "b", "c", "d", "e"]
    cleaned = log()
    assert isinstance(cleaned, DeltaTopicLog)
    cleaned.refresh()
    cleaned.clean_log()
    assert not place.exists()
