"""Key search: the data files of a partition and a key in, the records that have it out, the newest file first.

A file with a Bloom filter on its keys is asked by that; of the row groups that are left the keys are read, and all
columns only of those where the key is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import CorruptRecordError, KafkaStorageError
from kafkalike.log.store.arrays import binaries, numbers
from kafkalike.log.store.parquet import UNREADABLE, is_storage_error
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.data_file import DataFile, FlawError, Reading, longs

if TYPE_CHECKING:
    from kafkalike.log.store.port import Store
    from kafkalike.model.segments import Segment

_READING = Reading(batch_bytes=16 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Searched:
    """What was found in one data file."""

    chunk: Chunk | None
    """The records with the key, in offset order; None when there are none."""
    skipped: bool
    """Whether its statistics alone said so."""


def search(files: Store, segments: Sequence[Segment], key: bytes, start: int) -> Iterator[Searched]:
    """Look for a key, file by file, the last one first.

    Args:
        files: the topic's table.
        segments: the live data files of one partition, in offset order.
        key: the key's bytes.
        start: the log start: records below it are no records any more.

    Raises:
        CorruptRecordError: a file is damaged, or does not hold what the log says.
        KafkaStorageError: the storage cannot be read now, or a file is gone: the search may be made again.
    """
    for segment in reversed(segments):
        where = f"partition {segment.partition}: offsets [{segment.start}, {segment.stop})"
        try:
            yield _searched(files, segment, key, start)
        except FlawError as cause:
            raise CorruptRecordError(f"{where} cannot be read: {files.uri}/{segment.path}: {cause}") from cause
        except FileNotFoundError as cause:
            raise KafkaStorageError(f"{where}: {files.uri}/{segment.path} is gone; look again") from cause
        except UNREADABLE as cause:
            if is_storage_error(cause):
                raise KafkaStorageError(f"{where} cannot be read now: {files.uri}/{segment.path}: {cause}") from cause
            raise CorruptRecordError(f"{where} cannot be read: {files.uri}/{segment.path}: {cause}") from cause


def _searched(files: Store, segment: Segment, key: bytes, start: int) -> Searched:
    if segment.stop <= start:
        return Searched(None, skipped=True)
    file = DataFile(files, segment, _READING)
    try:
        groups = file.groups_with(key)
        found = [rows for group in groups for rows in _rows_with(file, group, key)]
    finally:
        file.close()
    if not found:
        return Searched(None, skipped=not groups)
    table = pa.Table.from_batches(found)
    offsets = longs(table.column("offset").combine_chunks())
    if offsets.min() < segment.start or offsets.max() >= segment.stop:
        raise FlawError(f"it has offsets outside [{segment.start}, {segment.stop})")
    # Other writers may have left a file out of order.
    order = np.argsort(offsets, kind="stable")
    kept = order[offsets[order] >= start]
    if not len(kept):
        return Searched(None, skipped=False)
    rows = table.take(numbers(kept, pa.int64())).select(CHUNK_SCHEMA.names)
    return Searched(Chunk(segment.partition, rows, segment.stop), skipped=False)


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
