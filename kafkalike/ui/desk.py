"""Desk: what the pages ask of a cluster; opened logs are kept, so that a second look costs little."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin import KafkaAdminClient
from kafkalike.clock import Clock
from kafkalike.dead_letters.queue import DeadLetters
from kafkalike.errors import KafkaError, UnknownTopicOrPartitionError
from kafkalike.lag.measure import GroupLag, Lags
from kafkalike.model.lag import Lag, PartitionIndex, total
from kafkalike.producer import KafkaProducer
from kafkalike.schemas.registry import Registry
from kafkalike.schemas.wire import HEADER, MAGIC
from kafkalike.ui.jobs import Jobs
from kafkalike.ui.values import Decode, Kind

if TYPE_CHECKING:
    from kafkalike.log.port import Cluster, TopicLog
    from kafkalike.model.topic import TopicInfo

MOST_LOGS: Final = 200
"""Logs of topics that are kept open for records; then the desk begins anew."""

KINDS: Final[Mapping[str, Kind]] = {"AVRO": "avro", "PROTOBUF": "protobuf", "JSON": "json schema"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """A topic in a list."""

    records: int
    size_bytes: int
    segments: int
    newest_ms: int | None
    """Time of its newest record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A group in a list."""

    group_id: str
    state: str
    members: int
    topics: Sequence[str]
    lag: Lag


class Desk:
    """A cluster as the pages see it. Thread-safe.

    Args:
        cluster: the cluster.
        clock: time.
        metrics: the answer of `/metrics`; None serves none.
    """

    def __init__(self, cluster: Cluster, clock: Clock, metrics: Callable[[], bytes] | None = None) -> None:
        self.cluster = cluster
        self.clock = clock
        self.metrics = metrics
        self.admin = KafkaAdminClient(bootstrap_servers=cluster, clock=clock)
        self.registry = Registry(cluster, clock=clock)
        self.letters = DeadLetters(cluster, clock=clock)
        self.jobs = Jobs(clock)
        self._lock = threading.Lock()
        self._lags: Lags | None = None
        self._logs: dict[str, tuple[TopicLog, threading.Lock]] = {}
        self._decoders: dict[str, Callable[[bytes], Any]] = {}

    @cached_property
    def producer(self) -> KafkaProducer:
        """Sends what pages produce."""
        return KafkaProducer(bootstrap_servers=self.cluster, client_id="kafkalike-ui", acks="all", linger_ms=0)

    def close(self) -> None:
        """Send what is left, and end."""
        if "producer" in self.__dict__:
            self.producer.close()
        self.admin.close()

    # Topics

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics, fresh."""
        return self.cluster.topics()

    def figures(self, names: Sequence[str]) -> dict[str, TopicFigures | str]:
        """Figures of topics, fresh; a text where a topic cannot be read.

        Args:
            names: the topics; those that do not exist are left out.
        """
        with self._lock:
            lags = self._looked()
            found: dict[str, TopicFigures | str] = {}
            for name in names:
                indexes = lags.partitions(name)
                if name in lags.damaged:
                    found[name] = str(lags.damaged[name])
                elif indexes:
                    found[name] = _figures(indexes)
            return found

    def partitions(self, name: str) -> Mapping[int, PartitionIndex]:
        """Partitions of a topic, fresh.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
            KafkaError: it cannot be read.
        """
        with self._lock:
            lags = self._looked()
            found = lags.partitions(name)
            if name in lags.damaged:
                raise lags.damaged[name]
            if not found:
                raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
            return found

    def with_log(self, name: str, ask: Callable[[TopicLog], Any]) -> Any:  # noqa: ANN401 - what `ask` gives
        """Ask the log of a topic, refreshed; one caller at a time.

        Raises:
            UnknownTopicOrPartitionError: no such topic.
            KafkaError: as the log.
        """
        topic_id = self.cluster.topic(name).topic_id
        with self._lock:
            known = self._logs.get(name)
            if known is None or known[0].info.topic_id != topic_id:
                if len(self._logs) >= MOST_LOGS:
                    self._logs = {}
                known = self._logs[name] = (self.cluster.log(name), threading.Lock())
        log, turn = known
        with turn:
            log.refresh()
            return ask(log)

    # Groups

    def groups(self) -> list[GroupRow]:
        """All groups with their lag, fresh."""
        with self._lock:
            lags = self._looked()
            described = self.admin.describe_groups(sorted(lags.groups)) if lags.groups else {}
            rows = []
            for group_id, group in described.items():
                own = list(lags.of(group_id))
                rows.append(
                    GroupRow(
                        group_id=group_id,
                        state=str(group["group_state"]),
                        members=len(group["members"]),
                        topics=sorted({lag.partition.topic for lag in own}),
                        lag=total(lag.lag for lag in own),
                    )
                )
            return rows

    def lags_of(self, group_id: str) -> list[GroupLag]:
        """Lag of a group by partition, fresh."""
        with self._lock:
            return list(self._looked().of(group_id))

    def groups_of(self, topic: str) -> list[tuple[str, Lag]]:
        """Groups that have committed offsets of a topic, and how far they are behind there, fresh."""
        with self._lock:
            lags = self._looked()
            found = []
            for group_id, group in sorted(lags.groups.items()):
                if any(tp.topic == topic for tp in group.offsets):
                    own = [lag.lag for lag in lags.of(group_id) if lag.partition.topic == topic]
                    found.append((group_id, total(own)))
            return found

    def with_lags(self, ask: Callable[[Lags], Any]) -> Any:  # noqa: ANN401 - what `ask` gives
        """Ask the lags, refreshed; one caller at a time."""
        with self._lock:
            return ask(self._looked())

    def _looked(self) -> Lags:
        if self._lags is None:
            self._lags = Lags(self.cluster, leave_out_damaged=True)
        else:
            self._lags.refresh()
        return self._lags

    # Values

    def decode(self) -> Decode:
        """Reads records with a schema of this cluster's registry."""
        with suppress(KafkaError, ImportError):
            if self.registry.get_subjects():
                return self._decoded
        return lambda _data: None

    def _decoded(self, data: bytes) -> tuple[Kind, Any] | None:
        if len(data) < HEADER or data[0] != MAGIC:
            return None
        try:
            schema = self.registry.schema_by_id(int.from_bytes(data[1:HEADER], "big"))
        except KafkaError:
            # A zero byte in front of something else.
            return None
        return KINDS[schema.type], self._decoder(schema.type)(data)

    def _decoder(self, kind: str) -> Callable[[bytes], Any]:
        known = self._decoders.get(kind)
        if known is None:
            known = self._decoders[kind] = _decoder(kind, self.registry)
        return known


def _decoder(kind: str, registry: Registry) -> Callable[[bytes], Any]:
    from kafkalike.schemas.serde.avro import AvroDeserializer
    from kafkalike.schemas.serde.json_schema import JSONDeserializer
    from kafkalike.schemas.serde.protobuf import ProtobufDeserializer

    if kind == "AVRO":
        return AvroDeserializer(registry)
    if kind == "JSON":
        return JSONDeserializer(None, schema_registry_client=registry)
    from google.protobuf.json_format import MessageToDict

    read = ProtobufDeserializer(None, schema_registry_client=registry)
    return lambda data: MessageToDict(read(data), preserving_proto_field_name=True)


def _figures(indexes: Mapping[int, PartitionIndex]) -> TopicFigures:
    newest = [index.newest_ms for index in indexes.values() if index.newest_ms is not None]
    return TopicFigures(
        records=sum(index.records_from(index.log_start) for index in indexes.values()),
        size_bytes=sum(segment.size_bytes for index in indexes.values() for segment in index.segments),
        segments=sum(len(index.segments) for index in indexes.values()),
        newest_ms=max(newest, default=None),
    )
