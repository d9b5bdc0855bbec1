"""SegmentRows: read the rows of a data file from a position on, in offset order, and check them against the log.

Every reader of a topic's data files uses it: consumers, Spark's tasks, look-ups by time, maintenance and `verify`. The
table's log states the number of rows of a file, and its first and last offset. A file that contradicts the log, or does
not have the columns of a topic, raises an error. A file whose rows are complete but out of order, as OPTIMIZE, UPDATE
or MERGE of other Delta writers leave them, is sorted in bounded memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import pyarrow as pa

from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError, KafkaStorageError
from kafkalike.log.topic import data_file
from kafkalike.model.concurrency import OnError
from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet import UNREADABLE, is_storage_error, sound

if TYPE_CHECKING:
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage


WHOLE_ROWS: Final = 65_536
WHOLE_BATCH_BYTES: Final = 16 * 1024 * 1024
"""Most rows, and approximate bytes, decoded at a time when a whole file is read."""


class MissingInsideError(DataLossError):
    """Offsets are missing between two rows of a file that may not have holes.

    Args:
        message: names the missing offsets and the file.
        lost: the offsets.
    """

    def __init__(self, message: str, lost: range) -> None:
        super().__init__(message)
        self.lost = lost


def everywhere() -> int:
    """Return the largest offset, for a reader that accepts holes anywhere."""
    return 2**63 - 1


class SegmentRows:
    """Reads one data file forward. After an error the next call retries from the same position.

    Args:
        files: the topic's table.
        segment: the log's entry for the file.
        position: first offset to read.
        reading: columns, and how much to decode at a time.
        name: the partition, for errors.
        holes_below: returns the offset below which compaction may have removed records; called if offsets are missing.
    """

    def __init__(
        self,
        files: Storage,
        segment: Segment,
        position: int,
        reading: data_file.ReadOptions,
        *,
        name: str,
        holes_below: Callable[[], int] = everywhere,
    ) -> None:
        self.position = max(position, segment.start)
        """The next offset to be returned."""
        self._given = self._files = files
        """The file's storage, and the storage that is read: another replica if the first one has a damaged copy."""
        self._segment = segment
        self._reading = reading
        self._name = name
        self._holes_below = holes_below
        self._dense = is_dense(segment)
        self._waiting: pa.RecordBatch | None = None
        """Checked rows at or above the position that were not returned yet."""
        self._file: data_file.DataFile | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        """The remaining batches of `_file`."""
        self._proof: OffsetProof
        """The check of those batches, once a file is open."""

    @property
    def is_open(self) -> bool:
        """True if it holds an open file."""
        return self._file is not None

    def close(self) -> None:
        """Close the file. The next read opens it again."""
        file, self._file, self._batches = self._file, None, iter(())
        if file is not None:
            file.close()

    def next(self, stop: int | None = None) -> pa.RecordBatch | None:
        """Return the next rows.

        Args:
            stop: exclusive end offset; None takes the segment's end.

        Returns:
            At least one row, in offset order, starting at the position or after a hole of compaction; None if there are
            no more below `stop`. `position` is the offset after them.

        Raises:
            FileNotFoundError: the file does not exist.
            CorruptRecordError: the file is damaged, is not a topic's data file, or contradicts the log.
            MissingInsideError: offsets are missing; the position is after them.
            KafkaStorageError: the storage cannot be read at present.
        """
        stop = self._segment.stop if stop is None else min(stop, self._segment.stop)
        if self.position >= stop:
            return None
        batch = self._fetch() if self._waiting is None else self._waiting
        offsets = data_file.longs(batch.column("offset"))
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

    def _unbroken(self, offsets: data_file.Longs) -> int:
        """Return how many of the first rows have no holes between them, except holes of compaction."""
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
        """Return the file's next rows at or above the position, from the first replica that has them intact."""
        failed = (CorruptRecordError, KafkaStorageError, *UNREADABLE)
        return sound(self._given, self._segment.path, self._fetched_at, failed)

    def _fetched_at(self, files: Storage) -> pa.RecordBatch:
        """Return the file's next rows at or above the position, checked."""
        self._files = files
        # A file that is fetched whole does not stay open.
        held = (
            contextlib.nullcontext()
            if self._segment.size_bytes <= data_file.WHOLE_BYTES
            else data_file.open_files.using(self)
        )
        try:
            with OnError(self.close), held:
                while True:
                    batch = self._decoded()
                    if not self._proof.left:
                        # The last row has been read.
                        self.close()
                    offsets = data_file.longs(batch.column("offset"))
                    if offsets[0] >= self.position:
                        return batch
                    if offsets[-1] >= self.position:
                        return batch.slice(int(np.searchsorted(offsets, self.position)))
        except data_file.FlawError as flaw:
            segment = self._segment
            raise CorruptRecordError(
                f"{self._lost} should hold [{segment.start}, {segment.stop}), but {flaw}"
            ) from None
        except (FileNotFoundError, KafkaError):
            raise
        except UNREADABLE as cause:
            raise self._named(cause) from cause

    def _decoded(self) -> pa.RecordBatch:
        """Decode and check the next rows of the file."""
        file = self._file
        if file is None:
            file = self._open()
        ordered = False
        while True:
            batch = next(self._batches, None)
            if batch is None:
                raise data_file.FlawError(f"it ends {self._proof.left} records early")
            if not batch.num_rows:
                continue
            if self._proof.follows(data_file.longs(batch.column("offset"))):
                return batch
            if ordered:
                raise data_file.FlawError("its records contradict its own column of offsets")
            self._proof, self._batches = in_order(file, self._segment, self.position)
            ordered = True

    def _open(self) -> data_file.DataFile:
        self._file = file = data_file.DataFile(self._files, self._segment, self._reading)
        skipped, rows_before = self._groups_before(file)
        self._proof = OffsetProof(self._segment, rows_before)
        self._batches = file.batches(range(skipped, len(file.groups)))
        return file

    def _groups_before(self, file: data_file.DataFile) -> tuple[int, int]:
        """Return the number of row groups wholly below the position, and their rows.

        In a file without holes the row number gives the offset. In other files every row group is read.
        """
        if not self._dense:
            return 0, 0
        before = 0
        for group, rows in enumerate(file.groups):
            if self.position - self._segment.start < before + rows:
                return group, before
            before += rows
        raise data_file.FlawError("its row groups have fewer records than its footer says")

    # --- errors --------------------------------------------------------------------------------

    def _named(self, cause: BaseException) -> KafkaError:
        if is_storage_error(cause):
            # The file may be intact, so its records are not reported as lost.
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


