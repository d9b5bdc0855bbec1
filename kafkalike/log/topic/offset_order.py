"""Offset order: whether the rows of a data file hold to what the log says, and rows in any order, sorted.

OPTIMIZE, UPDATE and MERGE of other Delta writers leave files in any order. They are complete: only the order is theirs.
They are sorted in bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from kafkalike.log.topic.data_file import FlawError
from kafkalike.storage.arrays import numbers

if TYPE_CHECKING:
    from kafkalike.log.topic.data_file import DataFile, Longs
    from kafkalike.model.segments import Segment


class OffsetProof:
    """Follows the offsets of a file from row to row.

    The log promises the first offset, the last one, and how many rows there are. So a file without holes has exactly
    one possible order, and each row's offset follows from the one before.

    Args:
        segment: what the log says.
        rows_before: rows that are not read: those of the row groups before the first one that is.
        before: offset of the row before the first one that is read; None where it follows from `rows_before`.
    """

    def __init__(self, segment: Segment, rows_before: int = 0, before: int | None = None) -> None:
        self.left = segment.num_records - rows_before
        """Rows that have yet to come."""
        self._segment = segment
        self._dense = is_dense(segment)
        self._before = segment.start - 1 + rows_before if before is None else before

    def follows(self, offsets: Longs) -> bool:
        """Whether these may be the next rows. If so, they are counted.

        Args:
            offsets: those of at least one row.

        Raises:
            FlawError: they end the file, and not at the offset that the log says.
        """
        rows = len(offsets)
        first, last = int(offsets[0]), int(offsets[-1])
        if rows > self.left or last >= self._segment.stop or not self._begins(first):
            return False
        if self._dense and last - first != rows - 1:
            return False
        if rows > 1 and not (offsets[1:] > offsets[:-1]).all():
            return False
        self._before = last
        self.left -= rows
        if not self.left and last != self._segment.stop - 1:
            raise FlawError(f"its last record has offset {last}")
        return True

    def _begins(self, first: int) -> bool:
        """Whether a batch may begin with an offset."""
        following = self._before + 1
        if self._dense or following == self._segment.start:
            return first == following
        return first >= following


def is_dense(segment: Segment) -> bool:
    """Whether no offset of the segment is without a record."""
    return segment.num_records == segment.stop - segment.start


SORT_BYTES: Final = 64 * 1024 * 1024
"""Bytes of records, about, that are sorted at a time. Each time the row groups that hold them are decoded again."""


def in_order(file: DataFile, segment: Segment, position: int) -> tuple[OffsetProof, Iterator[pa.RecordBatch]]:
    """The rows of a file from an offset on, sorted, and what they must hold to.

    Args:
        file: an open file.
        segment: what the log says of it.
        position: the offset to begin at.

    Raises:
        FlawError: it does not hold all that the log promises, or an offset twice.
    """
    offsets = file.offsets()
    if len(offsets) != segment.num_records:
        raise FlawError(f"it has {len(offsets)} records instead of {segment.num_records}")
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    if ordered[0] != segment.start or ordered[-1] != segment.stop - 1:
        raise FlawError(f"its offsets are from {ordered[0]} to {ordered[-1]}")
    if (np.diff(ordered) <= 0).any():
        raise FlawError(f"it has offset {ordered[:-1][np.diff(ordered) <= 0][0]} more than once")
    begin = int(np.searchsorted(ordered, position))
    before = int(ordered[begin - 1]) if begin else segment.start - 1
    return OffsetProof(segment, begin, before), _sorted(file, order[begin:])


def _sorted(file: DataFile, order: Longs) -> Iterator[pa.RecordBatch]:
    """Rows by their numbers in the file, `SORT_BYTES` at a time."""
    groups, ends = range(len(file.groups)), np.cumsum(file.groups)
    rows = file.rows_at_once(groups)
    at_once = max(rows, file.rows_of(SORT_BYTES, groups))
    for at in range(0, len(order), at_once):
        wanted = order[at : at + at_once]
        ascending = np.sort(wanted)
        parts: list[pa.RecordBatch] = []
        for group in np.unique(np.searchsorted(ends, ascending, side="right")).tolist():
            row = int(ends[group - 1]) if group else 0
            for batch in file.batches([group], rows):
                low, high = np.searchsorted(ascending, [row, row + batch.num_rows])
                if low < high:
                    parts.append(batch.take(numbers(ascending[low:high] - row, pa.int64())))
                row += batch.num_rows
        table = pa.Table.from_batches(parts).take(numbers(np.searchsorted(ascending, wanted), pa.int64()))
        yield from table.combine_chunks().to_batches(max_chunksize=rows)
