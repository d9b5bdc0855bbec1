"""Mirrors in a cluster of several roots: they are all at one of them, and get replicas when they are promoted."""

from __future__ import annotations

import contextlib
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.cluster_mirror import Mirror, describe, promote
from kafkalike.connect import connect
from kafkalike.delta.layout import CLUSTER_METADATA, MIRRORS
from kafkalike.errors import KafkaError, KafkaStorageError, MirrorTopicError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.replica_check import check_replicas
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.replication.cluster.epoch_marker import seal_table
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.replication.mirrors.mirror_sync import MirrorSync
from kafkalike.replication.mirrors.promotion import promoting
from kafkalike.storage.local import LocalStorage
from tests.tools.away import away, back
from tests.tools.clusters import on_disk
from tests.tools.consumer import texts
from tests.tools.records import batch_now
from tests.tools.three_roots import opened

pytestmark = pytest.mark.slow


@pytest.fixture
def source(tmp_path: Path) -> Cluster:
    """A cluster of one root with two topics."""
    cluster = on_disk(tmp_path / "source")
    for name in ("a", "b"):
        cluster.create_topic(name, 1, {})
        cluster.log(name).append(batch_now(name))
    return cluster


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [tmp_path / "target" / str(n) for n in (1, 2, 3)]


def mirror(source: Cluster, roots: list[Path]) -> None:
    passed = Mirror(source, opened(roots)).run()
    assert passed.sound, passed


def test_all_mirrors_and_what_passes_stage_are_at_one_root(source: Cluster, roots: list[Path]) -> None:
    opened(roots).create_topic("own", 1, {}, assignments={0: [1, 2]})

    mirror(source, roots)

    cluster = opened(roots)
    found = {cluster.replication.replicas(name).replicas for name in ("a", "b")}
    assert len(found) == 1
    (broker,) = found.pop()
    assert [(root / MIRRORS).exists() for root in roots] == [n == broker for n in (1, 2, 3)]
    assert [len(list(root.glob("[ab]~*"))) for root in roots] == [2 if n == broker else 0 for n in (1, 2, 3)]
    assert {s.topic: s.problem for s in describe(cluster)} == {"a": "", "b": ""}
    assert cluster.replication.replicate().failed == []
    assert list(check_replicas(cluster)) == []
    assert verify(cluster, ["a", "b"]).findings == []
    assert not maintain(cluster, clock=SYSTEM_CLOCK).failed


def test_replicas_of_a_mirror_cannot_be_changed(source: Cluster, roots: list[Path]) -> None:
    mirror(source, roots)
    replication = opened(roots).replication
    (broker,) = replication.replicas("a").replicas

    for refused in (
        lambda: replication.reassign("a", [1, 2, 3]),
        lambda: replication.elect_leader("a"),
        lambda: replication.elect_leader("a", "unclean"),
        lambda: replication.drain(broker),
    ):
        with pytest.raises(MirrorTopicError, match="read-only mirror of"):
            refused()

    assert opened(roots).replication.replicas("a").replicas == (broker,)
    assert not any(known.draining for known in opened(roots).replication.brokers())


def test_a_promoted_mirror_gets_replicas_and_outlives_its_root(source: Cluster, roots: list[Path]) -> None:
    mirror(source, roots)
    cluster = opened(roots)
    (broker,) = cluster.replication.replicas("a").replicas

    promote(cluster, ["a", "b"])
    cluster.replication.reassign("a", [broker, *(n for n in (1, 2, 3) if n != broker)])
    assert not cluster.replication.replicate().failed
    opened(roots).log("a").append(batch_now("more"))
    away(roots[broker - 1])

    assert texts(opened(roots), "a") == ["a", "more"]
    opened(roots).log("a").append(batch_now("last"))
    assert texts(opened(roots), "a") == ["a", "more", "last"]


def test_a_mirror_whose_root_is_away_says_so_and_goes_on_when_it_is_back(source: Cluster, roots: list[Path]) -> None:
    mirror(source, roots)
    (broker,) = opened(roots).replication.replicas("a").replicas
    source.log("a").append(batch_now("more"))
    away(roots[broker - 1])

    with pytest.raises((KafkaStorageError, OSError)):
        Mirror(source, opened(roots)).run()
    back(roots[broker - 1])

    mirror(source, roots)
    assert texts(opened(roots), "a") == ["a", "more"]


