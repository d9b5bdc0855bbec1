"""ClusterState: rows of `__cluster_metadata` in, the topics of the cluster out.

The latest row of a key wins (`metadata_rows.py`), so a table that keeps only latest rows says the same as one that
keeps all.

A state is a value: rows make a new one, and one handed out stays as it is. A row that cannot be read makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model.brokers import Broker, Defaults, ReplicatedTable
from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.metadata_rows import BrokerChange, LogStartsMoved, MetadataRow, TopicChange, parse_row
from kafkalike.model.mirror import Mirrored, Phase
from kafkalike.model.topic import LogStart, TopicInfo


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The topics, as of the rows applied so far. Caller: the control log, in `seq` order."""

    seq: int = 0
    """Number of the last row applied."""
    topics: FrozenMap[str, TopicInfo] = field(default_factory=FrozenMap)
    gone: FrozenMap[str, TopicInfo] = field(default_factory=FrozenMap)
    """The last topic, without its log starts, of each name that was used and belongs to no topic now."""
    log_starts: FrozenMap[str, Mapping[int, LogStart]] = field(default_factory=FrozenMap)
    """By topic id. In a compacted table a topic's row may come after those of its log starts."""
    brokers: FrozenMap[int, Broker] = field(default_factory=FrozenMap)
    """By id; empty in a cluster of one root that never had another one."""
    last_broker: int = 0
    """The highest id that a broker ever had."""
    replicas: FrozenMap[str, ReplicatedTable] = field(default_factory=FrozenMap)
    """By location of the table."""
    mirrors: FrozenMap[str, Mirrored] = field(default_factory=FrozenMap)
    """By topic id, of topics that are copies of another cluster's."""
    defaults: Defaults | None = None
    """Cluster-wide server settings; None as long as nobody has recorded whether there are any."""

    def was_used(self, name: str) -> bool:
        """Whether a topic ever had that name."""
        return name in self.topics or name in self.gone

    def last(self, name: str) -> TopicInfo | None:
        """The last topic that had that name, deleted or not."""
        return self.topics.get(name) or self.gone.get(name)

    def applied(self, rows: Iterable[MetadataRow]) -> ClusterState:
        """The state after some more rows; those that were applied before change nothing.

        Raises:
            UnsupportedVersionError, LogCorruptError: see `parse_row`.
        """
        draft = _Draft(self)
        for row in rows:
            if row.seq > draft.seq:
                draft.apply(row)
        return draft.state()

    def require(self, name: str) -> TopicInfo:
        """The topic of that name.

        Raises:
            UnknownTopicOrPartitionError: when there is none.
        """
        info = self.topics.get(name)
        if info is None:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
        return info


class _Draft:
    """A state in the making."""

    def __init__(self, state: ClusterState) -> None:
        self._before = state
        self.seq = state.seq
        self._topics = Draft(state.topics)
        self._gone = Draft(state.gone)
        self._log_starts = Draft(state.log_starts)
        self._brokers = Draft(state.brokers)
        self._last_broker = state.last_broker
        self._replicas = Draft(state.replicas)
        self._mirrors = Draft(state.mirrors)
        self._defaults = state.defaults
        self._own: dict[str, dict[int, LogStart]] = {}
        """Log starts by topic id that nobody else sees yet: copied once, however many rows move them."""
        self._moved: dict[str, str] = {}
        """Name by id of topics whose log starts have moved."""

    def state(self) -> ClusterState:
        if self.seq == self._before.seq:
            return self._before
        for topic_id, name in self._moved.items():
            info = self._topics.get(name)
            if info is not None and info.topic_id == topic_id:
                self._topics.put(name, replace(info, log_starts=self._log_starts.get(topic_id) or {}))
        return ClusterState(
            self.seq,
            self._topics.frozen(),
            self._gone.frozen(),
            self._log_starts.frozen(),
            self._brokers.frozen(),
            self._last_broker,
            self._replicas.frozen(),
            self._mirrors.frozen(),
            self._defaults,
        )

    def apply(self, row: MetadataRow) -> None:
        change = parse_row(row)
        if isinstance(change, TopicChange):
            self._apply_topic(change)
        elif isinstance(change, LogStartsMoved):
            self._apply_log_starts(row, change)
        elif isinstance(change, ReplicatedTable):
            self._replicas.put(change.location, change)
        elif isinstance(change, Mirrored):
            self._apply_mirror(row, change)
        elif isinstance(change, Defaults):
            self._defaults = change
        else:
            self._apply_broker(change)
        self.seq = row.seq

    def _apply_broker(self, change: BrokerChange) -> None:
        self._last_broker = max(self._last_broker, change.broker.id)
        if change.removed:
            self._brokers.drop(change.broker.id)
        else:
            self._brokers.put(change.broker.id, change.broker)

    def _apply_topic(self, change: TopicChange) -> None:
        info = change.info
        if change.deleted:
            self._gone.put(info.name, info)
            self._topics.drop(info.name)
            self._log_starts.drop(info.topic_id)
            self._mirrors.drop(info.topic_id)
            self._replicas.drop(info.location)
            self._own.pop(info.topic_id, None)
            return
        starts, mirror = self._log_starts.get(info.topic_id), self._mirrors.get(info.topic_id)
        known = replace(info, log_starts=starts or {}, mirror=mirror) if starts or mirror else info
        self._topics.put(info.name, known)
        self._gone.drop(info.name)

    def _apply_mirror(self, row: MetadataRow, mirrored: Mirrored) -> None:
        """A promoted copy is a topic like any other."""
        mirror = None if mirrored.phase is Phase.PROMOTED else mirrored
        if mirror is None:
            self._mirrors.drop(row.topic_id)
        else:
            self._mirrors.put(row.topic_id, mirror)
        info = self._topics.get(row.topic)
        if info is not None and info.topic_id == row.topic_id:
            self._topics.put(row.topic, replace(info, mirror=mirror))

    def _apply_log_starts(self, row: MetadataRow, moved: LogStartsMoved) -> None:
        known = self._log_starts.get(row.topic_id) or {}
        risen = {
            p: LogStart(offset=move.offset, reason=moved.reason, run=moved.run, time_ms=row.time_ms)
            for p, move in moved.moves.items()
            if p not in known or move.offset > known[p].offset
        }
        if not risen:
            return
        own = self._own.get(row.topic_id)
        if own is None:
            own = self._own[row.topic_id] = dict(known)
        own.update(risen)
        self._log_starts.put(row.topic_id, own)
        self._moved[row.topic_id] = row.topic
