"""MemoryCluster: a cluster that lives in memory, held to the same contract as the one on Delta tables.

For users' tests and for ours: records, metadata and groups are real, nothing survives the process.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.config.server import ServerConfig
from kafkalike.log.cluster.base import ClusterBase
from kafkalike.log.cluster.memory_control import MemoryControlLog
from kafkalike.log.cluster.memory_topic import MemoryDecided, MemoryTable, MemoryTopicLog
from kafkalike.log.port import TopicLog
from kafkalike.log.store.leases import MemoryLeases
from kafkalike.log.store.memory import MemoryStore
from kafkalike.log.transactions.staging import Staging
from kafkalike.log.transactions.tables import Home
from kafkalike.log.transactions.transactions import ClusterTransactions
from kafkalike.model.brokers import ReplicatedTable
from kafkalike.model.cluster_state import ClusterState
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.metadata_rows import MetadataRow
from kafkalike.model.names import TopicId
from kafkalike.model.schemas.rows import SchemaRow
from kafkalike.model.schemas.state import RegistryState
from kafkalike.model.topic import TopicInfo


class MemoryCluster(ClusterBase):
    """A cluster in memory.

    Args:
        server: server defaults; Kafka's own when not given.
        clock: where append times come from.
    """

    heartbeat_ms = 3000.0
    tail_interval = 0.001
    root_interval = 10.0
    requests: Mapping[str, int] = MappingProxyType({})
    there = True

    def __init__(self, server: ServerConfig | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(f"memory:{uuid.uuid4().hex[:8]}", server or ServerConfig(), clock)
        self.metadata: MemoryControlLog[ClusterState, MetadataRow] = MemoryControlLog(ClusterState())
        self.groups: MemoryControlLog[GroupsState, GroupRow] = MemoryControlLog(GroupsState())
        self.leases = MemoryLeases(clock.now_ms)
        self._tables: dict[str, MemoryTable] = {}
        self._staged = MemoryStore(self.root, now_ns=lambda: clock.now_ms() * 1_000_000)

    @cached_property
    def schemas(self) -> MemoryControlLog[RegistryState, SchemaRow]:
        """Schemas with their subjects, ids, levels and modes."""
        return MemoryControlLog(RegistryState())

    @cached_property
    def transactions(self) -> ClusterTransactions:
        """Transactions over several topics and groups."""
        home = Home(
            cluster=self,
            decided=MemoryDecided.of,
            staging=Staging(self._staged),
            look_at_groups=self._look_at_groups,
        )
        return ClusterTransactions(home)

    def _look_at_groups(self) -> tuple[int, GroupsState]:
        state = self.groups.refresh()
        return state.seq, state

    def _location(self, name: str, *, used_before: bool) -> str:
        del used_before
        return name

    def _create_table(self, name: str, location: str, placed: ReplicatedTable | None = None) -> TopicId:
        del name, location, placed
        topic_id = TopicId(str(uuid.uuid4()))
        self._tables[topic_id] = MemoryTable()
        return topic_id

    def _discard_table(self, info: TopicInfo) -> None:
        self._tables.pop(info.topic_id, None)

    def _drop_table(self, info: TopicInfo, forget: Callable[[], None]) -> None:
        forget()
        self._tables.pop(info.topic_id, None)

    def settle(self, timeout: float | None = None) -> None:
        """Nothing runs beside the calls here."""

    def open_ahead(self, names: Iterable[str]) -> dict[str, TopicLog]:
        """Nothing is gained."""
        del names
        return {}

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Nothing is gained."""
        del logs, waiting
        return math.inf

    def log(self, name: str, *, since: float = math.inf) -> MemoryTopicLog:
        """Open the log of an existing topic."""
        info = self.topic(name, since=since)
        return MemoryTopicLog(self, info, self._tables[info.topic_id])
