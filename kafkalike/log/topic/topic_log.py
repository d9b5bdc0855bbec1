"""DeltaTopicLog: one topic's Delta table as a log: append, read, look up by time."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
import pyarrow as pa

from kafkalike import faults
from kafkalike.clock import Clock, Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    CorruptRecordError,
    KafkaError,
    KafkaStorageError,
    LogCorruptError,
    PolicyViolationError,
    TopicDeletedError,
    UnsupportedVersionError,
)
from kafkalike.log.store.port import Store
from kafkalike.log.table.actions import APPEND, TableCommit, append_info, log_name, parse_commit
from kafkalike.log.table.control_log import DeltaControlLog
from kafkalike.log.table.log_cleaner import Helpers, LogCleaner
from kafkalike.log.table.state import EndsAt, LastOf, Requirement, Still, TableState, end_app
from kafkalike.log.table.table import Change, Done, Landed, Plan, Table
from kafkalike.log.topic.batch_payload import BatchPayload, Payload, append_note
from kafkalike.log.topic.foreign_rules import append_refusal, removal_refusal
from kafkalike.log.topic.reader import DeltaReader
from kafkalike.log.topic.segment_files import segment_of, versions
from kafkalike.log.topic.segment_rows import Reading, SegmentRows
from kafkalike.log.topic.validate import check_after, codec_for, not_in_order
from kafkalike.model.appends import Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.compaction import HOLES, cleaner_app
from kafkalike.model.offsets import plan_offsets
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo

FETCH_BYTES: Final = 1_048_576
"""Bytes a reader decodes at a time; Kafka's `max.partition.fetch.bytes`."""

LOOK_BACK: Final = 100
"""Commits below a checkpoint that a load looks through for what the live files do not tell; a few ms."""

_TIMES: Final = ("offset", "timestamp")

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What the logs of all topics of a cluster share."""

    store: Store
    """The cluster's files."""
    metadata: DeltaControlLog[ClusterState, MetadataRow]
    """Say which topics there are."""
    server: ServerConfig
    """Server defaults."""
    helpers: Helpers
    """Threads that keep the tables' logs short."""
    clock: Clock
    """Time and waiting."""


