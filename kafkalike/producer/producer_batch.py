"""Producer batch: records of one topic for one append, the topic's queue of batches, and the partitioner's choices.

Nothing here locks: the record accumulator does. A table commit costs some milliseconds however many records it has. So
batches of Arrow columns that wait in a topic's queue are appended in one commit. Each of them is written as a whole and
keeps its own future.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkalike.errors import IllegalArgumentError, KafkaConfigurationError
from kafkalike.log.topic.record_rules import record_size
from kafkalike.model.partitioner import (
    ClusterView,
    DefaultPartitioner,
    Partitioner,
    as_partitioner,
    partitions_for_keys,
)
from kafkalike.model.record_batch import Headers, RecordBatch
from kafkalike.model.topic import TopicInfo
from kafkalike.producer.future import BatchResult

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch
    from kafkalike.log.topic.topic_log import TopicLog


Row: TypeAlias = tuple[int, bytes | None, bytes | None, int, Headers | None]
"""Fields of a record: partition, key, value, timestamp in ms, headers."""

UNROUTED: Final = -1
"""Partition of a record until the sender routes many records at once."""


WIDTH: Final = 5
"""Number of fields per row."""


class ProducerBatch:
    """Records of one topic on their way into one append."""

    __slots__ = (
        "alone",
        "born",
        "due",
        "fields",
        "given",
        "outcome",
        "puzzled",
        "records",
        "refused",
        "retries",
        "retry_at",
        "size",
        "topic_id",
    )

    def __init__(self, outcome: BatchResult, born: float, topic_id: str) -> None:
        self.outcome = outcome
        self.born = born
        self.topic_id = topic_id
        """Id of the topic whose partitions were chosen; see `PartitionRouter.follow`."""
        """Monotonic time, in s, of the first record; `linger_ms` and `delivery_timeout_ms` start here."""
        # Fields of rows, one row behind the other: one `extend` each, so that an interrupted `send` cannot leave
        # columns of unequal length. No object is kept of a row, at which the garbage collector would look again.
        self.fields: list[Any] = []
        self.size = 0
        """Bytes, as the buffer counts them."""
        self.due = False
        """True if it is sent without lingering: it is large enough, or a flush waits for it."""
        self.retries = 0
        self.retry_at: float | None = None
        """Monotonic time, in s, of the next try."""
        self.given: ColumnBatch | None = None
        """The columns of a batch of `send_arrow`, which has no rows."""
        self.records: RecordBatch | ColumnBatch | None = None
        """The rows as columns, once the sender has taken the batch."""
        self.refused: Mapping[int, Exception] = {}
        """Errors of rejected records, by row."""
        self.alone = False
        """True if it is appended on its own, because it was rejected in a joined batch."""
        self.puzzled = False
        """True if it was rejected because of a record that could not be found."""

    def __len__(self) -> int:
        """Number of records in it."""
        if self.given is not None:
            return len(self.given)
        return len(self.fields) // WIDTH if self.records is None else len(self.records)

    def columns(self) -> RecordBatch | ColumnBatch:
        """Return all rows as columns, made once. Caller: sender; no row is added afterwards."""
        if self.given is not None:
            self.records = self.given
        if self.records is None:
            fields, self.fields = self.fields, []
            self.records = RecordBatch(
                partitions=fields[0::WIDTH],
                keys=fields[1::WIDTH],
                values=fields[2::WIDTH],
                timestamps=fields[3::WIDTH],
                headers=fields[4::WIDTH],
            )
        return self.records

    def sendable(self) -> RecordBatch | ColumnBatch:
        """Return the records that are not rejected, in order."""
        everything = self.columns() if self.records is None else self.records
        if not self.refused or not isinstance(everything, RecordBatch):
            return everything
        kept = [row for row in range(len(everything)) if row not in self.refused]
        return RecordBatch(
            partitions=[everything.partitions[row] for row in kept],
            keys=[everything.keys[row] for row in kept],
            values=[everything.values[row] for row in kept],
            timestamps=[everything.timestamps[row] for row in kept],
            headers=[everything.headers[row] for row in kept],
        )

    def sent_size(self) -> int:
        """Return the bytes of the records that are not rejected."""
        all_of = self.columns() if self.refused else None
        if not isinstance(all_of, RecordBatch):
            return self.size
        refused = (record_size(all_of.keys[row], all_of.values[row], all_of.headers[row]) for row in self.refused)
        return self.size - sum(refused)


class TopicQueue:
    """The queued batches and the known metadata of one life of a topic."""

    __slots__ = ("batches", "gone", "last", "log", "looked_at", "name", "num_partitions", "sticky", "topic_id", "view")

    def __init__(self, info: TopicInfo, now: float) -> None:
        self.name: str = info.name
        self.topic_id: str = info.topic_id
        self.batches: deque[ProducerBatch] = deque()
        """In sending order. Changed under the buffer's lock."""
        self.last: ProducerBatch | None = None
        """The open batch for further records; None if a new one is needed. Changed under the buffer's lock."""
        self.gone = False
        """True if the topic was deleted; then a send looks for the current topic of that name."""
        self.log: TopicLog | None = None
        """The topic's log; belongs to the sender."""
        self.sticky: tuple[int, int] | None = None
        """Partition of the last record without key, and bytes sent there in a row. Belongs to routing."""
        self.learn(info, now)

    def follow(self, info: TopicInfo) -> bool:
        """Go on with the topic into which this one was repartitioned; return False if it was not. Under the lock."""
        if info.partitions_as(self.topic_id) is None:
            return False
        self.topic_id, self.log, self.last, self.sticky = info.topic_id, None, None, None
        return True

    def learn(self, info: TopicInfo, now: float) -> None:
        """Record the number of partitions, which can only grow.

        Args:
            info: the topic, of this life.
            now: monotonic time in s.
        """
        self.looked_at = now
        self.num_partitions = info.num_partitions
        self.view = ClusterView(partitions={self.name: frozenset(info.partitions)})


