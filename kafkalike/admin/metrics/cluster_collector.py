"""Prometheus collectors: metric families of a cluster, read at each scrape, and of the appends of this process.

Names and labels follow kafka_exporter where it has the metric, so that its dashboards work.

Example:
    from kafkalike.metrics import serve_appends

    serve_appends(9309)
"""

from __future__ import annotations

import logging
import platform
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.group_lag import GroupLag, Lags
from kafkalike.admin.metrics.cluster_view import GroupView, TransactionCounter, TransactionFigures, group_views
from kafkalike.admin.share_group_operations import SharePartitionReport, share_partitions
from kafkalike.connect import check_there, connect
from kafkalike.errors import KafkaError
from kafkalike.log.topic.topic_log import APPENDS, FAILED
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.lag import PartitionIndex, total
from kafkalike.model.replication.replicas import Replicas
from kafkalike.version import __version__

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.config.storage_options import Address, StorageOptionsLike


_log = logging.getLogger(__name__)

TOPIC_LABELS: Final = ("topic", "partition")
GROUP_LABELS: Final = ("consumergroup", "topic", "partition")

OF_PARTITION: Final[Mapping[str, tuple[str, Callable[[PartitionIndex], float]]]] = {
    "kafka_topic_partition_current_offset": ("Log end offset.", lambda index: index.log_end),
    "kafka_topic_partition_oldest_offset": ("Log start offset.", lambda index: index.log_start),
    "kafka_topic_partition_records": ("Records that can be read.", lambda index: index.records_from(index.log_start)),
    "kafka_topic_partition_segments": ("Data files.", lambda index: len(index.segments)),
    "kafka_topic_partition_bytes": ("Bytes of data files.", lambda index: sum(s.size_bytes for s in index.segments)),
}
"""Metrics of each partition: name, help text, value."""

OF_LAG: Final[Mapping[str, tuple[str, Callable[[GroupLag], float]]]] = {
    "kafka_consumergroup_current_offset": ("Committed offset.", lambda found: found.committed.position.offset),
    "kafka_consumergroup_lag": ("Offsets behind the log end.", lambda found: found.lag.offsets),
    "kafka_consumergroup_lag_records": ("Records that wait, after compaction.", lambda found: found.lag.records),
    "kafka_consumergroup_lag_seconds": (
        "Time of the newest record minus time of the last one read.",
        lambda found: found.lag.behind_ms / 1000,
    ),
}
"""Metrics of each partition of a group."""

WAITING: Final = "kafka_consumergroup_waiting_seconds"
"""Metric for alerts: seconds since the oldest record that the group has not read."""

OF_LAG_SUM: Final[Mapping[str, tuple[str, Callable[[Sequence[GroupLag]], float]]]] = {
    "kafka_consumergroup_lag_sum": (
        "Offsets behind the log ends of a topic.",
        lambda found: sum(one.lag.offsets for one in found),
    ),
    "kafka_consumergroup_current_offset_sum": (
        "Sum of the committed offsets of a topic.",
        lambda found: sum(one.committed.position.offset for one in found),
    ),
}
"""Metrics of each topic of a group."""

OF_GROUP: Final[Mapping[str, tuple[str, Callable[[GroupView], float]]]] = {
    "kafka_consumergroup_members": ("Members that are alive.", lambda view: view.members),
    "kafka_consumergroup_generation": ("Generation of the group.", lambda view: view.generation),
    "kafka_consumergroup_lag_seconds_max": (
        "Seconds behind in the slowest partition.",
        lambda view: total(found.lag for found in view.lags).behind_ms / 1000,
    ),
}
"""Metrics of each group."""

