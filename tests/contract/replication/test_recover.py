"""`kafkalike metadata-quorum` and `kafkalike recover`, as a user calls them, over roots that are lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkalike.admin import KafkaAdminClient
from kafkalike.connect import connect
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.cli import call
from tests.tools.records import all_records, batch


class Roots:
    """Three folders, and a topic on all of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.uris = [str(path / f"r{n}") for n in (1, 2, 3)]
        cluster = self.open()
        cluster.create_topic("orders", 1, {}, replication_factor=3)
        for n in range(3):
            cluster.log("orders").append(batch((0, f"v{n}")))

    def open(self, *numbers: int) -> ReplicatedCluster:
        found = connect([self.uris[n - 1] for n in numbers or (1, 2, 3)])
        assert isinstance(found, ReplicatedCluster)
        return found

    def lose(self, *numbers: int) -> None:
        for n in numbers:
            (self.path / f"r{n}").rename(self.path / f"lost{n}")

    def find(self, *numbers: int) -> None:
        for n in numbers:
            (self.path / f"lost{n}").rename(self.path / f"r{n}")


def values(root: str) -> list[str]:
    return [value for _, value in all_records(root, "orders")[0]]


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return Roots(tmp_path)


@pytest.mark.slow
def test_the_voters_are_described_with_kafkas_columns(roots: Roots) -> None:
    roots.lose(3)
    roots.open().create_topic("more", 1, {}, replication_factor=1)

    status = call(roots.open(), "metadata-quorum", "describe", "--status")
    replication = call(roots.open(), "metadata-quorum", "describe", "--replication")

    said = dict(line.split(":", 1) for line in status.out.splitlines())
    assert list(said) == [
        "ClusterId",
        "LeaderId",
        "LeaderEpoch",
        "HighWatermark",
        "MaxFollowerLag",
        "MaxFollowerLagTimeMs",
        "CurrentVoters",
        "CurrentObservers",
    ]
    heads, *rows = (line.split("\t") for line in replication.out.splitlines())
    assert [head.strip() for head in heads][:4] == ["NodeId", "DirectoryId", "LogEndOffset", "Lag"]
    assert [row[0].strip() for row in rows] == ["1", "2", "3"]
    assert [row[-1].strip() for row in rows] == ["Voter", "Voter", "Voter (no answer)"]
    assert rows[0][2].strip() == said["HighWatermark"].strip()


@pytest.mark.slow
def test_the_admin_client_describes_the_voters_in_kafka_pythons_shape(roots: Roots) -> None:
    roots.lose(3)
    with KafkaAdminClient(bootstrap_servers=roots.open()) as admin:
        described = admin.describe_metadata_quorum()

    (topic,) = described["topics"]
    (partition,) = topic["partitions"]
    voters = partition["current_voters"]
    assert (topic["topic_name"], partition["partition_index"], partition["leader_id"]) == ("__cluster_metadata", 0, -1)
    assert partition["observers"] == []
    assert [voter["replica_id"] for voter in voters] == [1, 2, 3]
    end = partition["high_watermark"]
    assert end > 1
    assert [voter["log_end_offset"] for voter in voters] == [end, end, -1]
    assert [voter["last_caught_up_timestamp"] > 0 for voter in voters] == [True, True, False]
    assert [node["listeners"][0]["host"] for node in described["nodes"]] == roots.uris


def test_two_roots_have_a_voter_and_an_observer_and_one_root_a_voter(tmp_path: Path) -> None:
    two = [str(tmp_path / "a"), str(tmp_path / "b")]
    found = []
    for servers in (two, str(tmp_path / "c")):
        with KafkaAdminClient(bootstrap_servers=servers) as admin:
            admin.create_topics({"t": {"num_partitions": 1, "replication_factor": 1}})
            (partition,) = admin.describe_metadata_quorum()["topics"][0]["partitions"]
            found.append([[r["replica_id"] for r in partition[of]] for of in ("current_voters", "observers")])

    assert found == [[[1], [2]], [[1], []]]


