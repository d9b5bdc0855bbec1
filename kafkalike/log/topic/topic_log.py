"""DeltaTopicLog: one topic's Delta table as a log: append, read, look up by time."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike import faults
from kafkalike.clock import SYSTEM_CLOCK, Clock, Deadline
from kafkalike.config.server import ServerConfig
from kafkalike.config.topic import TopicConfig
from kafkalike.errors import (
    CorruptRecordError,
    LogCorruptError,
    TopicDeletedError,
    UnsupportedVersionError,
)
from kafkalike.log.store.port import NOW, Pace, Store
from kafkalike.log.table.actions import APPEND, TableCommit
from kafkalike.log.table.control_log import DeltaControlLog
from kafkalike.log.table.log_cleaner import Helpers, LogCleaner
from kafkalike.log.table.open_appends import OpenTables
from kafkalike.log.table.state import EndsAt, LastOf, Requirement, Still, TableState, end_app
from kafkalike.log.table.table import Change, Done, Landed, Plan, Questions, Table
from kafkalike.log.table.turns import Turns
from kafkalike.log.topic import times
from kafkalike.log.topic.batch_payload import BatchPayload, Payload, append_note
from kafkalike.log.topic.foreign_rules import append_refusal
from kafkalike.log.topic.known_writes import find_commit, find_write, names_of, ranges_of
from kafkalike.log.topic.look_back import look_back
from kafkalike.log.topic.reader import DeltaReader
from kafkalike.log.topic.segment_files import segment_of
from kafkalike.log.topic.validate import codec_for
from kafkalike.model.appends import TRANSACTIONS, Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.compaction import HOLES, cleaner_app
from kafkalike.model.offsets import plan_offsets
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic.combined import CombinedTopic

LONGEST: Final = 1.1
"""A reader that waits for records looks for them at least so often, where a look costs money: 1.1 s, so that an idle
topic costs about one request a second and process, and with all others that a reader makes no more than 1.1 $ a
month."""

PATIENCE_SECONDS: Final = 5.0
"""How long a writer queues behind others of its machine before it writes all the same. One of them may have been
stopped while it had its turn, and the table's version alone decides. Writing a large append takes less, so that who
has its turn for honest work is seldom overtaken, and made to do that work again."""

FETCH_BYTES: Final = 1_048_576
"""Bytes a reader decodes at a time; Kafka's `max.partition.fetch.bytes`."""

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
    open_appends: OpenTables
    """Appends of this process that may land still."""


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
        self._table = Table(self.files, self.clock, to_segment=segment_of, look_back=look_back, jitter=jitter)
        patience = PATIENCE_SECONDS if self.files.reach == "machine" else None
        self._turns = Turns(home.store, info.location, self.clock, patience, self._version)
        self._cleaner = LogCleaner(home.store, info.location, home.helpers, self.clock)
        self._combined: CombinedTopic | None = None
        if self.files.reach == "everywhere":
            # Only there appends are combined: a process that has a local root need not load how.
            from kafkalike.log.topic.combined import CombinedTopic

            self._combined = CombinedTopic(self, self._table, jitter, home.open_appends.of(info.topic_id))
        self._config: tuple[TopicInfo, TopicConfig] | None = None
        self._refusal: tuple[Mapping[str, str], str, str | None] | None = None

    @property
    def config(self) -> TopicConfig:
        """The settings in effect."""
        known = self._config
        if known is None or known[0] is not self.info:
            effective = self._home.server.effective(self.info.configs)
            known = self._config = (self.info, TopicConfig.from_properties(effective))
        return known[1]

    def refresh(self, *, metadata: bool = True, waiting: bool = False, since: float = math.inf) -> None:
        """Look for new table commits and metadata."""
        # The metadata first, and not while this table is held: who holds theirs may want this.
        if metadata:
            self.refresh_info(waiting=waiting)
        else:
            self._take_info(self._home.metadata.state)
        self.refresh_table(Pace(since, LONGEST if waiting else 0.0))

    @property
    def next_file(self) -> str | None:
        """The file below the root that `refresh` looks for; None where one look does not say it."""
        name = self._table.next_file
        return None if name is None else f"{self.info.location}/{name}"

    def refresh_table(self, pace: Pace = NOW) -> None:
        """Look for new table commits alone; see `FollowedTable.refresh`."""
        self._checked(lambda: self._table.refresh(pace))

    def refresh_info(self, *, waiting: bool = False) -> None:
        """Look for new metadata."""
        self._take_info(self._home.metadata.refresh(waiting=waiting))

    def _take_info(self, known: ClusterState) -> None:
        current = known.topics.get(self.info.name)
        if current is None or current.topic_id != self.info.topic_id:
            raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
        self.info = current

    def look_anew(self, pace: Pace = NOW) -> None:
        """Refresh, also when the log was cleaned up past what is known: before anything is said to be lost.

        Args:
            pace: see `FollowedTable.refresh`.
        """
        self._take_info(self._home.metadata.refreshed_since(pace.since))
        self._checked(lambda: self._table.refresh(pace))
        self._checked(lambda: self._table.check_there(pace))

    def check_sound(self) -> None:
        """Refresh; the table must be there now, and be seen at its newest version.

        Raises:
            LogCorruptError: it is not; and see `refresh`.
        """
        self.look_anew()
        self._table.check_sound()

    def _checked(self, look: Callable[[], object]) -> None:
        """Look at the table, which must be there and be the topic's."""
        try:
            look()
        except FileNotFoundError as cause:
            # It may have been deleted since the metadata were looked at.
            self.refresh_info()
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

    @property
    def last_transaction(self) -> int:
        """Number of the last decided transaction that the topic has, as of the last `refresh`; 0 for none."""
        return self._table.state.txns.get(TRANSACTIONS, 0)

    @property
    def fenced(self) -> int:
        """The latest fence that the last `refresh` saw: files written before a later one may be gone."""
        return self._table.state.fenced

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
        candidates = list(self._table.state.index.first_with_time(partition, timestamp_ms, start))
        return times.first_at_or_after(self, candidates, timestamp_ms, start)

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp."""
        return times.latest(self, self.segments(partition), self.log_start(partition))

    # --- append --------------------------------------------------------------------------------

    def append(
        self, batch: RecordBatch, *, codec: str = "none", timeout_ms: float | None = 120_000, txn: TxnId | None = None
    ) -> Appended:
        """Write the records in one table commit: all of them or none."""
        return self.append_payload(BatchPayload(batch), codec=codec, deadline=Deadline(self.clock, timeout_ms), txn=txn)

    def append_payload(self, payload: Payload, *, codec: str, deadline: Deadline, txn: TxnId | None) -> Appended:
        """Number the records of a payload, write and commit them: all of them or none."""
        if self._combined is not None:
            appended = self._combined.bring(payload, codec, txn, deadline)
            faults.point("append.after_commit")
            return appended

        def plan(state: TableState) -> Change | Done[Appended]:
            return self._appending(state, payload, codec, txn)

        with self.exclusive(deadline):
            landed = self.change_for_append(plan, deadline)
            if isinstance(landed, Done):
                return landed.value
        faults.point("append.after_commit")
        ranges = ranges_of(segment_of(add, self.files) for add in landed.change.adds)
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
            txns |= names_of(txn, state.txns)
        now_counts = config.log_append_time
        adds = payload.write(self.files, runs, codec=codec_for(config, codec), now_ms=now, now_counts=now_counts)
        faults.point("append.before_commit")
        return Change(
            operation=APPEND,
            time_ms=now,
            adds=adds,
            txns=txns,
            note=append_note(now, txn, state.txns),
            requires=requires,
        )

    @contextlib.contextmanager
    def exclusive(self, deadline: Deadline) -> Iterator[None]:
        """Have one's turn among the writers of the table, or have waited `PATIENCE_SECONDS` for it; see `Turns`."""
        with self._turns.awaited(deadline):
            yield

    def _version(self) -> int:
        self.refresh_table()
        return self._table.state.version

    def _questions(self) -> list[Callable[[], object]]:
        """What `ready_to_append` asks the storage."""
        return [*self._home.metadata.questions()[:1], *self._table.questions()]

    def look_for_append(self) -> None:
        """Look at what an append must have seen, as `change_for_append` does; see `ready_to_append` for the errors."""
        looked = SYSTEM_CLOCK.monotonic()
        if self.files.far:
            self.files.beside(self._questions())
        self.ready_to_append(Pace(since=looked) if self.files.far else NOW)

    def change_for_append(self, plan: Plan[T], deadline: Deadline) -> Landed | Done[T]:
        """Change the topic's table; the plan may be made beside the look, of what is known."""
        return self.change(plan, deadline, questions=self._questions)

    def change(
        self,
        plan: Plan[T],
        deadline: Deadline,
        discard: Callable[[Change], None] | None = None,
        questions: Questions | None = None,
    ) -> Landed | Done[T]:
        """Change the topic's table; see `Table.change`. Caller: appends and maintenance, within `exclusive`."""
        landed = self._table.change(plan, deadline, self.ready_to_append, discard, questions)
        if isinstance(landed, Landed):
            self._cleaner.after_commit(landed, self.info.topic_id, len(self._table.state.index))
        return landed

    def fence(self, deadline: Deadline) -> None:
        """Make every writer that has data files in hand plan anew, and write new ones; see `Table.fence`."""
        with self.exclusive(deadline):
            self._table.fence(deadline)

    def ready_to_append(self, pace: Pace = NOW) -> None:
        """Refresh, and refuse a table that a foreign writer has replaced, or whose log end has been taken back.

        Raises:
            LogCorruptError: appending would give offsets out for the second time.
            UnsupportedVersionError: the table has a property or a column rule that we do not honour.
        """
        self.look_anew(pace)
        self._table.durable = self.config.flush
        refusal = self._append_refusal(self._table.state)
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

    def _append_refusal(self, state: TableState) -> str | None:
        """See `append_refusal`; worked out once for each of the table's metadata, which are never changed in place."""
        known, properties, schema = self._refusal, state.properties, state.schema
        if known is None or known[0] is not properties or known[1] is not schema:
            known = self._refusal = (properties, schema, append_refusal(properties, schema))
        return known[2]

    def check_removable(self) -> None:
        """Refuse a table whose files may not be removed, before any work; see `Table.check_removable`.

        Raises:
            PolicyViolationError: saying which property forbids it.
        """
        self._table.check_removable()

    def foreign_rules(self) -> list[str]:
        """What foreign writers have asked of the table that appends or maintenance do not honour, for people."""
        state = self._table.state
        found = (self._append_refusal(state), state.removal_refusal)
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
        return None if txn is None else find_write(self.info.name, self.files, self._table.state, txn)

    def txn_version(self, app_id: str) -> int | None:
        """Latest version that an application has written, as of the last `refresh`; None when it never has."""
        return self._table.state.txns.get(app_id)

    def find_commit(self, wanted: Callable[[TableCommit], bool]) -> TableCommit | None:
        """The newest commit that fits, among those the log still holds."""
        return find_commit(self.files, wanted)
