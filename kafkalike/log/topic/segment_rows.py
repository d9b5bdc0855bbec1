"""SegmentRows: a data file and a position in; its rows from there on out, in offset order, checked against the log.

Everything that reads records of a topic's data file reads them here: consumers, Spark's tasks, look-ups by time,
maintenance and `verify`. The table's log promises how many rows a file has, and its first and last offset. A file that
breaks the promise, or has other columns than a topic, is refused by name. A file whose rows are complete but not in
order, as OPTIMIZE, UPDATE or MERGE of other Delta writers leave them, is sorted in bounded memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa

from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError, KafkaStorageError
from kafkalike.log.topic.data_file import (
    COLUMNS,
    WHOLE_BYTES,
    DataFile,
    FlawError,
    Longs,
    ReadOptions,
    longs,
    open_files,
)
from kafkalike.model.concurrency import OnError
from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, sound

if TYPE_CHECKING:
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage


WHOLE_ROWS: Final = 65_536
WHOLE_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Rows decoded at a time at most, and about how many bytes, where a file is read from its beginning to its end."""


class MissingInsideError(DataLossError):
    """Offsets are missing between two rows of a file, where nothing may be missing.

    Args:
        message: what is missing, and where.
        lost: the offsets.
    """

    def __init__(self, message: str, lost: range) -> None:
        super().__init__(message)
        self.lost = lost


def everywhere() -> int:
    """Offset below which offsets may be missing, for a reader that does not judge that."""
    return 2**63 - 1