MOST_BYTES: Final = 16 * 1024 * 1024
"""Maximum bytes of a joined batch: beyond it, the commit is a small part of an append."""


class JoinedBatch(ProducerBatch):
    """Several batches of columns of one topic, in sending order, for one append.

    Args:
        parts: the batches; at least two.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[ProducerBatch]) -> None:
        super().__init__(parts[0].outcome, parts[0].born, parts[0].topic_id)
        self.parts = tuple(parts)
        self.size = sum(part.size for part in parts)

    def __len__(self) -> int:
        """Number of records in it."""
        return sum(map(len, self.parts))

    def columns(self) -> ColumnBatch:
        """Return all records, made once. Caller: sender."""
        from kafkalike.log.topic.column_batch import ColumnBatch, joined

        if not isinstance(self.records, ColumnBatch):
            self.records = joined([part.given for part in self.parts if part.given is not None])
        return self.records

    def shares(self, ranges: Mapping[int, range]) -> Iterator[tuple[ProducerBatch, dict[int, range]]]:
        """Yield each part with its offsets, by partition.

        Args:
            ranges: offsets of all parts together.
        """
        import numpy as np

        partitions, at = self.columns().partitions, 0
        nexts = {partition: offsets.start for partition, offsets in ranges.items()}
        for part in self.parts:
            found, counts = np.unique(partitions[at : at + len(part)], return_counts=True)
            at += len(part)
            own = {}
            for partition, count in zip(found.tolist(), counts.tolist(), strict=True):
                own[partition] = range(nexts[partition], nexts[partition] + count)
                nexts[partition] += count
            yield part, own


def parts_of(batch: ProducerBatch) -> Sequence[ProducerBatch]:
    """Return the parts of a joined batch; the batch itself if it is not joined."""
    return batch.parts if isinstance(batch, JoinedBatch) else (batch,)


def can_join(batch: ProducerBatch, later: ProducerBatch, size: int, now: float) -> bool:
    """Return True if a batch can join the batches before it.

    Args:
        batch: the last batch so far.
        later: the batch behind it.
        size: bytes so far.
        now: monotonic time in s.
    """
    return (
        batch.given is not None
        and later.given is not None
        and not (batch.alone or later.alone)
        and (later.retry_at is None or later.retry_at <= now)
        and size + later.size <= MOST_BYTES
    )


class PartitionRouter:
    """Chooses the partitions of records.

    Args:
        partitioner: the user's, or the default.
        batch_size: bytes after which the partitioner's `on_new_batch` is called.
    """

    __slots__ = ("_batch_size", "_partitioner", "_rng", "in_bulk")

    def __init__(self, partitioner: Partitioner, batch_size: int) -> None:
        self._partitioner = partitioner
        self._batch_size = batch_size
        self._rng: Random | None = partitioner.rng if type(partitioner) is DefaultPartitioner else None
        self.in_bulk = self._rng is not None
        """True if the sender routes whole batches, because the default partitioner only needs the keys."""

    def choose(  # noqa: PLR0917 - what kafka-python's partitioners are told
        self,
        queue: TopicQueue,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        size: int,
    ) -> int:
        """Call the partitioner for one record. Caller: any sending thread.

        For `on_new_batch`, a batch ends when the sender has taken it or when `batch_size` bytes without key went to one
        partition in a row.

        Raises:
            IllegalArgumentError: the partitioner returned a partition that the topic does not have.
        """
        sticky = queue.sticky
        if key_bytes is None and sticky is not None and (queue.last is None or sticky[1] >= self._batch_size):
            self._partitioner.on_new_batch(queue.name, queue.view, sticky[0])
            sticky = None
        chosen = self._partitioner.partition(queue.name, key, key_bytes, value, value_bytes, queue.view)
        if isinstance(chosen, bool) or not hasattr(chosen, "__index__"):
            raise IllegalArgumentError(f"the partitioner must return an int, not {chosen!r}")
        number = operator.index(chosen)
        if not 0 <= number < queue.num_partitions:
            raise IllegalArgumentError(f"the partitioner chose partition {number}, which {queue.name!r} does not have")
        if key_bytes is None:
            before = sticky[1] if sticky is not None and sticky[0] == number else 0
            queue.sticky = (number, before + size)
        return number

    def choose_all(self, queue: TopicQueue, records: ColumnBatch) -> None:
        """Call the partitioner for each record of a batch without a partition. Caller: any sending thread."""
        chosen = records.partitions.copy()
        rows = (chosen == UNROUTED).nonzero()[0]
        found = records.records(rows)
        sizes = records.sizes[rows].tolist()
        for row, key, value, size in zip(rows.tolist(), found.keys, found.values, sizes, strict=True):
            chosen[row] = self.choose(queue, key, key, value, value, size)
        records.partitions = chosen

    def follow(self, batch: ProducerBatch, info: TopicInfo) -> None:
        """Move a batch to the partitions where a repartition has moved the records before it. Caller: sender."""
        for part in parts_of(batch):
            before = info.partitions_as(part.topic_id)
            if before is not None:
                part.columns().split(before, info.num_partitions)
            part.topic_id = info.topic_id
        if isinstance(batch, JoinedBatch):
            batch.records = None

    def route(self, records: RecordBatch | ColumnBatch, num_partitions: int) -> None:
        """Choose the missing partitions of a batch, in place. Caller: sender.

        By murmur2 of the key, or at random without key, as `DefaultPartitioner` does for single records.
        """
        if not isinstance(records, RecordBatch):
            if self._rng is not None:
                records.route(num_partitions, self._rng.randrange(num_partitions))
            return
        partitions = records.partitions
        unrouted = partitions.count(UNROUTED)
        if self._rng is None or not unrouted:
            return
        if num_partitions == 1:
            partitions[:] = [0] * len(partitions)
            return
        if unrouted < len(partitions):
            open_rows = [row for row, partition in enumerate(partitions) if partition == UNROUTED]
            hashed = partitions_for_keys([records.keys[row] for row in open_rows], num_partitions)
            for row, chosen in zip(open_rows, self._filled(hashed, num_partitions), strict=True):
                partitions[row] = chosen
            return
        partitions[:] = self._filled(partitions_for_keys(records.keys, num_partitions), num_partitions)

    def _filled(self, hashed: list[int | None], num_partitions: int) -> list[int]:
        """Replace each None by a random partition."""
        missing = hashed.count(None)
        if not missing:
            return hashed  # type: ignore[return-value]
        assert self._rng is not None
        turns = iter(self._rng.choices(range(num_partitions), k=missing))
        return [next(turns) if chosen is None else chosen for chosen in hashed]


def check_partitioner(obj: object) -> Partitioner:
    """Return the partitioner, or the default one for None.

    Raises:
        KafkaConfigurationError: not a partitioner.
    """
    if obj is None:
        return DefaultPartitioner()
    if isinstance(obj, str | bytes):  # they have a method `partition` too
        raise KafkaConfigurationError(f"invalid value for setting 'partitioner': an object is needed, not {obj!r}")
    try:
        return as_partitioner(obj)
    except IllegalArgumentError as cause:
        raise KafkaConfigurationError(f"invalid value for setting 'partitioner': {cause}") from cause
