"""Replicas: a cluster in; its brokers, leaders, replicas in sync, and how far replicas and mirrors are behind, out.

Names are those of kafka_exporter where it has them. A replica's lag is that of its table, so it is said by topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from prometheus_client.core import GaugeMetricFamily

from kafkalike.model.brokers import Replicas

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


PARTITION: Final = ("topic", "partition")
REPLICA: Final = ("topic", "broker")


def broker_families(cluster: Cluster) -> Iterator[GaugeMetricFamily]:
    """Brokers, and where topics have replicas; of a cluster of one root only how many brokers it has.

    Raises:
        KafkaError: the cluster cannot be read.
    """
    replication = cluster.replication
    brokers = replication.brokers()
    yield GaugeMetricFamily("kafka_brokers", "Brokers, which are storage roots.", value=len(brokers))
    state = cluster.metadata.state
    if not state.replicas:
        return
    up = GaugeMetricFamily("kafkalike_broker_up", "Whether its root gives an answer.", labels=("broker", "root"))
    for broker in brokers:
        up.add_metric((str(broker.id), broker.uri), replication.alive(broker.id))
    yield up
    topics = {name: replication.replicas(name, ends=True) for name in replication.tables() if name in state.topics}
    counts = {name: state.topics[name].num_partitions for name in topics}
    yield from _of_partitions(topics, counts)
    yield from _of_replicas(topics)


def _of_partitions(topics: dict[str, Replicas], counts: dict[str, int]) -> Iterator[GaugeMetricFamily]:
    figures: dict[str, tuple[str, Callable[[Replicas], float]]] = {
        "kafka_topic_partition_leader": ("Broker that leads; -1 for none.", lambda r: r.leader),
        "kafka_topic_partition_replicas": ("Replicas that there shall be.", lambda r: len(r.replicas)),
        "kafka_topic_partition_in_sync_replica": ("Replicas in sync.", lambda r: len(r.isr)),
        "kafka_topic_partition_under_replicated_partition": ("1 if it lacks a replica.", lambda r: r.under_replicated),
        "kafka_topic_partition_leader_is_preferred": (
            "1 if the preferred broker leads.",
            lambda r: r.leader == r.replicas[0],
        ),
        "kafkalike_topic_partition_under_min_isr": (
            "1 if fewer are in sync than min.insync.replicas.",
            lambda r: len(r.isr) < r.min_isr,
        ),
    }
    for metric, (text, value) in figures.items():
        family = GaugeMetricFamily(metric, text, labels=PARTITION)
        for name, replicas in topics.items():
            for p in range(counts[name]):
                family.add_metric((name, str(p)), value(replicas))
        yield family


def _of_replicas(topics: dict[str, Replicas]) -> Iterator[GaugeMetricFamily]:
    versions = GaugeMetricFamily("kafkalike_replica_lag_versions", "Versions behind the leader.", labels=REPLICA)
    size = GaugeMetricFamily("kafkalike_replica_lag_bytes", "Bytes of data files behind the leader.", labels=REPLICA)
    late = GaugeMetricFamily(
        "kafkalike_replica_lag_seconds", "From its last version to the leader's last one.", labels=REPLICA
    )
    for name, replicas in topics.items():
        for broker, lag in replicas.lags().items():
            # Of a root that gives no answer nothing is known.
            for family, value in ((versions, lag.versions), (size, lag.bytes), (late, lag.seconds)):
                if value is not None:
                    family.add_metric((name, str(broker)), value)
    yield from (versions, size, late)


def mirror_families(cluster: Cluster, now_ms: int) -> Iterator[GaugeMetricFamily]:
    """How mirrors stand that the cluster has; their sources are not asked. Nothing where it has none.

    Raises:
        KafkaError: the cluster cannot be read.
    """
    if not cluster.metadata.state.mirrors:
        return
    from kafkalike.replication.mirrors.mirror_lag import mirror_lags

    labels = ("topic", "source")
    version = GaugeMetricFamily("kafkalike_mirror_version", "Version of the source's table that it has.", labels=labels)
    behind = GaugeMetricFamily(
        "kafkalike_mirror_seconds_since_in_step",
        "Time since it had all that its source had: what a promotion now may lose.",
        labels=labels,
    )
    sound = GaugeMetricFamily("kafkalike_mirror_up", "Whether its last pass brought it further.", labels=labels)
    for standing in mirror_lags(cluster):
        where = (standing.topic, standing.source)
        version.add_metric(where, standing.version)
        sound.add_metric(where, not standing.problem)
        if standing.seen_ms is not None:
            behind.add_metric(where, max(now_ms - standing.seen_ms, 0) / 1000)
    yield from (version, behind, sound)