def test_clients_that_were_open_while_it_was_a_mirror_go_on_with_its_replicas(
    source: Cluster, roots: list[Path]
) -> None:
    """Who wrote past the chain would write what nobody else has."""
    mirror(source, roots)
    client = opened(roots)
    log = client.log("a")
    with (
        KafkaProducer(bootstrap_servers=client) as producer,
        KafkaConsumer("a", bootstrap_servers=client, auto_offset_reset="earliest") as consumer,
    ):
        assert [r.value for r in consumer.poll(2000).popitem()[1]] == [b"a"]
        with pytest.raises(MirrorTopicError):
            producer.send("a", b"refused").get(10)
        other = opened(roots)
        promote(other, ["a", "b"])
        leader = other.replication.replicas("a").leader
        first, second = (n for n in (1, 2, 3) if n != leader)
        other.replication.reassign("a", [first, second])
        assert not other.replication.replicate().failed

        producer.send("a", b"sent").get(10)
        log.append(batch_now("appended"))

        assert [r.value for r in consumer.poll(5000).popitem()[1]] == [b"sent", b"appended"]
    assert texts(opened(roots), "a") == ["a", "sent", "appended"]
    assert list(check_replicas(opened(roots))) == []


def test_a_mirror_that_wakes_up_after_the_promotion_brings_nothing(source: Cluster, roots: list[Path]) -> None:
    """Stopped between its decision and each of its versions."""
    mirror(source, roots)
    source.log("a").append(batch_now("more"))
    late = MirrorSync(source, opened(roots), lambda _: True, lambda _: True).steps()
    while next(late) != "decided":
        pass
    promote(opened(roots), ["a", "b"])
    cluster = opened(roots)
    cluster.replication.reassign("a", [1, 2, 3])
    assert not cluster.replication.replicate().failed
    cluster.log("a").append(batch_now("own"))

    list(late)

    assert texts(opened(roots), "a") == ["a", "more", "own"]
    assert list(check_replicas(opened(roots))) == []


@pytest.mark.parametrize("stop", ["promoting", "sealed", "adopted"])
def test_a_promotion_that_ends_in_between_is_gone_on_with(source: Cluster, roots: list[Path], stop: str) -> None:
    mirror(source, roots)
    begun = promoting(opened(roots), ["a", "b"])
    while next(begun) != stop:
        pass
    del begun
    with pytest.raises(MirrorTopicError):
        opened(roots).log("a").append(batch_now("refused"))

    promote(opened(roots), ["a", "b"])

    for name in ("a", "b"):
        opened(roots).log(name).append(batch_now("own"))
        assert texts(opened(roots), name) == [name, "own"]
    assert list(check_replicas(opened(roots))) == []


# --- two at once, and lives before ---------------------------------------------------------------


