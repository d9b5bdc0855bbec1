"""What every test of a contract may ask for: the same cluster in memory and on Delta tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.connect import connect
from kafkalike.log.port import Cluster
from kafkalike.log.store.memory import MemoryStore
from kafkalike.testing import ManualClock, MemoryCluster
from tests.tools.clusters import on_disk

Opener = Callable[[], Cluster]


@pytest.fixture(params=["memory", "delta"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """An empty cluster."""
    if request.param == "memory":
        return MemoryCluster()
    return connect(str(tmp_path / "cluster"))


@pytest.fixture(params=["memory", "delta", "delta without lock"])
def open_log_cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same cluster again and again, as other processes would; its logs take appends without a JVM."""
    root = str(tmp_path / "cluster")
    return _opener(request.param, root)


@pytest.fixture
def log_cluster(open_log_cluster: Opener) -> Cluster:
    """An empty cluster whose logs take appends without a JVM."""
    return open_log_cluster()


@pytest.fixture(params=["memory", "delta", "delta without lock", "delta in memory"])
def open_control(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Opens the same cluster again and again; for what concerns its control tables only."""
    root = str(tmp_path / "cluster")
    return _opener(request.param, root)


def _opener(kind: str, root: str) -> Opener:
    if kind == "memory":
        shared = MemoryCluster()
        return lambda: shared
    if kind == "delta":
        return lambda: connect(root)
    if kind == "delta without lock":
        return lambda: on_disk(root, queue=False)
    store = MemoryStore()
    return lambda: DeltaCluster(store)


@pytest.fixture
def clock() -> ManualClock:
    """Time for clients; the cluster keeps the machine's own."""
    return ManualClock()


@pytest.fixture
def consumer_of(cluster: Cluster, clock: ManualClock, request: pytest.FixtureRequest) -> Callable[..., KafkaConsumer]:
    """Makes consumers of the cluster that begin at the log start, and closes them at the end."""

    def make(*topics: str, **configs: Any) -> KafkaConsumer:
        settings = {"bootstrap_servers": cluster, "auto_offset_reset": "earliest", **configs}
        consumer = KafkaConsumer(*topics, clock=clock, **settings)
        request.addfinalizer(lambda: consumer.close(autocommit=False))
        return consumer

    return make
