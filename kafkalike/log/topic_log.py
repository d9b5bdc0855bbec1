"""DeltaTopicLog: one topic's Delta table as a log: append, read, look up by time."""

from __future__ import annotations

import contextlib
import random
import threading
import uuid
from collections.abc import Callable, Iterator, KeysView, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import pyarrow as pa

from kafkalike import faults
from kafkalike.clock import Clock, Deadline
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaStorageError,
    KafkaTimeoutError,
    LogCorruptError,
    TopicDeletedError,
)
from kafkalike.log.append_local import BatchPayload, Payload, append_commit
from kafkalike.log.commits import Add, TableCommit, append_info, log_name, parse_commit, segment_of, versions
from kafkalike.log.lock import TableLock
from kafkalike.log.port import Appended, TxnId
from kafkalike.log.reader import DeltaReader
from kafkalike.log.storage import Files
from kafkalike.log.tail import TableTail
from kafkalike.log.validate import check_after, codec_for, not_in_order
from kafkalike.log.writer import Commit, as_applied, commit
from kafkalike.model.batch import RecordBatch
from kafkalike.model.compaction import CLEANER_APP, HOLES, cleaner_app
from kafkalike.model.offsets import plan_offsets, requirements
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.delta_cluster import DeltaCluster

FETCH_BYTES: Final = 1_048_576
"""Bytes a reader decodes at a time; Kafka's `max.partition.fetch.bytes`."""

BACKOFF_SECONDS: Final = 0.05
"""Longest first wait after a rival's commit; doubles with each try up to `MAX_BACKOFF_SECONDS`."""

MAX_BACKOFF_SECONDS: Final = 2.0


class Appender(Protocol):
    """Another way to write a batch, for example through Spark."""

    def append(
        self, log: DeltaTopicLog, batch: RecordBatch, *, codec: str, deadline: Deadline, txn: TxnId | None
    ) -> Appended:
        """See `TopicLog.append`."""
        ...


