"""Versions that only one replica has, below the checkpoint with which it came back: nobody takes them for published."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from kafkalike.delta import log_cleaner
from kafkalike.delta.actions import log_name
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.log_files import LogFiles, note_name
from kafkalike.delta.replica_files import VersionFile, finish_notes
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import UnknownOutcomeError
from kafkalike.log.cluster.topic_lineage import ends_at
from kafkalike.log.topic import topic_log
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.maintenance.verify.replica_check import check_replicas, repair_replicas
from kafkalike.maintenance.verify.topic_history import list_commits
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.replication import isr_changes
from kafkalike.model.replication import replica_effects as effects
from kafkalike.model.replication import replica_protocol as protocol
from kafkalike.model.replication.registration import FellBehindError, Replica, ReplicaError, Span
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.replication.tables import replica_logs
from kafkalike.replication.tables.chain_storage import ChainStorage
from kafkalike.storage.local import LocalStorage
from kafkalike.storage.port import Storage
from tests.tools.away import away, back
from tests.tools.records import batch_now, records_of
from tests.tools.replicated import Brokers, Client
from tests.tools.three_roots import opened

Course = Generator[effects.ReplicaEffect, Any, Any]

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
        # Others write without the turn, which the process that has stopped holds.
        patch.setattr(topic_log, "PATIENCE_SECONDS", 0.1)
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


@pytest.mark.parametrize("how", ["a version that stays", "a helper that is killed"])
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
    roots.lose_head_for_a_while()
    if how == "a helper that is killed":
        killed_at(monkeypatch, "replicas.before_finishing_notes", roots.replicate)
    roots.replicate()
    assert own.exists()

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
        roots.lose_head_for_a_while()
        roots.replicate()
        assert own.exists()
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
    """A version at the former head, in sync again, that nobody else has."""
    roots.append("a")
    own = roots.of_head(roots.log().version + 1)
    killed_at(monkeypatch, "replicas.before_put", lambda: roots.append(OURS), visit=2)
    roots.lose_head_for_a_while()
    roots.replicate()
    return own


def test_a_damaged_version_is_not_repaired_with_it(roots: Roots, left_over: Path) -> None:
    other = next(root for root in roots.paths if root != roots.head)
    (folder,) = other.glob("t~*")
    damaged = folder / "_delta_log" / left_over.name
    good = damaged.read_bytes()
    damaged.write_bytes(good[: len(good) // 2])

    said = list(repair_replicas(opened(roots.paths), lambda _: True, dry_run=False))

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
            checkpoint_at(brokers, left)
            brokers.client().bring_back(gone)
        assert brokers.controller.look().chain == (Replica(1), Replica(2))

    stopped_at(monkeypatch, "replicas.before_put", lambda: writer.append("late"), meanwhile)

    assert brokers.words(1) == brokers.words(2) == sorted(["a", "b", "without 1", "without 2", "late"])


def test_what_a_source_that_goes_away_says_is_not_taken_down(tmp_path: Path) -> None:
    brokers = Brokers(tmp_path, [1, 2])
    writer = brokers.client()
    for word in "ab":
        writer.append(word)
    checkpoint_at(brokers, 1, 2)
    (brokers.folder / "2" / "t" / note_name(Span(0, 3, final=False))).touch()
    target, source = (brokers.store_of(Replica(n)) for n in (2, 1))
    brokers.take_away(1)

    with pytest.raises(OSError, match="_replica"):
        finish_notes(target, source)

    assert not any(counts_at(target, version) for version in range(4))
    brokers.give_back(1)
    finish_notes(target, source)
    assert all(counts_at(target, version) for version in range(4))


@pytest.mark.parametrize("damaged", [1, 2])
def test_a_damaged_version_says_nothing_about_others(tmp_path: Path, damaged: int) -> None:
    brokers = Brokers(tmp_path, [1, 2])
    writer = brokers.client()
    for word in "ab":
        writer.append(word)
    checkpoint_at(brokers, 1, 2)
    (brokers.folder / "2" / "t" / note_name(Span(0, 3, final=False))).touch()
    torn = brokers.folder / str(damaged) / "t" / log_name(3)
    torn.write_bytes(torn.read_bytes()[:40])

    finish_notes(brokers.store_of(Replica(2)), brokers.store_of(Replica(1)))

    assert [counts_at(brokers.store_of(Replica(2)), version) for version in range(4)] == [True, True, True, False]
    assert torn.exists()


def counts_at(store: Storage, version: int) -> bool:
    """Whether a version that a replica has counts."""
    return version not in LogFiles.listed(store).left_over


def checkpoint_at(brokers: Brokers, *replicas: int) -> None:
    """Have replicas make a checkpoint of what is published; no version goes."""
    for replica in replicas:
        helper = brokers.client()
        helper.roots.carry_out(isr_changes.cleaning(Replica(replica), helper.opened(), 10_000))


def test_a_reader_that_is_behind_sees_nothing_of_what_stands_where_clean_up_has_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writer and reader have slept for longer than a log stays."""
    paths = [tmp_path / str(n) for n in (1, 2, 3)]
    opened(paths).create_topic("t", 1, {}, replication_factor=1)

    def log() -> TopicLog:
        return opened(paths).log("t")

    def clean() -> None:
        cleaned = log()
        assert isinstance(cleaned, TopicLog)
        cleaned.refresh()
        cleaned.clean_log()

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
        clean()
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
    clean()
    assert not place.exists()


