"""MemoryCluster: a cluster that lives in memory, held to the same contract as the one on Delta tables.

For users' tests and for ours: records, metadata and groups are real, nothing survives the process.
"""

from __future__ import annotations

import math
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import OffsetOutOfRangeError, TopicDeletedError
from kafkalike.log.cluster.base import ClusterBase
from kafkalike.log.cluster.memory_control import MemoryControlLog
from kafkalike.log.port import TopicLog
from kafkalike.log.store.leases import MemoryLeases
from kafkalike.log.store.memory import MemoryStore
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.decided import DecidedPayload, DecidedRecords, name_of
from kafkalike.log.topic.validate import SchemasOf, check_after, check_batch, codec_for, not_in_order
from kafkalike.log.transactions.staging import Staging
from kafkalike.log.transactions.tables import Home
from kafkalike.log.transactions.transactions import ClusterTransactions
from kafkalike.model.appends import TRANSACTIONS, Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.names import TopicId
from kafkalike.model.offsets import assign_offsets, plan_offsets
from kafkalike.model.schemas.rows import SchemaRow
from kafkalike.model.schemas.state import RegistryState
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.values import WriteName
from kafkalike.model.transactions.views import TopicCut

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.key_search import Searched


class _Table:
    """Records of one topic by partition, as rows of `CHUNK_SCHEMA`."""

    def __init__(self) -> None:
        self.rows: dict[int, list[dict[str, object]]] = {}
        self.segments: dict[int, list[Segment]] = {}
        self.version = 0
        self.txns: dict[str, dict[int, Appended]] = {}
        """Writes by application and version."""
        self.stops: list[tuple[int, int, int]] = []
        """Version, partition and log end of each append."""
        self.last_ms = 0
        self.lock = threading.Lock()

    def written(self, topic: str, txn: TxnId | None) -> Appended | None:
        """The earlier write of the same `TxnId`."""
        known = {} if txn is None else self.txns.get(txn.app_id, {})
        if txn is None or not known:
            return None
        if max(known) < txn.version:
            check_after(topic, txn, max(known))
            return None
        if txn.version not in known:
            if txn.own:
                return Appended(version=self.version, ranges={}, append_time_ms=0, duplicate=True)
            raise not_in_order(topic, txn.app_id, txn.version, max(known))
        return replace(known[txn.version], duplicate=True)


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
        self._tables: dict[str, _Table] = {}
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

    def _create_table(self, name: str, location: str) -> TopicId:
        del name, location
        topic_id = TopicId(str(uuid.uuid4()))
        self._tables[topic_id] = _Table()
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

    def log(self, name: str) -> MemoryTopicLog:
        """Open the log of an existing topic."""
        info = self.topic(name)
        return MemoryTopicLog(self, info, self._tables[info.topic_id])


