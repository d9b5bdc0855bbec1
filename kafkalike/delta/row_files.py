"""Row files: the data files of a control table. Each is a run of row numbers (`seq`), like a topic's run of offsets.

Every client that opens a cluster reads all files of these tables, so they are merged now and then. Row numbers survive
a merge.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, Generic, TypeVar

import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.delta.damage import DamagedFileError
from kafkalike.delta.log_files import READ_BESIDE
from kafkalike.delta.table_change import Change, FilesLive, Unchanged
from kafkalike.delta.table_state import TableState
from kafkalike.errors import KafkaStorageError, LogCorruptError
from kafkalike.model.clock import Clock
from kafkalike.model.segments import Segment
from kafkalike.storage.arrays import scalars, whole_numbers
from kafkalike.storage.parquet import UNREADABLE, ParquetInput, is_storage_error, open_parquet, put_parquet, sound
from kafkalike.storage.port import Storage

ROWS: Final = 0
"""Partition of all rows; their numbers are its offsets."""

RECENT_FILES: Final = 128
RECENT_BYTES: Final = 16_384
"""Most files that are remembered, and their largest size in memory: more than the commits between two merges, at most 2
MiB."""

R = TypeVar("R")


class MissingFileError(Exception):
    """A data file that the log names is missing."""


class RowFiles(Generic[R]):
    """The data files of a control table.

    Args:
        files: the table's folder.
        schema: its columns; `time` holds the row's `time_ms`.
        row_type: dataclass of a row, with its number as `seq`.
        clock: the time.
    """

    def __init__(self, files: Storage, schema: pa.Schema, row_type: type[R], clock: Clock) -> None:
        self._files = files
        self._schema = schema
        self._row_type = row_type
        self._values = attrgetter(*["time_ms" if name == "time" else name for name in schema.names])
        """Takes the columns' values from a row."""
        self._clock = clock
        self._own: tuple[str, Sequence[R]] = "", ()
        """Path and rows of the file that this process wrote last."""
        self._recent: dict[str, pa.Table] = {}
        """Recent small files, by path. Files never change, and a merge reads files that were just written."""

    def read(self, path: str) -> pa.Table:
        """Return a data file. A small file is read before pyarrow's threads would have started, so none are used."""
        known = self._recent.get(path)
        return self._kept(path, sound(self._files, path, partial(_read, path=path))) if known is None else known

    def _kept(self, path: str, table: pa.Table) -> pa.Table:
        """Remember a small file for the next merge, and forget the oldest ones."""
        if table.get_total_buffer_size() <= RECENT_BYTES:
            self._recent[path] = table
            # Other threads may remove the same file.
            for oldest in list(self._recent)[:-RECENT_FILES]:
                self._recent.pop(oldest, None)
        return table

    def forget(self) -> None:
        """Forget the files that are remembered."""
        self._own = "", ()
        self._recent.clear()

    def read_all(self, paths: Sequence[str]) -> list[pa.Table]:
        """Return several data files, read side by side in an object store."""
        found: list[pa.Table] = []
        for at in range(0, len(paths), READ_BESIDE):
            found += self._files.scheduler.beside([partial(self.read, path) for path in paths[at : at + READ_BESIDE]])
        return found

    def rows(self, path: str, *, missing_is_damage: bool) -> Sequence[R]:
        """Return the rows of a data file.

        Args:
            path: the file.
            missing_is_damage: False if a merge may have removed the file a moment ago.

        Raises:
            MissingFileError: the file is missing, and may have been merged away.
            DamagedFileError: it cannot be read.
            KafkaStorageError: the storage does not answer.
        """
        own_path, own_rows = self._own
        if path == own_path:
            return own_rows
        try:
            return _to_rows(self.read(path), self._row_type)
        except FileNotFoundError as cause:
            if not missing_is_damage:
                raise MissingFileError(path) from cause
            raise DamagedFileError(self._files.uri, path, "it is missing") from cause
        except UNREADABLE as cause:
            if is_storage_error(cause):
                raise KafkaStorageError(f"{self._files.uri}/{path} cannot be read now: {cause}") from cause
            raise DamagedFileError(self._files.uri, path, " ".join(str(cause).split())) from cause

    def rows_in(self, content: bytes) -> Sequence[R] | None:
        """Return the rows of a data file with this content; None if it cannot be read."""
        try:
            with ParquetInput(pa.BufferReader(content)) as file:
                return _to_rows(file.read(use_threads=False), self._row_type)
        except UNREADABLE:
            return None

    def write_new(self, rows: Sequence[R]) -> Add:
        """Write new rows into a file.

        Raises:
            KafkaStorageError: the storage refused.
        """
        add = self.write(self._to_table(rows), data_change=True)
        self._own = add.path, rows
        return add

    def write_kept(self, rows: Sequence[R]) -> Add:
        """Rewrite rows that the table has in other files.

        Raises:
            KafkaStorageError: the storage refused.
        """
        return self.write(self._to_table(rows), data_change=False)

    def _to_table(self, rows: Sequence[R]) -> pa.Table:
        schema = self._schema
        columns = zip(*map(self._values, rows), strict=True)
        arrays = [
            pa.nulls(len(values), kind)
            if values.count(None) == len(values)
            else scalars([ms * 1000 for ms in values] if name == "time" else values, kind)
            for name, kind, values in zip(schema.names, schema.types, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema)

    def write(self, table: pa.Table, *, data_change: bool) -> Add:
        """Write a file with rows in `seq` order.

        Raises:
            KafkaStorageError: the storage refused.
        """
        low, high = table.column("seq")[0].as_py(), table.column("seq")[-1].as_py()
        name = f"part-{low:010d}-{uuid.uuid4().hex}.parquet"
        try:
            size = put_parquet(self._files, name, table, "snappy")
        except (OSError, pa.ArrowException) as cause:
            self._files.remove(name, quietly=True)
            raise KafkaStorageError(f"{self._files.uri}/{name} cannot be written: {cause}") from cause
        self._kept(name, table)
        stats = {"numRecords": table.num_rows, "minValues": {"seq": low}, "maxValues": {"seq": high}, "nullCount": {}}
        return Add(
            path=name,
            partition=None,
            size=size,
            modification_ms=self._clock.now_ms(),
            data_change=data_change,
            stats=stats,
        )


def seq_segment(add: Add, files: Storage) -> Segment:
    """Make the segment of a control table's data file: a run of row numbers.

    Raises:
        LogCorruptError: the file has no statistics, so a foreign writer wrote it.
    """
    try:
        start, stop = int(add.stats["minValues"]["seq"]), int(add.stats["maxValues"]["seq"]) + 1
    except KeyError as cause:
        raise LogCorruptError(f"{files.uri}/{add.path} has no statistics: a foreign writer wrote it") from cause
    return Segment(
        partition=ROWS,
        start=start,
        stop=stop,
        num_records=int(add.stats["numRecords"]),
        min_timestamp=0,
        max_timestamp=0,
        size_bytes=add.size,
        path=add.path,
    )


def _to_rows(table: pa.Table, row_type: type[R]) -> list[R]:
    names = tuple(row_type.__dataclass_fields__)  # type: ignore[attr-defined]
    lists = []
    for name in names:
        if name == "time_ms":
            lists.append([t // 1000 for t in whole_numbers(table.column("time"))])
        else:
            lists.append(table.column(name).to_pylist())
    return [row_type(**dict(zip(names, row, strict=True))) for row in zip(*lists, strict=True)]


def _read(files: Storage, path: str) -> pa.Table:
    # Such a file is small: in an object store, read it with one request.
    with open_parquet(files, path, whole=files.scheduler.is_remote) as file:
        return file.read(use_threads=False)


def late_segments(state: TableState) -> list[Segment]:
    """Return the latest files of a table that are worth merging."""
    from kafkalike.model.maintenance.control_rows import files_to_merge  # most processes never merge

    every = sorted(state.index, key=lambda segment: segment.start)
    count = files_to_merge([segment.num_records for segment in every])
    return every[-count:] if count else []


def merged(files: RowFiles[R], live: Sequence[Segment], clock: Clock) -> Change:
    """Merge some files into a new one.

    Args:
        files: the table's files.
        live: the files to merge.
        clock: the time.

    Returns:
        The change, with its file written.

    Raises:
        KafkaStorageError, OSError, pa.ArrowException: a file cannot be read or written.
    """
    table = pa.concat_tables(files.read_all([s.path for s in live])).sort_by("seq")
    return _replacing(live, files.write(table, data_change=False), clock)


def keep_some(
    files: RowFiles[R], state: TableState, rows: Sequence[R], keep: Callable[[Sequence[R]], Sequence[R]], clock: Clock
) -> tuple[Change | Unchanged[None], int]:
    """Plan to keep some of the rows, in one file.

    Args:
        files: the table's files.
        state: the table.
        rows: all of its rows, in `seq` order.
        keep: returns the rows to keep. The last row is always kept, because the next one is numbered from it.
        clock: the time.

    Returns:
        The plan, and the number of kept rows.

    Raises:
        KafkaStorageError: the file cannot be written.
    """
    if not rows:
        return Unchanged(None), 0
    kept = list(keep(rows))
    if not kept or kept[-1].seq != rows[-1].seq:  # type: ignore[attr-defined]
        kept.append(rows[-1])
    live = list(state.index)
    if len(kept) == len(rows) and len(live) == 1:
        return Unchanged(None), len(rows)
    return _replacing(live, files.write_kept(kept), clock), len(kept)


def _replacing(live: Sequence[Segment], add: Add, clock: Clock) -> Change:
    removes = [
        Add(path=s.path, partition=None, size=s.size_bytes, modification_ms=0, data_change=False, stats={})
        for s in live
    ]
    return Change(
        operation="OPTIMIZE",
        time_ms=clock.now_ms(),
        adds=[add],
        removes=removes,
        requires=[FilesLive([s.path for s in live])],
    )
