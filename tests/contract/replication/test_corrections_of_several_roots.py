"""Forgetting, undoing and forking in a cluster of several roots: what was taken out is left on none of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalike import ForgetOptions, forget, fork, undo
from kafkalike.errors import BrokerNotAvailableError, KafkaStorageError
from kafkalike.maintenance.verify.certificate_file import check_certificate
from kafkalike.maintenance.verify.key_traces import _Search
from kafkalike.maintenance.verify.topic_history import topic_history
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.maintenance.record_removal import Certificate
from kafkalike.model.record_batch import RecordBatch
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away, back
from tests.tools.three_roots import opened

KEY = b"forget-me-0123456789"

pytestmark = pytest.mark.slow


@pytest.fixture
def named(roots: list[Path]) -> list[str]:
    """The roots, with a topic that has three replicas and two appends with the key."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    for turn in range(2):
        made = RecordBatch()
        for key in (b"a", KEY):
            made.add(0, key, b"%d" % turn, SYSTEM_CLOCK.now_ms())
        cluster.log("t").append(made)
    return [str(root) for root in roots]


def held(roots: list[Path], topic: str = "t") -> list[int]:
    """How many data files of a topic each root has."""
    return [len(list(root.glob(f"{topic}~*/partition=*/*.parquet"))) for root in roots]


def kinds(roots: list[Path], certificate: Certificate | None) -> list[tuple[str, str]]:
    """Kinds of what is wrong with a certificate, and the message."""
    assert certificate is not None
    return [(f.kind, f.message) for f in check_certificate(opened(roots), certificate, [KEY]).findings]


def keys(roots: list[Path], topic: str = "t") -> list[bytes | None]:
    return [key for _, key in held_records(roots, topic)]


def held_records(roots: list[Path], topic: str = "t") -> list[tuple[int, bytes | None]]:
    """Offset and key of each record, as a reader that comes new sees them."""
    log = opened(roots).log(topic)
    reader, found = log.reader(0, log.log_start(0)), list[tuple[int, bytes | None]]()
    while (chunk := reader.read(1 << 20)) is not None:
        found += [(row["offset"], row["key"]) for row in chunk.table.to_pylist()]
    return found


