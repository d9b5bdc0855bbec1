"""OffsetProof: what the table's log says of a data file, and its rows' offsets in; whether the file holds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.log.topic.data_file import FlawError

if TYPE_CHECKING:
    from kafkalike.log.topic.data_file import Longs
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
