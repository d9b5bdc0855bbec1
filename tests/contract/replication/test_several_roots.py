"""A cluster of several storage roots: topics with replicas go on, and lose nothing, when roots are lost."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
from pathlib import Path

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.connect import connect
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.errors import (
    InvalidReplicationAssignmentError,
    InvalidReplicationFactorError,
    KafkaConfigurationError,
    KafkaStorageError,
    NotEnoughReplicasError,
    UnsafeStorageError,
)
from kafkalike.maintenance.maintenance_run import maintain
from kafkalike.maintenance.verify.verify import verify
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.record_batch import RecordBatch
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.away import away, back
from tests.tools.consumer import texts
from tests.tools.forked import killed
from tests.tools.records import batch_now, records_of
from tests.tools.three_roots import LAG_MS, elected_unclean, opened


def values(cluster: ReplicatedCluster, topic: str = "t") -> list[str]:
    return texts(cluster, topic)


def content(root: Path, location: str) -> dict[str, bytes]:
    """Versions and data files of a replica."""
    table = root / location
    files = [*table.glob("_delta_log/*.json"), *table.glob("partition=*/*.parquet")]
    return {str(file.relative_to(table)): file.read_bytes() for file in files}


def assert_same(roots: list[Path], cluster: ReplicatedCluster, topic: str = "t") -> None:
    location = cluster.topic(topic).location
    first, *others = [content(root, location) for root in roots]
    assert first
    assert all(other == first for other in others)
    assert not verify(cluster, [topic]).findings


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["new client", "open client"])
def test_verify_names_topics_whose_root_is_away_and_checks_the_others(roots: list[Path], *, known: bool) -> None:
    """No bare `OSError`, which would say nothing of the topics after it."""
    cluster = opened(roots)
    for broker in (1, 2, 3):
        cluster.create_topic(f"t{broker}", 1, {}, assignments={0: [broker]})
        cluster.log(f"t{broker}").append(batch_now("v"))
    away(roots[1])

    report = verify(cluster if known else opened(roots), ["t1", "t2", "t3"])

    assert [(finding.kind, finding.topic) for finding in report.findings] == [("table", "t2")]
    assert "broker 2 does not answer" in report.findings[0].message or "2 is not there" in report.findings[0].message
    assert report.records == 2


@pytest.mark.slow
def test_verify_says_when_the_control_tables_give_no_answer(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [1]})
    for root in roots:
        away(root)

    report = verify(cluster, ["t"])

    assert {finding.kind for finding in report.findings} == {"table", "groups-table"}


@pytest.mark.slow
def test_three_replicas_on_two_brokers_are_refused_with_kafkas_sentence(tmp_path: Path) -> None:
    cluster = connect([tmp_path / "a", tmp_path / "b"])

    with pytest.raises(
        InvalidReplicationFactorError, match=r"Replication factor: 3 larger than available brokers: 2\."
    ):
        cluster.create_topic("t", 1, {}, replication_factor=3)
    with pytest.raises(InvalidReplicationFactorError, match="larger than 0"):
        cluster.create_topic("t", 1, {}, replication_factor=0)
    assert not cluster.topics()


@pytest.mark.slow
def test_two_partitions_with_two_replicas_over_three_brokers(roots: list[Path]) -> None:
    cluster = opened(roots)
    for topic in ("a", "b", "c"):
        cluster.create_topic(topic, 2, {}, replication_factor=2)

    described = [cluster.replication.replicas(topic) for topic in ("a", "b", "c")]

    assert [len(each.replicas) for each in described] == [2, 2, 2]
    assert {each.leader for each in described} == {1, 2, 3}
    assert all(set(each.isr) == set(each.replicas) for each in described)
    for each in described:
        location = cluster.topic(each.topic).location
        assert {n for n in (1, 2, 3) if (roots[n - 1] / location).exists()} == set(each.replicas)


def test_an_assignment_by_hand(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 2, {}, assignments={0: [3, 1], 1: [3, 1]})

    assert cluster.replication.replicas("t").replicas == (3, 1)
    assert cluster.replication.replicas("t").leader == 3
    with pytest.raises(InvalidReplicationAssignmentError, match="one table"):
        cluster.create_topic("u", 2, {}, assignments={0: [3, 1], 1: [1, 2]})
    with pytest.raises(InvalidReplicationAssignmentError, match="broker 7 does not exist"):
        cluster.create_topic("u", 1, {}, assignments={0: [3, 7]})


@pytest.mark.slow
def test_one_root_suffices_to_find_the_others(roots: list[Path]) -> None:
    opened(roots).create_topic("t", 1, {})

    for root in roots:
        assert "t" in connect(str(root)).topics()
        assert [broker.uri for broker in connect(str(root)).replication.brokers()] == list(map(str, roots))


@pytest.mark.slow
def test_roots_of_different_clusters_and_single_ones_are_refused(tmp_path: Path, roots: list[Path]) -> None:
    opened(roots).create_topic("t", 1, {})
    connect([tmp_path / "x", tmp_path / "y"]).create_topic("t", 1, {})
    connect(tmp_path / "single").create_topic("t", 1, {})
    (tmp_path / "empty").mkdir()

    with pytest.raises(KafkaConfigurationError, match="different clusters"):
        connect([roots[0], tmp_path / "x"])
    with pytest.raises(KafkaConfigurationError, match="is not a root of the cluster"):
        connect([roots[0], tmp_path / "single"])
    with pytest.raises(KafkaConfigurationError, match="is not a root of the cluster"):
        connect([roots[0], tmp_path / "empty"])
    with pytest.raises(KafkaConfigurationError, match="cluster of one root"):
        connect([tmp_path / "single", tmp_path / "new"])
    with pytest.raises(KafkaConfigurationError, match="named twice"):
        connect([roots[0], roots[0]])
    with pytest.raises(UnsafeStorageError, match="is in HDFS"):
        connect([tmp_path / "new", "hdfs://host/b"])
    with pytest.raises(KafkaConfigurationError, match="storage_options are for object stores"):
        connect(roots, {"region": "x"})


@pytest.mark.slow
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_clients_go_on_without_a_root_and_it_comes_back(roots: list[Path], gone: int) -> None:
    """Broker 1 leads the topic, 2 the groups; no client is made anew, and none waits for more than the lag and 5 s."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    with (
        KafkaProducer(bootstrap_servers=opened(roots)) as producer,
        KafkaConsumer("t", bootstrap_servers=opened(roots), group_id="g", auto_offset_reset="earliest") as consumer,
    ):
        got: list[str] = []

        def produce(*words: str) -> None:
            for word in words:
                producer.send("t", word.encode()).get(timeout=LAG_MS / 1000 + 5)

        def poll(total: int) -> None:
            for _ in range(60):
                for messages in consumer.poll(timeout_ms=100).values():
                    got.extend(message.value.decode() for message in messages)
                if len(got) >= total:
                    return

        produce("a", "b")
        poll(2)
        consumer.commit()

        away(roots[gone - 1])
        produce("c", "d")
        poll(4)
        consumer.commit()

        assert got == ["a", "b", "c", "d"]
        registered = cluster.replication.replicas("t")
        assert set(registered.isr) == {1, 2, 3} - {gone}
        assert registered.offline == (gone,)
        assert registered.leader != gone

        back(roots[gone - 1])
        report = cluster.replication.replicate()
        assert not report.failed
        assert report.joined["t"] == [gone]
        produce("e")
        poll(5)
        consumer.commit()
    assert got == list("abcde")
    assert cluster.replication.replicas("t").isr[0] == cluster.replication.replicas("t").replicas[0]
    assert_same(roots, cluster)
    assert [sorted(cluster.replication.replicas(n).isr) for n in ("t", "__consumer_offsets")] == [[1, 2, 3]] * 2