class DeltaTopicLog:
    """The log of one topic. See `TopicLog`.

    Args:
        home: the cluster's files and metadata.
        info: the topic as it was when this log was opened; its id must not change.
        jitter: random number from 0 to 1 for the wait after a conflict.
    """

    def __init__(self, home: Home, info: TopicInfo, *, jitter: Callable[[], float] = random.random) -> None:
        self.info = info
        self.files: Store = home.store.at(info.location)
        self.fetch_bytes = FETCH_BYTES
        self.clock: Clock = home.clock
        self._home = home
        self._table = Table(self.files, self.clock, to_segment=segment_of, look_back=_look_back, jitter=jitter)
        self._cleaner = LogCleaner(home.store, info.location, home.helpers, self.clock)
        self._config: tuple[TopicInfo, TopicConfig] | None = None

    @property
    def config(self) -> TopicConfig:
        """The settings in effect."""
        known = self._config
        if known is None or known[0] is not self.info:
            effective = self._home.server.effective(self.info.configs)
            known = self._config = (self.info, TopicConfig.from_properties(effective))
        return known[1]

    def refresh(self) -> None:
        """Look for new table commits and metadata."""
        # The metadata first, and not while this table is held: who holds theirs may want this.
        current = self._home.metadata.refresh().topics.get(self.info.name)
        if current is None or current.topic_id != self.info.topic_id:
            raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
        self.info = current
        self._checked(self._table.refresh)

    def look_anew(self) -> None:
        """Refresh, also when the log was cleaned up past what is known: before anything is said to be lost."""
        self.refresh()
        self._checked(self._table.check_there)

    def _checked(self, look: Callable[[], object]) -> None:
        """Look at the table, which must be there and be the topic's."""
        try:
            look()
        except FileNotFoundError as cause:
            message = f"{self.info.name}: its table {self.files.uri} is gone though the topic exists"
            raise LogCorruptError(message) from cause
        if self._table.state.table_id != self.info.topic_id:
            message = (
                f"{self.info.name}: the table at {self.files.uri} has id {self._table.state.table_id}, the topic's is "
                f"{self.info.topic_id}: someone has replaced the table"
            )
            raise LogCorruptError(message)

    def log_start(self, partition: int) -> int:
        """First offset that may be read."""
        return self.info.log_start(partition)

    def log_end(self, partition: int) -> int:
        """Next offset to be written."""
        return max(self._table.state.end(partition), self.info.log_start(partition))

    def last_append_ms(self) -> int:
        """Time of the last table commit seen, ms."""
        return self._table.state.last_commit_ms

    @property
    def version(self) -> int:
        """Table version of the last `refresh`."""
        return self._table.state.version

    def snapshot(self) -> tuple[int, dict[int, int]]:
        """Table version and log ends that belong together, whatever other threads do with this log meanwhile."""
        with self._table.mutex:
            return self._table.state.version, {p: self.log_end(p) for p in self.info.partitions}

    def segments(self, partition: int) -> Sequence[Segment]:
        """Live data files in offset order; those wholly below the log start wait for maintenance and are left out."""
        start = self.log_start(partition)
        return [s for s in self._table.state.index.segments(partition) if s.stop > start]

    def table_segments(self, partition: int) -> Sequence[Segment]:
        """All data files of the table in offset order, those wholly below the log start included; for maintenance."""
        return tuple(self._table.state.index.segments(partition))

    def holes_below(self, partition: int) -> int:
        """Offset below which compaction may have taken records, whatever the policy is now; 0 when it never did.

        Each of its commits says so: what is missing above is lost, in a compacted topic too.
        """
        return self._table.state.txns.get(cleaner_app(partition, HOLES), 0)

    def check_no_overlap(self, segment: Segment, position: int) -> None:
        """Refuse a segment some of whose offsets, from a position on, another segment holds too.

        Raises:
            CorruptRecordError: it is not clear which records are the log's.
        """
        clash = self._table.state.index.overlap(segment)
        if clash is None:
            return
        doubled = range(max(segment.start, clash.start, position), min(segment.stop, clash.stop))
        if doubled:
            message = (
                f"{self.info.name}-{segment.partition}: two files hold offsets in [{doubled.start}, {doubled.stop}): "
                f"{self.files.uri}/{segment.path} and {clash.path}; another writer of the table has added or moved "
                f"records. `kafkalike verify --topic {self.info.name}` says more"
            )
            raise CorruptRecordError(message)

    def live_paths(self) -> KeysView[str]:
        """Paths of all data files of the table, whatever partition they claim, as of the last `refresh`; a view.

        Raises:
            LogCorruptError: the newest version cannot be read; whoever removes all other files must not go by an older.
        """
        self._table.check_sound()
        return self._table.state.index.paths

    def segments_within(self, partition: int, offsets: range) -> list[Segment]:
        """Live data files that hold any of these offsets, in offset order."""
        return self._table.state.index.within(partition, offsets)

    def segment_at_or_after(self, partition: int, offset: int) -> Segment | None:
        """The segment that holds an offset, or else the next one above."""
        return self._table.state.index.at_or_after(partition, offset)

    def is_live(self, segment: Segment) -> bool:
        """Whether the segment's file is part of the table."""
        return self._table.state.index.has(segment.path)

    def reader(self, partition: int, position: int) -> DeltaReader:
        """A reader that begins at an offset."""
        return DeltaReader(self, partition, position)

    # --- time ----------------------------------------------------------------------------------

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset, in offset order from the log start, whose timestamp is at or after a time.

        A file is read only where the log's statistics do not say it: where its records have several timestamps.
        """
        start = self.log_start(partition)
        for segment in list(self._table.state.index.first_with_time(partition, timestamp_ms, start)):
            self.check_no_overlap(segment, start)
            if segment.start >= start and segment.min_timestamp == segment.max_timestamp:
                return OffsetAndTimestamp(segment.start, segment.min_timestamp)
            for offsets, times in self._times(segment, start):
                hit = int(np.argmax(times >= timestamp_ms))
                if times[hit] >= timestamp_ms:
                    return OffsetAndTimestamp(int(offsets[hit]), int(times[hit]))
        return None

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp."""
        start = self.log_start(partition)
        best: OffsetAndTimestamp | None = None
        for segment in sorted(self.segments(partition), key=lambda s: (-s.max_timestamp, s.start)):
            if best is not None and (segment.max_timestamp, -segment.start) <= (best.timestamp, -best.offset):
                break
            self.check_no_overlap(segment, start)
            for offsets, times in self._times(segment, start):
                at = int(np.argmax(times))
                found = OffsetAndTimestamp(int(offsets[at]), int(times[at]))
                if best is None or (found.timestamp, -found.offset) > (best.timestamp, -best.offset):
                    best = found
        return best

    def _times(self, segment: Segment, start: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Offsets and times (ms) of a segment from an offset on, in offset order."""
        name = f"{self.info.name}-{segment.partition}"
        rows = SegmentRows(self.files, segment, start, Reading(columns=_TIMES, batch_bytes=self.fetch_bytes), name=name)
        try:
            while (batch := rows.next()) is not None:
                times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
                yield batch.column("offset").to_numpy(), times
        except FileNotFoundError as cause:
            message = f"{name}: {self.files.uri}/{segment.path} cannot be read: {cause}"
            raise CorruptRecordError(message) from cause
        finally:
            rows.close()

    # --- append --------------------------------------------------------------------------------

    def append(
        self, batch: RecordBatch, *, codec: str = "none", timeout_ms: float | None = 120_000, txn: TxnId | None = None
    ) -> Appended:
        """Write the records in one table commit: all of them or none."""
        return self.append_payload(BatchPayload(batch), codec=codec, deadline=Deadline(self.clock, timeout_ms), txn=txn)

    def append_payload(self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        """Number the records of a payload, write and commit them: all of them or none."""

        def plan(state: TableState) -> Change | Done[Appended]:
            return self._appending(state, payload, codec, txn)

        with self.exclusive(deadline):
            landed = self.change(plan, deadline)
            if isinstance(landed, Done):
                return landed.value
        faults.point("append.after_commit")
        ranges = _ranges(segment_of(add, self.files) for add in landed.change.adds)
        return Appended(version=landed.version, ranges=ranges, append_time_ms=landed.change.time_ms)

    def _appending(self, state: TableState, payload: Payload, codec: str, txn: TxnId | None) -> Change | Done[Appended]:
        done = self.already_appended(txn)
        if done is not None:
            return Done(done)
        info, config, now = self.info, self.config, self.clock.now_ms()
        payload.check(info, config, now)
        counts = payload.counts()
        if not counts and txn is None:
            return Done(Appended(version=state.version, ranges={}, append_time_ms=now))
        runs = plan_offsets({p: self.log_end(p) for p in counts}, counts)
        requires: list[Requirement] = [EndsAt(p, state.end(p)) for p in runs]
        requires.append(Still(lambda: self.info is info))
        ends = {p: state.end(p) for p in state.unrecorded} | {p: run.stop for p, run in runs.items()}
        txns = {end_app(p): end for p, end in sorted(ends.items())}
        if txn is not None:
            requires.append(LastOf(txn.app_id, state.txns.get(txn.app_id)))
            txns[txn.app_id] = txn.version
        now_counts = config.log_append_time
        adds = payload.write(self.files, runs, codec=codec_for(config, codec), now_ms=now, now_counts=now_counts)
        faults.point("append.before_commit")
        return Change(
            operation=APPEND, time_ms=now, adds=adds, txns=txns, note=append_note(now, txn), requires=requires
        )

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Have one's turn among the writers of the table. Not re-entrant."""
        with self._home.store.turn(self.info.location, deadline):
            yield

    def change(
        self, plan: Plan[T], deadline: Deadline, discard: Callable[[Change], None] | None = None
    ) -> Landed | Done[T]:
        """Change the topic's table; see `Table.change`. Caller: appends and maintenance, within `exclusive`."""

        def flushed(state: TableState) -> Change | Done[T]:
            found = plan(state)
            if isinstance(found, Change) and any(old.data_change for old in found.removes):
                self.check_removable()
            if isinstance(found, Change) and self._table.durable:
                self._flush(found, discard)
            return found

        landed = self._table.change(flushed, deadline, self.ready_to_append, discard)
        if isinstance(landed, Landed):
            self._cleaner.after_commit(landed.version, self.info.topic_id, len(self._table.state.index))
        return landed

    def fence(self, deadline: Deadline) -> None:
        """Make every writer that has data files in hand plan anew, and write new ones; see `Table.fence`."""
        with self.exclusive(deadline):
            self._table.fence(deadline)

    def _flush(self, change: Change, discard: Callable[[Change], None] | None) -> None:
        """Make the data files of a change survive a power failure, before a version names them.

        Raises:
            KafkaStorageError: the storage refused; the files are removed.
        """
        try:
            for add in change.adds:
                self.files.sync(add.path)
        except OSError as cause:
            if discard is not None:
                discard(change)
            else:
                for add in change.adds:
                    self.files.discard(add.path)
            message = f"{self.files.uri}: the storage could not flush the records: {cause}"
            raise KafkaStorageError(message) from cause

    def ready_to_append(self) -> None:
        """Refresh, and refuse a table that a foreign writer has replaced, or whose log end has been taken back.

        Raises:
            LogCorruptError: appending would give offsets out for the second time.
            UnsupportedVersionError: the table has a property or a column rule that we do not honour.
        """
        self.look_anew()
        self._table.durable = self.config.flush
        refusal = append_refusal(self._table.state.properties, self._table.state.schema)
        if refusal is not None:
            message = f"{self.info.name}: nothing is written to {self.files.uri}: {refusal}"
            raise UnsupportedVersionError(message)
        rewound = self._table.state.rewound
        if rewound is not None:
            message = (
                f"{self.info.name}: {rewound.operation} at version {rewound.version} took records back; "
                "appending would give their offsets to other records. Delete the topic and create it again, or restore "
                "the table to the version before that operation and copy its records to a new topic"
            )
            raise LogCorruptError(message)

    def check_removable(self) -> None:
        """Refuse a table whose files may not be removed. Caller: maintenance.

        Raises:
            PolicyViolationError: saying which property forbids it.
        """
        refusal = removal_refusal(self._table.state.properties)
        if refusal is not None:
            message = f"{self.info.name}: nothing is removed from {self.files.uri}: {refusal}"
            raise PolicyViolationError(message)

    def foreign_rules(self) -> list[str]:
        """What foreign writers have asked of the table that appends or maintenance do not honour, for people."""
        state = self._table.state
        found = (append_refusal(state.properties, state.schema), removal_refusal(state.properties))
        return [refusal for refusal in found if refusal is not None]

    def clean_log(self) -> bool:
        """Keep the table's log short; see `LogCleaner.clean`. Caller: maintenance."""
        return self._cleaner.clean(self.info.topic_id)

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
        known = self._table.state.txns.get(txn.app_id)
        if known is None or known < txn.version:
            check_after(self.info.name, txn, known)
            return None
        found = self.find_commit(lambda c: c.txns.get(txn.app_id) == txn.version)
        if found is not None:
            return _appended(found, self.files, duplicate=True)
        if known > txn.version:
            raise not_in_order(self.info.name, txn.app_id, txn.version, known)
        return Appended(version=self._table.state.version, ranges={}, append_time_ms=0, duplicate=True)

    def txn_version(self, app_id: str) -> int | None:
        """Latest version that an application has written, as of the last `refresh`; None when it never has."""
        return self._table.state.txns.get(app_id)

    def find_commit(self, wanted: Callable[[TableCommit], bool]) -> TableCommit | None:
        """The newest commit that fits, among those the log still holds."""
        for version in reversed(versions(self.files)):
            try:
                found = parse_commit(version, self.files.read(log_name(version)), self.files.uri)
            except FileNotFoundError:
                continue
            if wanted(found):
                return found
        return None


def _appended(found: TableCommit, files: Store, *, duplicate: bool) -> Appended:
    when = int(append_info(found.user_metadata).get("time", found.timestamp_ms))
    ranges = _ranges(segment_of(add, files) for add in found.adds)
    return Appended(version=found.version, ranges=ranges, append_time_ms=when, duplicate=duplicate)


def _ranges(segments: Iterable[Segment]) -> dict[int, range]:
    """Offsets of an append's segments, by partition."""
    runs: dict[int, range] = {}
    for segment in segments:
        known = runs.get(segment.partition, segment.offsets)
        runs[segment.partition] = range(min(known.start, segment.start), max(known.stop, segment.stop))
    return dict(sorted(runs.items()))


def _look_back(state: TableState, checkpoint: int, files: Store) -> None:
    """Look through the last commits below a checkpoint for what it does not tell.

    That is a rewind, by the commits back to the last one of ours, and the ends of records that are gone from a table
    whose ends no commit has noted yet. A checkpoint is no reason to stop: RESTORE writes one itself.
    """
    rewind_possible = not state.went_on
    seen: list[TableCommit] = []
    for version in range(checkpoint, max(-1, checkpoint - LOOK_BACK), -1):
        try:
            commit = parse_commit(version, files.read(log_name(version)), files.uri)
        except (FileNotFoundError, LogCorruptError):
            # The checkpoint has what was in it.
            break
        rewind_possible = state.saw_below(commit, lambda add: segment_of(add, files), rewind_possible)
        seen.append(commit)
    _keep_taken(state, seen, files)
    state.note_recorded(state.index.ends)


def _keep_taken(state: TableState, seen: Sequence[TableCommit], files: Store) -> None:
    """Let the log end stay above files that foreign writers took out and whose own commits are not read any more.

    Where nothing tells how far such a file went, the table counts as rewound.
    """
    known = {add.path for commit in seen for add in commit.adds}
    foreign = [commit for commit in seen if commit.append_id is None]
    for commit, old in [(c, old) for c in foreign for old in c.taken if old.path not in known]:
        try:
            state.index.raise_end(segment_of(old, files))
        except KafkaError:
            recorded = old.partition is not None and end_app(old.partition) in state.txns
            if not recorded and (state.rewound is None or state.rewound.version < commit.version):
                state.rewound = commit
