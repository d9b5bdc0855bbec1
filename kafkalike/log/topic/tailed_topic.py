"""TailedTopic: one topic's Delta table as its log tells it: ends, segments, readers, times.

`look_ahead` and `open_ahead` look at several topics in parallel where each look waits for a network. They only save
time: errors and interrupts are ignored, because the caller's own look raises them again.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kafkalike.delta.log_cleaner import Helpers
from kafkalike.delta.table import Table
from kafkalike.errors import CorruptRecordError, KafkaError, LogCorruptError, TopicDeletedError
from kafkalike.log.topic.record_rules import SchemasOf
from kafkalike.log.topic.topic_commits import ForeignWarnings, look_back, segment_of
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.config.server_config import ServerProperties
from kafkalike.model.config.topic_config import TopicConfig
from kafkalike.model.record_batch import HOLES, TRANSACTIONS, cleaner_app
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo
from kafkalike.storage.port import Storage
from kafkalike.storage.scheduler import NOW, Pace

if TYPE_CHECKING:
    # Readers are imported where they are used, because a process that only sends reads nothing.
    from kafkalike.delta.control_log import ControlLog
    from kafkalike.delta.group_commit.staging_area import OpenTables
    from kafkalike.log.topic.reader import PartitionReader

T = TypeVar("T")

LONGEST: Final = 1.2
"""Longest time, seconds, between two looks of a waiting reader where a look is a paid request: an idle topic costs
about one request a second and process, so that a reader's requests of all kinds cost at most 1.1 $ a month."""

FETCH_BYTES: Final = 1_048_576
"""Bytes that a reader decodes at a time; Kafka's `max.partition.fetch.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicContext:
    """The objects of a cluster that the logs of all its topics share."""

    store: Storage
    """The root's storage."""
    metadata: ControlLog[ClusterState, MetadataRow]
    """The log of the table of topics."""
    server: Callable[[], ServerProperties]
    """Returns the cluster-wide defaults, as of the last look at the metadata."""
    helpers: Helpers
    """Threads that keep the tables' logs short."""
    clock: Clock
    """Source of time and waiting."""
    open_appends: Callable[[], OpenTables]
    """Returns the appends of this process that may still be committed."""
    schemas: SchemasOf
    """Opens the registry for a topic that checks schemas."""
    in_sync: Callable[[TopicInfo], int] = lambda _: 1
    """Returns how many replicas of a topic are in sync, as of the last look at the metadata."""