@pytest.mark.slow
def test_two_of_three_roots_are_lost_for_good(roots: list[Path]) -> None:
    """Who is at work reads on what was acknowledged, and is told that nothing can be written."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    log.append(batch_now("a"))
    shutil.rmtree(roots[0])
    log.append(batch_now("b"))
    shutil.rmtree(roots[1])

    assert values(cluster) == ["a", "b"]
    rows = DeltaTable(str(roots[2] / cluster.topic("t").location)).to_pyarrow_table()
    assert sorted(rows.column("value").to_pylist()) == [b"a", b"b"]


@pytest.mark.slow
def test_an_empty_folder_in_the_place_of_a_root_is_no_root(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch_now("a"))
    away(roots[2])
    roots[2].mkdir()

    cluster.log("t").append(batch_now("b"))

    assert set(cluster.replication.replicas("t").isr) == {1, 2}
    assert not any(roots[2].iterdir())
    assert cluster.replication.replicate(["t"]).failed
    cluster.replication.add_broker(str(roots[2]), id=3)
    assert not cluster.replication.replicate(["t"]).failed
    assert_same(roots, cluster)


@pytest.mark.slow
def test_too_few_replicas_in_sync_are_refused_before_anything_is_written(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {"min.insync.replicas": "3"})
    cluster.log("t").append(batch_now("a"))
    with KafkaProducer(bootstrap_servers=opened(roots), retries=0) as producer:
        away(roots[1])
        opened(roots).replication.replicas("t")
        first = producer.send("t", b"b")
        with pytest.raises(Exception, match=r"min\.insync\.replicas=3"):
            first.get(timeout=10)
        with pytest.raises(NotEnoughReplicasError, match=r"2 replicas are in sync.*nothing was written"):
            producer.send("t", b"c").get(timeout=10)
    back(roots[1])
    cluster.replication.replicate()
    cluster.log("t").append(batch_now("d"))
    assert values(cluster) == ["a", "b", "d"]


@pytest.mark.slow
def test_a_reader_that_is_behind_goes_on_at_once_where_the_new_leader_began_at_a_checkpoint(roots: list[Path]) -> None:
    """What it would read next is not there any more, as after clean-up; nobody has to wait for the next look at all."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [1]})
    cluster.log("t").append(batch_now("a"))
    log = opened(roots).log("t")
    log.refresh()
    for value in "bc":
        cluster.log("t").append(batch_now(value))
    files = cluster.store.root_of(1).at(cluster.topic("t").location)
    make_checkpoint(files, load_snapshot(files), SYSTEM_CLOCK.now_ms())
    cluster.replication.reassign("t", [3])
    assert not cluster.replication.replicate().failed
    cluster.log("t").append(batch_now("d"))
    away(roots[0])

    log.refresh()

    assert [value for _, value in records_of(log, 0)] == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_replicas_are_moved_and_a_broker_is_added_drained_and_removed(tmp_path: Path, roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [1, 2]})
    log = cluster.log("t")
    log.append(batch_now("a"))
    added = cluster.replication.add_broker(str(tmp_path / "4"), rack="r")
    assert (added.id, added.rack) == (4, "r")

    cluster.replication.reassign("t", [4, 3])
    log.append(batch_now("b"))
    assert "t" in cluster.replication.reassigning()
    assert not cluster.replication.replicate(["t"]).failed
    log.append(batch_now("c"))

    moved = cluster.replication.replicas("t", ends=True)
    assert (moved.leader, set(moved.isr)) == (4, {4, 3})
    assert len({end.version for end in moved.ends}) == 1
    assert values(opened(roots)) == ["a", "b", "c"]
    assert "t" in cluster.replication.drain(4)
    assert not cluster.replication.replicate().failed
    assert 4 not in cluster.replication.replicas("t").isr
    log.append(batch_now("d"))
    cluster.replication.remove_broker(4)
    assert [broker.id for broker in cluster.replication.brokers()] == [1, 2, 3]
    assert values(opened(roots)) == ["a", "b", "c", "d"]


