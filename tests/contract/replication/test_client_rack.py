"""Clients in a rack read data files from the replica there, and from another one where it cannot give them."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Self

import pytest

from kafkalike import KafkaConsumer
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, InvalidConfigurationError
from kafkalike.model.brokers import LEADER, ReadFrom
from kafkalike.model.config.storage_options import Address
from kafkalike.model.structs import TopicPartition
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.cli import call
from tests.tools.records import batch


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    """Three roots in racks a, b and c; topic t on all of them, led by the first one."""
    folders = [tmp_path / name for name in ("1", "2", "3")]
    for folder, rack in zip(folders, "abc", strict=True):
        folder.mkdir()
        (folder / "server.properties").write_text(f"broker.rack={rack}\nreplica.lag.time.max.ms=1\n")
    cluster = opened(folders)
    cluster.create_topic("t", 1, {}, assignments={0: [1, 2, 3]})
    cluster.log("t").append(batch((0, "v0")))
    return folders


def opened(roots: list[Path]) -> ReplicatedCluster:
    found = connect(list(map(str, roots)))
    assert isinstance(found, ReplicatedCluster)
    return found


def data_files(root: Path) -> list[Path]:
    return [
        path
        for path in root.rglob("*.parquet")
        if path.relative_to(root).parts[0].startswith("t") and "_delta_log" not in path.parts
    ]


def damage(root: Path) -> None:
    """Whoever reads there says so."""
    for path in data_files(root):
        path.write_bytes(b"\0" * path.stat().st_size)


def values(roots: Address, rack: str, *, striped: bool = False) -> list[bytes]:
    """What a consumer in a rack reads; to be given within a second."""
    with KafkaConsumer(
        bootstrap_servers=roots, client_rack=rack, stripe_reads=striped, auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        found = consumer.poll(10_000)
        return [record.value for records in found.values() for record in records]


@pytest.mark.slow
def test_brokers_have_the_racks_that_their_roots_name(roots: list[Path], tmp_path: Path) -> None:
    fourth = tmp_path / "4"
    fourth.mkdir()
    (fourth / "server.properties").write_text("broker.rack = d \n")
    cluster = opened(roots)
    cluster.replication.add_broker(str(fourth))
    assert [broker.rack for broker in cluster.replication.brokers()] == ["a", "b", "c", "d"]

    done = call(cluster, "brokers", "add", "--id", "2", "--rack", "z", str(roots[1]))

    assert done.code == 0
    assert [broker.rack for broker in cluster.replication.brokers()] == ["a", "z", "c", "d"]


def test_a_rack_that_cannot_be_read_is_an_error_before_the_cluster_is_made(tmp_path: Path) -> None:
    folders = [tmp_path / "1", tmp_path / "2"]
    folders[1].mkdir()
    (folders[1] / "server.properties").write_text("num.partitions=none\n")

    with pytest.raises(InvalidConfigurationError, match=r"2/server.properties"):
        opened(folders).create_topic("t", 1, {}, replication_factor=2)


@pytest.mark.slow
@pytest.mark.parametrize(("rack", "near"), [("a", 0), ("b", 1), ("c", 2), ("elsewhere", 0), ("", 0)])
def test_a_consumer_reads_the_replica_of_its_rack_else_the_leader(roots: list[Path], rack: str, near: int) -> None:
    """All others are damaged, and nobody notices; then this one is."""
    for root in roots:
        if root != roots[near]:
            damage(root)
    assert values(list(map(str, roots)), rack) == [b"v0"]

    damage(roots[near])
    with pytest.raises(CorruptRecordError):
        values(list(map(str, roots)), rack)


@pytest.mark.slow
def test_a_replica_that_is_out_of_sync_is_not_read(roots: list[Path]) -> None:
    away = roots[1].rename(roots[1].with_name("away"))
    opened(roots).log("t").append(batch((0, "v1")))
    away.rename(roots[1])
    damage(roots[1])

    assert values(list(map(str, roots)), "b") == [b"v0", b"v1"]


@pytest.mark.slow
def test_what_the_near_replica_lacks_another_one_gives(roots: list[Path]) -> None:
    """A file, or the root."""
    for path in data_files(roots[1]):
        path.unlink()
    assert values(list(map(str, roots)), "b") == [b"v0"]

    roots[1].rename(roots[1].with_name("away"))
    assert values([str(roots[0])], "b") == [b"v0"]


def test_what_the_leader_and_another_one_lack_the_last_one_gives(roots: list[Path]) -> None:
    """Data files do not change, so whoever has one has the right one."""
    for root in roots[:2]:
        for path in data_files(root):
            path.unlink()

    assert values(list(map(str, roots)), "a") == [b"v0"]


@pytest.mark.slow
def test_what_is_published_is_what_the_leader_shows(roots: list[Path]) -> None:
    """A version that only the near replica has, as its writer is in the middle of the chain, is read by nobody."""
    cluster = opened(roots)
    (near,) = roots[2].glob("t*/_delta_log")
    newest = max(near.glob("*.json"))
    number = int(newest.stem)
    ahead = near / f"{number + 1:020d}.json"
    ahead.write_bytes(newest.read_bytes())

    log = cluster.reading(ReadFrom("c")).log("t")

    assert (log.log_end(0), values(list(map(str, roots)), "c")) == (1, [b"v0"])


@pytest.mark.slow
def test_an_opened_cluster_serves_consumers_of_several_racks(roots: list[Path]) -> None:
    """Each reads where it is; Spark's tasks too."""
    cluster = opened(roots)
    damage(roots[0])

    assert values(cluster, "b") == values(cluster, "c") == values(cluster, "") == [b"v0"]
    assert cluster.reading(LEADER) is cluster
    for rack, root in (("b", roots[1]), ("c", roots[2])):
        sent = pickle.loads(pickle.dumps(cluster.reading(ReadFrom(rack)).log("t").files))  # noqa: S301 - as Spark sends it
        assert Path(sent.uri).parent == root


