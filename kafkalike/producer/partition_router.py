"""Partition router: records without a partition in, their partitions out; one by one in `send`, or by the batch."""

from __future__ import annotations

import operator
from random import Random
from typing import TYPE_CHECKING

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.partitioner import DefaultPartitioner, Partitioner, partitions_for_keys
from kafkalike.model.record_batch import RecordBatch
from kafkalike.producer.producer_batch import UNROUTED, TopicQueue

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch


class PartitionRouter:
    """Chooses partitions.

    Args:
        partitioner: the user's, or the default.
        batch_size: bytes after which a partitioner hears `on_new_batch`.
    """

    __slots__ = ("_batch_size", "_partitioner", "_rng", "in_bulk")

    def __init__(self, partitioner: Partitioner, batch_size: int) -> None:
        self._partitioner = partitioner
        self._batch_size = batch_size
        self._rng: Random | None = partitioner.rng if type(partitioner) is DefaultPartitioner else None
        self.in_bulk = self._rng is not None
        """Whether the sender chooses for a whole batch: the default rule needs nothing but the keys."""

    def choose(  # noqa: PLR0917 - what kafka-python's partitioners are told
        self,
        queue: TopicQueue,
        key: object,
        key_bytes: bytes | None,
        value: object,
        value_bytes: bytes | None,
        size: int,
    ) -> int:
        """Ask the partitioner for one record. Caller: any sending thread.

        A batch, in the sense of `on_new_batch`, is closed when the sender has taken it or when `batch_size` bytes
        without key went to one partition in a row.

        Raises:
            IllegalArgumentError: the partitioner chose no partition of the topic.
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
            raise IllegalArgumentError(f"the partitioner chose {number}, which is no partition of {queue.name!r}")
        if key_bytes is None:
            before = sticky[1] if sticky is not None and sticky[0] == number else 0
            queue.sticky = (number, before + size)
        return number

    def choose_all(self, queue: TopicQueue, records: ColumnBatch) -> None:
        """Ask the partitioner for each record of a batch that has no partition. Caller: any sending thread."""
        chosen = records.partitions.copy()
        rows = (chosen == UNROUTED).nonzero()[0]
        found = records.records(rows)
        sizes = records.sizes[rows].tolist()
        for row, key, value, size in zip(rows.tolist(), found.keys, found.values, sizes, strict=True):
            chosen[row] = self.choose(queue, key, key, value, value, size)
        records.partitions = chosen

    def route(self, records: RecordBatch | ColumnBatch, num_partitions: int) -> None:
        """Choose for all records of a batch that have no partition yet, in place. Caller: sender.

        By murmur2 of the key, at random without key: what `DefaultPartitioner` does one by one.
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
        """Partitions by hash, and random ones in place of None."""
        missing = hashed.count(None)
        if not missing:
            return hashed  # type: ignore[return-value]
        assert self._rng is not None
        turns = iter(self._rng.choices(range(num_partitions), k=missing))
        return [next(turns) if chosen is None else chosen for chosen in hashed]