OF_SHARE: Final[Mapping[str, tuple[str, Callable[[SharePartitionReport, int], float]]]] = {
    "kafkalike_sharegroup_start_offset": ("First unfinished offset.", lambda found, _: found.start_offset),
    "kafkalike_sharegroup_lag": ("Unfinished records.", lambda found, _: found.lag),
    "kafkalike_sharegroup_acquired_records": ("Records that members have locked.", lambda found, _: found.acquired),
    "kafkalike_sharegroup_scheduled_records": ("Records that wait for a time.", lambda found, _: found.scheduled),
    "kafkalike_sharegroup_oldest_lock_seconds": (
        "Age of the oldest lock; 0 without locks.",
        lambda found, now_ms: 0 if found.oldest_lock_ms is None else max(0, now_ms - found.oldest_lock_ms) / 1000,
    ),
}
"""Metrics of each partition of a share group, with the time, ms since the epoch."""

OF_TRANSACTIONS: Final[Mapping[str, tuple[str, Callable[[TransactionFigures], float]]]] = {
    "kafkalike_transactional_ids": ("Transactional ids that are not forgotten.", lambda found: found.ids),
    "kafkalike_transactions_open": ("Transactions that are open.", lambda found: found.open),
    "kafkalike_transactions_unapplied": (
        "Committed transactions that are not yet in all of their topics.",
        lambda found: found.unapplied,
    ),
    "kafkalike_transactions_open_seconds_max": (
        "Age of the transaction that is open for longest.",
        lambda found: found.oldest_open_seconds,
    ),
    "kafkalike_transactions_unapplied_seconds_max": (
        "Time since the commit of the oldest one that is not in all of its topics.",
        lambda found: found.oldest_unapplied_seconds,
    ),
}
"""Metrics of all transactions."""