@pytest.mark.slow
def test_an_unclean_election_is_recorded_and_clients_see_the_log_that_is_left(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [3, 2]})
    log = cluster.log("t")
    log.append(batch_now("a"))
    away(roots[1])
    log.append(batch_now("lost"))
    away(roots[2])
    back(roots[1])

    elected = cluster.replication.elect_leader("t", "unclean")

    assert elected.leader == 2
    assert len(elected.losses) == 1
    assert values(opened(roots)) == ["a"]
    opened(roots).log("t").append(batch_now("b"))
    log.refresh()
    log.append(batch_now("c"))
    assert values(cluster) == ["a", "b", "c"]
    back(roots[2])
    assert not cluster.replication.replicate().failed
    assert set(cluster.replication.replicas("t").isr) == {2, 3}
    assert values(opened(roots)) == ["a", "b", "c"]


@pytest.mark.slow
def test_an_unclean_election_takes_out_files_that_nobody_has(roots: list[Path]) -> None:
    """A replica that was let in gets versions whose files have left the leader's log, and disk, since."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [3, 2]})
    log = cluster.log("t")
    log.append(batch_now("a"))
    away(roots[1])
    log.append(batch_now("removed"))
    log.append(batch_now("b"))
    back(roots[1])
    leader, other = (root / cluster.topic("t").location for root in (roots[2], roots[1]))
    new = sorted(content(roots[2], leader.name).keys() - content(roots[1], leader.name).keys())
    (removed,) = [name for name in new if b"removed" in (leader / name).read_bytes() and name.endswith(".parquet")]
    for name in new:
        if name != removed:
            shutil.copy(leader / name, other / name)
    away(roots[2])

    elected = cluster.replication.elect_leader("t", "unclean")

    assert "1 data file" in elected.losses[0]
    assert values(opened(roots)) == ["a", "b"]
    opened(roots).log("t").append(batch_now("c"))
    assert records_of(opened(roots).log("t"), 0) == [(0, "a"), (2, "b"), (3, "c")]
    assert not [found for found in verify(opened(roots), ["t"]).findings if not found.warning]
    back(roots[2])
    assert not cluster.replication.replicate().failed
    assert values(opened(roots)) == ["a", "b", "c"]


@pytest.mark.slow
@pytest.mark.parametrize("refused", [1, 2, 3])
def test_a_topic_is_created_elsewhere_where_a_root_does_not_take_it(roots: list[Path], refused: int) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, replication_factor=2)
    root = roots[refused - 1]
    refusing(root, wanted=True)
    try:
        for n in range(3):
            cluster.create_topic(f"new{n}", 1, {}, replication_factor=2)
            assert refused not in cluster.replication.replicas(f"new{n}").replicas
        with pytest.raises(KafkaStorageError, match=f"broker {refused} does not take it"):
            cluster.create_topic("many", 1, {}, replication_factor=3)
        with pytest.raises(KafkaStorageError, match=f"broker {refused} does not take it"):
            cluster.create_topic("named", 1, {}, assignments={0: [refused]})
        assert not [folder for each in roots for folder in each.iterdir() if folder.name.startswith(("many", "named"))]
    finally:
        refusing(root, wanted=False)


def refusing(root: Path, *, wanted: bool) -> None:
    """Nothing new can be made in a root's folder, not even by the superuser: what `chattr +i` does."""
    get_flags, set_flags, immutable = 0x80086601, 0x40086602, 0x10
    folder = os.open(root, os.O_RDONLY)
    try:
        (flags,) = struct.unpack("l", fcntl.ioctl(folder, get_flags, struct.pack("l", 0)))
        fcntl.ioctl(folder, set_flags, struct.pack("l", flags | immutable if wanted else flags & ~immutable))
    except OSError as error:
        pytest.skip(f"no folder can be made immutable here: {error}")
    finally:
        os.close(folder)


