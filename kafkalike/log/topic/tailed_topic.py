"""TailedTopic: one topic's Delta table as its log tells it: ends, segments, readers, times.

`look_ahead` and `open_ahead` look at several topics in parallel where each look waits for a network. They only save
time: errors and interrupts are ignored, because the caller's own look raises them again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike.delta.group_commit.staging_area import OpenTables
from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.table import Table
from kafkalike.errors import CorruptRecordError, KafkaError, LogCorruptError, TopicDeletedError
from kafkalike.log.topic.reader import PartitionReader, first_at_or_after, latest_record
from kafkalike.log.topic.record_rules import SchemasOf
from kafkalike.log.topic.topic_commits import ForeignWarnings, look_back, segment_of
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.maintenance.log_cleanup import HOLES, cleaner_app
from kafkalike.model.record_batch import TRANSACTIONS
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import NOW, Pace, Storage

if TYPE_CHECKING:
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.log.topic.key_search import Searched

T = TypeVar("T")

LONGEST: Final = 1.2
"""A reader that waits for records looks for them at least so often, where a look costs money: 1.2 s, so that an idle
topic costs about one request a second and process, and with all others that a reader makes no more than 1.1 $ a
month."""

FETCH_BYTES: Final = 1_048_576
"""Bytes a reader decodes at a time; Kafka's `max.partition.fetch.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContext:
    """What the logs of all topics of a cluster share."""

    store: Storage
    """The cluster's files."""
    metadata: ControlLog[ClusterState, MetadataRow]
    """Say which topics there are."""
    server: Callable[[], ServerProperties]
    """Gives the cluster-wide defaults, as of the last look at the metadata."""
    helpers: Helpers
    """Threads that keep the tables' logs short."""
    clock: Clock
    """Time and waiting."""
    open_appends: OpenTables
    """Appends of this process that may land still."""
    schemas: SchemasOf
    """The registry, opened when a topic asks for it."""
    in_sync: Callable[[TopicInfo], int] = lambda _: 1
    """How many replicas of a topic are in sync, as far as is known."""


