"""Parquet: writes Arrow tables as Parquet files (row groups, Bloom filters), and opens such files.

The reader and the writer are those below `pyarrow.parquet`. That module also imports pyarrow's file systems and with
them `ssl`: 35 ms of CPU time of each process.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Self, TypeVar

import pyarrow as pa
from pyarrow._parquet import ParquetReader, ParquetWriter

from kafkalike.storage.parquet_footer import Change, HeldEnd, ended, footer_of, without_counts
from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

T = TypeVar("T")


_FORMAT: Final = {"version": "2.6", "data_page_version": "1.0", "writer_engine_version": "V2"}
"""Options of a writer that `pyarrow.parquet` gives, too."""


def _has_filters() -> bool:
    try:
        ParquetWriter(pa.BufferOutputStream(), pa.schema([]), **_FORMAT, bloom_filter_options=None)
    except TypeError:
        return False
    return True


ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Most records, and about how many bytes, of a row group: what a reader that wants one record decodes at worst."""

AT_ONCE_BYTES: Final = 256 * 1024
"""Most bytes of rows that are encoded in memory and written with one call."""

KEY: Final = "key"
FILTER_ROWS: Final = 8_192
"""Minimum number of records of a file that gets a Bloom filter on its keys."""

HAS_FILTERS: Final = _has_filters()
"""True if this pyarrow writes Bloom filters. Spark platforms ship older ones: without filters, readers scan the whole
file."""

