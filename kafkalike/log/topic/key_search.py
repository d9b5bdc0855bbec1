"""Key search: the data files of a partition and a key in, the records that have it out, the newest file first.

A file with a Bloom filter on its keys is asked by that; of the row groups that are left the keys are read, and all
columns only of those where the key is. Of a file with more such records than may be kept, the newest ones are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.data_file import DataFile, FlawError, ReadOptions, longs, named_flaws
from kafkalike.storage.arrays import binaries, numbers
from kafkalike.storage.parquet import UNREADABLE, sound

if TYPE_CHECKING:
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage

_READING = ReadOptions(batch_bytes=16 * 1024 * 1024)

ROW_BYTES: Final = 512
"""What a record takes beside its bytes."""

NOTHING: Final = numbers(np.array([0], np.int64), pa.int64())[0]
"""Zero; a Python number would import pandas."""


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found in one data file."""

    chunk: Chunk | None
    """The records with the key, in offset order; None when there are none."""
    skipped: bool
    """Whether its statistics alone said so."""
    start: int = 0
    """The file was searched down to this offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """What a search is for."""

    key: bytes
    start: int
    """The log start: records below it are no records any more."""
    below: int
    """Offsets from here on are not meant."""
    most_bytes: int
    """Bytes of records that are kept of a file, and one record in any case."""


def search(files: Storage, segments: Sequence[Segment], wanted: KeyQuery) -> Iterator[Searched]:
    """Look for a key, file by file, the last one first.

    Where a file has more than may be kept, the search ends after it: one for what is below its `start` goes on.

    Args:
        files: the topic's table.
        segments: the live data files of one partition, in offset order.
        wanted: the key, and where it is looked for.

    Raises:
        CorruptRecordError: a file is damaged, or does not hold what the log says.
        KafkaStorageError: the storage cannot be read now, or a file is gone: the search may be made again.
    """
    for segment in reversed(segments):
        if segment.start >= wanted.below:
            continue
        where = f"partition {segment.partition}: offsets [{segment.start}, {segment.stop}): {files.uri}/{segment.path}"
        read = partial(_searched, segment=segment, wanted=wanted)
        try:
            with named_flaws(where):
                found = sound(files, segment.path, read, (*UNREADABLE, FlawError))
        except FileNotFoundError as cause:
            raise KafkaStorageError(f"{where} is gone; look again") from cause
        yield found
        if found.start > segment.start:
            return


def _searched(files: Storage, segment: Segment, wanted: KeyQuery) -> Searched:
    if segment.stop <= wanted.start:
        return Searched(None, skipped=True, start=segment.start)
    file = DataFile(files, segment, _READING)
    kept = _Kept(wanted)
    try:
        groups = file.groups_with([wanted.key])
        # From the last one on: in a file in order, that one has the highest offsets.
        for group in reversed(groups):
            for rows in _rows_with(file, group, wanted.key):
                kept.add(rows)
    finally:
        file.close()
    if kept.lowest is None:
        return Searched(None, skipped=not groups, start=segment.start)
    if kept.lowest < segment.start or kept.highest >= segment.stop:
        raise FlawError(f"it has offsets outside [{segment.start}, {segment.stop})")
    table = kept.table()
    start = segment.start if kept.floor is None else kept.floor
    chunk = Chunk(segment.partition, table, segment.stop) if table.num_rows else None
    return Searched(chunk, skipped=False, start=start)


class _Kept:
    """The newest records of a file, in whatever order they come.

    Args:
        wanted: which, and how many bytes.
    """

    def __init__(self, wanted: KeyQuery) -> None:
        self._wanted = wanted
        self._parts: list[pa.Table] = []
        self._size = 0
        self.lowest: int | None = None
        """Of all records with the key."""
        self.highest = -1
        self.floor: int | None = None
        """Records below this offset were left out for their size; None where none was."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows that have the key; forgets the oldest ones where there are too many."""
        offsets = longs(rows.column("offset"))
        self.lowest = int(offsets.min()) if self.lowest is None else min(self.lowest, int(offsets.min()))
        self.highest = max(self.highest, int(offsets.max()))
        floor = self._wanted.start if self.floor is None else self.floor
        meant = (offsets >= floor) & (offsets < self._wanted.below)
        if not meant.any():
            return
        part = pa.Table.from_batches([rows])
        if not meant.all():
            part = part.take(numbers(np.flatnonzero(meant), pa.int64()))
        self._parts.append(part)
        self._size += _bytes_of(part)
        if self._size > 2 * self._wanted.most_bytes:
            self._parts = [self.table()]
            self._size = _bytes_of(self._parts[0])

    def table(self) -> pa.Table:
        """What is kept, in offset order."""
        if not self._parts:
            return CHUNK_SCHEMA.empty_table()
        whole = pa.concat_tables(self._parts)
        offsets = longs(whole.column("offset").combine_chunks())
        # Other writers may have left a file out of order.
        newest_first = np.argsort(offsets, kind="stable")[::-1]
        sizes = np.cumsum(_sizes(whole)[newest_first])
        count = max(1, int(np.searchsorted(sizes, self._wanted.most_bytes, side="right")))
        if count < len(offsets):
            self.floor = int(offsets[newest_first[count - 1]])
        # A copy, which holds on to nothing that is left out.
        return whole.take(numbers(newest_first[:count][::-1], pa.int64())).select(CHUNK_SCHEMA.names)


def _bytes_of(rows: pa.Table) -> int:
    return int(_sizes(rows).sum())


def _sizes(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Bytes that each row takes as a record, roughly."""
    sizes = np.full(rows.num_rows, ROW_BYTES, np.int64)
    for name in ("key", "value"):
        lengths = pc.fill_null(pc.cast(pc.binary_length(rows.column(name)), pa.int64()), NOTHING).combine_chunks()
        sizes += longs(lengths)
    sizes += int(rows.column("headers").nbytes) // max(1, rows.num_rows)
    return sizes


def _rows_with(file: DataFile, group: int, key: bytes) -> Iterator[pa.RecordBatch]:
    """The rows of a row group that have a key. Its other columns are read only where there is one."""
    # Null where there is no key, which a filter leaves out. A Python value here would import pandas.
    wanted = binaries([key])[0]
    masks = [pc.equal(keys, wanted) for keys in file.keys_of(group)]
    mask = pa.concat_arrays(masks) if masks else pa.nulls(0, pa.bool_())
    if not pc.any(mask).as_py():
        return
    at = 0
    for batch in file.batches([group]):
        part = mask.slice(at, batch.num_rows)
        at += batch.num_rows
        if pc.any(part).as_py():
            yield batch.filter(part)
