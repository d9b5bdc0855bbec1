"""A cluster of one root gets others: what it has stays, and clients that know one root are kept out."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.admin.cluster_mirror import Mirror, promote
from kafkalike.cli import main
from kafkalike.connect import connect
from kafkalike.errors import KafkaConfigurationError, KafkaError, MirrorTopicError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.maintenance.verify.replica_check import check_replicas
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.replication.cluster.brokers import Brokers
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.replication.mirrors.mirror_sync import MirrorSync
from tests.tools.clusters import on_three_disks
from tests.tools.consumer import texts
from tests.tools.forked import killed
from tests.tools.records import batch_now


def several(root: Path) -> ReplicatedCluster:
    cluster = connect(root)
    assert isinstance(cluster, ReplicatedCluster)
    return cluster


def values(root: Path, topic: str = "t") -> list[str]:
    return texts(str(root), topic)


def made(root: Path) -> None:
    """A cluster with a topic, a group and a transaction."""
    connect(root).create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=str(root), transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.commit_transaction()
    with KafkaConsumer("t", bootstrap_servers=str(root), group_id="g", auto_offset_reset="earliest") as consumer:
        assert [m.value for messages in consumer.poll(2000).values() for m in messages] == [b"a"]
        consumer.commit()


@pytest.mark.slow
def test_topics_stay_and_get_replicas_at_the_new_root(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    made(one)

    assert main(["brokers", "add", str(two), "--bootstrap-server", str(one)]) == 0

    cluster = several(two)
    assert [broker.id for broker in cluster.replication.brokers()] == [1, 2]
    assert cluster.replication.replicas("t").isr == (1,)
    for table in ("t", "__consumer_offsets"):
        cluster.replication.reassign(table, [2, 1])
    assert not cluster.replication.replicate().failed
    assert cluster.replication.replicas("t").isr == (2, 1)
    with KafkaProducer(bootstrap_servers=str(two), transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"b")
        producer.commit_transaction()
    with KafkaConsumer("t", bootstrap_servers=str(two), group_id="g", auto_offset_reset="earliest") as consumer:
        assert [m.value for messages in consumer.poll(2000).values() for m in messages] == [b"b"]
    assert not verify(several(one), ["t"]).findings
    assert not list(check_replicas(several(one)))
    one.rename(tmp_path / "lost")
    assert main(["recover", "--from", str(two), "--bootstrap-server", str(two)]) == 0
    assert values(two) == ["a", "b"]
    capsys.readouterr()


@pytest.mark.slow
def test_clients_that_know_one_root_are_told(tmp_path: Path) -> None:
    """Whatever they have seen of the cluster before."""
    one = tmp_path / "one"
    made(one)
    writer, committer, idle = connect(one), connect(one), connect(one)
    assert isinstance(writer, Cluster)
    assert isinstance(committer, Cluster)
    log = writer.log("t")
    log.append(batch_now("b"))
    committer.groups.refresh()

    connect(one).replication.add_broker(str(tmp_path / "two"))

    for act in (
        lambda: log.append(batch_now("c")),
        lambda: idle.log("t"),
        lambda: idle.create_topic("u", 1, {}),
        lambda: committer.groups.transact(
            lambda state: [GroupRow(seq=state.seq + 1, time_ms=1, kind=OFFSET, group_id="g", topic="t", partition=0)]
        ),
    ):
        with pytest.raises(UnsupportedVersionError, match=r"has several roots \(`kafkalike brokers add`\)"):
            act()
    assert values(one) == ["a", "b"]


@pytest.mark.slow
def test_what_is_acknowledged_meanwhile_is_there(tmp_path: Path) -> None:
    one = tmp_path / "one"
    made(one)
    acknowledged = ["a"]
    began, refused = threading.Event(), threading.Event()

    def write() -> None:
        log = connect(one).log("t")
        for number in range(10_000):
            try:
                log.append(batch_now(str(number)))
            except KafkaError:
                refused.set()
                return
            acknowledged.append(str(number))
            if number == 10:
                began.set()

    writer = threading.Thread(target=write)
    writer.start()
    assert began.wait(60)

    connect(one).replication.add_broker(str(tmp_path / "two"))

    writer.join(60)
    assert refused.is_set()
    assert values(one) == acknowledged


@pytest.mark.slow
@pytest.mark.parametrize("point", ["growing.after_fence", "growing.after_seal@1", "growing.before_sign"])
def test_a_call_that_was_killed_is_ended_by_the_next_one(tmp_path: Path, point: str) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    made(one)
    killed(lambda: connect(one).replication.add_broker(str(two)), point)
    with pytest.raises(UnsupportedVersionError, match="brokers add"):
        connect(one).create_topic("u", 1, {})

    connect(one).replication.add_broker(str(two))

    assert [broker.id for broker in several(two).replication.brokers()] == [1, 2]
    several(two).log("t").append(batch_now("b"))
    assert values(one) == ["a", "b"]


@pytest.mark.slow
def test_what_cannot_be_done_is_refused_before_anything_is(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    made(one)
    connect(other).create_topic("t", 1, {})

    with pytest.raises(KafkaConfigurationError, match="cluster of one root"):
        connect(one).replication.add_broker(str(other))
    with pytest.raises(KafkaConfigurationError, match="is the root"):
        connect(one).replication.add_broker(str(one))
    with pytest.raises(KafkaConfigurationError, match="is empty"):
        connect(tmp_path / "new").replication.add_broker(str(tmp_path / "two"))

    connect(one).log("t").append(batch_now("b"))
    assert values(one) == ["a", "b"]


@pytest.mark.slow
def test_mirrors_stay_mirrors_and_a_pass_of_before_brings_nothing_wrong(tmp_path: Path) -> None:
    """Passes go on, into the same root; one that was decided before the other root came is brought to its end."""
    source, one, two = connect(tmp_path / "source"), tmp_path / "one", tmp_path / "two"
    assert isinstance(source, Cluster)
    source.create_topic("m", 1, {})
    source.log("m").append(batch_now("a"))
    made(one)
    assert Mirror(source, str(one)).run().sound
    source.log("m").append(batch_now("b"))
    before = connect(one)
    assert isinstance(before, Cluster)
    late = MirrorSync(source, before, lambda _: True, lambda _: True).steps()
    while next(late) != "decided":
        pass

    assert main(["brokers", "add", str(two), "--bootstrap-server", str(one)]) == 0

    with contextlib.suppress(KafkaError):
        list(late)
    source.log("m").append(batch_now("c"))
    passed = Mirror(source, several(one)).run()
    assert passed.sound, passed
    assert values(one, "m") == ["a", "b", "c"]
    with pytest.raises(MirrorTopicError):
        several(one).replication.reassign("m", [2])
    with pytest.raises(UnsupportedVersionError):
        MirrorSync(source, before, lambda _: True, lambda _: True).run()
    promote(several(one), ["m"])
    several(one).log("m").append(batch_now("d"))
    cluster = several(one)
    cluster.replication.reassign("m", [2, 1])
    assert not cluster.replication.replicate().failed
    assert texts(several(two), "m") == ["a", "b", "c", "d"]
    assert list(check_replicas(several(one))) == []


@pytest.mark.slow
def test_a_topic_that_was_a_mirror_of_one_with_replicas_is_written_where_its_cluster_has_grown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table has the epochs of its source, and replicas of brokers that are not there."""
    source = on_three_disks(tmp_path / "source", **{"replica.lag.time.max.ms": "20"})
    source.create_topic("m", 1, {})
    source.log("m").append(batch_now("a"))
    for brokers in ([3, 2], [3], [2, 3]):
        source.replication.reassign("m", brokers)
        assert not source.replication.replicate().failed
    one = tmp_path / "one"
    assert Mirror(source, str(one)).run().sound
    promote(str(one), ["m"])
    with monkeypatch.context() as patch:
        patch.setattr(Brokers, "recover", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            connect(one).replication.add_broker(str(tmp_path / "two"))

    assert values(one, "m") == ["a"]
    several(one).log("m").append(batch_now("b"))

    assert values(one, "m") == ["a", "b"]
    assert list(check_replicas(several(one))) == []


@pytest.mark.slow
@pytest.mark.parametrize("mirrored", [False, True])
def test_a_client_whose_append_meets_the_new_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, mirrored: bool
) -> None:
    """Between its look at the metadata and its look at the table; also where the table had a seal of that name."""
    one, two = tmp_path / "one", tmp_path / "two"
    if mirrored:
        source = on_three_disks(tmp_path / "source", **{"replica.lag.time.max.ms": "20"})
        source.create_topic("m", 1, {}, assignments={0: [1]})
        source.log("m").append(batch_now("a"))
        for brokers in ([2], [1]):
            source.replication.reassign("m", brokers)
            assert not source.replication.replicate().failed
        assert Mirror(source, str(one)).run().sound
        promote(str(one), ["m"])
    else:
        connect(one).create_topic("m", 1, {})
        connect(one).log("m").append(batch_now("a"))
    client = connect(one)
    log = client.log("m")
    log.append(batch_now("b"))
    refresh, grown = client.metadata.refresh, list[int]()

    def late(*given: Any, **named: Any) -> Any:
        found = refresh(*given, **named)
        if not grown:
            grown.append(1)
            connect(one).replication.add_broker(str(two))
            several(one).replication.reassign("m", [2])
            assert not several(one).replication.replicate().failed
        return found

    monkeypatch.setattr(client.metadata, "refresh", late)

    with pytest.raises(UnsupportedVersionError, match=r"has several roots \(`kafkalike brokers add`\)"):
        log.append(batch_now("late"))

    several(one).log("m").append(batch_now("c"))
    assert values(one, "m") == ["a", "b", "c"]
