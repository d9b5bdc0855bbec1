"""Cluster view: read the state of a cluster for the pages, and keep logs open for the next request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.dead_letter_queue import DeadLetters
from kafkalike.admin.group_lag import GroupLag, Lags
from kafkalike.connect import check_there
from kafkalike.errors import KafkaConnectionError, KafkaError
from kafkalike.errors.optional_imports import require_module
from kafkalike.log.topic.write_history import WriteHistory
from kafkalike.model.clock import Clock
from kafkalike.model.lag import Lag, PartitionIndex, total
from kafkalike.producer.kafka_producer import KafkaProducer
from kafkalike.schemas.cluster_registry import Registry
from kafkalike.schemas.wire import HEADER, MAGIC
from kafkalike.ui.background_jobs import BackgroundJobs
from kafkalike.ui.cluster_overview import THRESHOLDS, LagThresholds, Overview, OverviewSampler
from kafkalike.ui.value_tree import Decode, Kind, exact_json, message_fields, no_schemas

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.names import TopicId
    from kafkalike.model.topic import TopicInfo
    from kafkalike.spark.sql.queries import Queries

MOST_LOGS: Final = 200
"""Maximum number of topics with open logs; more close all of them."""

MOST_IDLE: Final = 2
"""Maximum number of open logs of a topic."""

PATIENCE_SECONDS: Final = 0.15

KINDS: Final[Mapping[str, Kind]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json schema"}


class _Looks:
    """Lags of all groups, opened at the first use, for one caller at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._turn = threading.Lock()
        self._lags: Lags | None = None

    @contextmanager
    def look(self) -> Iterator[Lags]:
        """Yield the lags of all groups after a refresh."""
        with self._turn:
            if self._lags is None:
                self._lags = Lags(self._cluster, leave_out_damaged=True)
            else:
                self._lags.refresh()
            yield self._lags


