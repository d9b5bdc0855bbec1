"""One gateway for all tests of a file, over tables on disk, with topics of its own for each test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike.connect import connect
from kafkalike.gateway.gateway_server import GatewayServer
from kafkalike.log.cluster.cluster import Cluster


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, str]]:
    """A cluster, and the address of its gateway."""
    root: Path = tmp_path_factory.mktemp("gateway")
    cluster = connect(str(root))
    server = GatewayServer(cluster)
    server.start()
    yield cluster, server.bootstrap_servers
    server.stop()


@pytest.fixture
def topic(served: tuple[Cluster, str], request: pytest.FixtureRequest) -> Callable[[int], str]:
    """Creates a topic with a number of partitions."""

    def create(partitions: int) -> str:
        name = f"t-{abs(hash(request.node.name)) % 10**9}-{partitions}"
        served[0].create_topic(name, partitions, {})
        return name

    return create
