"""A5, A6: the storage says of a commit what is not so; no record may be lost or be there twice."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike.admin.testing import ManualClock
from kafkalike.connect import connect
from kafkalike.delta.commit_file import SETTLE_TRIES
from kafkalike.errors import KafkaStorageError, UnknownOutcomeError
from kafkalike.log.topic.topic_log import TopicLog
from kafkalike.storage.local import LocalStorage
from tests.tools.clusters import on_disk
from tests.tools.records import all_records, batch, open_log

Put = Callable[..., bool]
_PUT: Put = LocalStorage.put_if_absent
FENCE = b'"operation":"FENCE"'


class Storage:
    """A disk whose puts of commits go wrong as a network's may, but for those of fences."""

    def __init__(self, patch: pytest.MonkeyPatch, first: Put) -> None:
        self.late: list[tuple[LocalStorage, str, bytes]] = []
        """Puts that are still under way."""

        def put(files: LocalStorage, name: str, content: bytes, *, durable: bool = False) -> bool:
            if FENCE in content:
                return _PUT(files, name, content, durable=durable)
            return first(files, name, content)

        patch.setattr(LocalStorage, "put_if_absent", put)

    def land(self) -> list[bool]:
        """Let the puts under way arrive; returns which of them made a file."""
        return [_PUT(*put) for put in self.late]


@pytest.fixture
def log(root: str) -> TopicLog:
    """A topic of one partition with one record; waiting between two tries takes no time."""
    cluster = on_disk(root, clock=ManualClock(1_700_000_000))
    cluster.create_topic("t", 1, {})
    log = open_log(cluster)
    log.append(batch((0, "first")))
    return log


def data_files(root: str) -> int:
    return len(list(Path(root, "t", "partition=0").glob("*.parquet")))


def test_a_commit_that_landed_and_is_said_to_exist_is_ones_own(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conditional put that is tried again by the network meets its own file."""
    link = os.link

    def link_twice(source: str, target: str) -> None:
        link(source, target)
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", link_twice)
        done = log.append(batch((0, "second")))

    assert done.ranges == {0: range(1, 2)}
    assert all_records(root) == {0: [(0, "first"), (1, "second")]}


def test_a_file_that_is_said_to_exist_and_cannot_be_read_ends_unclear(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whose it is, so no data file is removed."""

    def half(files: LocalStorage, name: str, _content: bytes) -> bool:
        Path(files.path(name)).write_bytes(b"")
        return False

    Storage(monkeypatch, half)

    with pytest.raises(UnknownOutcomeError):
        log.append(batch((0, "second")))

    assert data_files(root) == 2


def test_a_failed_put_that_lands_later_finds_its_version_taken(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was reported as not written must never be there; the version is closed by an empty commit first."""

    def lost(files: LocalStorage, name: str, content: bytes) -> bool:
        storage.late.append((files, name, content))
        raise OSError(errno.EIO, "the answer is lost")

    with monkeypatch.context() as patch:
        storage = Storage(patch, lost)
        with pytest.raises(KafkaStorageError, match=r"refused the commit: .* the answer is lost"):
            log.append(batch((0, "refused")))

    assert len(storage.late) == SETTLE_TRIES
    assert not any(storage.land())
    assert data_files(root) == 1
    assert log.append(batch((0, "second"))).ranges == {0: range(1, 2)}
    assert all_records(root) == {0: [(0, "first"), (1, "second")]}
    assert [c.get("operation") for c in DeltaTable(f"{root}/t").history(2)] == ["WRITE", "FENCE"]


def test_a_failed_put_that_lands_before_the_fence_is_a_success(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fence finds its place taken, and by whom."""

    def lost(files: LocalStorage, name: str, content: bytes) -> bool:
        storage.late.append((files, name, content))
        raise OSError(errno.EIO, "the answer is lost")

    storage = Storage(monkeypatch, lost)
    put = LocalStorage.put_if_absent

    def land_first(files: LocalStorage, name: str, content: bytes, *, durable: bool = False) -> bool:
        if FENCE in content:
            storage.land()
        return put(files, name, content, durable=durable)

    monkeypatch.setattr(LocalStorage, "put_if_absent", land_first)

    done = log.append(batch((0, "second")))

    assert done.ranges == {0: range(1, 2)}
    assert all_records(root) == {0: [(0, "first"), (1, "second")]}


def test_when_the_fence_fails_too_the_outcome_is_unclear(
    root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The data files stay, since the put may still land."""
    held: list[tuple[LocalStorage, str, bytes]] = []

    def broken(files: LocalStorage, name: str, content: bytes, *, durable: bool = False) -> bool:
        del durable
        held.append((files, name, content))
        raise OSError(errno.EIO, "no answer")

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "put_if_absent", broken)
        with pytest.raises(UnknownOutcomeError):
            log.append(batch((0, "second")))

    assert _PUT(*held[0])
    assert all_records(root) == {0: [(0, "first"), (1, "second")]}


def test_a_full_disk_is_a_refusal_without_a_fence(root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the commit could not even be written beside its place, nothing is under way."""

    def full(_source: str, _target: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", full)
        with pytest.raises(KafkaStorageError):
            log.append(batch((0, "refused")))

    assert data_files(root) == 1
    assert DeltaTable(f"{root}/t").version() == 1


def test_a_put_without_an_answer_is_tried_again(root: str, log: TopicLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is harmless: the second one finds the place free, or its own commit."""
    tries: list[bytes] = []

    def lost_once(files: LocalStorage, name: str, content: bytes) -> bool:
        tries.append(content)
        if len(tries) == 1:
            storage.late.append((files, name, content))
            raise OSError(errno.EIO, "the answer is lost")
        return _PUT(files, name, content)

    storage = Storage(monkeypatch, lost_once)

    done = log.append(batch((0, "second")))

    assert done.ranges == {0: range(1, 2)}
    assert tries[0] == tries[1]
    assert storage.land() == [False]
    assert all_records(root) == {0: [(0, "first"), (1, "second")]}


def test_a_control_row_whose_put_lands_later_is_not_there_twice(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is changed once, by the second try or not at all."""
    cluster = on_disk(root, clock=ManualClock(1_700_000_000))
    cluster.create_topic("a", 1, {})

    def lost(files: LocalStorage, name: str, content: bytes) -> bool:
        storage.late.append((files, name, content))
        raise OSError(errno.EIO, "the answer is lost")

    with monkeypatch.context() as patch:
        storage = Storage(patch, lost)
        with pytest.raises(KafkaStorageError):
            cluster.set_configs("a", {"retention.ms": "7"})
    storage.land()
    cluster.set_configs("a", {"retention.ms": "8"})

    assert connect(root).topic("a").configs == {"retention.ms": "8"}
    assert [row.seq for row in connect(root).metadata.rows] == [1, 2]