class TailedTopic:
    """The readable log of one topic.

    Args:
        home: the cluster's files and metadata.
        info: the topic when this log was opened; its id must not change.
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
        self._current: ClusterState | None = None
        """The metadata that `info` was taken from at the last refresh."""
        self._config: tuple[ClusterState | None, TopicInfo, ServerProperties, TopicConfig] | None = None
        """The settings and their sources; replaced whole. The metadata are None until the defaults have been the same
        object twice: while a root does not answer, they may change without the metadata."""

    @property
    def config(self) -> TopicConfig:
        """The settings in effect, as of the last `refresh`."""
        current, known = self._current, self._config
        if known is not None and current is not None and known[0] is current:
            return known[3]
        info, server = self.info, self._home.server()
        if known is not None and known[1] is info and known[2] is server:
            self._config = (current, info, server, known[3])
            return known[3]
        config = TopicConfig.from_properties(server.effective(info.configs))
        self._config = (None, info, server, config)
        return config

    @property
    def schemas(self) -> SchemasOf:
        """Returns the cluster's registry, for topics that check schemas."""
        return self._home.schemas

    def refresh(
        self, *, metadata: bool = True, waiting: bool = False, since: float = math.inf, surely: bool = False
    ) -> None:
        """Look for new table commits and metadata. Costs two file look-ups, or one, if there is nothing new.

        Args:
            metadata: False uses the cluster's metadata of their last refresh, because the caller has just looked at
                them.
            waiting: the caller polls until it finds something. If a look is a paid request, it may then share the look
                of another reader of this process. It sees another process's commit some milliseconds after it was made,
                or about 1 s later if the topic was idle for long, and changes of topics up to 30 s later. It sees this
                process's commits at once.
            since: returned by `Cluster.look_ahead`; looks at the table since that time are used.
            surely: as for `ControlLog.refresh`; concerns the table.
        """
        # The metadata first, without this table's lock: a thread that holds the metadata's lock may want this one.
        if metadata:
            self.refresh_info(waiting=waiting)
        else:
            self._take_info(self._home.metadata.state)
        self.refresh_table(Pace(since, LONGEST if waiting else 0.0, surely))

    @property
    def next_file(self) -> str | None:
        """The file below the root that `refresh` looks for; None if one look does not suffice."""
        name = self._table.next_file
        return None if name is None else f"{self.info.location}/{name}"

    def refresh_table(self, pace: Pace = NOW) -> None:
        """Look for new table commits only; see `TailedTable.refresh`."""
        self._look(pace)

    def refresh_info(self, *, waiting: bool = False) -> None:
        """Look for new metadata only; see `refresh`."""
        self._take_info(self._home.metadata.refresh(waiting=waiting))

    def _take_info(self, known: ClusterState) -> None:
        if known is self._current:
            return
        current = known.topics.get(self.info.name)
        if current is None or current.topic_id != self.info.topic_id:
            raise TopicDeletedError(self.info.name, self.info.topic_id, current.topic_id if current else None)
        if self.info.mirror is not None and current.mirror is None:
            # The mirror was promoted, so the commit of its promotion in the table applies.
            self.refresh_table()
        self._current = None
        self.info = current
        self._current = known
        if self.info is not current:
            # Another thread has taken other metadata meanwhile: look again next time.
            self._current = None

    def look_anew(self, pace: Pace = NOW) -> None:
        """Refresh, even if the log was cleaned up past the known version. Callers do so before they report a loss.

        Args:
            pace: see `TailedTable.refresh`.
        """
        self._take_info(self._home.metadata.refresh(since=pace.since))
        self._look(pace, surely_there=True)

    def check_sound(self) -> None:
        """Refresh, and refuse a table whose newest version cannot be read.

        Raises:
            LogCorruptError: the table is missing or damaged, so that only an older state of it is known.
        """
        self.look_anew()
        self._table.check_sound()

    def check_known_sound(self) -> None:
        """Refuse a table of which the last look could read only an older version.

        Raises:
            LogCorruptError: the table is damaged.
        """
        self._table.check_sound()

    def _look(self, pace: Pace, *, surely_there: bool = False) -> None:
        """Look at the table, and check that it exists and belongs to the topic; see `TailedTable.check_there`."""
        try:
            self._table.refresh(pace)
            if surely_there:
                self._table.check_there(pace)
        except FileNotFoundError as cause:
            # The topic may have been deleted after the look at the metadata.
            self.refresh_info()
            raise LogCorruptError(
                f"{self.info.name}: its table {self.files.uri} is missing though the topic exists"
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
        """Return the first readable offset."""
        return self.info.log_start(partition)

    def log_end(self, partition: int) -> int:
        """Return the offset of the next record."""
        return max(self._table.state.end(partition), self.info.log_start(partition))

    def last_append_ms(self) -> int:
        """Return the time of the newest commit seen, ms; 0 if there is none."""
        return self._table.state.last_commit_ms

    @property
    def version(self) -> int:
        """Table version of the last `refresh`. While it stays, no log end has moved."""
        return self._table.state.version

    @property
    def last_transaction(self) -> int:
        """Number of the newest decided transaction in the topic, as of the last `refresh`; 0 for none.

        The topic has all earlier decisions, too. See `Transactions`.
        """
        if self.info.mirror is not None:
            # The table has the numbers of another cluster.
            return 0
        return self._table.state.txns.get(TRANSACTIONS, 0)

    @property
    def fenced(self) -> int:
        """The newest fence of the last `refresh`: data files written before a later fence may have been removed."""
        return self._table.state.fenced

    def snapshot(self) -> tuple[int, dict[int, int]]:
        """Return a table version and its log ends, consistent even if other threads use this log."""
        with self._table.mutex:
            return self._table.state.version, {p: self.log_end(p) for p in self.info.partitions}

    def segments(self, partition: int) -> Sequence[Segment]:
        """Return the live data files in offset order.

        Files wholly below the log start are left out; maintenance removes them.
        """
        return self._table.state.index.segments(partition, self.log_start(partition))

    def table_segments(self, partition: int) -> Sequence[Segment]:
        """Return all data files of the table in offset order, those below the log start included; for maintenance."""
        return self._table.state.index.segments(partition)

    def holes_below(self, partition: int) -> int:
        """Return the offset below which compaction may have removed records, whatever the policy is; 0 if it never ran.

        Each compaction commit records that offset. Records missing above it are lost, in a compacted topic too.
        """
        return self._table.state.txns.get(cleaner_app(partition, HOLES), 0)

    def check_no_overlap(self, segment: Segment, position: int) -> None:
        """Refuse a segment that shares offsets, from a position on, with another segment.

        Raises:
            CorruptRecordError: the two files contradict each other about these offsets.
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
        """Data files with offsets or partitions that the topic cannot have; only foreign writers make them."""
        return [s for s in self._table.state.index if s.start < 0 or s.partition not in self.info.partitions]

    @property
    def is_rewritten(self) -> bool:
        """True if other writers, which need not sort records by offset, made any of its data files."""
        return self._table.state.index.has_other_names

    def live_paths(self) -> AbstractSet[str]:
        """Return the paths of all data files of the table in any partition, as of the last `refresh`; a view.

        Raises:
            LogCorruptError: the newest version cannot be read. A caller that removes all other files must not use an
                older one.
        """
        self._table.check_sound()
        return self._table.state.index.paths

    def segments_within(self, partition: int, offsets: range) -> list[Segment]:
        """Return the live data files that hold any of these offsets, in offset order."""
        return self._table.state.index.within(partition, offsets)

    def segment_at_or_after(self, partition: int, offset: int) -> Segment | None:
        """Return the segment that holds an offset, or else the next one above."""
        return self._table.state.index.at_or_after(partition, offset)

    def is_live(self, segment: Segment) -> bool:
        """True if the segment's file is part of the table."""
        return self._table.state.index.has(segment.path)

    def reader(self, partition: int, position: int) -> PartitionReader:
        """Return a reader that starts at an offset. The first read checks the offset."""
        from kafkalike.log.topic.reader import PartitionReader

        return PartitionReader(self, partition, position)

    # --- time ----------------------------------------------------------------------------------

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """Return the first offset, in offset order from the log start, whose timestamp is at or after a time.

        A file whose records have several timestamps is read, because the log's statistics do not suffice for it.
        """
        from kafkalike.log.topic.reader import first_at_or_after

        start = self.log_start(partition)
        candidates = list(self._table.state.index.first_with_time(partition, timestamp_ms, start))
        return first_at_or_after(self, candidates, timestamp_ms, start)

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """Return the first record with the largest timestamp; None if the partition is empty."""
        from kafkalike.log.topic.reader import latest_record

        return latest_record(self, self.segments(partition), self.log_start(partition))


OPENED_BESIDE: Final = 8
"""Number of topics opened in parallel; each reads its commits in parallel, too."""


def look_ahead(store: Storage, logs: Iterable[TailedTopic], *, waiting: bool) -> float:
    """Make the requests of a look at each log in parallel.

    Args:
        store: the cluster's storage, where a look takes a request.
        logs: of several topics.
        waiting: see `TopicLog.refresh`.

    Returns:
        The time before the requests, seconds of the machine's monotonic clock: the `since` of `TopicLog.refresh`.
    """
    begun = SYSTEM_CLOCK.monotonic()
    names = [log.next_file for log in logs]
    asked = [name for name in names if name is not None]
    if len(asked) > 1:
        store.scheduler.look_ahead(asked, Pace(longest=LONGEST if waiting else 0.0))
    return begun


def open_ahead(infos: Iterable[TopicInfo], opened: Callable[[TopicInfo], T]) -> dict[str, T]:
    """Open the logs of several topics in parallel; a topic that cannot be opened is left out.

    Args:
        infos: the topics.
        opened: opens a log; called in other threads, with the caller's deadline.
    """

    def attempt(info: TopicInfo) -> T | None:
        with contextlib.suppress(OSError, KafkaError):
            return opened(info)
        return None

    # Not the store's own threads: opening a log starts requests in them, and would occupy one while it waits for these.
    threads = ThreadPoolExecutor(OPENED_BESIDE, thread_name_prefix="kafkalike-open")
    try:
        futures = {info.name: threads.submit(copy_context().run, attempt, info) for info in infos}
        found = {name: future.result() for name, future in futures.items()}
    except RuntimeError:
        # Threads cannot be started while the interpreter shuts down.
        return {}
    finally:
        # After an interrupt, running threads finish in the background, and their results are dropped.
        threads.shutdown(wait=False, cancel_futures=True)
    return {name: log for name, log in found.items() if log is not None}
