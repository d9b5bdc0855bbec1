"""What every test of a contract may ask for: the same cluster in memory and on Delta tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalike.consumer import KafkaConsumer
from kafkalike.log.connect import connect
from kafkalike.log.port import Cluster
from kafkalike.testing import ManualClock, MemoryCluster


@pytest.fixture(params=["memory", "delta"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """An empty cluster."""
    if request.param == "memory":
        return MemoryCluster()
    return connect(str(tmp_path / "cluster"))


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
