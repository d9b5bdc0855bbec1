"""A root that hangs for ever: nobody waits for it for ever, and the topics of others go on."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kafkalike import KafkaConsumer, KafkaProducer
from kafkalike.replication.cluster.replicated_cluster import ReplicatedCluster
from kafkalike.storage.timeouts import MAX_HUNG_CALLS
from tests.tools.clusters import on_three_disks
from tests.tools.hanging import hanging, need_hanging

pytestmark = [pytest.mark.timeout(120), pytest.mark.usefixtures("impatient_calls")]

FAST = {"replica.lag.time.max.ms": "200"}


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    need_hanging(tmp_path / "probe")
    return [tmp_path / str(n) for n in (1, 2, 3)]


def opened(roots: list[Path]) -> ReplicatedCluster:
    return on_three_disks(roots[0].parent, **FAST)


def values(cluster: ReplicatedCluster) -> list[str]:
    with KafkaConsumer(
        "t",
        bootstrap_servers=cluster,
        group_id="g",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=300,
    ) as consumer:
        return [message.value.decode() for message in consumer]


@pytest.mark.slow
@pytest.mark.parametrize(
    "broker", [pytest.param(1, marks=pytest.mark.soak), 2, pytest.param(3, marks=pytest.mark.soak)]
)
def test_clients_go_on_and_new_ones_begin(roots: list[Path], broker: int) -> None:
    cluster = opened(roots)
    cluster.create_topic("t", 1, {})
    before = threading.active_count()
    with KafkaProducer(bootstrap_servers=cluster) as producer:
        producer.send("t", b"a").get(30)
        assert values(cluster) == ["a"]
        with hanging(roots[broker - 1]):
            producer.send("t", b"b").get(60)
            assert values(cluster) == ["a", "b"]
            other = opened(roots)
            assert broker not in other.replication.replicas("t").isr
            with KafkaProducer(bootstrap_servers=other) as another:
                another.send("t", b"c").get(60)
            assert values(other) == ["a", "b", "c"]
            other.create_topic("new", 1, {}, replication_factor=2)
            assert threading.active_count() - before < 4 * MAX_HUNG_CALLS
        producer.send("t", b"d").get(60)

    helper = opened(roots)
    failed = ["not yet"]
    while failed:
        failed = list(helper.replication.replicate().failed)
    assert set(helper.replication.replicas("t").isr) == {1, 2, 3}
    assert values(helper) == ["a", "b", "c", "d"]
