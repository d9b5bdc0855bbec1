"""MemoryTopicLog: a topic whose records are rows in memory, with what transactions bring into it."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from kafkalike.clock import Deadline
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import NotEnoughReplicasError, OffsetOutOfRangeError, TopicDeletedError
from kafkalike.log.cluster.base import ClusterBase
from kafkalike.log.port import TopicLog
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.decided import DecidedPayload, DecidedRecords, name_of
from kafkalike.log.topic.validate import SchemasOf, check_after, check_batch, codec_for, not_in_order
from kafkalike.model.appends import TRANSACTIONS, Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.offsets import assign_offsets, plan_offsets
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.values import WriteName
from kafkalike.model.transactions.views import TopicCut

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.key_search import Searched


class MemoryTable:
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


class MemoryTopicLog:
    """The log of one topic in memory."""

    def __init__(self, cluster: ClusterBase, info: TopicInfo, table: MemoryTable) -> None:
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
        if self.config.min_isr > 1:
            raise NotEnoughReplicasError(f"{self.info.name}: 1 replica is in sync; nothing was written")
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

    def with_key(self, partition: int, key: bytes, *, below: int, most_bytes: int) -> Iterator[Searched]:
        """The records with a key, each as if it had a file of its own, the newest first."""
        from kafkalike.log.topic.key_search import Searched

        del most_bytes
        start = self.log_start(partition)
        for row in reversed(self.rows(partition, start, min(below, self.log_end(partition)))):
            if row["key"] == key:
                table, offset = pa.Table.from_pylist([row], CHUNK_SCHEMA), int(str(row["offset"]))
                yield Searched(Chunk(partition, table, offset + 1), skipped=False, start=offset)

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


def _segment(table: MemoryTable, partition: int, run: range, now: int) -> Segment:
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
