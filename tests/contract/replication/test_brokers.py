"""Brokers and replicas as administrators see them: Kafka's calls, commands, columns and figures, over three roots."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kafkalike.admin import KafkaAdminClient
from kafkalike.admin.group_lag import Lags
from kafkalike.admin.metrics.cluster_collector import ClusterCollector
from kafkalike.cli import main
from kafkalike.errors import KafkaError, PreferredLeaderNotAvailableError
from kafkalike.model.structs import NewTopic, TopicPartition
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.clusters import on_three_disks
from tests.tools.records import fill

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Three roots, with topic t of two partitions on all of them and u on the second and the first one."""
    cluster = opened(tmp_path)
    with KafkaAdminClient(bootstrap_servers=cluster) as admin:
        admin.create_topics(
            [
                NewTopic("t", replica_assignments={0: [1, 2, 3], 1: [1, 2, 3]}),
                NewTopic("u", replica_assignments={0: [2, 1]}),
            ]
        )
    fill(cluster, "t", "a", "b")
    monkeypatch.setenv("KAFKALIKE_BOOTSTRAP_SERVERS", cluster.root)
    return str(tmp_path)


def opened(folder: Path | str) -> ReplicatedCluster:
    """The cluster as a process opens it that waits for nobody."""
    return on_three_disks(folder, **{"replica.lag.time.max.ms": "1"})


def lines(capsys: pytest.CaptureFixture[str], *args: str, code: int = 0) -> list[str]:
    """What a command prints."""
    capsys.readouterr()
    assert main(list(args)) == code
    return capsys.readouterr().out.splitlines()


def lose(roots: str, broker: int) -> Path:
    """A root is away."""
    return Path(roots, str(broker)).rename(Path(roots, f"{broker}-away"))