class SegmentRows:
    """Reads one data file forward. After an error the next call tries again from the same position.

    Args:
        files: the topic's table.
        segment: what the table's log says of the file.
        position: offset to begin at.
        reading: which columns, and how much at a time.
        name: the partition, for errors.
        holes_below: gives the offset below which compaction may have taken records. Asked when offsets are missing.
    """

    def __init__(
        self,
        files: Storage,
        segment: Segment,
        position: int,
        reading: ReadOptions,
        *,
        name: str,
        holes_below: Callable[[], int] = everywhere,
    ) -> None:
        self.position = max(position, segment.start)
        """The next offset to be handed out."""
        self._given = self._files = files
        """Where the file is, and where it is read: at another replica where the first one has it damaged."""
        self._segment = segment
        self._reading = reading
        self._name = name
        self._holes_below = holes_below
        self._dense = is_dense(segment)
        self._waiting: pa.RecordBatch | None = None
        """Rows that were checked and not handed out, all at or above the position."""
        self._file: DataFile | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        """What `_file` has yet to give."""
        self._proof: OffsetProof
        """What that has to hold to, once there is a file."""

    @property
    def is_open(self) -> bool:
        """Whether it holds an open file."""
        return self._file is not None

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        file, self._file, self._batches = self._file, None, iter(())
        if file is not None:
            file.close()

    def next(self, stop: int | None = None) -> pa.RecordBatch | None:
        """The next rows.

        Args:
            stop: offset to end before; None takes the segment's end.

        Returns:
            At least one row, in offset order, the first at the position or after a hole that compaction has left;
            None when there are no more below `stop`. `position` is the offset after them.

        Raises:
            FileNotFoundError: the file is gone.
            CorruptRecordError: the file is damaged, is no file of a topic, or does not hold what the log says.
            MissingInsideError: offsets are missing; the position is behind them now.
            KafkaStorageError: the storage cannot be read now.
        """
        stop = self._segment.stop if stop is None else min(stop, self._segment.stop)
        if self.position >= stop:
            return None
        batch = self._fetch() if self._waiting is None else self._waiting
        offsets = longs(batch.column("offset"))
        first = int(offsets[0])
        if first > self.position:
            lost = range(self.position, min(first, stop))
            self.position, self._waiting = lost.stop, batch
            if first > self._holes_below():
                self._missing(lost)
            if first >= stop:
                return None
        last = int(offsets[-1])
        end = len(offsets) if last < stop else int(np.searchsorted(offsets, stop))
        if not self._dense:
            end = min(end, self._unbroken(offsets))
        if end == len(offsets):
            self._waiting = None
            self.position = last + 1
            return batch
        self._waiting = batch.slice(end)
        self.position = int(offsets[end - 1]) + 1
        return batch.slice(0, end)

    def _unbroken(self, offsets: Longs) -> int:
        """How many of the first rows have no hole between them but those of compaction."""
        after = np.flatnonzero(np.diff(offsets) > 1) + 1
        if not len(after) or offsets[after[-1]] <= (below := self._holes_below()):
            return len(offsets)
        return int(after[offsets[after] > below][0])

    def _missing(self, lost: range) -> NoReturn:
        raise MissingInsideError(
            f"{self._name}: offsets [{lost.start}, {lost.stop}) are missing in {self._files.uri}/{self._segment.path}: "
            "data loss; another writer of the table has deleted their records",
            lost,
        )

    # --- reading -------------------------------------------------------------------------------

    def _fetch(self) -> pa.RecordBatch:
        """The next rows of the file at or above the position, of the first replica that has them."""
        failed = (CorruptRecordError, KafkaStorageError, *UNREADABLE)
        return sound(self._given, self._segment.path, self._fetched_at, failed)

    def _fetched_at(self, files: Storage) -> pa.RecordBatch:
        """The next rows of the file at or above the position, checked."""
        self._files = files
        # A file that is fetched whole is never open.
        held = contextlib.nullcontext() if self._segment.size_bytes <= WHOLE_BYTES else open_files.using(self)
        try:
            with OnError(self.close), held:
                while True:
                    batch = self._decoded()
                    if not self._proof.left:
                        # The last row is there, and none comes after it.
                        self.close()
                    offsets = longs(batch.column("offset"))
                    if offsets[0] >= self.position:
                        return batch
                    if offsets[-1] >= self.position:
                        return batch.slice(int(np.searchsorted(offsets, self.position)))
        except FlawError as flaw:
            segment = self._segment
            raise CorruptRecordError(
                f"{self._lost} should hold [{segment.start}, {segment.stop}), but {flaw}"
            ) from None
        except (FileNotFoundError, KafkaError):
            raise
        except UNREADABLE as cause:
            raise self._named(cause) from cause

    def _decoded(self) -> pa.RecordBatch:
        """The next rows of the file."""
        file = self._file
        if file is None:
            file = self._open()
        ordered = False
        while True:
            batch = next(self._batches, None)
            if batch is None:
                raise FlawError(f"it ends {self._proof.left} records early")
            if not batch.num_rows:
                continue
            if self._proof.follows(longs(batch.column("offset"))):
                return batch
            if ordered:
                raise FlawError("its records are not those that its own offsets say")
            self._proof, self._batches = in_order(file, self._segment, self.position)
            ordered = True

    def _open(self) -> DataFile:
        self._file = file = DataFile(self._files, self._segment, self._reading)
        skipped, rows_before = self._groups_before(file)
        self._proof = OffsetProof(self._segment, rows_before)
        self._batches = file.batches(range(skipped, len(file.groups)))
        return file

    def _groups_before(self, file: DataFile) -> tuple[int, int]:
        """Row groups that are wholly below the position, and the number of their rows.

        In a file without holes the row number says it; else all are read, and their rows are counted.
        """
        if not self._dense:
            return 0, 0
        before = 0
        for group, rows in enumerate(file.groups):
            if self.position - self._segment.start < before + rows:
                return group, before
            before += rows
        raise FlawError("its row groups have fewer records than its footer says")

    # --- errors --------------------------------------------------------------------------------

    def _named(self, cause: BaseException) -> KafkaError:
        if is_storage_error(cause):
            # Nothing is known of the file: its records may well be there.
            why = str(cause) or type(cause).__name__
            return KafkaStorageError(f"{self._offsets}: {self._file_name} cannot be read now: {why}")
        return CorruptRecordError(f"{self._lost} cannot be read: {cause}")

    @property
    def _offsets(self) -> str:
        return f"{self._name}: offsets [{self._segment.start}, {self._segment.stop})"

    @property
    def _file_name(self) -> str:
        return f"{self._files.uri}/{self._segment.path}"

    @property
    def _lost(self) -> str:
        return f"{self._offsets} are lost: {self._file_name}"


def read_segment(files: Storage, segment: Segment, columns: tuple[str, ...] = COLUMNS) -> Iterator[pa.Table]:
    """The rows of a segment in offset order, some ten thousand at a time.

    Args:
        files: the topic's table.
        segment: a live one.
        columns: columns of `CHUNK_SCHEMA` to read, `offset` among them.

    Raises:
        CorruptRecordError: it cannot be read, is no file of a topic, or does not hold what the log says.
        KafkaStorageError: the storage cannot be read now.
    """
    reading = ReadOptions(columns=columns, batch_bytes=WHOLE_BATCH_BYTES, max_rows=WHOLE_ROWS)
    rows = SegmentRows(files, segment, segment.start, reading, name=f"partition {segment.partition}")
    try:
        while (batch := rows.next()) is not None:
            yield pa.Table.from_batches([batch])
    except FileNotFoundError as cause:
        raise CorruptRecordError(f"{files.uri}/{segment.path} is missing, so its partition is left as it is") from cause
    except CorruptRecordError as cause:
        raise CorruptRecordError(f"{cause}. Its partition is left as it is") from cause
    finally:
        rows.close()


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
