"""Versions that only one replica has, below the checkpoint with which it came back: nobody takes them for published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalike import faults
from kafkalike.errors import UnknownOutcomeError
from kafkalike.log.inspect.replica_check import check_replicas
from kafkalike.log.inspect.verify import verify
from kafkalike.log.port import TopicLog
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.replicas.beginnings import NOTE
from tests.tools.away import away, back
from tests.tools.records import batch_now, records_of
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
    (folder / "_delta_log" / f"{NOTE}{1_000:020d}").touch()
    roots.replicate()

    roots.let_head_lead()

    assert values(behind) == ["a", "b", "c", "c"]
    assert values(roots.log()) == ["a", "b", "c", "c"]