@pytest.mark.slow
def test_topics_show_leaders_and_replicas_in_kafkas_columns(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And reports find those that lack a replica, or a leader."""
    described = lines(capsys, "topics", "--describe", "--topic", "t")
    assert "ReplicationFactor: 3" in described[0]
    assert described[1] == "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2,3\tIsr: 1,2,3\tElr: \tLastKnownElr: "
    assert lines(capsys, "topics", "--describe", "--under-replicated-partitions") == []
    lose(roots, 3)
    fill(opened(roots), "t", "c")

    under = lines(capsys, "topics", "--describe", "--under-replicated-partitions")

    assert [line.split("\t")[1:6] for line in under] == [
        ["Topic: t", f"Partition: {p}", "Leader: 1", "Replicas: 1,2,3", "Isr: 1,2"] for p in (0, 1)
    ]
    assert lines(capsys, "topics", "--describe", "--unavailable-partitions") == []
    assert lines(capsys, "topics", "--describe", "--under-min-isr-partitions") == []
    assert lines(capsys, "topics", "--describe", "--at-min-isr-partitions") == []


@pytest.mark.slow
def test_replicas_are_assigned_by_hand_on_the_command_line(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And what cannot be is refused in Kafka's words."""
    lines(capsys, "topics", "--create", "--topic", "v", "--replica-assignment", "3:1,3:1")
    assert main(["topics", "--create", "--topic", "w", "--replication-factor", "4"]) == 1
    assert "Replication factor: 4 larger than available brokers: 3." in capsys.readouterr().err
    assert main(["topics", "--create", "--topic", "w", "--replica-assignment", "1:1"]) == 1
    assert "Duplicate brokers not allowed" in capsys.readouterr().err

    (topic,) = KafkaAdminClient(bootstrap_servers=opened(roots)).describe_topics(["v"])

    assert [(p["leader_id"], p["replica_nodes"]) for p in topic["partitions"]] == [(3, [3, 1])] * 2


def test_a_broker_that_is_away_is_fenced_and_offline(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its log directory has Kafka's error, and what it leads goes to another one with the next write."""
    lose(roots, 3)
    with KafkaAdminClient(bootstrap_servers=opened(roots)) as admin:
        brokers = admin.describe_cluster()["brokers"]
        (topic,) = admin.describe_topics(["t"])
        (gone,) = admin.describe_log_dirs(["t"], [3])

    assert [(b["broker_id"], b["is_fenced"]) for b in brokers] == [(1, False), (2, False), (3, True)]
    assert topic["partitions"][0]["offline_replicas"] == [3]
    assert [(d["error_code"], d["topics"]) for d in gone["log_dirs"]] == [(56, [])]
    assert "gives no answer" in lines(capsys, "brokers", "list")[3]


@pytest.mark.slow
def test_replicate_lets_a_root_that_came_back_in_again(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And says how far each replica is."""
    away = lose(roots, 3)
    fill(opened(roots), "t", "c")
    away.rename(Path(roots, "3"))
    before = lines(capsys, "replicate", "--describe", "--topic", "t")
    described = lines(capsys, "replicate", "--describe", "--topic", "t", "--json")

    assert lines(capsys, "replicate", "--topic", "t") == ["t: in sync on 3"]
    assert [line.split()[:2] for line in before[1:]] == [["t", "1"], ["t", "2"], ["t", "3"]]
    assert "out of sync" in before[3]
    after = [json.loads(line) for line in lines(capsys, "replicate", "--describe", "--topic", "t", "--json")]
    assert json.loads(described[2])["lag_seconds"] > 0
    assert [row["lag_seconds"] for row in after] == [0, 0, 0]
    assert [(row["role"], row["lag_versions"]) for row in after] == [("leader", 0), ("in sync", 0), ("in sync", 0)]
    assert lines(capsys, "verify", "--replicas")[-1] == "0 errors, 0 warnings"


@pytest.mark.slow
def test_a_reassignment_is_generated_executed_listed_and_verified(
    roots: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """With Kafka's JSON; `replicate` carries it out."""
    topics, move = tmp_path / "topics.json", tmp_path / "move.json"
    topics.write_text('{"version":1,"topics":[{"topic":"u"}]}')
    made = lines(
        capsys, "reassign-partitions", "--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,3"
    )
    assert json.loads(made[1])["partitions"][0]["replicas"] == [2, 1]
    assert json.loads(made[4])["partitions"][0]["replicas"] == [1, 3]
    move.write_text(made[4])
    file = ["--reassignment-json-file", str(move)]

    assert lines(capsys, "reassign-partitions", "--execute", *file)[-1].endswith("reassignments for u-0")
    assert lines(capsys, "reassign-partitions", "--list")[1] == "u-0: replicas: 1,3,2. adding: 3. removing: 2."
    assert "still in progress" in lines(capsys, "reassign-partitions", "--verify", *file)[1]
    lines(capsys, "replicate")
    assert lines(capsys, "reassign-partitions", "--verify", *file)[1] == "Reassignment of partition u-0 is completed."
    assert lines(capsys, "reassign-partitions", "--list") == ["No partition reassignments found."]


@pytest.mark.slow
def test_a_move_that_is_not_finished_is_taken_back(roots: str) -> None:
    """None takes it back, and there is nothing to take back after."""
    with KafkaAdminClient(bootstrap_servers=opened(roots)) as admin:
        u0 = TopicPartition("u", 0)
        assert admin.alter_partition_reassignments({u0: [3, 2]}) == {u0: None}
        assert admin.list_partition_reassignments({"u": [0]})[u0]["adding_replicas"] == [3]
        assert admin.list_partition_reassignments([T0]) == {}
        assert admin.alter_partition_reassignments({u0: None}) == {u0: None}
        assert admin.list_partition_reassignments() == {}


@pytest.mark.slow
def test_the_preferred_replica_leads_again(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its root came back, and is in sync; another one had taken over."""
    away = lose(roots, 2)
    fill(opened(roots), "u", "a")
    with KafkaAdminClient(bootstrap_servers=opened(roots)) as admin:
        assert admin.describe_topics(["u"])[0]["partitions"][0]["leader_id"] == 1
        with pytest.raises(PreferredLeaderNotAvailableError):
            admin.elect_leaders(0, ["u"])
    away.rename(Path(roots, "2"))
    lines(capsys, "replicate", "--topic", "u")

    lines(capsys, "leader-election", "--election-type", "preferred", "--topic", "u", "--partition", "0")

    (topic,) = KafkaAdminClient(bootstrap_servers=opened(roots)).describe_topics(["u"])
    assert topic["partitions"][0]["leader_id"] == 2


def test_an_unclean_election_needs_a_replica_that_answers(roots: str) -> None:
    """Nobody answers."""
    cluster = opened(roots)
    for broker in (1, 2):
        shutil.move(Path(roots, str(broker)), Path(roots, f"{broker}-away"))

    with KafkaAdminClient(bootstrap_servers=cluster) as admin, pytest.raises((KafkaError, OSError)):
        admin.elect_leaders(1, ["u"])


@pytest.mark.slow
def test_a_broker_is_added_drained_and_removed(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its replicas go elsewhere first."""
    assert lines(capsys, "brokers", "add", f"{roots}/4", "--rack", "x") == [f"Added broker 4 at {roots}/4."]
    lines(capsys, "topics", "--create", "--topic", "v", "--replica-assignment", "4:1")
    assert main(["brokers", "remove", "4"]) == 1
    assert lines(capsys, "brokers", "drain", "4")[0].startswith("Broker 4 is being drained; it still has v")
    lines(capsys, "replicate")
    assert lines(capsys, "brokers", "drain", "4") == ["Broker 4 is drained: kafkalike brokers remove 4."]
    assert lines(capsys, "brokers", "remove", "4") == ["Removed broker 4."]

    (topic,) = KafkaAdminClient(bootstrap_servers=opened(roots)).describe_topics(["v"])
    assert 4 not in topic["partitions"][0]["replica_nodes"]


@pytest.mark.slow
def test_log_dirs_are_printed_as_kafkas_json(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """For each root."""
    found = json.loads(lines(capsys, "log-dirs", "--describe", "--topic-list", "t", "--broker-list", "2,3")[2])

    assert [(b["broker"], b["logDirs"][0]["logDir"]) for b in found["brokers"]] == [
        (2, f"{roots}/2"),
        (3, f"{roots}/3"),
    ]
    sizes = [[p["size"] for p in b["logDirs"][0]["partitions"]] for b in found["brokers"]]
    assert sizes[0] == sizes[1]
    assert sizes[0][0] > 0
    assert main(["log-dirs", "--describe", "--broker-list", "9"]) == 1


@pytest.mark.slow
def test_verify_finds_replicas_that_are_not_the_same(roots: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A data file of a follower, and one of its versions."""
    cluster = opened(roots)
    location = cluster.topic("t").location
    (path,) = {segment.path for segment in cluster.log("t").segments(0)}
    data, version = Path(roots, "2", location, path), Path(roots, "3", location, "_delta_log", f"{1:020d}.json")
    content = data.read_bytes()
    data.write_bytes(content[:-9] + b"x" + content[-8:])
    version.write_bytes(version.read_bytes().replace(b'"timestamp":', b'"timestamp": '))

    found = lines(capsys, "verify", "--replicas", "--topic", "t", code=1)

    assert [line for line in found if "replica-differs:" in line] == [
        f"ERROR t: replica-differs: replicas of t: broker 2: {path} is not that of the leader",
        f"ERROR t: replica-differs: replicas of t: broker 3: _delta_log/{1:020d}.json is not that of the leader",
    ]


@pytest.mark.slow
def test_figures_say_who_leads_and_who_is_behind(roots: str) -> None:
    """By the names that kafka_exporter has."""
    away = lose(roots, 3)
    fill(opened(roots), "t", "c")
    away.rename(Path(roots, "3"))
    cluster = opened(roots)
    registry = CollectorRegistry()
    registry.register(ClusterCollector(KafkaAdminClient(bootstrap_servers=cluster), Lags(cluster)))

    found = dict(line.rsplit(" ", 1) for line in generate_latest(registry).decode().splitlines() if line[0] != "#")

    assert found["kafka_brokers"] == "3.0"
    assert found[f'kafkalike_broker_up{{broker="2",root="{roots}/2"}}'] == "1.0"
    assert found['kafka_topic_partition_leader{partition="0",topic="t"}'] == "1.0"
    assert found['kafka_topic_partition_in_sync_replica{partition="0",topic="t"}'] == "2.0"
    assert found['kafka_topic_partition_under_replicated_partition{partition="0",topic="t"}'] == "1.0"
    assert float(found['kafkalike_replica_lag_versions{broker="3",topic="t"}']) > 0
    assert float(found['kafkalike_replica_lag_bytes{broker="3",topic="t"}']) > 0
    assert found['kafkalike_replica_lag_versions{broker="2",topic="t"}'] == "0.0"
    assert float(found['kafkalike_replica_lag_seconds{broker="3",topic="t"}']) > 0
    assert found['kafkalike_replica_lag_seconds{broker="2",topic="t"}'] == "0.0"
