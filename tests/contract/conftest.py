"""What every test of a contract may ask for: the same cluster in memory, on Delta tables and in object stores."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalike.admin.testing import ManualClock, MemoryCluster
from kafkalike.connect import connect
from kafkalike.consumer import KafkaConsumer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.producer import KafkaProducer
from kafkalike.storage import timeouts
from kafkalike.storage.memory import MemoryStorage
from tests.tools.clusters import in_buckets, on_disk, on_three_disks, three_disks
from tests.tools.kinds import BUCKETS, DISK, MIXED, OBJECT_STORES, SEVERAL, THREE_BUCKETS, THREE_ROOTS, WITHOUT_LOCK
from tests.tools.object_servers import KINDS, S3, ObjectServer, in_environment, running
from tests.tools.producers import producers

Opener = Callable[..., Cluster]
"""With `elsewhere`, where it counts, as a process does that knows nothing of what this one knows."""
Servers = Callable[[str], ObjectServer]


@pytest.fixture(scope="session")
def object_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Real object stores by kind, each started when it is first asked for."""
    with contextlib.ExitStack() as stack:
        started: dict[str, ObjectServer] = {}

        def start(kind: str) -> ObjectServer:
            if kind not in started:
                started[kind] = stack.enter_context(running(kind, tmp_path_factory.mktemp(kind)))
            return started[kind]

        yield start


@pytest.fixture(scope="session", autouse=True)
def patient_calls() -> Iterator[None]:
    """Let a call to a root take as long as a busy machine needs: a second is what only a root that hangs may take."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timeouts, "SHORTEST_TIMEOUT_SECONDS", 30.0)
        yield


CLUSTERS = ["memory", "delta", THREE_ROOTS, *OBJECT_STORES]


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers) -> Cluster:
    """An empty cluster."""
    return _opener(request.param, str(tmp_path / "cluster"), object_server)()


@pytest.fixture(scope="module", params=CLUSTERS)
def shared_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, object_server: Servers
) -> Cluster:
    """A cluster for the tests of a file that only look: empty for the first one."""
    return _opener(request.param, str(tmp_path_factory.mktemp("shared") / "cluster"), object_server)()


@pytest.fixture(params=["memory", "delta", WITHOUT_LOCK, THREE_ROOTS, *THREE_BUCKETS, *OBJECT_STORES])
def open_log_cluster(request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers) -> Opener:
    """Opens the same cluster again and again, as other processes would; its logs take appends without a JVM."""
    return _opener(request.param, str(tmp_path / "cluster"), object_server)


@pytest.fixture
def log_cluster(open_log_cluster: Opener) -> Cluster:
    """An empty cluster whose logs take appends without a JVM."""
    return open_log_cluster()


@pytest.fixture(params=["memory", "delta", WITHOUT_LOCK, "delta in memory", THREE_ROOTS, *OBJECT_STORES])
def open_control(request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers) -> Opener:
    """Opens the same cluster again and again; for what concerns its control tables only."""
    return _opener(request.param, str(tmp_path / "cluster"), object_server)


@pytest.fixture(params=["delta", "delta in memory", THREE_ROOTS, *OBJECT_STORES])
def open_tables(request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers) -> Opener:
    """The same for what concerns tables: all but the cluster that has none."""
    return _opener(request.param, str(tmp_path / "cluster"), object_server)


def _opener(kind: str, root: str, object_server: Servers) -> Opener:  # noqa: PLR0911 - one for each kind
    if kind in KINDS:
        server = object_server(kind)
        place = server.new_root()
        # Other options share nothing with what this process knows.
        return lambda elsewhere=False: connect(place, {**server.options, **({"timeout": "19s"} if elsewhere else {})})
    if kind in (BUCKETS, MIXED):
        server = object_server(S3)
        base, folder = server.new_root(), f"{root}.folder" if kind == MIXED else None
        return lambda elsewhere=False: in_buckets(server, base, folder, {"timeout": "19s"} if elsewhere else {})
    if kind == "memory":
        shared = MemoryCluster()
        return lambda **_: shared
    if kind == "delta":
        return lambda **_: connect(root)
    if kind == SEVERAL:
        return lambda **_: on_three_disks(root)
    if kind == "delta without lock":
        return lambda **_: on_disk(root, queue=False)
    store = MemoryStorage()
    return lambda **_: Cluster(store)


@pytest.fixture(params=[DISK, *OBJECT_STORES])
def any_root(
    request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A root that does not exist yet, on a disk or in an object store; the environment says who asks."""
    return _root(request.param, tmp_path, object_server, monkeypatch)


@pytest.fixture(params=[DISK, THREE_ROOTS, *OBJECT_STORES])
def root_or_roots(
    request: pytest.FixtureRequest, tmp_path: Path, object_server: Servers, monkeypatch: pytest.MonkeyPatch
) -> str:
    """The same, or three folders, in which a new topic has three replicas."""
    if request.param != SEVERAL:
        return _root(request.param, tmp_path, object_server, monkeypatch)
    settings = tmp_path / "server.properties"
    settings.write_text("default.replication.factor=3\n")
    monkeypatch.setenv("KAFKALIKE_SERVER_PROPERTIES", str(settings))
    return three_disks(tmp_path / "cluster")


def _root(kind: str, tmp_path: Path, object_server: Servers, monkeypatch: pytest.MonkeyPatch) -> str:
    if kind == DISK:
        return str(tmp_path / "cluster")
    server = object_server(kind)
    for name, value in in_environment(server).items():
        monkeypatch.setenv(name, value)
    return server.new_root()


@pytest.fixture(params=OBJECT_STORES)
def server(request: pytest.FixtureRequest, object_server: Servers) -> ObjectServer:
    """A running object store."""
    return object_server(request.param)


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


@pytest.fixture
def producer_of(log_cluster: Cluster) -> Iterator[Callable[..., KafkaProducer]]:
    """Makes producers of one transactional id that are closed after the test; topics `t` (2 partitions) and `u`."""
    log_cluster.create_topic("t", 2, {})
    log_cluster.create_topic("u", 1, {})
    with producers(log_cluster, transactional_id="copier") as make:
        yield make


@pytest.fixture
def producer(producer_of: Callable[..., KafkaProducer]) -> KafkaProducer:
    """A producer that may begin a transaction."""
    one = producer_of()
    one.init_transactions()
    return one
