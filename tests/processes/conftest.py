"""What the tests with several processes share."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.tools.fault_proxy import FaultProxy, fault_proxy
from tests.tools.kinds import OBJECT_STORES
from tests.tools.object_servers import ObjectServer, in_environment, running
from tests.tools.shim import faultshim

__all__ = ["faultshim"]


@dataclass(frozen=True)
class ObjectRoot:
    """A root in an object store that this process, and all that it starts, ask through a proxy."""

    server: ObjectServer
    proxy: FaultProxy
    root: str


@pytest.fixture(scope="module", params=OBJECT_STORES)
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectServer]:
    """A running object store."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started


@pytest.fixture
def proxy(server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """What this process and all that it starts ask instead of the server; without faults at first."""
    with fault_proxy(server.port) as started:
        for name, value in in_environment(server.behind(started.port)).items():
            monkeypatch.setenv(name, value)
        yield started


@pytest.fixture
def object_root(server: ObjectServer, proxy: FaultProxy) -> ObjectRoot:
    """A new root behind the proxy."""
    return ObjectRoot(server, proxy, server.new_root())