_NOT_DAMAGE: Final = frozenset(
    {
        errno.EACCES,
        errno.EAGAIN,
        errno.EBUSY,
        errno.EINTR,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENXIO,
        errno.EPERM,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""Errors of the operating system that say nothing about the file: it cannot be read now."""

UNREADABLE: Final = (OSError, pa.ArrowException, ValueError, LookupError, TypeError, MemoryError)
"""Errors that pyarrow raises for a damaged file."""


class ParquetInput:
    """An open Parquet file. Its pages are checked by their checksums.

    Timestamps in INT96, which Spark writes without kafkalike's settings, are read as microseconds. As nanoseconds, the
    default, those after the year 2262 would be wrong.

    Args:
        source: a stream, which `close` closes, too.
        buffer_size: bytes fetched at a time; 0 fetches the whole column of a row group.
        pre_buffer: fetch columns ahead, with other threads.

    Raises:
        OSError, pa.ArrowException, UnicodeDecodeError: the file is damaged, or the source fails.
    """

    def __init__(self, source: pa.NativeFile, *, buffer_size: int = 0, pre_buffer: bool = False) -> None:
        self._reader = ParquetReader()
        self._reader.open(
            source,
            use_memory_map=False,
            buffer_size=buffer_size,
            pre_buffer=pre_buffer,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    @property
    def metadata(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        """The footer: a `pyarrow.parquet.FileMetaData`."""
        return self._reader.metadata

    @property
    def schema_arrow(self) -> pa.Schema:
        """The columns with Arrow's types."""
        return self._reader.schema_arrow

    def read(self, columns: Sequence[str] | None = None, *, use_threads: bool = True) -> pa.Table:
        """Return all rows; of all columns, unless some are named."""
        return self._reader.read_all(column_indices=self._leaves(columns), use_threads=use_threads)

    def iter_batches(
        self,
        batch_size: int = 65_536,
        row_groups: Sequence[int] | None = None,
        columns: Sequence[str] | None = None,
        *,
        use_threads: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Return an iterator over the rows of some row groups, in batches of a size."""
        groups = range(self._reader.num_row_groups) if row_groups is None else row_groups
        found: Iterator[pa.RecordBatch] = self._reader.iter_batches(
            batch_size, row_groups=groups, column_indices=self._leaves(columns), use_threads=use_threads
        )
        return found

    def close(self) -> None:
        """Close the file and its source."""
        self._reader.close()

    def _leaves(self, columns: Sequence[str] | None) -> list[int] | None:
        if columns is None:
            return None
        paths = self._reader.column_paths
        return [at for name in columns for at, path in enumerate(paths) if path[0] == name]


class ParquetOutput:
    """A Parquet file that is being written. Leaving its `with` block finishes it.

    Args:
        to: an open stream.
        schema: the columns.
        options: pyarrow's options of a writer.
    """

    def __init__(self, to: pa.NativeFile, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self.is_open = True
        self._writer = ParquetWriter(to, schema, **_FORMAT, **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_table(self, table: pa.Table, row_group_size: int | None = None) -> None:
        """Append rows, in row groups of at most a number of rows."""
        self._writer.write_table(table, row_group_size=row_group_size)

    def close(self) -> None:
        """Finish the file, once."""
        if self.is_open:
            self.is_open = False
            self._writer.close()


def open_parquet(store: Storage, name: str, buffer_size: int = 0, *, whole: bool = False) -> ParquetInput:
    """Open a Parquet file of a storage.

    Args:
        store: the storage.
        name: the file.
        buffer_size: bytes fetched at a time; 0 fetches the whole column of a row group.
        whole: fetch the file at once, which is less work for a small file.

    Raises:
        FileNotFoundError: the file does not exist.
        OSError, pa.ArrowException: the file is damaged, or the storage does not answer.
    """
    source = pa.BufferReader(store.read(name)) if whole else store.open_input(name, buffer_size)
    try:
        ahead = store.coordination.reach == "everywhere" and not buffer_size and not whole
        return ParquetInput(source, buffer_size=buffer_size, pre_buffer=ahead)
    except UnicodeDecodeError as cause:
        # A damaged footer may still parse, with names in it that are not valid text.
        raise OSError(f"{store.uri}/{name} has a damaged footer: {cause}") from cause


def is_storage_error(cause: BaseException) -> bool:
    """Return True if a file could not be read for a reason that may pass, so that a retry may help."""
    return isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _NOT_DAMAGE)


def sound(
    store: Storage, name: str, read: Callable[[Storage], T], failed: tuple[type[BaseException], ...] = UNREADABLE
) -> T:
    """Read a file. If that fails, try each replica that has the file, one after the other.

    Files never change once they exist, so any complete copy is the right one.

    Args:
        store: the storage.
        name: the file, for the log.
        read: reads the file and checks that it is complete.
        failed: errors of `read` that mean a missing or damaged file.

    Raises:
        Exception: the error of the first read, if no replica succeeded.
    """
    try:
        return read(store)
    except failed as cause:
        for other in store.tasks.elsewhere():
            try:
                found = read(other)
            except failed:
                continue
            _log.warning("%s/%s cannot be read, it is read at %s: %s", store.uri, name, other.uri, cause)
            return found
        raise


def put_parquet(store: Storage, name: str, table: pa.Table, codec: str) -> int:
    """Write rows as a new Parquet file of a storage.

    Args:
        store: the storage.
        name: an unused name.
        table: the rows.
        codec: pyarrow's name of the compression.

    Returns:
        The file's size in bytes.

    Raises:
        OSError, pa.ArrowException: the storage refused, or the table's folder on a local disk does not exist.
    """
    # The memory of the buffers is at least as much as `nbytes`, which adds up only the used part of each.
    size = table.get_total_buffer_size()
    if size > AT_ONCE_BYTES:
        # They may belong to a larger table.
        size = table.nbytes
    if size > AT_ONCE_BYTES:
        with store.open_output(name) as stream:
            write_parquet(table, stream, codec)
            return int(stream.tell())
    # The writer makes several small writes for each column, and each is a system call: a third of a commit's time.
    held = pa.BufferOutputStream()
    write_parquet(table, held, codec, size)
    content = held.getvalue()
    with store.open_output(name) as stream:
        stream.write(content)
    return int(content.size)


def write_parquet(table: pa.Table, to: pa.NativeFile, codec: str, size: int | None = None) -> None:
    """Write rows to a stream as a Parquet file.

    Numbers and times without nulls (offsets, timestamps) rise slowly from row to row, so they are stored as deltas: a
    byte or less each instead of eight. All other columns get a dictionary, which the writer drops if the values do not
    repeat. Only the rising columns have statistics, because readers never search for a key or a value by them, and they
    would store the only value of a small file four more times.

    Args:
        table: the rows.
        to: an open stream.
        codec: pyarrow's name of the compression.
        size: approximate bytes of the rows in memory; None adds them up.

    Raises:
        OSError, pa.ArrowException: the storage refused.
    """
    rows = table.num_rows
    group = group_rows(rows, table.nbytes if size is None else size)
    with parquet_writer(table.schema, to, codec, bloom=key_filter(table, group, rows), repeats=rows > 1) as writer:
        writer.write_table(table, row_group_size=group)


def group_rows(rows: int, size: int) -> int:
    """Return the number of records per row group of a file.

    All row groups are about equal, because a short last one costs readers of an object store another wait.

    Args:
        rows: number of records of the file.
        size: their bytes in memory.
    """
    groups = max(round(size / ROW_GROUP_BYTES), -(-rows // ROW_GROUP_ROWS), 1)
    return max(1, -(-rows // groups))


def key_filter(first: pa.Table, group: int, rows: int) -> dict[str, Any]:
    """Return the options of a Bloom filter on the keys of a file.

    The filter lets a search for a key skip nearly all row groups. It takes 1.25 bytes per record and has 1 % false
    positives. Small files have none, because reading them costs no more than reading a filter.

    Args:
        first: the first records.
        group: maximum number of records of a row group.
        rows: approximate number of records of the file.
    """
    if (
        not HAS_FILTERS
        or rows < FILTER_ROWS
        or KEY not in first.column_names
        or first.column(KEY).null_count == first.num_rows
    ):
        return {}
    return {"bloom_filter_options": {KEY: {"ndv": min(group, ROW_GROUP_ROWS), "fpp": 0.01}}}


def parquet_writer(
    schema: pa.Schema,
    to: pa.NativeFile,
    codec: str,
    uncompressed: tuple[str, ...] = (),
    bloom: Mapping[str, Any] | None = None,
    *,
    repeats: bool = True,
) -> ParquetOutput:
    """Return a writer for a file that the caller writes row group by row group and closes.

    Args:
        schema: the columns.
        to: an open stream.
        codec: pyarrow's name of the compression.
        uncompressed: columns that are not compressed.
        bloom: options from `key_filter`.
        repeats: True if values may repeat, so that dictionaries are worth their pages.
    """
    options = {**_options(schema, codec), **(bloom or {})}
    if not repeats:
        options["use_dictionary"] = False
    if uncompressed:
        options = {**options, "compression": {c: codec for c in _leaves(schema) if c not in uncompressed}}
    return _KeyedOutput(to, schema, options) if bloom else ParquetOutput(to, schema, options)


class _KeyedOutput(ParquetOutput):
    """Writes a file with a Bloom filter on its keys, and prepares its footer so that Java's readers use the filter."""

    def __init__(self, to: pa.NativeFile, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._end: LocalFile | HeldEnd = to if isinstance(to, LocalFile) else HeldEnd(to)
        super().__init__(to if self._end is to else pa.PythonFile(self._end, "w"), schema, options)

    def close(self) -> None:
        """Finish the file, once."""
        unfinished = self.is_open
        super().close()
        if unfinished:
            self._end.change_footer(partial(without_counts, column=KEY))


@lru_cache
def _options(schema: pa.Schema, codec: str) -> dict[str, Any]:
    rising = [f.name for f in schema if not f.nullable and (pa.types.is_int64(f.type) or _is_time(f.type))]
    return {
        "compression": codec,
        "column_encoding": dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        "use_dictionary": [path for path in _leaves(schema) if path not in rising],
        "write_page_checksum": True,
        "write_statistics": rising,
        # Parquet's own types say all about these columns. Arrow's schema is 750 bytes more of each file.
        "store_schema": False,
    }


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _leaves(fields: pa.Schema | pa.StructType, above: str = "") -> list[str]:
    """Return Parquet's names of the leaf columns of some fields."""
    return [path for field in fields for path in _below(field.type, above + field.name)]


def _below(kind: pa.DataType, path: str) -> list[str]:
    if pa.types.is_list(kind):
        return _below(kind.value_type, f"{path}.list.element")
    return _leaves(kind, f"{path}.") if pa.types.is_struct(kind) else [path]


class LocalFile(pa.OSFile):  # type: ignore[misc] # pyarrow has no types
    """A new file of a local disk. Its bytes bypass Python, because a busy thread may hold Python's lock.

    Args:
        path: the file.
        mode: `wb`.
    """

    def __init__(self, path: str, mode: str) -> None:
        del mode  # pyarrow has opened it
        self._path = path
        self._size: int | None = None

    def change_footer(self, change: Change) -> None:
        """Replace the footer of the finished file; nothing is written afterwards."""
        with open(self._path, "r+b") as file:  # noqa: PTH123 - bytes at places
            at, footer = footer_of(file.fileno())
            file.seek(at)
            file.write(ended(change(footer)))
            self._size = file.truncate()

    def tell(self) -> int:
        """Return the size of the file in bytes."""
        return int(super().tell()) if self._size is None else self._size