def test_a_cluster_of_one_root_takes_a_rack_without_effect(tmp_path: Path) -> None:
    """As Kafka's brokers do that have no selector that looks at racks."""
    cluster = connect(str(tmp_path / "one"))
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch((0, "v0")))

    assert values(str(tmp_path / "one"), "a") == [b"v0"]


class Opened:
    """The data files that this thread opens, as Python's audit says."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._on = False
        sys.addaudithook(self._note)

    def _note(self, event: str, values: tuple[object, ...]) -> None:
        if self._on and event == "open" and "/partition=" in str(values[0]):
            self.paths.append(str(values[0]))

    def __enter__(self) -> Self:
        self._on = True
        return self

    def __exit__(self, *raised: object) -> None:
        self._on = False

    def at(self, roots: list[Path]) -> dict[int, set[str]]:
        """Names of files by the number of the root where they were opened."""
        return {
            number: {path.rpartition("/")[2] for path in self.paths if Path(path).is_relative_to(root)}
            for number, root in enumerate(roots)
        }


@pytest.fixture
def many_files(roots: list[Path]) -> list[Path]:
    """The same roots, the topic with 24 files, the last two roots in one rack."""
    cluster = opened(roots)
    assert call(cluster, "brokers", "add", "--id", "2", "--rack", "c", str(roots[1])).code == 0
    log = cluster.log("t")
    for number in range(1, 24):
        log.append(batch((0, f"v{number}")))
    return roots


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rack", "sharing"), [("", {0, 1, 2}), ("elsewhere", {0, 1, 2}), ("c", {1, 2}), ("a", {0})], ids=str
)
def test_striped_reads_give_each_file_to_one_of_the_replicas(
    many_files: list[Path], rack: str, sharing: set[int]
) -> None:
    everything = [f"v{number}".encode() for number in range(24)]

    with Opened() as files:
        assert values(list(map(str, many_files)), rack, striped=True) == everything

    read = files.at(many_files)
    assert {number for number, names in read.items() if names} == sharing
    assert sum(map(len, read.values())) == 24, "no file is read at two roots"


@pytest.mark.slow
def test_without_striped_reads_the_leader_gives_all_files(many_files: list[Path]) -> None:
    with Opened() as files:
        values(list(map(str, many_files)), "")

    assert {number: len(names) for number, names in files.at(many_files).items()} == {0: 24, 1: 0, 2: 0}


@pytest.mark.slow
def test_what_the_replica_whose_turn_it_is_lacks_or_has_damaged_another_one_gives(many_files: list[Path]) -> None:
    everything = [f"v{number}".encode() for number in range(24)]
    damage(many_files[0])
    for path in data_files(many_files[2]):
        path.unlink()

    assert values(list(map(str, many_files)), "", striped=True) == everything

    many_files[2].rename(many_files[2].with_name("away"))
    assert values(list(map(str, many_files[:2])), "", striped=True) == everything


@pytest.mark.slow
def test_sparks_tasks_take_turns_as_well(many_files: list[Path]) -> None:
    log = opened(many_files).reading(ReadFrom(striped=True)).log("t")
    names = [segment.path for segment in log.segments(0)]

    sent = pickle.loads(pickle.dumps(log.files))  # noqa: S301 - as Spark sends it

    with Opened() as files:
        for name in names:
            sent.read_range(name, 0, 4)
    assert all(files.at(many_files).values())
    assert sum(map(len, files.at(many_files).values())) == len(names) == 24