def read_segment(files: Storage, segment: Segment, columns: tuple[str, ...] = data_file.COLUMNS) -> Iterator[pa.Table]:
    """Yield the rows of a segment in offset order, some ten thousand at a time.

    Args:
        files: the topic's table.
        segment: a live segment.
        columns: columns of `CHUNK_SCHEMA` to read, `offset` among them.

    Raises:
        CorruptRecordError: the file cannot be read, is not a topic's data file, or contradicts the log.
        KafkaStorageError: the storage cannot be read at present.
    """
    reading = data_file.ReadOptions(columns=columns, batch_bytes=WHOLE_BATCH_BYTES, max_rows=WHOLE_ROWS)
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
    """Checks the offsets of a file from row to row.

    The log states the first offset, the last one, and the number of rows. So a file without holes has exactly one
    possible order, and each row's offset follows from the previous one.

    Args:
        segment: the log's entry for the file.
        rows_before: number of rows in skipped row groups.
        before: offset of the row before the first row that is read; None computes it from `rows_before`.
    """

    def __init__(self, segment: Segment, rows_before: int = 0, before: int | None = None) -> None:
        self.left = segment.num_records - rows_before
        """Rows that have yet to be read."""
        self._segment = segment
        self._dense = is_dense(segment)
        self._before = segment.start - 1 + rows_before if before is None else before

    def follows(self, offsets: data_file.Longs) -> bool:
        """Return True and count the rows if these may be the next ones.

        Args:
            offsets: of at least one row.

        Raises:
            FlawError: they end the file at another offset than the log's.
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
            raise data_file.FlawError(f"its last record has offset {last}")
        return True

    def _begins(self, first: int) -> bool:
        """True if a batch may begin with an offset."""
        following = self._before + 1
        if self._dense or following == self._segment.start:
            return first == following
        return first >= following


def is_dense(segment: Segment) -> bool:
    """True if every offset of the segment has a record."""
    return segment.num_records == segment.stop - segment.start


SORT_BYTES: Final = 64 * 1024 * 1024
"""Approximate bytes of records sorted at a time. Each time, the row groups that hold them are decoded again."""


def in_order(file: data_file.DataFile, segment: Segment, position: int) -> tuple[OffsetProof, Iterator[pa.RecordBatch]]:
    """Return the rows of a file from an offset on, sorted, and the check for them.

    Args:
        file: an open file.
        segment: the log's entry for it.
        position: first offset to return.

    Raises:
        FlawError: the file contradicts the log, or holds an offset twice.
    """
    offsets = file.offsets()
    if len(offsets) != segment.num_records:
        raise data_file.FlawError(f"it has {len(offsets)} records instead of {segment.num_records}")
    order = np.argsort(offsets, kind="stable")
    ordered = offsets[order]
    if ordered[0] != segment.start or ordered[-1] != segment.stop - 1:
        raise data_file.FlawError(f"its offsets are from {ordered[0]} to {ordered[-1]}")
    if (np.diff(ordered) <= 0).any():
        raise data_file.FlawError(f"it has offset {ordered[:-1][np.diff(ordered) <= 0][0]} more than once")
    begin = int(np.searchsorted(ordered, position))
    before = int(ordered[begin - 1]) if begin else segment.start - 1
    return OffsetProof(segment, begin, before), _sorted(file, order[begin:])


def _sorted(file: data_file.DataFile, order: data_file.Longs) -> Iterator[pa.RecordBatch]:
    """Yield rows by their numbers in the file, `SORT_BYTES` at a time."""
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