class TailedTopic:
    """The log of one topic, to be read.

    Args:
        home: the cluster's files and metadata.
        info: the topic as it was when this log was opened; its id must not change.
        jitter: random number from 0 to 1 for the wait after a conflict.
    """

    def __init__(self, home: TopicContext, info: TopicInfo, jitter: Callable[[], float]) -> None:
        self.info = info
        self.files: Storage = home.store.at(info.location)
        self.fetch_bytes = FETCH_BYTES
        self.clock: Clock = home.clock
        self._home = home
        warnings = ForeignWarnings(lambda: self.info.name)
        self._table = Table(
            self.files, self.clock, to_segment=segment_of, look_back=look_back, follower=warnings, jitter=jitter
        )
        self._config: tuple[TopicInfo, ServerProperties, TopicConfig] | None = None
        self._current: ClusterState | None = None
        """The metadata that `info` was taken from at the last refresh."""
        self._configured: ClusterState | None = None
        """The metadata that `_config` was made from."""

    @property
    def config(self) -> TopicConfig:
        """The settings in effect, as of the last `refresh`."""
        known = self._config
        if known is not None and self._configured is self._current and self._current is not None:
            return known[2]
        current, server = self._current, self._home.server()
        if known is None or known[0] is not self.info or known[1] is not server:
            effective = server.effective(self.info.configs)
            known = self._config = (self.info, server, TopicConfig.from_properties(effective))
        self._configured = current
        return known[2]

    @property
    def schemas(self) -> SchemasOf:
        """Gives the cluster's registry, for topics that check schemas."""
        return self._home.schemas

    def refresh(
        self, *, metadata: bool = True, waiting: bool = False, since: float = math.inf, surely: bool = False
    ) -> None:
        """Look for new table commits and metadata. Costs two file look-ups when there is nothing new, or one.

        Args:
            metadata: False takes the cluster's metadata as of their last refresh, for who has just looked at them.
            waiting: the caller comes again until there is something new. Where a look is a request that costs money,
                it may then get what another look of this process saw: a commit of another process is seen some
                milliseconds after it was made, or about 1 s where nothing came for long; topics' changes up to 30 s.
                What this process commits is seen at once.
            since: what `Cluster.look_ahead` has given, whose answers will do for the table.
            surely: see `ControlLog.refresh`; of the table.
        """
        # The metadata first, and not while this table is held: who holds theirs may want this.
        if metadata:
            self.refresh_info(waiting=waiting)
        else:
            self._take_info(self._home.metadata.state)
        self.refresh_table(Pace(since, LONGEST if waiting else 0.0, surely))

    @property
    def next_file(self) -> str | None:
        """The file below the root that `refresh` looks for; None where one look does not say it."""
        name = self._table.next_file
        return None if name is None else f"{self.info.location}/{name}"

    def refresh_table(self, pace: Pace = NOW) -> None:
        """Look for new table commits alone; see `TailedTable.refresh`."""
        self._look(pace)

    def refresh_info(self, *, waiting: bool = False) -> None:
        """Look for new metadata alone; see `refresh`."""
        self._take_info(self._home.metadata.refresh(waiting=waiting))

    def _take_info(self, known: ClusterState) -> None:
        if known is self._current:
            return
        current = known.topics.get(self.info.name)
        if current is None or current.topic_id != self.info.topic_id:
            raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
        if self.info.mirror is not None and current.mirror is None:
            # What its promotion has put into the table counts from now on.
            self.refresh_table()
        self._current = None
        self.info = current
        self._current = known

    def look_anew(self, pace: Pace = NOW) -> None:
        """Refresh, also when the log was cleaned up past what is known: before anything is said to be lost.

        Args:
            pace: see `TailedTable.refresh`.
        """
        self._take_info(self._home.metadata.refresh(since=pace.since))
        self._look(pace, surely_there=True)

    def check_sound(self) -> None:
        """Refresh; what is seen must be all that there is.

        Raises:
            LogCorruptError: the table is gone or damaged, so that only an older state of it is known.
        """
        self.look_anew()
        self._table.check_sound()

    def check_known_sound(self) -> None:
        """Refuse a table of which the last look has seen only an older version.

        Raises:
            LogCorruptError: it is damaged.
        """
        self._table.check_sound()

    def _look(self, pace: Pace, *, surely_there: bool = False) -> None:
        """Look at the table, which must be there and be the topic's; see `TailedTable.check_there`."""
        try:
            self._table.refresh(pace)
            if surely_there:
                self._table.check_there(pace)
        except FileNotFoundError as cause:
            # It may have been deleted since the metadata were looked at.
            self.refresh_info()
            raise LogCorruptError(
                f"{self.info.name}: its table {self.files.uri} is gone though the topic exists"
            ) from cause
        found = self._table.state.table_id
        if found != self.info.table_id:
            raise LogCorruptError(
                f"{self.info.name}: the table at {self.files.uri} has id {found}, the topic's is "
                f"{self.info.table_id}: someone has replaced the table"
            )

    def watch(self, add: Callable[[str], object]) -> None:
        """Name the folder in which new commits appear as files, if the kernel of this machine sees all of them.

        Args:
            add: called with the folder's path, at most once.
        """
        self.files.coordination.watch(f"{self.files.uri}/_delta_log", add)

    def log_start(self, partition: int) -> int:
        """First offset that may be read."""
        return self.info.log_start(partition)

    def log_end(self, partition: int) -> int:
        """Next offset to be written."""
        return max(self._table.state.end(partition), self.info.log_start(partition))

    def last_append_ms(self) -> int:
        """Time of the last table commit seen, ms; 0 when there is none."""
        return self._table.state.last_commit_ms

    @property
    def version(self) -> int:
        """Table version of the last `refresh`: as long as it stays, no log end has moved."""
        return self._table.state.version

    @property
    def last_transaction(self) -> int:
        """Number of the last decided transaction that the topic has, as of the last `refresh`; 0 for none.

        It has all that were decided before it. See `Transactions`.
        """
        if self.info.mirror is not None:
            # Numbers of another cluster.
            return 0
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
            raise CorruptRecordError(
                f"{self.info.name}-{segment.partition}: two files hold offsets in [{doubled.start}, {doubled.stop}): "
                f"{self.files.uri}/{segment.path} and {clash.path}; another writer of the table has added or moved "
                f"records. `kafkalike verify --topic {self.info.name}` says more"
            )

    @property
    def strays(self) -> Sequence[Segment]:
        """Data files of offsets or partitions that the topic cannot have; only foreign writers make them."""
        return [s for s in self._table.state.index if s.start < 0 or s.partition not in self.info.partitions]

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

    def reader(self, partition: int, position: int) -> PartitionReader:
        """A reader that begins at an offset. Checks it at the first read, not here."""
        return PartitionReader(self, partition, position)

    def with_key(self, partition: int, key: bytes, *, below: int, most_bytes: int) -> Iterator[Searched]:
        """The records with a key as of the last `refresh`, file by file, the newest file first.

        Args:
            partition: of the topic.
            key: the key's bytes.
            below: records from this offset on are not meant.
            most_bytes: how much is kept of a file, the newest records of it and one in any case. After a file that
                has more the answer ends; what is below the last `Searched.start` may be asked for next.

        Raises:
            CorruptRecordError: a file is damaged, or does not hold what the log says.
            KafkaStorageError: the storage cannot be read now, or a file is gone: it may be tried again.
        """
        from kafkalike.log.topic.key_search import KeyQuery, search

        start = self.log_start(partition)
        wanted = KeyQuery(key=key, start=start, below=below, most_bytes=most_bytes)
        segments = self.segments(partition)
        for segment in segments:
            self.check_no_overlap(segment, start)
        return search(self.files, segments, wanted)

    # --- time ----------------------------------------------------------------------------------

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset, in offset order from the log start, whose timestamp is at or after a time.

        A file is read only where the log's statistics do not say it: where its records have several timestamps.
        """
        start = self.log_start(partition)
        candidates = list(self._table.state.index.first_with_time(partition, timestamp_ms, start))
        return first_at_or_after(self, candidates, timestamp_ms, start)

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp; None when the partition is empty."""
        return latest_record(self, self.segments(partition), self.log_start(partition))


