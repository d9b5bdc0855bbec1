"""Topics and control tables that are made while a root is away: as in Kafka, it is assigned, and not in sync yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.delta.layout import CONSUMER_OFFSETS
from kafkalike.errors import InvalidReplicationAssignmentError, InvalidReplicationFactorError
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away, back
from tests.tools.clusters import on_three_disks
from tests.tools.consumer import texts
from tests.tools.records import batch_now

T0 = TopicPartition("t", 0)


def opened(folder: Path) -> ReplicatedCluster:
    """The cluster as another process opens it."""
    return on_three_disks(folder, **{"replica.lag.time.max.ms": "20"})


def made(folder: Path) -> ReplicatedCluster:
    """The cluster after its first topic, "first"."""
    cluster = opened(folder)
    cluster.create_topic("first", 1, {})
    return cluster


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_topic_is_made_that_a_root_gets_when_it_is_back(tmp_path: Path, gone: int) -> None:
    made(tmp_path)
    away(tmp_path / str(gone))
    there = {1, 2, 3} - {gone}

    opened(tmp_path).create_topic("t", 1, {})

    described = opened(tmp_path).replication.replicas("t")
    assert set(described.replicas) == {1, 2, 3}
    assert described.leader == described.replicas[0]
    assert (set(described.isr), described.replicas[-1]) == (there, gone)
    opened(tmp_path).log("t").append(batch_now("a"))
    assert opened(tmp_path).replication.replicate(["t"]).failed

    back(tmp_path / str(gone))
    opened(tmp_path).log("t").append(batch_now("b"))
    assert not opened(tmp_path).replication.replicate().failed
    for other in there:
        away(tmp_path / str(other))
        assert texts(opened(tmp_path), "t") == ["a", "b"]
        back(tmp_path / str(other))
    cluster = opened(tmp_path)
    assert not cluster.replication.replicate().failed
    assert set(cluster.replication.replicas("t").isr) == {1, 2, 3}
    assert not verify(cluster, ["t"]).findings


def test_fewer_replicas_than_roots_are_made_at_roots_that_answer(tmp_path: Path) -> None:
    cluster = made(tmp_path)
    away(tmp_path / "2")

    for name in ("a", "b", "c"):
        cluster.create_topic(name, 1, {}, replication_factor=2)

    for name in ("a", "b", "c"):
        described = cluster.replication.replicas(name)
        assert set(described.replicas) == set(described.isr) == {1, 3}


def test_more_replicas_than_roots_are_refused_with_a_root_away_too(tmp_path: Path) -> None:
    cluster = made(tmp_path)
    away(tmp_path / "2")

    with pytest.raises(InvalidReplicationFactorError, match=r"4 larger than available brokers: 3\."):
        cluster.create_topic("t", 1, {}, replication_factor=4)


def test_a_second_root_of_two_may_be_away(tmp_path: Path) -> None:
    roots = [tmp_path / "1", tmp_path / "2"]
    connect(roots).create_topic("first", 1, {}, replication_factor=2)
    away(tmp_path / "2")

    connect(roots[:1]).create_topic("t", 1, {}, replication_factor=2)

    described = connect(roots[:1]).replication.replicas("t")
    assert (described.replicas, described.isr) == ((1, 2), (1,))


def test_a_drained_root_is_not_waited_for(tmp_path: Path) -> None:
    cluster = opened(tmp_path)
    cluster.create_topic("first", 1, {}, replication_factor=2)
    cluster.replication.drain(3)
    away(tmp_path / "3")

    with pytest.raises(InvalidReplicationFactorError, match=r"3 larger than available brokers: 2\."):
        cluster.create_topic("t", 1, {}, replication_factor=3)


@pytest.mark.slow
def test_by_hand_others_lead_where_the_first_is_away(tmp_path: Path) -> None:
    cluster = made(tmp_path)
    away(tmp_path / "3")

    cluster.create_topic("t", 1, {}, assignments={0: [3, 1, 2]})
    with pytest.raises(InvalidReplicationAssignmentError, match=r"none of the brokers \[3\]"):
        cluster.create_topic("u", 1, {}, assignments={0: [3]})

    described = cluster.replication.replicas("t")
    assert (described.replicas, described.isr) == ((3, 1, 2), (1, 2))
    cluster.log("t").append(batch_now("a"))
    back(tmp_path / "3")
    assert not opened(tmp_path).replication.replicate().failed
    described = opened(tmp_path).replication.replicas("t")
    assert (described.leader, set(described.isr)) == (3, {1, 2, 3})
    assert texts(opened(tmp_path), "t") == ["a"]


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_group_begins_without_a_root(tmp_path: Path, gone: int) -> None:
    """Its table is there for the first commit, and at the root later."""
    opened(tmp_path).create_topic("t", 1, {})
    opened(tmp_path).log("t").append(batch_now("a"))
    away(tmp_path / str(gone))

    with KafkaConsumer("t", bootstrap_servers=opened(tmp_path), group_id="g", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(10_000)[T0]] == [b"a"]
        consumer.commit()

    registered = opened(tmp_path).metadata.refresh().replicas[CONSUMER_OFFSETS]
    assert (set(registered.assigned), set(registered.isr)) == ({1, 2, 3}, {1, 2, 3} - {gone})
    back(tmp_path / str(gone))
    assert not opened(tmp_path).replication.replicate().failed
    for other in {1, 2, 3} - {gone}:
        away(tmp_path / str(other))
        position = opened(tmp_path).groups.refresh().group("g").offsets[T0].position
        assert position == OffsetAndMetadata(1, "", position.leader_epoch)
        back(tmp_path / str(other))
    assert not opened(tmp_path).replication.replicate().failed
    assert set(opened(tmp_path).metadata.refresh().replicas[CONSUMER_OFFSETS].isr) == {1, 2, 3}


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_transactions_begin_without_a_root(tmp_path: Path, gone: int) -> None:
    opened(tmp_path).create_topic("t", 1, {})
    away(tmp_path / str(gone))

    with KafkaProducer(bootstrap_servers=opened(tmp_path), transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        producer.commit_transaction()

    back(tmp_path / str(gone))
    assert not opened(tmp_path).replication.replicate().failed
    cluster = opened(tmp_path)
    assert texts(cluster, "t") == ["a"]
    assert {len(table.isr) for table in cluster.metadata.refresh().replicas.values()} == {3}
    assert not verify(cluster, ["t"]).findings