# --- helpers that have slept ----------------------------------------------------------------------


def driven(client: Client, steps: Course, stop: Callable[[effects.ReplicaEffect], bool]) -> Callable[[], Any]:
    """Carry a course out up to an act; returns how it goes on from there."""
    act = steps.send(None)
    while not stop(act):
        act = steps.send(client.roots.do(act))  # type: ignore[arg-type]

    def rest() -> Course:
        following = act
        while True:
            try:
                found = yield following
            except ReplicaError as failed:
                following = steps.throw(failed)
                continue
            try:
                following = steps.send(found)
            except StopIteration as end:
                return end.value

    return lambda: client.roots.carry_out(rest())


def put_at_head_only(brokers: Brokers) -> tuple[int, Callable[[], Any]]:
    """A writer that stops when it has put a version at the head: which version, and how it goes on."""
    writer = brokers.client()
    view = writer.opened()
    head = view.configuration.head
    appended = protocol.appending(view, writer.version("never shown"), {})
    going_on = driven(writer, appended, lambda act: isinstance(act, effects.Put) and act.replica != head)
    return view.end + 1, going_on


def assert_right(brokers: Brokers, version: int, published: int) -> None:
    """What is looked up is what one of the brokers has, or nothing; and where something else is, it does not count."""
    truth = brokers.store_of(Replica(published)).look(log_name(version))
    reader = brokers.client()
    found = reader.roots.read_out(protocol.looking_up(version, reader.opened(), brokers.controller.look()))
    assert found is None or (isinstance(found, VersionFile) and found.data == truth)
    for replica in brokers.controller.look().chain:
        store = brokers.store_of(replica)
        assert store.look(log_name(version)) in {truth, None} or not counts_at(store, version)


def lagging(brokers: Brokers, source: int) -> None:
    """Broker 2 was away for three appends, and the source has a checkpoint above what it has."""
    writer = brokers.client()
    writer.append("a")
    brokers.take_away(2)
    for word in "bcd":
        writer.append(word)
    checkpoint_at(brokers, source)
    brokers.give_back(2)


def slept_after_the_checkpoint(
    monkeypatch: pytest.MonkeyPatch, brokers: Brokers, source: int, meanwhile: Callable[[], object]
) -> None:
    """A helper has given broker 2 the source's checkpoint, and sleeps before it finds out what counts there."""
    slow = brokers.client().roots.supplies
    stopped_at(
        monkeypatch,
        "replicas.before_finishing_notes",
        lambda: slow.copy_checkpoint(Replica(source), Replica(2), partly=False, durable=False),
        meanwhile,
    )


def test_two_helpers_of_one_replica_make_no_wrong_version_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One looks for the replica's end, and the other one has copied a checkpoint over it before it goes on."""
    brokers = Brokers(tmp_path, [1, 2])
    brokers.client().append("a")
    version, _ = put_at_head_only(brokers)
    brokers.take_away(1)
    others = brokers.client()
    for word in "bcd":
        others.append(word)
    brokers.give_back(1)
    slow = brokers.client()
    catching_up = isr_changes.catching_up(Replica(1), Replica(2), slow.opened())
    going_on = driven(slow, catching_up, lambda act: isinstance(act, effects.Checkpoint) and act.replica.broker == 1)

    stopped_at(monkeypatch, "replicas.before_finishing_notes", lambda: brokers.client().bring_back(1), going_on)

    assert_right(brokers, version, published=2)
    assert sorted(brokers.words(1)) == sorted(brokers.words(2)) == list("abcd")