class DeltaTopicLog:
    """The log of one topic. See `TopicLog`.

    Args:
        cluster: whose metadata say what the topic is.
        info: the topic as it was when this log was opened; its id must not change.
        files: its table.
        lock: its table's lock; None where the storage itself keeps writers apart, and in tests of that way.
        clock: time and waiting.
        appender: writes batches in another way than in-process.
        jitter: random number from 0 to 1 for the wait after a conflict.
    """

    def __init__(
        self,
        cluster: DeltaCluster,
        info: TopicInfo,
        files: Files,
        *,
        lock: TableLock | None,
        clock: Clock,
        appender: Appender | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.info = info
        self.files = files
        self.fetch_bytes = FETCH_BYTES
        self.clock = clock
        self._cluster = cluster
        self._lock = lock
        self._appender = appender
        self._jitter = jitter
        self._mutex = threading.RLock()
        self._tail = TableTail(files, clock, records_ends=True)
        self._condenser = cluster.condenser(info.location)
        self._config: tuple[TopicInfo, TopicConfig] | None = None

    @property
    def config(self) -> TopicConfig:
        """The settings in effect."""
        known = self._config
        if known is None or known[0] is not self.info:
            effective = self._cluster.server.effective(self.info.configs)
            known = self._config = (self.info, TopicConfig.from_properties(effective))
        return known[1]

    def refresh(self) -> None:
        """Look for new table commits and metadata."""
        with self._mutex:
            current = self._cluster.metadata.refresh().topics.get(self.info.name)
            if current is None or current.topic_id != self.info.topic_id:
                raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
            self.info = current
            self._checked(self._tail.refresh)

    def _checked(self, look: Callable[[], object]) -> None:
        """Look at the table, which must be there and be the topic's."""
        try:
            look()
        except FileNotFoundError as cause:
            message = f"{self.info.name}: its table {self.files.uri} is gone though the topic exists"
            raise LogCorruptError(message) from cause
        if self._tail.table_id != self.info.topic_id:
            message = (
                f"{self.info.name}: the table at {self.files.uri} has id {self._tail.table_id}, the topic's is "
                f"{self.info.topic_id}: someone has replaced the table"
            )
            raise LogCorruptError(message)

    def log_start(self, partition: int) -> int:
        """First offset that may be read."""
        return self.info.log_start(partition)

    def log_end(self, partition: int) -> int:
        """Next offset to be written."""
        return max(self._tail.index.end(partition), self.info.log_start(partition))

    def last_append_ms(self) -> int:
        """Time of the last table commit seen, ms."""
        return self._tail.last_commit_ms

    @property
    def version(self) -> int:
        """Table version of the last `refresh`."""
        return self._tail.version

    def snapshot(self) -> tuple[int, dict[int, int]]:
        """Table version and log ends that belong together, whatever other threads do with this log meanwhile."""
        with self._mutex:
            return self._tail.version, {p: self.log_end(p) for p in self.info.partitions}

    def segments(self, partition: int) -> Sequence[Segment]:
        """Live data files in offset order; those wholly below the log start wait for maintenance and are left out."""
        start = self.log_start(partition)
        return [s for s in self._tail.index.segments(partition) if s.stop > start]

    def table_segments(self, partition: int) -> Sequence[Segment]:
        """All data files of the table in offset order, those wholly below the log start included; for maintenance."""
        return tuple(self._tail.index.segments(partition))

    def cleaned_below(self, partition: int) -> int:
        """Offset below which compaction may have taken records, whatever the policy is now; 0 when it never did.

        Costs a look into the table the first time.
        """
        if self._tail.txn_version(CLEANER_APP) is None:
            return 0
        return self._tail.txn_version(cleaner_app(partition, HOLES)) or 0

    def live_paths(self) -> KeysView[str]:
        """Paths of all data files of the table, whatever partition they claim, as of the last `refresh`; a view."""
        return self._tail.index.paths

    def segments_within(self, partition: int, offsets: range) -> list[Segment]:
        """Live data files that hold any of these offsets, in offset order."""
        return self._tail.index.within(partition, offsets)

    def segment_at_or_after(self, partition: int, offset: int) -> Segment | None:
        """The segment that holds an offset, or else the next one above."""
        return self._tail.index.at_or_after(partition, offset)

    def is_live(self, segment: Segment) -> bool:
        """Whether the segment's file is part of the table."""
        return self._tail.index.has(segment.path)

    def reader(self, partition: int, position: int) -> DeltaReader:
        """A reader that begins at an offset."""
        return DeltaReader(self, partition, position)

    # --- time ----------------------------------------------------------------------------------

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset, in offset order from the log start, whose timestamp is at or after a time."""
        start = self.log_start(partition)
        for segment in list(self._tail.index.first_with_time(partition, timestamp_ms, start)):
            offsets, times = self._times(segment)
            hit = np.flatnonzero((offsets >= start) & (times >= timestamp_ms))
            if len(hit):
                return OffsetAndTimestamp(int(offsets[hit[0]]), int(times[hit[0]]))
        return None

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp."""
        start = self.log_start(partition)
        best: OffsetAndTimestamp | None = None
        for segment in sorted(self.segments(partition), key=lambda s: (-s.max_timestamp, s.start)):
            if best is not None and (segment.max_timestamp, -segment.start) <= (best.timestamp, -best.offset):
                break
            offsets, times = self._times(segment)
            live = offsets >= start
            if live.any():
                at = int(np.argmax(np.where(live, times, -1)))
                found = OffsetAndTimestamp(int(offsets[at]), int(times[at]))
                if best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset):
                    best = found
        return best

    def _times(self, segment: Segment) -> tuple[np.ndarray, np.ndarray]:
        try:
            table = self.files.parquet(segment.path).read(columns=["offset", "timestamp"])
        except (OSError, pa.ArrowException) as cause:
            message = f"{self.info.name}-{segment.partition}: {self.files.uri}/{segment.path} cannot be read: {cause}"
            raise CorruptRecordError(message) from cause
        times = table.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // 1000
        return table.column("offset").to_numpy(), times

    # --- append --------------------------------------------------------------------------------

    def append(
        self, batch: RecordBatch, *, codec: str = "none", timeout_ms: float | None = 120_000, txn: TxnId | None = None
    ) -> Appended:
        """Write the records in one table commit: all of them or none."""
        deadline = Deadline(self.clock, timeout_ms)
        if self._appender is not None:
            return self._appender.append(self, batch, codec=codec, deadline=deadline, txn=txn)
        return self.append_payload(BatchPayload(batch), codec=codec, deadline=deadline, txn=txn)

    def append_payload(self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        """Number the records of a payload, write and commit them, in-process: all of them or none."""
        with self.exclusive(deadline):
            return self._append_in_process(payload, codec=codec, deadline=deadline, txn=txn)

    @property
    def locked(self) -> bool:
        """Whether a lock keeps writers apart, so that a plan made under it cannot become stale."""
        return self._lock is not None

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Be the only writer of the table, where it has a lock; else nothing. Not re-entrant."""
        if self._lock is None:
            yield
            return
        with self._lock.held(deadline):
            yield

    def ready_to_append(self) -> None:
        """Refresh, and refuse a table that an outsider has replaced, or whose log end has been taken back.

        Raises:
            LogCorruptError: appending would give offsets out for the second time.
        """
        with self._mutex:
            self.refresh()
            self._checked(self._tail.check_there)
        rewound = self._tail.foreign
        if rewound is not None:
            message = (
                f"{self.info.name}: {rewound.operation} at version {rewound.version} took records back; "
                "appending would give their offsets to other records. Delete the topic and create it again, or restore "
                "the table to the version before that operation and copy its records to a new topic"
            )
            raise LogCorruptError(message)

    def commit_files(self, wanted: Commit) -> bool:
        """Make a table version that is no append, and go on from it. Caller: maintenance, within `exclusive`.

        Returns:
            False when another writer was faster; nothing was done then.

        Raises:
            KafkaStorageError, UnknownOutcomeError: see `writer.commit`.
        """
        if not commit(self.files, wanted):
            return False
        with self._mutex:
            if self._tail.version < wanted.version:
                self._tail.apply(as_applied(wanted))
        self._condenser.after_commit(wanted.version, self.info.topic_id)
        return True

    def tidy(self) -> bool:
        """Keep the table's log short; see `Condenser.tidy`. Caller: maintenance."""
        return self._condenser.tidy(self.info.topic_id)

    def _append_in_process(self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        counts, append_id = payload.counts(), uuid.uuid4().hex
        adds: list[Add] = []
        plan: dict[int, range] = {}
        written_ms = attempt = 0
        while True:
            with self._discarding(adds):
                with self._mutex:
                    self.ready_to_append()
                    # Another thread may move this log on meanwhile; plan and commit rest on one and the same version.
                    version, ends = self.snapshot()
                    unrecorded = self._tail.unrecorded_ends()
                    config = self.config
                    done = self.already_appended(txn)
                now = self.clock.now_ms()
                if done is None:
                    payload.check(self.info, config, now)
            if done is not None:
                self._discard(adds)
                return done
            if not counts and txn is None:
                return Appended(version=version, ranges={}, append_time_ms=now)
            if adds and not all(r.holds(ends) for r in requirements(plan)):
                self._discard(adds)
                adds = []
            if not adds:
                plan, written_ms = plan_offsets(ends, counts), now
                codec_now, now_counts = codec_for(config, codec), config.log_append_time
                adds = payload.write(self.files, plan, codec=codec_now, now_ms=now, now_counts=now_counts)
            new_ends = {**unrecorded, **{partition: run.stop for partition, run in plan.items()}}
            wanted = append_commit(
                adds, version=version + 1, now_ms=written_ms, append_id=append_id, txn=txn, ends=new_ends
            )
            faults.point("append.before_commit")
            try:
                landed = commit(self.files, wanted)
            except KafkaStorageError:
                # Surely not committed. The disk may be full: its files must not make that worse.
                self._discard(adds)
                raise
            if landed:
                faults.point("append.after_commit")
                with self._mutex:
                    if self._tail.version < wanted.version:
                        self._tail.apply(as_applied(wanted))
                self._condenser.after_commit(wanted.version, self.info.topic_id)
                return Appended(version=wanted.version, ranges=plan, append_time_ms=written_ms)
            attempt += 1
            with self._discarding(adds):
                self.back_off(attempt, deadline)

    @contextlib.contextmanager
    def _discarding(self, adds: Sequence[Add]) -> Iterator[None]:
        """Remove the files of an append that no commit names when what it does between two tries fails."""
        try:
            yield
        except (KafkaError, OSError):
            self._discard(adds)
            raise

    def _discard(self, adds: Sequence[Add]) -> None:
        for add in adds:
            self.files.discard(add.path)

    def back_off(self, attempt: int, deadline: Deadline) -> None:
        """Wait after losing against a rival: a random time that doubles with each try.

        Raises:
            KafkaTimeoutError: time ran out; nothing was written.
        """
        wait = self._jitter() * min(MAX_BACKOFF_SECONDS, BACKOFF_SECONDS * 2 ** (attempt - 1))
        if deadline.remaining() <= wait:
            message = f"{self.info.name}: others were faster {attempt} times until time ran out; nothing was written"
            raise KafkaTimeoutError(message)
        self.clock.sleep(wait)

    # --- recognising writes --------------------------------------------------------------------

    def already_appended(self, txn: TxnId | None) -> Appended | None:
        """The earlier write of the same `TxnId`, if the table has it.

        Its offsets are found as long as the table's log still holds the commit; later they are empty.

        Raises:
            OutOfOrderSequenceNumberError: the application has written a higher version, and nothing shows that it ever
                wrote this one: a counter that began anew, or two jobs that share a name. Or `after` is overtaken.
        """
        if txn is None:
            return None
        known = self._tail.txn_version(txn.app_id)
        if known is None or known < txn.version:
            check_after(self.info.name, txn, known)
            return None
        found = self.find_commit(lambda c: c.txns.get(txn.app_id) == txn.version)
        if found is not None:
            return _appended(found, self.files, duplicate=True)
        if known > txn.version:
            raise not_in_order(self.info.name, txn.app_id, txn.version, known)
        return Appended(version=self._tail.version, ranges={}, append_time_ms=0, duplicate=True)

    def txn_version(self, app_id: str) -> int | None:
        """Latest version that an application has written, as of the last `refresh`; None when it never has."""
        return self._tail.txn_version(app_id)

    def find_append(self, append_id: str, since: int) -> Appended | None:
        """The commit of an append, looked for in the versions above `since`."""
        found = self.find_commit(lambda c: c.append_id == append_id, since)
        return None if found is None else _appended(found, self.files, duplicate=False)

    def find_commit(self, wanted: Callable[[TableCommit], bool], since: int = -1) -> TableCommit | None:
        """The newest commit above version `since` that fits, among those the log still holds."""
        for version in reversed(versions(self.files)):
            if version <= since:
                return None
            try:
                found = parse_commit(version, self.files.read(log_name(version)), self.files.uri)
            except FileNotFoundError:
                continue
            if wanted(found):
                return found
        return None


def _appended(found: TableCommit, files: Files, *, duplicate: bool) -> Appended:
    runs: dict[int, range] = {}
    for add in found.adds:
        segment = segment_of(add, files)
        known = runs.get(segment.partition)
        start = segment.start if known is None else min(known.start, segment.start)
        stop = segment.stop if known is None else max(known.stop, segment.stop)
        runs[segment.partition] = range(start, stop)
    when = int(append_info(found.user_metadata).get("time", found.timestamp_ms))
    return Appended(version=found.version, ranges=dict(sorted(runs.items())), append_time_ms=when, duplicate=duplicate)