class ConsoleView:
    """State of a cluster for the pages. Thread-safe.

    Args:
        cluster: the cluster.
        clock: source of times.
        metrics: returns the response of `/metrics`; None serves no metrics.
        queries: runs SQL statements; None without Spark.
        thresholds: from which lag on a group is late.
        must_exist: a root that does not exist is an error of each page, and not an empty cluster.
        patience_seconds: how long a page waits for new figures before it shows older ones.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        metrics: Callable[[], bytes] | None = None,
        queries: Queries | None = None,
        *,
        thresholds: LagThresholds = THRESHOLDS,
        must_exist: bool = False,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.cluster = cluster
        self.clock = clock
        self.metrics = metrics
        self.queries = queries
        self.running = BackgroundJobs(clock)
        """Jobs of SQL statements."""
        self.admin = KafkaAdminClient(bootstrap_servers=cluster, clock=clock)
        self.registry = Registry(cluster, clock=clock)
        self.letters = DeadLetters(cluster, clock=clock)
        self.jobs = BackgroundJobs(clock)
        self.thresholds = thresholds
        self.sampler = OverviewSampler(cluster, self.admin, clock)
        self._lock = threading.Lock()
        """Protects the fields; never held during reads."""
        self._logs: dict[str, list[TopicLog]] = {}
        """Idle open logs by topic."""
        self._producer: KafkaProducer | None = None
        self._lists = _Looks(cluster)
        self._plots = _Looks(cluster)
        """Separate from `_lists`, because a plot reads for a long time."""
        self._decoders: dict[str, Callable[[bytes], Any]] = {}
        self._was_there = must_exist
        self._patience_seconds = patience_seconds
        self._reading_writes = threading.Lock()
        self._writes: dict[str, tuple[TopicId, WriteHistory]] = {}

    def check_there(self) -> None:
        """Check that the root still exists, so that no cached state of a removed root is shown.

        A root that never existed counts as an empty cluster, because its first topic creates it.

        Raises:
            KafkaConnectionError: the root existed and is missing.
        """
        try:
            check_there(self.cluster)
        except KafkaConnectionError:
            if self._was_there:
                raise
        else:
            self._was_there = True

    @property
    def producer(self) -> KafkaProducer:
        """Return the producer of the pages, made at the first use."""
        with self._lock:
            if self._producer is None:
                self._producer = KafkaProducer(
                    bootstrap_servers=self.cluster, client_id="kafkalike-ui", acks="all", linger_ms=0
                )
            return self._producer

    def close(self) -> None:
        """Cancel jobs, flush the producer, and close the clients."""
        self.sampler.stop()
        for job in self.running.all():
            if job.cancel is not None and job.ended_ms is None:
                job.cancel()
        if self._producer is not None:
            self._producer.close()
        self.admin.close()

    # Topics

    def topics(self) -> Mapping[str, TopicInfo]:
        """Return all topics, refreshed."""
        return self.cluster.topics()

    def overview(self) -> Overview:
        """Return the newest figures of all topics and groups; waits shortly for newer ones."""
        return self.sampler.newest(self._patience_seconds)

    def writes(self, name: str, horizon_ms: int) -> WriteHistory:
        """Return when a topic was written to, refreshed.

        Args:
            name: the topic.
            horizon_ms: older commits are not needed.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaError: the topic cannot be read.
        """

        def look(log: TopicLog) -> WriteHistory:
            with self._reading_writes:
                known = self._writes.get(name)
                history = known[1] if known is not None and known[0] == log.info.topic_id else WriteHistory()
                history.read(log, horizon_ms)
                if name not in self._writes and len(self._writes) >= MOST_LOGS:
                    self._writes = {}
                self._writes[name] = (log.info.topic_id, history)
                return history

        found: WriteHistory = self.with_log(name, look)
        return found

    def partitions(self, name: str) -> Mapping[int, PartitionIndex]:
        """Return the partitions of a topic, refreshed.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaError: the topic cannot be read.
        """

        def look(log: TopicLog) -> dict[int, PartitionIndex]:
            log.check_sound()
            return {p: PartitionIndex(log.log_start(p), log.log_end(p), log.segments(p)) for p in log.info.partitions}

        found: dict[int, PartitionIndex] = self.with_log(name, look)
        return found

    def with_log(self, name: str, ask: Callable[[TopicLog], Any]) -> Any:  # noqa: ANN401 - result of `ask`
        """Call `ask` with the refreshed log of a topic. Parallel callers do not wait: each gets a log of its own.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
            KafkaError: raised by the log.
        """
        topic_id = self.cluster.topic(name).topic_id
        with self._lock:
            idle = self._logs.get(name)
            log = idle.pop() if idle else None
        if log is None or log.info.topic_id != topic_id:
            log = self.cluster.log(name)
        log.refresh()
        found = ask(log)
        # Not reached after an error, so a log in a bad state is not kept.
        with self._lock:
            if name not in self._logs and len(self._logs) >= MOST_LOGS:
                self._logs = {}
            kept = self._logs.setdefault(name, [])
            if len(kept) < MOST_IDLE:
                kept.append(log)
        return found

    # Groups

    def group_ids(self) -> list[str]:
        """Return the ids of all groups, sorted and refreshed."""
        with self._lists.look() as lags:
            return sorted(lags.groups)

    def lags_of(self, group_id: str) -> list[GroupLag]:
        """Return the lag of a group by partition, refreshed."""
        with self._lists.look() as lags:
            return list(lags.of(group_id))

    def groups_of(self, topic: str) -> list[tuple[str, Lag]]:
        """Return groups with committed offsets of a topic and their lag there, refreshed."""
        with self._lists.look() as lags:
            found = []
            for group_id, group in sorted(lags.groups.items()):
                if any(tp.topic == topic for tp in group.offsets):
                    own = [lag.lag for lag in lags.of(group_id) if lag.partition.topic == topic]
                    found.append((group_id, total(own)))
            return found

    def with_lags(self, ask: Callable[[Lags], Any]) -> Any:  # noqa: ANN401 - result of `ask`
        """Call `ask` with refreshed lags, for long reads; one caller at a time."""
        with self._plots.look() as lags:
            return ask(lags)

    # Values

    def decode(self) -> Decode:
        """Return a decoder of records with schemas of this cluster's registry."""
        with suppress(KafkaError, ImportError):
            if self.registry.get_subjects():
                return self._decoded
        return no_schemas

    def _decoded(self, data: bytes) -> tuple[Kind, Any] | None:
        if len(data) < HEADER or data[0] != MAGIC:
            return None
        try:
            schema = self.registry.schema_by_id(int.from_bytes(data[1:HEADER], "big"))
        except KafkaError:
            # The data starts with a zero byte, but not with a schema id.
            return None
        return KINDS[schema.type], self._decoder(schema.type)(data)

    def _decoder(self, kind: str) -> Callable[[bytes], Any]:
        known = self._decoders.get(kind)
        if known is None:
            known = self._decoders[kind] = _decoder(kind, self.registry)
        return known


def _decoder(kind: str, registry: Registry) -> Callable[[bytes], Any]:
    """Return a decoder; a missing package of one type of schema is an error of its records only."""
    if kind == "AVRO":
        avro = require_module("kafkalike.schemas.serde.avro_serde", "Avro schemas")
        read: Callable[[bytes], Any] = avro.AvroDeserializer(registry)
        return read
    if kind == "JSON":
        serde = require_module("kafkalike.schemas.serde.json_serde", "JSON schemas")
        valid = serde.JSONDeserializer(None, schema_registry_client=registry)
        # The deserializer checks the value; the page shows the digits of the text.
        return lambda data: (valid(data), exact_json(data[HEADER:]))[1]
    protobuf = require_module("kafkalike.schemas.serde.protobuf_serde", "Protobuf schemas")
    message = protobuf.ProtobufDeserializer(None, schema_registry_client=registry)
    return lambda data: message_fields(message(data))