OPENED_BESIDE: Final = 8
"""Topics that are opened side by side; each reads commits side by side, too."""


def look_ahead(store: Storage, logs: Iterable[TailedTopic], *, waiting: bool) -> float:
    """Ask what a look at each log asks.

    Args:
        store: the cluster's, where a look takes a request.
        logs: of several topics.
        waiting: see `TopicLog.refresh`.

    Returns:
        The time before, seconds of the machine's monotonic clock: the `since` of `TopicLog.refresh`.
    """
    begun = SYSTEM_CLOCK.monotonic()
    names = [log.next_file for log in logs]
    asked = [name for name in names if name is not None]
    if len(asked) > 1:
        store.scheduler.look_ahead(asked, Pace(longest=LONGEST if waiting else 0.0))
    return begun


def open_ahead(infos: Iterable[TopicInfo], opened: Callable[[TopicInfo], T]) -> dict[str, T]:
    """Open the logs of several topics; one that cannot be opened is left out.

    Args:
        infos: the topics.
        opened: opens one; called in other threads, with the caller's deadline.
    """

    def attempt(info: TopicInfo) -> T | None:
        with contextlib.suppress(OSError, KafkaError):
            return opened(info)
        return None

    # Not the store's own threads: opening asks for things side by side, and would wait for them in their places.
    threads = ThreadPoolExecutor(OPENED_BESIDE, thread_name_prefix="kafkalike-open")
    try:
        futures = {info.name: threads.submit(copy_context().run, attempt, info) for info in infos}
        found = {name: future.result() for name, future in futures.items()}
    except RuntimeError:
        # There can be no threads, as at the interpreter's end.
        return {}
    finally:
        # Not waited for: after an interrupt they read a little more, and nobody hears of it.
        threads.shutdown(wait=False, cancel_futures=True)
    return {name: log for name, log in found.items() if log is not None}