def test_forgotten_records_are_on_no_root(roots: list[Path], named: list[str]) -> None:
    report = forget("t", named, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert keys(roots) == [b"a", b"a"]
    assert kinds(roots, report.certificate) == []
    files = [file for root in roots for file in root.rglob("*.parquet")]
    assert files
    assert not any(KEY in file.read_bytes() for file in files)
    assert not verify(opened(roots), ["t"]).findings


def test_nothing_is_forgotten_while_a_root_is_away_that_would_keep_it(roots: list[Path], named: list[str]) -> None:
    """Neither while it is in sync still, nor when it was taken out, nor before it has caught up."""
    away(roots[2])
    with pytest.raises(BrokerNotAvailableError, match=r"t: broker 3 gives no answer .*nothing was done"):
        forget("t", named, keys=KEY, dry_run=False)
    opened(roots).log("t").append(one(b"b"))
    back(roots[2])
    with pytest.raises(BrokerNotAvailableError, match="broker 3"):
        forget("t", named, keys=KEY, dry_run=False)
    assert forget("t", named, keys=KEY).records == 2
    assert not opened(roots).replication.replicate().failed

    report = forget("t", named, keys=KEY, dry_run=False, options=ForgetOptions(now=True))

    assert report.records == 2
    assert kinds(roots, report.certificate) == []


def test_a_certificate_says_which_root_was_not_looked_at(roots: list[Path], named: list[str]) -> None:
    report = forget("t", named, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    away(roots[1])

    (said,) = kinds(roots, report.certificate)

    assert said == ("broker-away", "broker 2 gives no answer: nobody knows what its root has")


def test_a_certificate_holds_when_the_cluster_has_got_another_root(roots: list[Path], named: list[str]) -> None:
    report = forget("t", named, keys=KEY, dry_run=False, options=ForgetOptions(now=True))
    opened(roots).replication.add_broker(str(roots[0].parent / "4"))

    assert kinds(roots, report.certificate) == []


def test_an_append_is_undone_on_all_roots(roots: list[Path], named: list[str]) -> None:
    ids = [one for event in topic_history(opened(roots), "t") for one in event.appends]

    report = undo("t", ids[0], named, dry_run=False)

    assert report.records == 2
    assert [offset for offset, _ in held_records(roots)] == [2, 3]
    assert not [f for f in verify(opened(roots), ["t"]).findings if not f.warning]


def test_a_fork_shares_its_files_on_each_root(roots: list[Path], named: list[str]) -> None:
    """Each replica of the fork links those of the topic's replica beside it: no byte is copied."""
    made = fork("t", "new", named)

    assert (made.files, made.shared) == (2, 2)
    assert held(roots, "new") == held(roots) == [2, 2, 2]
    for root in roots:
        inodes = [{f.stat().st_ino for f in root.glob(f"{topic}~*/partition=*/*.parquet")} for topic in ("t", "new")]
        assert inodes[0] == inodes[1]
    opened(roots).log("new").append(one(b"b"))
    assert (keys(roots), keys(roots, "new")) == ([b"a", KEY] * 2, [*[b"a", KEY] * 2, b"b"])
    assert not verify(opened(roots), ["new"]).findings


def test_a_fork_has_the_brokers_of_its_topic_and_gets_a_file_that_one_of_them_lacks(
    roots: list[Path], named: list[str]
) -> None:
    """What lies beside each other is linked; the rest is brought from a replica that has it."""
    cluster = opened(roots)
    cluster.replication.reassign("t", [2, 1])
    assert not cluster.replication.replicate().failed
    next(roots[1].glob("t~*/partition=*/*.parquet")).unlink()

    made = fork("t", "new", named)

    assert (made.files, made.shared) == (2, 1)
    assert cluster.replication.replicas("new").replicas == (2, 1)
    assert held(roots, "new") == [2, 2, 0]
    assert keys(roots, "new") == [b"a", KEY] * 2
    assert not verify(opened(roots), ["new"]).findings


def one(key: bytes) -> RecordBatch:
    made = RecordBatch()
    made.add(0, key, b"", SYSTEM_CLOCK.now_ms())
    return made


@pytest.fixture
def strayed(roots: list[Path], named: list[str]) -> Certificate:
    """A certificate, and a file with the key that has found its way to the third root since."""
    certificate = forget("t", named, keys=KEY, dry_run=False, options=ForgetOptions(now=True)).certificate
    assert certificate is not None
    cluster = opened(roots)
    cluster.create_topic("u", 1, {})
    cluster.log("u").append(one(KEY))
    (roots[2] / "stray").mkdir()
    shutil.copy(next(roots[2].glob("u~*/partition=*/*.parquet")), roots[2] / "stray" / "x.parquet")
    assert [kind for kind, _ in kinds(roots, certificate)] == ["key-not-gone"]
    return certificate


def test_a_certificate_names_a_root_that_goes_away_while_others_are_asked(
    roots: list[Path], strayed: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_broker = ReplicatedCluster.roots_by_broker

    def late(self: ReplicatedCluster) -> Any:
        away(roots[2])
        return by_broker(self)

    monkeypatch.setattr(ReplicatedCluster, "roots_by_broker", late)

    assert ("broker-away", "broker 3 gives no answer: nobody knows what its root has") in kinds(roots, strayed)


def test_a_root_that_goes_away_while_it_is_searched_is_not_clean(
    roots: list[Path], strayed: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was listed and is gone is no sign that maintenance was there."""
    found = _Search.found

    def late(self: _Search, name: str, size: int, topic: str | None) -> Any:
        if name == "x.parquet" and roots[2].exists():
            away(roots[2])
        return found(self, name, size, topic)

    monkeypatch.setattr(_Search, "found", late)

    with pytest.raises(KafkaStorageError, match="is not there"):
        kinds(roots, strayed)
