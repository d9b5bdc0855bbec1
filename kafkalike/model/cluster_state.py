"""Rows of `__cluster_metadata`, and ClusterState: the topics, brokers and mirrors that those rows describe.

Each row holds all facts about its keys (a topic, or the log starts of some partitions), and the latest row of a key
wins. A table that keeps only the latest rows therefore describes the same state as the full table.

A state is a value: applying rows returns a new state. A row that cannot be read raises the same error every time.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any, Final, NamedTuple

from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.model import brokers
from kafkalike.model.brokers import Broker, Defaults, ReplicatedTable
from kafkalike.model.frozen_map import Draft, FrozenMap
from kafkalike.model.mirror import FORMAT, Mirrored, Phase, dump_mirror, load_mirror
from kafkalike.model.names import CLUSTER_METADATA, TopicId, TopicName
from kafkalike.model.row_value import UNREADABLE, VERSION, as_text, damaged, flag, row_value, text, whole
from kafkalike.model.topic import Ancestor, LogStart, RepartitionTarget, TopicInfo


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The topics after the rows applied so far. The control log applies rows in `seq` order."""

    seq: int = 0
    """Number of the last row applied."""
    topics: FrozenMap[str, TopicInfo] = field(default_factory=FrozenMap)
    gone: FrozenMap[str, TopicInfo] = field(default_factory=FrozenMap)
    """By name that belongs to no existing topic, its last topic without the log starts."""
    log_starts: FrozenMap[str, Mapping[int, LogStart]] = field(default_factory=FrozenMap)
    """By topic id. In a compacted table a topic's row may come after the rows of its log starts."""
    brokers: FrozenMap[int, Broker] = field(default_factory=FrozenMap)
    """By id; empty in a cluster that has only ever had one root."""
    last_broker: int = 0
    """The highest id that any broker has had."""
    replicas: FrozenMap[str, ReplicatedTable] = field(default_factory=FrozenMap)
    """By location of the table."""
    mirrors: FrozenMap[str, Mirrored] = field(default_factory=FrozenMap)
    """By topic id, for topics that copy a topic of another cluster."""
    defaults: Defaults | None = None
    """Cluster-wide server settings; None until they are recorded."""

    def was_used(self, name: str) -> bool:
        """Return whether any topic has ever had that name."""
        return name in self.topics or name in self.gone

    def last(self, name: str) -> TopicInfo | None:
        """Return the last topic with that name, deleted or not."""
        return self.topics.get(name) or self.gone.get(name)

    def applied(self, rows: Iterable[MetadataRow]) -> ClusterState:
        """Return the state after applying more rows; rows that are already applied are ignored.

        Raises:
            UnsupportedVersionError, LogCorruptError: see `parse_row`.
        """
        draft = _Draft(self)
        for row in rows:
            if row.seq > draft.seq:
                draft.apply(row)
        return draft.state()

    def require(self, name: str) -> TopicInfo:
        """Return the topic with that name.

        Raises:
            UnknownTopicOrPartitionError: the topic does not exist.
        """
        info = self.topics.get(name)
        if info is None:
            raise UnknownTopicOrPartitionError(f"topic {name!r} does not exist")
        return info


class _Draft:
    """A state in preparation."""

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
        """Log starts by topic id that belong to this draft only: copied once, however many rows move them."""
        self._moved: dict[str, str] = {}
        """Name by id of topics with moved log starts."""

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
        """Apply a mirror's row; a promoted mirror becomes an ordinary topic."""
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


TOPIC: Final = "topic"
LOG_START: Final = "log_start"
MIRROR: Final = "mirror"

VERSIONS: Final = {TOPIC: 3, LOG_START: 2, brokers.BROKER: 1, brokers.REPLICAS: 1, MIRROR: FORMAT, brokers.DEFAULTS: 1}
"""The newest format of each kind of row. A log start of format 1 is that of one partition. A topic of format 2 has a
table whose id is not the topic's id; a topic of format 3 was repartitioned, or is being repartitioned."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataRow:
    """One row of `__cluster_metadata`; `seq` orders the rows of the table."""

    seq: int
    time_ms: int
    kind: str
    """`topic`, `log_start`, `broker`, `replicas`, `mirror` or `defaults`."""
    topic: str
    """Empty in a row about a broker or defaults; the name of a control table in a row about its replicas."""
    topic_id: str
    """Empty in rows that do not concern a topic."""
    change: str
    """Description of the change for people: `created`, `configs changed` …"""
    value: str
    """JSON: the state of the keys after the change; see `parse_row`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """Content of a `topic` row."""

    info: TopicInfo
    """The topic after the change, without its log starts."""
    deleted: bool


