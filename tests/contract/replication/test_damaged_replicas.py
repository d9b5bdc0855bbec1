"""A file that is damaged, or missing, at one replica is read from another one; `verify --repair` puts it right."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalike import KafkaConsumer
from kafkalike.delta.checkpoint import make_checkpoint
from kafkalike.delta.layout import CLUSTER_METADATA, CONSUMER_OFFSETS
from kafkalike.delta.snapshot import load_snapshot
from kafkalike.maintenance.verify.replica_check import repair_replicas
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.storage.local import LocalStorage
from tests.tools.clusters import on_three_disks
from tests.tools.records import batch, records_of


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    cluster = opened(tmp_path)
    cluster.create_topic("t", 1, {})
    log = cluster.log("t")
    for n in range(3):
        log.append(batch(f"value {n}"))
    commit(cluster, 1)
    return [tmp_path / str(n) for n in (1, 2, 3)]


def opened(folder: Path) -> ReplicatedCluster:
    return on_three_disks(folder, **{"replica.lag.time.max.ms": "20"})


def commit(cluster: ReplicatedCluster, polls: int) -> None:
    with KafkaConsumer("t", bootstrap_servers=cluster, group_id="g", auto_offset_reset="earliest") as consumer:
        for _ in range(polls):
            consumer.poll(timeout_ms=5_000, max_records=1)
        consumer.commit()


WANTED = [(n, f"value {n}") for n in range(3)]


def leaders(roots: list[Path]) -> Path:
    """The topic's folder at its leader."""
    cluster = opened(roots[0].parent)
    leader = cluster.replication.replicas("t").leader
    return roots[leader - 1] / cluster.topic("t").location


def mended(roots: list[Path]) -> list[str]:
    return list(repair_replicas(opened(roots[0].parent), lambda _: True, dry_run=False))


@pytest.mark.slow
@pytest.mark.timeout(0)
@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.soak)])
def test_whichever_bit_of_a_data_file_is_wrong(roots: list[Path], step: int) -> None:
    """The records are those that were written, or the same file of another replica is read."""
    path = min(leaders(roots).rglob("*.parquet"), key=lambda file: (file.stat().st_size, file.name))
    content = path.read_bytes()
    log = opened(roots[0].parent).log("t")
    for at in range(0, 8 * len(content), step):
        byte, bit = divmod(at, 8)
        path.write_bytes(content[:byte] + bytes([content[byte] ^ (1 << bit)]) + content[byte + 1 :])
        assert records_of(log, 0) == WANTED, at
    path.write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["missing", "empty", "cut off", "nonsense"])
def test_a_data_file(roots: list[Path], how: str) -> None:
    path = min(leaders(roots).rglob("*.parquet"))
    content = path.read_bytes()
    spoil(path, how)

    assert records_of(opened(roots[0].parent).log("t"), 0) == WANTED
    assert len(mended(roots)) == 1
    assert path.read_bytes() == content
    assert not mended(roots)


def spoil(path: Path, how: str) -> None:
    content = path.read_bytes()
    if how == "missing":
        path.unlink()
    else:
        path.write_bytes({"empty": b"", "cut off": content[: len(content) // 2], "nonsense": b"x" * len(content)}[how])


@pytest.mark.slow
@pytest.mark.parametrize("how", ["empty", "cut off", "nonsense"])
def test_a_version(roots: list[Path], how: str) -> None:
    path = max(leaders(roots).glob("_delta_log/*.json"))
    content = path.read_bytes()
    spoil(path, how)

    cluster = opened(roots[0].parent)
    assert records_of(cluster.log("t"), 0) == WANTED
    cluster.log("t").append(batch("value 3"))
    assert records_of(opened(roots[0].parent).log("t"), 0) == [*WANTED, (3, "value 3")]
    assert len(mended(roots)) == 1
    assert path.read_bytes() == content
    assert not mended(roots)


@pytest.mark.slow
@pytest.mark.parametrize("table", [CONSUMER_OFFSETS, CLUSTER_METADATA])
def test_a_control_tables_rows(roots: list[Path], table: str) -> None:
    for root in roots:
        for path in (root / table).glob("part-*.parquet"):
            content = path.read_bytes()
            path.write_bytes(content[: len(content) // 2])
        # One root at a time, others have them.
        cluster = opened(roots[0].parent)
        assert records_of(cluster.log("t"), 0) == WANTED
        assert cluster.groups.refresh().groups["g"].offsets
        for path in (root / table).glob("part-*.parquet"):
            others = [other / table / path.name for other in roots if other != root]
            path.write_bytes(others[0].read_bytes())


@pytest.mark.slow
def test_a_checkpoint(roots: list[Path]) -> None:
    folder = leaders(roots)
    cluster = opened(roots[0].parent)
    log = cluster.log("t")
    for n in range(3, 15):
        log.append(batch(f"value {n}"))
    for root in roots:
        store = LocalStorage(str(root / folder.name))
        make_checkpoint(store, load_snapshot(store), 1)
    (path,) = folder.glob("_delta_log/*.checkpoint.parquet")
    spoil(path, "cut off")
    for version in folder.glob("_delta_log/*.json"):
        if version.name < path.name:
            version.unlink()

    found = opened(roots[0].parent).log("t")

    assert records_of(found, 0) == [(n, f"value {n}") for n in range(15)]
