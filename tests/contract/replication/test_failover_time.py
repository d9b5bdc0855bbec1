"""The leader's root goes in the middle of producing: clients go on within `replica.lag.time.max.ms` and 5 s.

This is a promise about time, so here alone time is part of what is shown. No machine's speed is judged: the bound is
the deadline that a client gives itself, which it keeps to or not. A failover takes the lag and some tenths of a
second, and the rest of the five is for a machine that does other things as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.storage_options import check_options
from kafkalike.replication.cluster.cluster_factory import open_several
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from tests.tools.hanging import Hanging, need_hanging
from tests.tools.object_servers import StoppableS3, by_root, stoppable

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("impatient_calls")]

LAG_MS = 1000
PROMISED_MS = LAG_MS + 5000
BEFORE = [f"before {n}" for n in range(3)]
AFTER = [f"after {n}" for n in range(20)]
LAST = "last"


class Place:
    """Where a cluster is, and how one of its roots goes."""

    def __init__(self, roots: list[str], options: object, away: Callable[[int], object]) -> None:
        self.roots, self.away = roots, away
        self._options = check_options(options) if options else None

    def open(self) -> ReplicatedCluster:
        settings = {"replica.lag.time.max.ms": str(LAG_MS), "default.replication.factor": "3"}
        return open_several(
            self.roots, server=ServerProperties.from_properties(settings), storage_options=self._options
        )


@pytest.fixture(
    params=[
        "folder gone",
        "folder hangs",
        pytest.param("bucket gone", marks=pytest.mark.objects),
        pytest.param("bucket hangs", marks=pytest.mark.objects),
    ]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param.startswith("bucket"):
        with stoppable(tmp_path, 3) as servers:
            act = StoppableS3.stop if request.param == "bucket gone" else StoppableS3.hang
            yield Place([server.uri for server in servers], by_root(servers), lambda n: act(servers[n - 1]))
        return
    folders = [tmp_path / str(n) for n in (1, 2, 3)]
    roots = [str(folder) for folder in folders]
    if request.param == "folder gone":
        yield Place(roots, None, lambda n: folders[n - 1].rename(tmp_path / "away"))
        return
    need_hanging(tmp_path / "probe")
    mounted: list[Hanging] = []
    yield Place(roots, None, lambda n: mounted.append(Hanging(folders[n - 1])))
    for each in mounted:
        each.end()


def test_producers_and_consumers_go_on_in_time_without_a_restart(place: Place) -> None:
    cluster = place.open()
    cluster.create_topic("t", 1, {})
    got: list[str] = []
    consumes = threading.Event()

    def consume() -> None:
        """Ends when nothing has come for as long as it may take."""
        with KafkaConsumer(
            "t",
            bootstrap_servers=place.open(),
            group_id="g",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            consumer_timeout_ms=PROMISED_MS,
        ) as consumer:
            for message in consumer:
                got.append(message.value.decode())
                consumes.set()
                if got[-1] == LAST:
                    return

    consuming = threading.Thread(target=consume)
    with KafkaProducer(bootstrap_servers=place.open(), linger_ms=0) as producer:
        for value in BEFORE:
            producer.send("t", value.encode()).get(60)
        consuming.start()
        assert consumes.wait(60)
        sent = [producer.send("t", value.encode()) for value in AFTER[:3]]
        place.away(cluster.replication.replicas("t").leader)
        sent += [producer.send("t", value.encode()) for value in AFTER[3:]]
        # Raises if it has not been told by then.
        sent[-1].get(PROMISED_MS / 1000)
        producer.send("t", LAST.encode()).get(60)
    consuming.join(60)

    assert [future.get(0).offset for future in sent] == list(range(len(BEFORE), len(BEFORE) + len(AFTER)))
    assert got == [*BEFORE, *AFTER, LAST]
