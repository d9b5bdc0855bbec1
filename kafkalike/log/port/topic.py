"""What may be asked of the log of a topic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from kafkalike.log.topic.validate import SchemasOf
from kafkalike.model.appends import Appended, TxnId
from kafkalike.model.batch import RecordBatch
from kafkalike.model.config.topic import TopicConfig
from kafkalike.model.segments import Segment
from kafkalike.model.structs import OffsetAndTimestamp
from kafkalike.model.topic import TopicInfo

if TYPE_CHECKING:
    from kafkalike.log.topic.chunk import Chunk
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.key_search import Searched


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
    def schemas(self) -> SchemasOf:
        """Gives the cluster's registry, for topics that check schemas."""
        ...

    @property
    def version(self) -> int:
        """Table version of the last `refresh`: as long as it stays, no log end has moved."""
        ...

    @property
    def last_transaction(self) -> int:
        """Number of the last decided transaction that the topic has, as of the last `refresh`; 0 for none.

        It has all that were decided before it. See `Transactions`.
        """
        ...

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

    def watch(self, add: Callable[[str], object]) -> None:
        """Name the folder in which new commits appear as files, if the kernel of this machine sees all of them.

        Args:
            add: called with the folder's path, at most once.
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
        self,
        batch: RecordBatch | ColumnBatch,
        *,
        codec: str = "none",
        timeout_ms: float | None = 120_000,
        txn: TxnId | None = None,
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