class MemoryTopicLog:
    """The log of one topic in memory."""

    def __init__(self, cluster: MemoryCluster, info: TopicInfo, table: _Table) -> None:
        self.info = info
        self._cluster = cluster
        self._table = table
        self._visible: dict[int, int] = {}
        self.version = 0
        self._seen = 0
        self.refresh()

    @property
    def config(self) -> TopicConfig:
        """Settings in effect."""
        return TopicConfig.from_properties(self._cluster.server.effective(self.info.configs))

    @property
    def schemas(self) -> SchemasOf:
        """Gives the cluster's registry."""
        return lambda: self._cluster.schemas

    def _current(self) -> TopicInfo:
        current = self._cluster.metadata.refresh().topics.get(self.info.name)
        if current is None or current.topic_id != self.info.topic_id:
            raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
        return current

    def refresh_info(self, *, waiting: bool = False) -> None:
        """See what became of the topic."""
        del waiting
        self.info = self._current()

    def refresh(self, *, metadata: bool = True, waiting: bool = False, since: float = math.inf) -> None:
        """See what was appended."""
        del metadata, waiting, since
        self.info = self._current()
        self._seen = max(self._table.txns.get(TRANSACTIONS, {}), default=0)
        version = self._table.version  # before the ends: an append meanwhile is seen at the next look, too
        self._visible = {p: len(self._table.rows.get(p, ())) for p in self.info.partitions}
        self.version = version

    def check_sound(self) -> None:
        """Memory is not damaged."""
        self.refresh()

    def log_start(self, partition: int) -> int:
        """First offset that may be read."""
        return self.info.log_start(partition)

    def log_end(self, partition: int) -> int:
        """Next offset to be written."""
        return self._visible.get(partition, 0)

    def holes_below(self, partition: int) -> int:
        """Offset below which one without a record is no loss."""
        compacted = TopicConfig.from_properties(self._cluster.server.effective(self.info.configs)).compacted
        return self.log_end(partition) if compacted else 0

    def last_append_ms(self) -> int:
        """Time of the last append."""
        return self._table.last_ms

    def append(
        self,
        batch: RecordBatch | ColumnBatch,
        *,
        codec: str = "none",
        timeout_ms: float | None = 120_000,
        txn: TxnId | None = None,
    ) -> Appended:
        """Write the records."""
        del timeout_ms
        return self.add(batch if isinstance(batch, RecordBatch) else batch.records(), codec, txn)

    @property
    def last_transaction(self) -> int:
        """The last decided transaction that the topic has."""
        return self._seen

    def ends_before(self, seq: int) -> tuple[int, dict[int, int]]:
        """The newest version without decisions after one, and the log ends in it."""
        with self._table.lock:
            later = [done for s, done in self._table.txns.get(TRANSACTIONS, {}).items() if s > seq]
            version = min((done.version for done in later), default=self._table.version + 1) - 1
            ends = dict.fromkeys(self.info.partitions, 0)
            for made, partition, stop in self._table.stops:
                if made <= version:
                    ends[partition] = stop
            return version, ends

    def add(self, batch: RecordBatch, codec: str, txn: TxnId | None, *, checked: bool = False) -> Appended:
        """Write the records.

        Args:
            batch: the records.
            codec: the producer's.
            txn: see `append`.
            checked: they were, when they were staged.
        """
        now = self._cluster.clock.now_ms()
        table = self._table
        with table.lock:
            info = self._current()
            config = TopicConfig.from_properties(self._cluster.server.effective(info.configs))
            done = table.written(info.name, txn)
            if done is not None:
                return done
            if not checked:
                check_batch(batch, info, config, now, self.schemas)
            codec_for(config, codec)
            counts: dict[int, int] = {}
            for p in batch.partitions:
                counts[p] = counts.get(p, 0) + 1
            plan = plan_offsets({p: len(table.rows.get(p, ())) for p in counts}, counts)
            stamps = [now] * len(batch) if config.log_append_time else batch.timestamps
            for row, offset in enumerate(assign_offsets(batch.partitions, plan)):
                headers = batch.headers[row]
                table.rows.setdefault(batch.partitions[row], []).append(
                    {
                        "offset": offset,
                        "timestamp": stamps[row] * 1000,
                        "timestampType": int(config.log_append_time),
                        "key": batch.keys[row],
                        "value": batch.values[row],
                        "headers": None if headers is None else [{"key": k, "value": v} for k, v in headers],
                    }
                )
            table.version += 1
            table.last_ms = now
            for p, run in plan.items():
                table.segments.setdefault(p, []).append(_segment(table, p, run, now))
                table.stops.append((table.version, p, run.stop))
            done = Appended(version=table.version, ranges=plan, append_time_ms=now)
            if txn is not None:
                table.txns.setdefault(txn.app_id, {})[txn.version] = done
            return done

    def reader(self, partition: int, position: int) -> MemoryReader:
        """A reader that begins at an offset."""
        return MemoryReader(self, partition, position)

    def rows(self, partition: int, start: int, stop: int) -> list[dict[str, object]]:
        """Rows of a run of offsets, for the reader."""
        return self._table.rows.get(partition, [])[start:stop]

    def with_key(self, partition: int, key: bytes) -> Iterator[Searched]:
        """The records with a key, each as if it had a file of its own, the newest first."""
        from kafkalike.log.topic.key_search import Searched

        start = self.log_start(partition)
        for row in reversed(self.rows(partition, start, self.log_end(partition))):
            if row["key"] == key:
                table = pa.Table.from_pylist([row], CHUNK_SCHEMA)
                yield Searched(Chunk(partition, table, int(str(row["offset"])) + 1), skipped=False)

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset whose time is at or after a time."""
        start = self.log_start(partition)
        for row in self.rows(partition, start, self.log_end(partition)):
            at = int(str(row["timestamp"])) // 1000
            if at >= timestamp_ms:
                return OffsetAndTimestamp(int(str(row["offset"])), at)
        return None

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record with the largest time."""
        rows = self.rows(partition, self.log_start(partition), self.log_end(partition))
        if not rows:
            return None
        best = max(rows, key=lambda row: int(str(row["timestamp"])))
        return OffsetAndTimestamp(int(str(best["offset"])), int(str(best["timestamp"])) // 1000)

    def segments(self, partition: int) -> Sequence[Segment]:
        """One segment per append."""
        start = self.log_start(partition)
        return [s for s in self._table.segments.get(partition, ()) if s.stop > start]


class MemoryDecided:
    """Decisions in a topic in memory. See `kafkalike.log.transactions.tables.DecidedLog`."""

    def __init__(self, log: MemoryTopicLog) -> None:
        self._log = log

    @classmethod
    def of(cls, log: TopicLog) -> MemoryDecided:
        """The decisions of a topic of this cluster."""
        assert isinstance(log, MemoryTopicLog)
        return cls(log)

    @property
    def last(self) -> int:
        """The last decision that it is known to have."""
        return self._log.last_transaction

    def look(self) -> int:
        """The last decision that it has now."""
        self._log.refresh()
        return self._log.last_transaction

    def bring(self, seq: int, payload: DecidedRecords, deadline: Deadline, also: WriteName | None) -> Appended:
        """Append a decision, unless it is there."""
        # Whoever has names for writes, has tables.
        del deadline, also
        assert isinstance(payload, DecidedPayload)
        self._log.refresh()
        whole = RecordBatch()
        for batch in payload.batches() if self._log.last_transaction < seq else ():
            whole.extend(batch)
        return self._log.add(whole, "none", name_of(seq), checked=True)

    def where(self, seq: int) -> Appended:
        """Where a decision is."""
        return self._log.add(RecordBatch(), "none", name_of(seq), checked=True)

    def as_of(self, seq: int) -> TopicCut | None:
        """The newest version without later decisions."""
        self._log.refresh()
        version, ends = self._log.ends_before(seq)
        return TopicCut(topic_id=self._log.info.topic_id, version=version, ends=ends)


def _segment(table: _Table, partition: int, run: range, now: int) -> Segment:
    rows = table.rows[partition][run.start : run.stop]
    times = [int(str(row["timestamp"])) // 1000 for row in rows]
    size = sum(len(row[name] or b"") for row in rows for name in ("key", "value"))  # type: ignore[arg-type,misc]
    return Segment(
        partition=partition,
        start=run.start,
        stop=run.stop,
        num_records=len(run),
        min_timestamp=min(times),
        max_timestamp=max(times),
        size_bytes=size,
        path=f"partition={partition}/{run.start:020d}",
        modification_ms=now,
    )


class MemoryReader:
    """Reads one partition of a memory log."""

    def __init__(self, log: MemoryTopicLog, partition: int, position: int) -> None:
        self._log = log
        self._partition = partition
        self.position = position

    def read(self, max_bytes: int) -> Chunk | None:
        """Records from the position on."""
        log, p = self._log, self._partition
        live = range(log.log_start(p), log.log_end(p))
        if not live.start <= self.position <= live.stop:
            name = f"{log.info.name}-{p}"
            raise OffsetOutOfRangeError({name: self.position}, {name: live}, log.info.why_gone(p, self.position))
        taken: list[dict[str, object]] = []
        size = 0
        for row in log.rows(p, self.position, live.stop):
            if taken and size >= max_bytes:
                break
            taken.append(row)
            size += len(row["key"] or b"") + len(row["value"] or b"") + 20  # type: ignore[arg-type]
        if not taken:
            return None
        self.position += len(taken)
        return Chunk(p, pa.Table.from_pylist(taken, schema=CHUNK_SCHEMA), self.position)