class ClusterCollector(Collector):
    """Metrics of a cluster. Thread-safe; scrapes may overlap.

    If the cluster cannot be read, only `kafkalike_up 0` and metrics of this process are exported. If a topic cannot be
    read, `kafkalike_topic_up 0` is exported without other metrics of the topic, because stale ones would hide the
    problem.

    Args:
        admin: admin client of the cluster.
        lags: lags of the cluster.
        clock: source of time for ages.
    """

    def __init__(self, admin: KafkaAdminClient, lags: Lags, clock: Clock = SYSTEM_CLOCK) -> None:
        self._admin = admin
        self._lags = lags
        self._clock = clock
        self._transactions = TransactionCounter(lags.cluster)
        self._errors = 0
        self._lock = threading.Lock()

    def describe(self) -> list[GaugeMetricFamily]:
        """Return nothing, so that registering the collector does not read the cluster."""
        return []

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Read the cluster and yield all metrics."""
        families: list[GaugeMetricFamily | CounterMetricFamily] = []
        with self._lock:
            try:
                check_there(self._lags.cluster)
                self._lags.refresh()
                families = [*self._topics(), *self._groups(), *self._share_groups(), *self._of_transactions()]
            except (KafkaError, OSError) as error:
                self._errors += 1
                _log.warning("the cluster cannot be read: %s", error)
        yield from self._requests()
        yield from self._own()
        yield GaugeMetricFamily("kafkalike_up", "Whether the cluster could be read.", value=bool(families))
        yield from families

    def _own(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield the version of this exporter, and the number of its read errors."""
        info = GaugeMetricFamily("kafkalike_build_info", "1; the version is a label.", labels=("version", "python"))
        info.add_metric((__version__, platform.python_version()), 1)
        yield info
        yield CounterMetricFamily(
            "kafkalike_scrape_errors", "Times that the cluster or a topic could not be read.", value=self._errors
        )

    def _requests(self) -> Iterator[CounterMetricFamily]:
        """Yield the number of object store requests made by this exporter."""
        requests = self._lags.cluster.requests
        if requests:
            name, text = "kafkalike_object_store_requests", "Requests that this exporter has made of the object store."
            family = CounterMetricFamily(name, text, labels=("kind",))
            for kind, count in requests.items():
                family.add_metric((kind,), count)
            yield family

    def _of_transactions(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        figures = self._transactions.look(self._clock.now_ms())
        for metric, (text, value) in OF_TRANSACTIONS.items():
            yield GaugeMetricFamily(metric, text, value=value(figures))
        name, text = "kafkalike_transactions", "Transactions that have ended, as far as this exporter knows."
        ended = CounterMetricFamily(name, text, labels=("outcome",))
        ended.add_metric(("commit",), figures.commits)
        ended.add_metric(("abort",), figures.aborts)
        yield ended

    def _topics(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        known = {
            (name, p): index for name in sorted(self._lags.topics) for p, index in self._lags.partitions(name).items()
        }
        sound = GaugeMetricFamily("kafkalike_topic_up", "Whether the topic could be read.", labels=("topic",))
        for name in sorted(self._lags.topics):
            sound.add_metric((name,), name not in self._lags.damaged)
        for name, error in sorted(self._lags.damaged.items()):
            self._errors += 1
            _log.warning("topic %r cannot be read: %s", name, error)
        yield sound
        yield from broker_families(self._lags.cluster)
        yield from mirror_families(self._lags.cluster, self._clock.now_ms())
        counts = GaugeMetricFamily("kafka_topic_partitions", "Partitions of a topic.", labels=("topic",))
        for name, info in sorted(self._lags.topics.items()):
            counts.add_metric((name,), info.num_partitions)
        yield counts
        yield from self._writes()
        for metric, (text, value) in OF_PARTITION.items():
            family = GaugeMetricFamily(metric, text, labels=TOPIC_LABELS)
            for (name, p), index in known.items():
                family.add_metric((name, str(p)), value(index))
            yield family

    def _writes(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """Yield cumulative writes, whose rates are records and table commits per second."""
        records = CounterMetricFamily("kafkalike_topic_records_written", "Sum of log ends.", labels=("topic",))
        commits = CounterMetricFamily("kafkalike_topic_commits", "Table versions of a topic.", labels=("topic",))
        size = GaugeMetricFamily("kafkalike_topic_bytes", "Bytes of all data files in force.", labels=("topic",))
        for name in sorted(self._lags.topics):
            version, indexes = self._lags.version(name), self._lags.partitions(name).values()
            if version is not None:
                records.add_metric((name,), sum(index.log_end for index in indexes))
                commits.add_metric((name,), version)
                size.add_metric((name,), sum(s.size_bytes for index in indexes for s in index.segments))
        yield from (records, commits, size)

    def _groups(self) -> Iterator[GaugeMetricFamily]:
        views = group_views(self._admin, self._lags)
        states = GaugeMetricFamily("kafka_consumergroup_state", "1 for its state.", labels=("consumergroup", "state"))
        for view in views:
            states.add_metric((view.group_id, view.state), 1)
        yield states
        for metric, (text, of_group) in OF_GROUP.items():
            family = GaugeMetricFamily(metric, text, labels=("consumergroup",))
            for view in views:
                family.add_metric((view.group_id,), of_group(view))
            yield family
        for metric, (text, of_lag) in OF_LAG.items():
            family = GaugeMetricFamily(metric, text, labels=GROUP_LABELS)
            for found in (found for view in views for found in view.lags):
                where = found.partition
                family.add_metric((found.group_id, where.topic, str(where.partition)), of_lag(found))
            yield family
        yield from self._waiting(views)
        for metric, (text, of_topic) in OF_LAG_SUM.items():
            family = GaugeMetricFamily(metric, text, labels=("consumergroup", "topic"))
            for view in views:
                for topic, own in groupby(view.lags, key=lambda found: found.partition.topic):
                    family.add_metric((view.group_id, topic), of_topic(list(own)))
            yield family

    def _share_groups(self) -> Iterator[GaugeMetricFamily]:
        cluster, now_ms = self._lags.cluster, self._clock.now_ms()
        groups = cluster.groups.state.share_groups
        if not groups:
            return
        members = GaugeMetricFamily("kafkalike_sharegroup_members", "Live members.", labels=("sharegroup",))
        for group_id, described in self._admin.describe_share_groups(groups).items():
            members.add_metric((group_id,), len(described["members"]))
        yield members
        reports = list(share_partitions(cluster, groups, self._lags.damaged))
        for metric, (text, value) in OF_SHARE.items():
            family = GaugeMetricFamily(metric, text, labels=("sharegroup", "topic", "partition"))
            for found in reports:
                family.add_metric((found.group_id, found.tp.topic, str(found.tp.partition)), value(found, now_ms))
            yield family

    def _waiting(self, views: Sequence[GroupView]) -> Iterator[GaugeMetricFamily]:
        now_ms = self._clock.now_ms()
        text = "Time since the oldest record that was not read; 0 when all were."
        family = GaugeMetricFamily(WAITING, text, labels=GROUP_LABELS)
        most = GaugeMetricFamily(f"{WAITING}_max", "The longest of a group.", labels=("consumergroup",))
        for view in views:
            for found in view.lags:
                where = (found.group_id, found.partition.topic, str(found.partition.partition))
                family.add_metric(where, found.lag.waiting_ms(now_ms) / 1000)
            most.add_metric((view.group_id,), total(found.lag for found in view.lags).waiting_ms(now_ms) / 1000)
        yield from (family, most)


def exposition(
    bootstrap_servers: Address | None = None,
    *,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> CollectorRegistry:
    """Return a registry of `prometheus_client` with the metrics of a cluster and of this process's appends.

    Each scrape reads the cluster; if that fails, it exports `kafkalike_up 0`.

    Args:
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        storage_options: options of an object store; see `kafkalike.connect.connect`.
        clock: source of time for ages.

    Raises:
        KafkaConfigurationError, UnsafeStorageError, KafkaConnectionError: see `kafkalike.connect.connect`.
    """
    registry = CollectorRegistry()
    cluster = connect(bootstrap_servers, storage_options)
    admin = KafkaAdminClient(clock=clock, bootstrap_servers=cluster)
    registry.register(ClusterCollector(admin, Lags(cluster, leave_out_damaged=True), clock))
    registry.register(AppendCollector())
    return registry


PARTITION: Final = ("topic", "partition")
REPLICA: Final = ("topic", "broker")


def broker_families(cluster: Cluster) -> Iterator[GaugeMetricFamily]:
    """Yield metrics of brokers and replicas; with a single root only the number of brokers.

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
            # Lags of an unreachable root are unknown.
            for family, value in ((versions, lag.versions), (size, lag.bytes), (late, lag.seconds)):
                if value is not None:
                    family.add_metric((name, str(broker)), value)
    yield from (versions, size, late)


def mirror_families(cluster: Cluster, now_ms: int) -> Iterator[GaugeMetricFamily]:
    """Yield metrics of the cluster's mirrors, if any, without contacting their sources.

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


class AppendCollector(Collector):
    """Durations of this process's appends by its producers and by anything else that writes records.

    An append is one commit to a table; records staged by Spark's tasks count as a single append of the driver.
    """

    def collect(self) -> Iterator[HistogramMetricFamily | CounterMetricFamily]:
        """Yield the metrics of all appends since the process started."""
        seen = APPENDS.seen()
        buckets = [("+Inf" if bound == float("inf") else str(bound), float(count)) for bound, count in seen.at_most]
        text = "Time of the appends of this process that ended well."
        yield HistogramMetricFamily("kafkalike_append_seconds", text, buckets=buckets, sum_value=seen.total)
        failed = FAILED.seen().count
        yield CounterMetricFamily("kafkalike_append_failures", "Appends of this process that failed.", value=failed)


def serve_appends(port: int, host: str = "127.0.0.1") -> None:
    """Serve these metrics from a thread at `http://host:port/metrics` until the process ends.

    A service with its own `prometheus_client` registry registers an `AppendCollector` there instead.

    Args:
        port: port to listen on.
        host: address to listen on; `0.0.0.0` allows access from other machines.

    Raises:
        OSError: the address is not available.
    """
    registry = CollectorRegistry()
    registry.register(AppendCollector())
    start_http_server(port, addr=host, registry=registry)