@pytest.mark.slow
def test_one_lost_voter_is_replaced_and_nothing_is_lost(roots: Roots) -> None:
    roots.lose(2)
    fourth = str(roots.path / "r4")
    roots.open().replication.add_broker(fourth)

    done = call(roots.open(), "recover", "--from", roots.uris[0], "--voters", "1,3,4")

    assert done.code == 0, done.err
    assert "Brokers 1, 3, 4 vote" in done.out
    assert "no decided change is lost" in done.out
    roots.lose(1)
    roots.open(3).create_topic("more", 1, {}, replication_factor=1)
    assert sorted(connect([fourth]).topics()) == ["more", "orders"]
    roots.find(2)
    late = roots.open(2)
    assert sorted(late.topics()) == ["more", "orders"]


@pytest.mark.slow
def test_two_of_three_roots_are_lost_for_good(roots: Roots) -> None:
    """All that was acknowledged is there after it, and it says what may be missing."""
    roots.open().create_topic("single", 1, {}, assignments={0: [2]})
    roots.lose(2, 3)

    planned = call(roots.open(1), "recover", "--from", roots.uris[0], "--dry-run")
    done = call(roots.open(1), "recover", "--from", roots.uris[0])

    assert "Brokers 1 would vote" in planned.out
    assert "Brokers 1 vote from version" in done.out
    for said in (planned.out, done.out):
        assert "Voters without an answer: brokers 2, 3." in said
        assert "may be missing: brokers 2, 3 may have decided some by themselves" in said
        assert "single" in said
        assert "no replica is left; its records are lost" in said
    cluster = roots.open(1)
    cluster.log("orders").append(batch((0, "more")))
    assert values(roots.uris[0]) == ["v0", "v1", "v2", "more"]
    cluster.create_topic("new", 1, {}, replication_factor=1)


@pytest.mark.slow
def test_folders_of_tables_that_the_metadata_do_not_name_are_said_and_no_others(roots: Roots) -> None:
    """A replica that was given up lies under another name, and is no table of its own."""
    location = roots.open().topic("orders").location
    root = Path(roots.uris[0])
    for name in (f"{location}~7", "stranger~0123456789abcdef0123456789abcdef"):
        shutil.copytree(root / location, root / name)
    roots.lose(2, 3)

    planned = call(roots.open(1), "recover", "--from", roots.uris[0], "--dry-run")

    assert "stranger~0123456789abcdef0123456789abcdef: a table on brokers 1" in planned.out
    assert planned.out.count("a table on brokers") == 1


@pytest.mark.slow
def test_of_two_roots_the_one_without_a_vote_has_a_copy(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    cluster = connect([first, second])
    cluster.create_topic("orders", 1, {}, replication_factor=2)
    cluster.log("orders").append(batch((0, "v")))
    Path(first).rename(tmp_path / "lost")

    done = call(connect([second]), "recover", "--from", second)

    assert done.code == 0, done.err
    connect([second]).log("orders").append(batch((0, "w")))
    assert values(second) == ["v", "w"]


@pytest.mark.slow
def test_a_newer_epoch_of_a_tables_own_log_counts(roots: Roots) -> None:
    """Brokers 1 and 2 have decided, without 3, that it leaves the chain; then both are lost, and 3 is back."""
    cluster = roots.open()
    kept = roots.path / "kept"
    shutil.copytree(Path(roots.uris[2], "__cluster_metadata"), kept)
    cluster.replication.reassign("orders", [2, 3])
    cluster.replication.replicate(["orders"])
    roots.lose(1, 2)
    shutil.rmtree(Path(roots.uris[2], "__cluster_metadata"))
    shutil.copytree(kept, Path(roots.uris[2], "__cluster_metadata"))

    done = call(roots.open(3), "recover", "--from", roots.uris[2])

    assert "its log says" in done.out, done.out + done.err
    roots.open(3).log("orders").append(batch((0, "more")))
    assert values(roots.uris[2]) == ["v0", "v1", "v2", "more"]


@pytest.mark.slow
def test_with_all_voters_there_is_nothing_to_recover(roots: Roots) -> None:
    done = call(roots.open(), "recover", "--from", roots.uris[0])

    assert done.out == "All voters answer: there is nothing to recover.\n"