def test_a_promotion_that_slept_makes_no_checkpoint_of_what_is_not_published(
    source: Cluster, roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one has ended it, replicas have joined, and the mirrors' root has a version that nobody else has."""
    mirror(source, roots)
    (broker,) = opened(roots).replication.replicas("a").replicas
    others = [n for n in (1, 2, 3) if n != broker]

    def late(*given: Any) -> None:
        monkeypatch.undo()
        promote(opened(roots), ["a", "b"])
        cluster = opened(roots)
        cluster.replication.reassign("a", [*others, broker])
        assert not cluster.replication.replicate().failed
        put_at_the_head_alone(opened(roots), monkeypatch)
        away(roots[broker - 1])
        opened(roots).log("a").append(batch_now("acknowledged"))
        back(roots[broker - 1])
        seal_table(*given)

    monkeypatch.setattr("kafkalike.replication.cluster.replicated_cluster.seal_table", late)

    promote(opened(roots), ["a", "b"])

    cluster = opened(roots)
    assert not cluster.replication.replicate().failed
    cluster.replication.reassign("a", [broker])
    assert not cluster.replication.replicate().failed
    assert texts(opened(roots), "a") == ["a", "acknowledged"]


def test_a_promotion_that_slept_after_its_seal_makes_no_checkpoint_at_all(
    source: Cluster, roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers the topic as a mirror, and the table has another registration by now."""
    mirror(source, roots)
    (broker,) = opened(roots).replication.replicas("a").replicas
    steps = promoting(opened(roots), ["a", "b"])
    while next(steps) != "sealed":
        pass
    promote(opened(roots), ["a", "b"])
    cluster = opened(roots)
    cluster.replication.reassign("a", [*(n for n in (1, 2, 3) if n != broker), broker])
    assert not cluster.replication.replicate().failed
    put_at_the_head_alone(opened(roots), monkeypatch)
    away(roots[broker - 1])
    opened(roots).log("a").append(batch_now("acknowledged"))
    back(roots[broker - 1])

    list(steps)

    cluster = opened(roots)
    assert not cluster.replication.replicate().failed
    cluster.replication.reassign("a", [broker])
    assert not cluster.replication.replicate().failed
    assert texts(opened(roots), "a") == ["a", "acknowledged"]


def put_at_the_head_alone(cluster: ReplicatedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer of a record is killed when the first replica of the chain has it."""
    log = cluster.log("a")
    logs = cluster.store.replicas(log.info.location).roots.logs
    put = logs.put

    def killed(*what: Any, **how: Any) -> bool:
        put(*what, **how)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(logs, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            log.append(batch_now("at the head alone"))


def test_a_promoted_mirror_is_recovered_though_the_metadata_that_are_left_call_it_one(
    source: Cluster, roots: list[Path], tmp_path: Path
) -> None:
    """It was moved and written since."""
    mirror(source, roots)
    (broker,) = opened(roots).replication.replicas("a").replicas
    other, voter = (n for n in (1, 2, 3) if n != broker)
    opened(roots).replication.recover(voters=[voter])
    opened(roots).metadata.refresh()
    kept = {n: shutil.copytree(roots[n - 1] / CLUSTER_METADATA, tmp_path / f"kept{n}") for n in (broker, other)}
    promote(opened(roots), ["a", "b"])
    cluster = opened(roots)
    cluster.replication.reassign("a", [other])
    assert not cluster.replication.replicate().failed
    opened(roots).log("a").append(batch_now("own"))
    away(roots[voter - 1])
    for number, folder in kept.items():
        shutil.rmtree(roots[number - 1] / CLUSTER_METADATA)
        shutil.copytree(folder, roots[number - 1] / CLUSTER_METADATA)
    left = [str(roots[n - 1]) for n in (broker, other)]

    done = connect(left, access="spark").replication.recover(left[0])

    assert not done.sure
    assert any(f"broker {other} leads" in finding for finding in done.findings)
    assert texts(connect(left, access="spark"), "a") == ["a", "own"]


def test_two_promotions_at_once_both_end(source: Cluster, roots: list[Path]) -> None:
    mirror(source, roots)
    first = opened(roots)
    steps = promoting(first, ["a", "b"])
    while next(steps) != "sealed":
        pass
    promote(opened(roots), ["a", "b"])
    first.metadata.refresh()
    opened(roots).log("a").append(batch_now("own"))

    list(steps)

    assert texts(opened(roots), "a") == ["a", "own"]
    assert list(check_replicas(opened(roots))) == []


SEVERAL = pytest.mark.parametrize("several", [False, True], ids=["one root", "three roots"])


def target(roots: list[Path], *, several: bool) -> Cluster:
    return opened(roots) if several else on_disk(roots[0].parent)


@SEVERAL
def test_a_pass_of_a_mirror_that_was_deleted_is_not_brought_to_the_next_one(
    source: Cluster, roots: list[Path], *, several: bool
) -> None:
    """It was decided and killed; another topic that it was for names it still."""
    assert Mirror(source, target(roots, several=several)).run().sound
    for name in ("a", "b"):
        source.log(name).append(batch_now("more"))
    killed = MirrorSync(source, target(roots, several=several), lambda _: True, lambda _: True).steps()
    while next(killed) != "decided":
        pass
    del killed
    target(roots, several=several).delete_topic("a")

    assert Mirror(source, target(roots, several=several)).run().sound

    cluster = target(roots, several=several)
    assert texts(cluster, "a") == ["a", "more"]
    assert texts(cluster, "b") == ["b", "more"]
    assert verify(cluster, ["a", "b"]).findings == []


@SEVERAL
def test_a_pass_whose_mirror_was_deleted_and_made_anew_is_not_decided(
    source: Cluster, roots: list[Path], *, several: bool
) -> None:
    """What it has copied is in the folder of the one before."""
    late = MirrorSync(source, target(roots, several=several), lambda _: True, lambda _: True).steps()
    while next(late) != "manifest":
        pass
    for name in ("a", "b"):
        target(roots, several=several).delete_topic(name)
    other = MirrorSync(source, target(roots, several=several), lambda _: True, lambda _: True).steps()
    assert [next(other), next(other)] == ["created", "created"]

    with contextlib.suppress(KafkaError):
        list(late)
    with contextlib.suppress(KafkaError):
        list(other)

    assert Mirror(source, target(roots, several=several)).run().sound
    cluster = target(roots, several=several)
    assert (texts(cluster, "a"), texts(cluster, "b")) == (["a"], ["b"])
    assert verify(cluster, ["a", "b"]).findings == []


def test_the_first_mirror_passes_over_a_root_that_does_not_take_it(
    source: Cluster, roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a new topic does."""
    put, refused = LocalStorage.put_if_absent, set[str]()

    def full(self: LocalStorage, name: str, content: bytes, *, durable: bool = False) -> bool:
        first = next((root for root in roots if f"{root}/a~" in f"{self.uri}/{name}"), None)
        if first is not None and (not refused or str(first) in refused):
            refused.add(str(first))
            raise OSError(errno.ENOSPC, "No space left on device")
        return put(self, name, content, durable=durable)

    opened(roots).create_topic("own", 1, {})
    monkeypatch.setattr(LocalStorage, "put_if_absent", full)

    mirror(source, roots)

    assert len(refused) == 1
    assert texts(opened(roots), "a") == ["a"]


def test_mirrors_whose_root_is_away_are_described_all_the_same(source: Cluster, roots: list[Path]) -> None:
    mirror(source, roots)
    (broker,) = opened(roots).replication.replicas("a").replicas
    away(roots[broker - 1])

    described = describe(opened(roots))

    assert [standing.topic for standing in described] == ["a", "b"]
    assert all("is not there" in standing.problem for standing in described)
