"""Ports: what the rest of the package may ask of a log and a cluster.

Two implementations keep these contracts: Delta tables (`kafkalike.log`) and memory (`kafkalike.log.cluster.memory`,
shipped for users' tests as `kafkalike.testing.MemoryCluster`). One suite of tests runs over both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from kafkalike.config.server import ServerConfig
from kafkalike.config.topic import TopicConfig
from kafkalike.model.appends import Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.cluster_state import ClusterState, MetadataRow
from kafkalike.model.group_state import GroupRow, GroupsState
from kafkalike.model.leases import Leases
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic.chunk import Chunk

S_co = TypeVar("S_co", covariant=True)
R = TypeVar("R")


class PartitionReader(Protocol):
    """Reads one partition forward. Not thread-safe; belongs to one consumer."""

    @property
    def position(self) -> int:
        """Next offset to be read."""
        ...

    def read(self, max_bytes: int) -> Chunk | None:
        """Records from `position` on, in offset order, and move the position past them.

        Returns at least one record if there is one, and stops near `max_bytes`; `None` at the log end. Sees what
        was committed up to the log's last `refresh`.

        Raises:
            OffsetOutOfRangeError: the position is below the log start, or above the log end.
            DataLossError: the partition has a hole, which a topic that is not compacted must not have.
            CorruptRecordError: a data file is missing or damaged.
        """
        ...


class TopicLog(Protocol):
    """The log of one topic: one life of a name, from its creation to its deletion.

    All methods may raise `TopicDeletedError` when the topic is deleted or deleted and created again.
    Thread-safe for `append`; everything else belongs to one thread.
    """

    @property
    def info(self) -> TopicInfo:
        """The topic, as of the last `refresh`."""
        ...

    @property
    def config(self) -> TopicConfig:
        """The settings in effect, as of the last `refresh`."""
        ...

    @property
    def version(self) -> int:
        """Table version of the last `refresh`: as long as it stays, no log end has moved."""
        ...

    def refresh(self, *, metadata: bool = True, waiting: bool = False, since: float = math.inf) -> None:
        """Look for new table commits and metadata. Costs two file look-ups when there is nothing new, or one.

        Args:
            metadata: False takes the cluster's metadata as of their last refresh, for who has just looked at them.
            waiting: the caller comes again until there is something new. Where a look is a request that costs money,
                it may then get what another look of this process saw: a commit of another process is seen some
                milliseconds after it was made, or about 1 s where nothing came for long; topics' changes up to 30 s.
                What this process commits is seen at once.
            since: what `Cluster.look_ahead` has given, whose answers will do for the table.
        """
        ...

    def refresh_info(self, *, waiting: bool = False) -> None:
        """Look for new metadata alone; see `refresh`."""
        ...

    def check_sound(self) -> None:
        """Refresh; what is seen must be all that there is.

        Raises:
            LogCorruptError: the table is gone or damaged, so that only an older state of it is known.
        """
        ...

    def log_start(self, partition: int) -> int:
        """First offset that may be read."""
        ...

    def log_end(self, partition: int) -> int:
        """Next offset to be written."""
        ...

    def holes_below(self, partition: int) -> int:
        """Offset below which one without a record is no loss, as compaction may have taken it; 0 when it never did."""
        ...

    def append(
        self, batch: RecordBatch, *, codec: str = "none", timeout_ms: float | None = 120_000, txn: TxnId | None = None
    ) -> Appended:
        """Write the records in one table commit: all of them or none.

        Records of one partition get consecutive offsets in the order of the batch.

        Args:
            batch: at least one record, every partition known.
            codec: compression, used when the topic's `compression.type` is `producer`.
            timeout_ms: how long to wait for concurrent writers and retry (delivery.timeout.ms); None without end.
            txn: makes a rerun of the same write add nothing; versions of an application must rise.

        Raises:
            KafkaTimeoutError: concurrent writers held the topic for too long; nothing was written.
            OutOfOrderSequenceNumberError: `txn` is below the application's latest version and was never seen, or
                another writer of the application came between.
            KafkaStorageError: the storage refused; nothing was written.
            UnknownOutcomeError: neither can be said.
            MessageSizeTooLargeError, InvalidTimestampError, InvalidRecordError: a record breaks a topic setting;
                nothing was written.
        """
        ...

    def reader(self, partition: int, position: int) -> PartitionReader:
        """A reader that begins at an offset. Checks it at the first read, not here."""
        ...

    def offset_for_time(self, partition: int, timestamp_ms: int) -> OffsetAndTimestamp | None:
        """The first offset, in offset order from the log start, whose timestamp is at or after a time; else None."""
        ...

    def max_timestamp(self, partition: int) -> OffsetAndTimestamp | None:
        """The first record that has the largest timestamp; None when the partition is empty."""
        ...

    def segments(self, partition: int) -> Sequence[Segment]:
        """Live data files in offset order."""
        ...

    def last_append_ms(self) -> int:
        """Time of the last table commit seen, ms; 0 when there is none."""
        ...


class ControlLog(Protocol, Generic[S_co, R]):
    """A small append-only table whose rows make up a state, changed by compare-and-set. Thread-safe."""

    @property
    def state(self) -> S_co:
        """The state as of the last `refresh` or `transact`. Read it; only rows change it."""
        ...

    def refresh(self, *, waiting: bool = False) -> S_co:
        """Apply rows that others added; returns the state. Costs a file look-up when there is nothing new.

        Args:
            waiting: the caller comes again until there is something new; see `TopicLog.refresh`.
        """
        ...

    @property
    def rows(self) -> Sequence[R]:
        """All rows the table still has, fresh, in `seq` order. Reads everything: for history, not for the hot path."""
        ...

    def transact(self, plan: Callable[[S_co], Sequence[R]], timeout_ms: float | None = 60_000) -> None:
        """Append the rows that `plan` makes of the current state, unless the state changed meanwhile.

        When another writer was faster, the state is refreshed and `plan` is called again. Rows must be numbered from
        `state.seq + 1` on. An error that `plan` raises leaves the table unchanged; so does an empty list.

        Raises:
            KafkaTimeoutError: others were faster until time ran out; nothing was written.
            UnknownOutcomeError: the write may have happened.
        """
        ...


def request_metrics(requests: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What a client's metrics say of `Cluster.requests`: `{group: {name: number}}`; empty where none count."""
    return {"object-store-metrics": {f"{kind}-total": count for kind, count in requests.items()}} if requests else {}