class Move(NamedTuple):
    """Change of a partition's log start."""

    offset: int
    before: int | None = None
    """Log start before the move; None in rows of format 1, which do not record it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStartsMoved:
    """Content of a `log_start` row."""

    moves: Mapping[int, Move]
    """New log starts by partition."""
    reason: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerChange:
    """Content of a `broker` row."""

    broker: Broker
    removed: bool


def broker_row(seq: int, time_ms: int, broker: Broker, change: str, *, removed: bool = False) -> MetadataRow:
    """Return the row that records a broker's new state."""
    value = brokers.broker_value(broker, removed=removed)
    return MetadataRow(seq=seq, time_ms=time_ms, kind=brokers.BROKER, topic="", topic_id="", change=change, value=value)


def replicas_row(
    seq: int, time_ms: int, table: ReplicatedTable, change: str, *, topic: str, topic_id: str = ""
) -> MetadataRow:
    """Return the row that records the replicas of a table.

    Args:
        seq: number of the row.
        time_ms: its time, ms since the epoch.
        table: the new registration.
        change: what happened, for people.
        topic: name of the topic or control table.
        topic_id: id of the topic; empty for a control table.
    """
    value = brokers.replicas_value(table)
    return MetadataRow(
        seq=seq, time_ms=time_ms, kind=brokers.REPLICAS, topic=topic, topic_id=topic_id, change=change, value=value
    )


def topic_row(seq: int, time_ms: int, info: TopicInfo, change: str, *, deleted: bool = False) -> MetadataRow:
    """Return the row that records a topic's new state."""
    moved = bool(info.ancestors) or info.target is not None
    value = {
        VERSION: 3 if moved else 1 if info.origin_id is None else 2,
        "location": info.location,
        "num_partitions": info.num_partitions,
        "configs": dict(info.configs),
        "created_ms": info.created_ms,
        "deleted": deleted,
        **({} if info.origin_id is None else {"table_id": info.origin_id}),
        **({"ancestors": [astuple(one) for one in info.ancestors]} if info.ancestors else {}),
        **({} if info.target is None else {"target": asdict(info.target)}),
    }
    return MetadataRow(
        seq=seq,
        time_ms=time_ms,
        kind=TOPIC,
        topic=info.name,
        topic_id=info.topic_id,
        change=change,
        value=json.dumps(value, sort_keys=True),
    )


def log_start_row(
    seq: int, time_ms: int, info: TopicInfo, starts: Mapping[int, int], *, reason: str, run: str
) -> MetadataRow:
    """Return the row that records new log starts of some partitions.

    Args:
        seq: number of the row.
        time_ms: its time, ms since the epoch.
        info: the topic before the change.
        starts: first offset to keep, by partition; at least one.
        reason: what moves the log starts, such as `retention`.
        run: id of the run that moves them.
    """
    moves = {p: Move(offset=offset, before=info.log_start(p)) for p, offset in sorted(starts.items())}
    moved = LogStartsMoved(moves=moves, reason=reason, run=run)
    return MetadataRow(
        seq=seq,
        time_ms=time_ms,
        kind=LOG_START,
        topic=info.name,
        topic_id=info.topic_id,
        change=moved_text(moves) if len(moves) == 1 else f"log starts of {len(moves)} partitions moved",
        value=_dump(moved),
    )


def mirror_row(seq: int, info: TopicInfo, mirrored: Mirrored, change: str) -> MetadataRow:
    """Return the row that records a mirror's new state; its time is `mirrored.time_ms`."""
    return MetadataRow(
        seq=seq,
        time_ms=mirrored.time_ms,
        kind=MIRROR,
        topic=info.name,
        topic_id=info.topic_id,
        change=change,
        value=dump_mirror(mirrored),
    )


def defaults_row(seq: int, time_ms: int, defaults: Defaults, change: str) -> MetadataRow:
    """Return the row with the cluster-wide server settings."""
    value = brokers.defaults_value(defaults)
    return MetadataRow(
        seq=seq, time_ms=time_ms, kind=brokers.DEFAULTS, topic="", topic_id="", change=change, value=value
    )