@pytest.mark.slow
def test_only_what_is_being_moved_is_a_reassignment(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {}, assignments={0: [1, 2]})
    away(roots[1])
    cluster.log("t").append(batch_now("a"))
    assert cluster.replication.replicas("t").isr == (1,)
    assert not cluster.replication.reassigning()
    cluster.replication.reassign("t", [1, 2, 3])
    assert cluster.replication.reassigning()["t"].adding == (3,)
    cluster.replication.replicate()
    assert not cluster.replication.reassigning()
    back(roots[1])


@pytest.mark.slow
def test_transactions_survive_the_loss_of_a_root(roots: list[Path]) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    with KafkaProducer(bootstrap_servers=opened(roots), transactional_id="x") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"a")
        away(roots[1])
        producer.send("t", b"b")
        producer.commit_transaction()
    assert values(cluster) == ["a", "b"]


PLACES = [*(f"replicas.before_supply@{n}" for n in (1, 2, 3)), *(f"replicas.before_put@{n}" for n in (1, 2, 3))]


@pytest.mark.slow
@pytest.mark.parametrize("place", [*PLACES, "append.after_commit"])
def test_a_writer_killed_between_any_two_acts(roots: list[Path], place: str) -> None:
    """Its records are there once, or not at all, on all roots alike."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch_now("a"))

    killed(lambda: opened(roots).log("t").append(batch_now("b")), place)

    decided = place in {"replicas.before_put@2", "replicas.before_put@3", "append.after_commit"}
    opened(roots).log("t").append(batch_now("c"))
    assert values(cluster) == (["a", "b", "c"] if decided else ["a", "c"])
    location = cluster.topic("t").location
    logs = [{k: v for k, v in content(root, location).items() if k.startswith("_delta_log")} for root in roots]
    assert logs[0] == logs[1] == logs[2]
    assert not verify(cluster, ["t"]).findings


@pytest.mark.slow
def test_maintenance_keeps_replicas_the_same(roots: list[Path]) -> None:
    """Merged files, compaction, retention, checkpoints, clean-up of logs and of files that nobody needs."""
    cluster = opened(roots)
    settings = {"cleanup.policy": "compact", "kafkalike.replaced.file.delay.ms": "0", "min.cleanable.dirty.ratio": "0"}
    cluster.create_topic("t", 1, settings)
    log = cluster.log("t")
    for number in range(110):
        made = RecordBatch()
        made.add(0, b"key%d" % (number % 3), b"%d" % number, SYSTEM_CLOCK.now_ms())
        log.append(made)
    cluster.helpers.wait()

    report = maintain(cluster, clock=SYSTEM_CLOCK)

    assert not report.failed, report
    assert set(values(opened(roots))) >= {"107", "108", "109"}
    location = cluster.topic("t").location
    assert_same(roots, cluster)
    checkpoints = [
        {path.name: path.read_bytes() for path in (root / location).rglob("*.checkpoint.parquet")} for root in roots
    ]
    assert checkpoints[0]
    assert checkpoints[0] == checkpoints[1] == checkpoints[2]
    away(roots[0])
    made = RecordBatch()
    made.add(0, b"key", b"x", SYSTEM_CLOCK.now_ms())
    log.append(made)
    assert "x" in values(cluster)
    back(roots[0])
    assert not cluster.replication.replicate().failed
    assert_same(roots, cluster)


@pytest.mark.slow
def test_a_client_that_knows_a_log_that_was_given_up_begins_anew(roots: list[Path]) -> None:
    """Though the log that counts has gone on past the end that it knows, with a seal there."""
    cluster = opened(roots)
    cluster.create_topic("t", 1, {"unclean.leader.election.enable": "true"}, assignments={0: [1, 3]})
    cluster.log("t").append(batch_now("a"))
    away(roots[2])
    for value in "bcde":
        opened(roots).log("t").append(batch_now(*(f"{value}{n}" for n in range(5))))
    log = opened(roots).log("t")
    log.refresh()
    away(roots[0])
    back(roots[2])
    elected_unclean(opened(roots))
    for value in "vwxyz":
        opened(roots).log("t").append(batch_now(value))
    back(roots[0])
    assert not opened(roots).replication.replicate().failed
    for value in "12":
        opened(roots).log("t").append(batch_now(value))

    log.append(batch_now("new"))

    assert values(opened(roots)) == ["a", *"vwxyz", *"12", "new"]
    assert [value for _, value in records_of(log, 0)] == ["a", *"vwxyz", *"12", "new"]
    assert not verify(opened(roots), ["t"]).findings