class Cluster(Protocol):
    """A storage root with its topics, settings and consumer offsets. Thread-safe."""

    @property
    def root(self) -> str:
        """What `bootstrap_servers` named, normalised."""
        ...

    @property
    def there(self) -> bool:
        """Whether the root holds the table of topics, looked at now; False for a root that was never written to.

        Raises:
            KafkaStorageError: the storage refused.
        """
        ...

    @property
    def server(self) -> ServerConfig:
        """Server defaults."""
        ...

    @property
    def metadata(self) -> ControlLog[ClusterState, MetadataRow]:
        """The topics."""
        ...

    @property
    def groups(self) -> ControlLog[GroupsState, GroupRow]:
        """Committed offsets and group membership."""
        ...

    @property
    def leases(self) -> Leases:
        """Heartbeats of group members."""
        ...

    @property
    def heartbeat_ms(self) -> float:
        """Time between two heartbeats, ms, of a group's member whose user does not say it."""
        ...

    @property
    def tail_interval(self) -> float:
        """Seconds a waiting reader should let pass between two looks at the log's tail."""
        ...

    @property
    def root_interval(self) -> float:
        """Seconds a reader should let pass between two looks whether the root is there at all."""
        ...

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests that this process has made of the root's object store, by kind, such as `get`; else empty."""
        ...

    def topics(self) -> Mapping[str, TopicInfo]:
        """All topics by name, fresh."""
        ...

    def topic(self, name: str) -> TopicInfo:
        """One topic, fresh.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: no such name, no such topic.
        """
        ...

    def create_topic(
        self, name: str, num_partitions: int, configs: Mapping[str, str], *, validate_only: bool = False
    ) -> TopicInfo:
        """Create a topic with checked settings. `num_partitions` -1 takes the server's default.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError, InvalidPartitionsError, InvalidConfigurationError.
        """
        ...

    def ensure_topic(self, name: str) -> TopicInfo:
        """The topic, created with the server's defaults when it is missing and `auto.create.topics.enable` allows."""
        ...

    def delete_topic(self, name: str) -> None:
        """Delete a topic and its data."""
        ...

    def add_partitions(self, name: str, total: int, *, validate_only: bool = False) -> TopicInfo:
        """Raise the partition count to `total`."""
        ...

    def set_configs(self, name: str, configs: Mapping[str, str], *, validate_only: bool = False) -> TopicInfo:
        """Replace the topic's own settings by these, checked."""
        ...

    def edit_configs(
        self, name: str, edit: Callable[[Mapping[str, str]], Mapping[str, str]], *, validate_only: bool = False
    ) -> TopicInfo:
        """Replace the topic's own settings by what `edit` makes of them, checked.

        `edit` may be called again with newer settings when another writer was faster, so that two who change
        different settings at the same time lose neither change.
        """
        ...

    def move_log_start(
        self,
        name: str,
        starts: Mapping[int, int],
        reason: str,
        run: str,
        topic_id: str | None = None,
        *,
        log: TopicLog | None = None,
    ) -> TopicInfo:
        """Record that the log of some partitions begins later; never moves it back.

        Args:
            name: the topic.
            starts: first offset to keep, by partition.
            reason: who moves it: `retention`, `delete_records`; what `OffsetOutOfRangeError` quotes.
            run: id of the run that moves it.
            topic_id: the topic that the offsets are about; None takes whichever has the name.
            log: its log, if the caller has it open: opening one may take 100 ms.

        Raises:
            TopicDeletedError: the name belongs to another topic by now; nothing was moved.
            OffsetOutOfRangeError, UnknownTopicOrPartitionError: an offset above the log end, no such partition.
        """
        ...

    def log(self, name: str) -> TopicLog:
        """Open the log of an existing topic."""
        ...

    def open_ahead(self, names: Iterable[str]) -> Mapping[str, TopicLog]:
        """Open the logs of several topics side by side, where that saves time.

        Returns:
            Those that were opened, by topic; `log` opens the others, or says why it cannot.
        """
        ...

    def look_ahead(self, logs: Iterable[TopicLog], *, waiting: bool = False) -> float:
        """Look at the tables of several topics side by side, where that saves time.

        Args:
            logs: opened by this cluster.
            waiting: see `TopicLog.refresh`.

        Returns:
            The `since` with which `TopicLog.refresh` takes what was seen.
        """
        ...

    def settle(self, timeout: float | None = None) -> None:
        """Wait until no thread of this process writes to the root on behalf of calls that are over.

        Args:
            timeout: seconds; None without end.
        """
        ...

    def disk_usage(self, name: str) -> Mapping[int, int]:
        """Bytes of live data files, by partition."""
        ...
