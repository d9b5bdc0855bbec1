"""Key search: find the records of a partition with a key, the newest data file first.

A file's Bloom filter on keys is asked first. In the remaining row groups the column of keys is read, and all columns
only of row groups that hold the key. If a file has more matching records than the limit, its newest ones are returned.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    from kafkalike.log.topic.tailed_topic import TailedTopic
    from kafkalike.model.segments import Segment
    from kafkalike.storage.port import Storage

_READING = ReadOptions(batch_bytes=16 * 1024 * 1024)

ROW_BYTES: Final = 512
"""Memory of a record beside its bytes."""

NOTHING: Final = numbers(np.array([0], np.int64), pa.int64())[0]
"""The number 0 as an Arrow scalar; a Python number would import pandas."""


@dataclass(frozen=True, slots=True)
class Searched:
    """The search result of one data file."""

    chunk: Chunk | None
    """The records with the key, in offset order; None if there are none."""
    skipped: bool
    """True if the file's statistics alone ruled the key out."""
    start: int = 0
    """The file was searched down to this offset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery:
    """Key and limits of a search."""

    key: bytes
    start: int
    """The log start; records below it do not count."""
    below: int
    """Exclusive upper bound of offsets."""
    most_bytes: int
    """Most bytes of records returned of one file; one record is always returned."""


def with_key(log: TailedTopic, partition: int, key: bytes, *, below: int, most_bytes: int) -> Iterator[Searched]:
    """Yield the records with a key as of the log's last `refresh`, file by file, the newest file first.

    Args:
        log: the topic's log.
        partition: of the topic.
        key: the key's bytes.
        below: exclusive upper bound of offsets.
        most_bytes: limit for the records kept of one file, which are its newest, and at least one record. A file with
            more ends the result; continue with `below` at the last `Searched.start`.

    Raises:
        CorruptRecordError: a file is damaged, or contradicts the log.
        KafkaStorageError: the storage cannot be read at present, or a file is missing; retry.
    """
    start, segments = log.log_start(partition), log.segments(partition)
    for segment in segments:
        log.check_no_overlap(segment, start)
    files, wanted = log.files, KeyQuery(key=key, start=start, below=below, most_bytes=most_bytes)
    for segment in reversed(segments):
        if segment.start >= wanted.below:
            continue
        where = f"partition {segment.partition}: offsets [{segment.start}, {segment.stop}): {files.uri}/{segment.path}"
        read = partial(_searched, segment=segment, wanted=wanted)
        try:
            with named_flaws(where):
                found = sound(files, segment.path, read, (*UNREADABLE, FlawError))
        except FileNotFoundError as cause:
            raise KafkaStorageError(f"{where} is missing; refresh and repeat the search") from cause
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
        # Backwards, because in an ordered file the last row group has the highest offsets.
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
    """The newest matching records of a file, added in any order.

    Args:
        wanted: the key and the limits.
    """

    def __init__(self, wanted: KeyQuery) -> None:
        self._wanted = wanted
        self._parts: list[pa.Table] = []
        self._size = 0
        self.lowest: int | None = None
        """Lowest offset of all records with the key."""
        self.highest = -1
        self.floor: int | None = None
        """Records below this offset were dropped for their size; None if none was dropped."""

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows that have the key; drop the oldest ones above the limit."""
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
        """Return the kept records in offset order."""
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
        # A copy, so that the memory of dropped records is released.
        return whole.take(numbers(newest_first[:count][::-1], pa.int64())).select(CHUNK_SCHEMA.names)


def _bytes_of(rows: pa.Table) -> int:
    return int(_sizes(rows).sum())


def _sizes(rows: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the approximate bytes of each row as a record."""
    sizes = np.full(rows.num_rows, ROW_BYTES, np.int64)
    for name in ("key", "value"):
        lengths = pc.fill_null(pc.cast(pc.binary_length(rows.column(name)), pa.int64()), NOTHING).combine_chunks()
        sizes += longs(lengths)
    sizes += int(rows.column("headers").nbytes) // max(1, rows.num_rows)
    return sizes


def _rows_with(file: DataFile, group: int, key: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a row group that have a key; its other columns are read only if it holds the key."""
    # A missing key gives null, which a filter drops. A Python value here would import pandas.
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
