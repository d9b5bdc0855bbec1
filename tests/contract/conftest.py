"""What every test of a contract may ask for: the same cluster in memory and on Delta tables."""

from pathlib import Path

import pytest

from kafkalike.log.connect import connect
from kafkalike.log.port import Cluster
from kafkalike.testing import MemoryCluster


@pytest.fixture(params=["memory", "delta"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Cluster:
    """An empty cluster."""
    if request.param == "memory":
        return MemoryCluster()
    return connect(str(tmp_path / "cluster"))