def test_a_helper_that_slept_does_not_take_down_what_a_former_member_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its source has left the chain since, and has the same wrong version."""
    brokers = Brokers(tmp_path, [1, 2, 3])
    lagging(brokers, source=3)
    wrong: list[int] = []

    def meanwhile() -> None:
        brokers.client().bring_back(2)
        brokers.take_away(1)
        brokers.client().append("e")
        brokers.give_back(1)
        brokers.client().bring_back(1, leads=True)
        brokers.client().append("f")
        assert [replica.broker for replica in brokers.controller.look().chain] == [2, 3, 1]
        late = brokers.client()
        view = late.opened()
        wrong.append(view.end + 1)
        appended = protocol.appending(view, late.version("never shown"), {})
        driven(late, appended, lambda act: isinstance(act, effects.Put) and act.replica.broker == 1)
        brokers.take_away(3)
        brokers.take_away(2)
        others = brokers.client()
        for word in "gh":
            others.append(word)
        brokers.give_back(3)
        brokers.give_back(2)
        checkpoint_at(brokers, 1)
        killed_at(monkeypatch, "replicas.before_finishing_notes", lambda: brokers.client().bring_back(2))

    slept_after_the_checkpoint(monkeypatch, brokers, 3, meanwhile)

    brokers.client().bring_back(2)
    assert_right(brokers, wrong[0], published=1)


def test_a_helper_that_slept_opens_no_place_to_a_late_writer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(tmp_path, [1, 2])
    lagging(brokers, source=1)
    late: list[Callable[[], Any]] = []

    def meanwhile() -> None:
        brokers.client().bring_back(2)
        writer = brokers.client()
        for word in "ef":
            writer.append(word)
        assert writer.view is not None
        appended = protocol.appending(writer.view, writer.version("late"), {})
        late.append(driven(writer, appended, lambda act: isinstance(act, effects.Put) and act.replica.broker == 2))
        brokers.take_away(1)
        brokers.client().append("g")
        brokers.give_back(1)
        (tmp_path / "3").mkdir()
        brokers.client().bring_back(3)
        brokers.take_away(2)
        others = brokers.client()
        for word in "hi":
            others.append(word)
        brokers.give_back(2)
        checkpoint_at(brokers, 3)
        killed_at(monkeypatch, "replicas.before_finishing_notes", lambda: brokers.client().bring_back(2))

    slept_after_the_checkpoint(monkeypatch, brokers, 1, meanwhile)
    acknowledged = False
    with contextlib.suppress(FellBehindError, ReplicaError):
        _, acknowledged = late[0]()

    assert acknowledged == ("late" in brokers.words(3))


def test_a_version_that_was_damaged_when_the_view_went_on_is_read_anew(roots: Roots) -> None:
    roots.append("0")
    cluster = opened(roots.paths)
    cluster.log("t").refresh()
    location = cluster.topic("t").location
    store, published = cluster.store.at(location), cluster.store.replicas(location).published
    view = published.view()
    assert view is not None
    for value in "1234":
        roots.append(value)
    name, kept = log_name(view.end + 2), dict[Path, bytes]()
    for root in roots.paths:
        for file in root.glob(f"t~*/{name}"):
            kept[file] = file.read_bytes()
            file.write_bytes(kept[file][:-20])

    published.followed(view)
    for file, content in kept.items():
        file.write_bytes(content)

    assert store.look(name) == next(iter(kept.values()))


def test_a_former_head_gets_no_checkpoint_of_what_it_does_not_have(
    roots: Roots, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Maintenance has asked who is in sync, and slept; then it sees the log up to where the others have gone on."""
    for number in range(12):
        roots.append(str(number))
    version = roots.log().version + 1
    copies = ChainStorage.answering
    slept: list[int] = []

    def asked(self: ChainStorage) -> Any:
        found = copies(self)
        if self.uri.endswith("__cluster_metadata") or slept:
            return found
        slept.append(1)
        killed_at(monkeypatch, "replicas.before_put", lambda: roots.append(OURS), visit=2)
        roots.lose_head_for_a_while()
        return found

    cluster = opened(roots.paths)
    log = cluster.log("t")
    assert isinstance(log, TopicLog)
    with monkeypatch.context() as patch:
        patch.setattr(ChainStorage, "answering", asked)
        patch.setattr(log_cleaner, "CHECKPOINT_INTERVAL", 1)
        patch.setattr(log_cleaner, "load_snapshot", lambda files, _, **fold: load_snapshot(files, version, **fold))
        log.clean_log()
    assert slept

    made = LogFiles.listed(LocalStorage(str(roots.of_head(version).parent.parent))).checkpoints

    assert max(made, default=-1) < version