def moved_text(moves: Mapping[int, Move]) -> str:
    """Describe the moves of a row for people."""
    if len(moves) == 1:
        return "".join(f"log start of partition {p} moved to {move.offset}" for p, move in moves.items())
    return "log starts moved: " + ", ".join(f"partition {p} to {move.offset}" for p, move in sorted(moves.items()))


def trimmed(row: MetadataRow, moved: LogStartsMoved, partitions: Collection[int]) -> MetadataRow:
    """Return a `log_start` row with the moves of some partitions only.

    Args:
        row: the row.
        moved: its parsed content.
        partitions: partitions whose moves to keep.
    """
    if len(partitions) == len(moved.moves):
        return row
    return replace(row, value=_dump(replace(moved, moves={p: moved.moves[p] for p in sorted(partitions)})))


def _dump(moved: LogStartsMoved) -> str:
    value = {
        VERSION: 2,
        "reason": moved.reason,
        "run": moved.run,
        "moves": [[p, move.before, move.offset] for p, move in moved.moves.items()],
    }
    return json.dumps(value, separators=(",", ":"))


Said = TopicChange | LogStartsMoved | BrokerChange | ReplicatedTable | Mirrored | Defaults


def parse_row(row: MetadataRow) -> Said:
    """Parse a row of `__cluster_metadata`.

    Raises:
        UnsupportedVersionError: a newer release wrote it.
        LogCorruptError: it is damaged.
    """
    try:
        value = row_value(CLUSTER_METADATA, row, VERSIONS)
        if row.kind == TOPIC:
            return _topic_change(row, value)
        if row.kind == LOG_START:
            return _log_starts_moved(value)
        if row.kind == brokers.REPLICAS:
            return brokers.replicas_of(value)
        if row.kind == MIRROR:
            return load_mirror(value, row.time_ms)
        if row.kind == brokers.DEFAULTS:
            return brokers.defaults_of(value)
        broker, removed = brokers.broker_of(value)
        return BrokerChange(broker=broker, removed=removed)
    except UNREADABLE as cause:
        raise damaged(CLUSTER_METADATA, row, cause) from cause


def _topic_change(row: MetadataRow, value: Mapping[str, Any]) -> TopicChange:
    info = TopicInfo(
        name=TopicName(row.topic),
        topic_id=TopicId(row.topic_id),
        location=text(value, "location"),
        num_partitions=whole(value, "num_partitions", at_least=1),
        configs={name: as_text(setting, name) for name, setting in value["configs"].items()},
        created_ms=whole(value, "created_ms"),
        origin_id=TopicId(text(value, "table_id")) if "table_id" in value else None,
        ancestors=tuple(_ancestor(*found) for found in value.get("ancestors", ())),
        target=_target(value["target"]) if "target" in value else None,
    )
    return TopicChange(info=info, deleted=flag(value, "deleted"))


def _ancestor(topic_id: object, table_id: object, num_partitions: object) -> Ancestor:
    ids = {"topic_id": topic_id, "table_id": table_id, "num_partitions": num_partitions}
    return Ancestor(
        topic_id=TopicId(text(ids, "topic_id")),
        table_id=TopicId(text(ids, "table_id")),
        num_partitions=whole(ids, "num_partitions", at_least=1),
    )


def _target(value: Mapping[str, Any]) -> RepartitionTarget:
    return RepartitionTarget(
        topic_id=TopicId(text(value, "topic_id")),
        location=text(value, "location"),
        num_partitions=whole(value, "num_partitions", at_least=1),
    )


def _log_starts_moved(value: Mapping[str, Any]) -> LogStartsMoved:
    reason, run = text(value, "reason"), text(value, "run")
    if value.get(VERSION, 1) == 1:
        moves = {whole(value, "partition"): Move(offset=whole(value, "offset"))}
        return LogStartsMoved(moves=moves, reason=reason, run=run)
    found = value["moves"]
    numbers = [number for move in found for number in move]
    if not set(map(type, numbers)) <= {int} or min(numbers, default=0) < 0:
        raise TypeError("'moves' has a value other than a whole number from 0")
    moves = {partition: Move(offset, before) for partition, before, offset in found}
    return LogStartsMoved(moves=moves, reason=reason, run=run)
