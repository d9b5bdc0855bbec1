"""Joined: batches that came as columns, one behind the other, in; one append of all of them out, and what each got.

A table commit costs some milliseconds however many records it has. So what waits in a topic's queue goes into one; each
batch is in it as a whole, and keeps its own future.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from kafkalike.producer.producer_batch import Batch

if TYPE_CHECKING:
    from kafkalike.log.topic.column_batch import ColumnBatch

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of batches that are joined: from there on the commit is a small part of an append."""


class JoinedBatch(Batch):
    """Several batches of columns of one topic, in sending order, on their way into one append.

    Args:
        parts: the batches; at least two.
    """

    __slots__ = ("parts",)

    def __init__(self, parts: Sequence[Batch]) -> None:
        super().__init__(parts[0].outcome, parts[0].born)
        self.parts = tuple(parts)
        self.size = sum(part.size for part in parts)

    def __len__(self) -> int:
        """Records in it."""
        return sum(map(len, self.parts))

    def columns(self) -> ColumnBatch:
        """All records, made once. Caller: sender."""
        from kafkalike.log.topic.column_batch import ColumnBatch, joined

        if not isinstance(self.records, ColumnBatch):
            self.records = joined([part.given for part in self.parts if part.given is not None])
        return self.records

    def shares(self, ranges: Mapping[int, range]) -> Iterator[tuple[Batch, dict[int, range]]]:
        """What each part got of the offsets, by partition.

        Args:
            ranges: what all of them got.
        """
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


def parts_of(batch: Batch) -> Sequence[Batch]:
    """The batches that a batch was joined of; itself where it was not."""
    return batch.parts if isinstance(batch, JoinedBatch) else (batch,)


def goes_with(batch: Batch, later: Batch, size: int, now: float) -> bool:
    """Whether a batch is joined with those before it.

    Args:
        batch: one of those.
        later: the batch behind them.
        size: bytes of those.
        now: monotonic time, s.
    """
    return (
        batch.given is not None
        and later.given is not None
        and not (batch.alone or later.alone)
        and (later.retry_at is None or later.retry_at <= now)
        and size + later.size <= MOST_BYTES
    )
