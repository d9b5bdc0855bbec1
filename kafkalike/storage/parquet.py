"""Parquet: writes Arrow tables as Parquet files for topics and control tables, and opens such files."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.storage.parquet_footer import without_counts
from kafkalike.storage.port import Storage

_log = logging.getLogger(__name__)

T = TypeVar("T")

ROW_GROUP_ROWS: Final = 131_072
ROW_GROUP_BYTES: Final = 16 * 1024 * 1024
"""Most records, and about how many bytes, of a row group: what a reader that wants one record decodes at worst."""

AT_ONCE_BYTES: Final = 256 * 1024
"""Most bytes of rows that become a file in memory, which is written at once."""

KEY: Final = "key"
FILTER_ROWS: Final = 8_192
"""Records from which a file gets a Bloom filter on its keys."""

HAS_FILTERS: Final = "bloom_filter_options" in pq.ParquetWriter.__init__.__code__.co_varnames
"""Whether this pyarrow writes Bloom filters. Spark platforms ship older ones: their files are looked through whole."""

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
"""What the operating system says when it cannot read now. It says nothing about the file."""

UNREADABLE: Final = (OSError, pa.ArrowException, ValueError, LookupError, TypeError, MemoryError)
"""What pyarrow raises over a damaged file."""


class _OwnFile(pq.ParquetFile):  # type: ignore[misc] # pyarrow has no types
    """A Parquet file that closes what it reads from, too."""

    def close(self, force: bool = True) -> None:  # noqa: FBT001, FBT002 - pyarrow's signature
        """Close both."""
        super().close(force)


def open_parquet(store: Storage, name: str, buffer_size: int = 0, *, whole: bool = False) -> pq.ParquetFile:
    """Open a Parquet file of a store.

    Times in INT96, as a Spark without kafkalike's settings writes them, are read as microseconds: as nanoseconds, the
    default, those after the year 2262 would come out wrong.

    Args:
        store: where it is.
        name: the file.
        buffer_size: bytes fetched at a time; 0 fetches the whole column of a row group.
        whole: fetch the file at once, which is less work where it is small.

    Raises:
        FileNotFoundError: there is none.
        OSError, pa.ArrowException: it is damaged, or the storage does not answer.
    """
    source = pa.BufferReader(store.read(name)) if whole else store.open_input(name, buffer_size)
    try:
        return _OwnFile(
            source,
            pre_buffer=store.coordination.reach == "everywhere" and not buffer_size and not whole,
            buffer_size=buffer_size,
            coerce_int96_timestamp_unit="us",
            page_checksum_verification=True,
        )
    except UnicodeDecodeError as cause:
        # A damaged footer may still parse, with names in it that are no text.
        raise OSError(f"{store.uri}/{name} has a damaged footer: {cause}") from cause


def is_storage_error(cause: BaseException) -> bool:
    """Whether a file could not be read for a reason that is not the file's, so that trying again may help."""
    return isinstance(cause, MemoryError) or (isinstance(cause, OSError) and cause.errno in _NOT_DAMAGE)


def sound(
    store: Storage, name: str, read: Callable[[Storage], T], failed: tuple[type[BaseException], ...] = UNREADABLE
) -> T:
    """Read a file; where that fails, read it at each replica that has it, one after the other.

    Files never change once they are there, so whoever has one whole has the right one.

    Args:
        store: where it is.
        name: the file, for the log.
        read: reads it, and looks whether it is whole.
        failed: what it raises where it is not.

    Raises:
        Exception: what the first read raised, where no other one came to an end.
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
    """Write rows as a new Parquet file of a store.

    Args:
        store: where it goes.
        name: a name that nobody else has.
        table: the rows.
        codec: pyarrow's name of the compression.

    Returns:
        The file's size in bytes.

    Raises:
        OSError, pa.ArrowException: the storage refused; on a local disk also when the table's folder is gone.
    """
    # The memory that its buffers take: at least as much as `nbytes`, which adds up what is used of each.
    size = table.get_total_buffer_size()
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
    """Write a file.

    Numbers and times that are never null (offsets, timestamps) rise by little from row to row: they are kept as
    differences, a byte or less each instead of eight. Everything else gets a dictionary, which the writer drops by
    itself where the values do not repeat. Only the rising columns have statistics: nothing looks for a key or a value,
    and a value that is alone in its file would be there four times more, as smallest and largest of page and file.

    Args:
        table: the rows.
        to: an open stream.
        codec: pyarrow's name of the compression.
        size: the rows' bytes in memory, about; None adds them up.

    Raises:
        OSError, pa.ArrowException: the storage refused.
    """
    rows = table.num_rows
    group = group_rows(rows, table.nbytes if size is None else size)
    with parquet_writer(table.schema, to, codec, bloom=key_filter(table, group, rows), repeats=rows > 1) as writer:
        writer.write_table(table, row_group_size=group)


def group_rows(rows: int, size: int) -> int:
    """Records of each row group of a file.

    All have about as many: a short one at the end is another wait for who reads the file from an object store.

    Args:
        rows: records of the file.
        size: their bytes in memory.
    """
    groups = max(round(size / ROW_GROUP_BYTES), -(-rows // ROW_GROUP_ROWS), 1)
    return max(1, -(-rows // groups))


def key_filter(first: pa.Table, group: int, rows: int) -> dict[str, Any]:
    """Options of a Bloom filter on the keys of a file.

    It lets those who look for a key leave out nearly all row groups. A byte and a quarter for each record, so that one
    look in a hundred is in vain; small files have none, as they are read as fast as their filter would be.

    Args:
        first: the first records.
        group: records of a row group, at most.
        rows: records of the file, about.
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
) -> pq.ParquetWriter:
    """The same for a file that is written row group by row group; the caller sizes them and closes it.

    Args:
        schema: its columns.
        to: an open stream.
        codec: pyarrow's name of the compression.
        uncompressed: columns that are not compressed.
        bloom: what `key_filter` says.
        repeats: whether values may repeat, so that dictionaries are worth their pages.
    """
    options = {**_options(schema, codec), **(bloom or {})}
    if not repeats:
        options["use_dictionary"] = False
    if uncompressed:
        options = {**options, "compression": {c: codec for c in _leaves(schema) if c not in uncompressed}}
    return _KeyedWriter(to, schema, options) if bloom else pq.ParquetWriter(to, schema, **options)


class _KeyedWriter(pq.ParquetWriter):  # type: ignore[misc] # pyarrow has no types
    """A writer of a file with a Bloom filter on its keys, which Java's readers are to go by."""

    def __init__(self, to: pa.NativeFile, schema: pa.Schema, options: Mapping[str, Any]) -> None:
        self._end: LocalFile | HeldEnd = to if isinstance(to, LocalFile) else HeldEnd(to)
        super().__init__(to if self._end is to else pa.PythonFile(self._end, "w"), schema, **options)

    def close(self) -> None:
        """Finish the file, unless that was done."""
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
    }


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))


def _leaves(fields: pa.Schema | pa.StructType, above: str = "") -> list[str]:
    """Parquet's names of the columns below some fields."""
    return [path for field in fields for path in _below(field.type, above + field.name)]


def _below(kind: pa.DataType, path: str) -> list[str]:
    if pa.types.is_list(kind):
        return _below(kind.value_type, f"{path}.list.element")
    return _leaves(kind, f"{path}.") if pa.types.is_struct(kind) else [path]


MAGIC: Final = b"PAR1"

TAIL: Final = 8
"""Bytes behind the footer: its length and the magic."""

_LAST_WRITES: Final = 3
"""In which pyarrow writes the footer, its length and the magic."""

Change = Callable[[bytes], bytes]
"""A footer in, another one out."""


class LocalFile(pa.OSFile):  # type: ignore[misc] # pyarrow has no types
    """A new file of a local disk. Its bytes go there without Python, whose lock a busy thread may hold.

    Args:
        path: the file.
        mode: `wb`.
    """

    def __init__(self, path: str, mode: str) -> None:
        del mode  # pyarrow has opened it
        self._path = path
        self._size: int | None = None

    def change_footer(self, change: Change) -> None:
        """Write another footer over the one that is there; nothing is written afterwards."""
        with open(self._path, "r+b") as file:  # noqa: PTH123 - bytes at places
            at, footer = footer_of(file.fileno())
            file.seek(at)
            file.write(ended(change(footer)))
            self._size = file.truncate()

    def tell(self) -> int:
        """Bytes of the file."""
        return int(super().tell()) if self._size is None else self._size


class HeldEnd:
    """Any other stream: what may be the footer is held back until it is changed.

    Args:
        to: the stream.
    """

    def __init__(self, to: pa.NativeFile) -> None:
        self._to = to
        self._held: deque[bytes] = deque()
        self.closed = False

    def readable(self) -> bool:
        """It is not."""
        return False

    def seekable(self) -> bool:
        """It is not."""
        return False

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any) -> int:  # noqa: ANN401 - anything with a buffer
        """Add bytes."""
        self._held.append(bytes(data))
        if len(self._held) > _LAST_WRITES:
            self._to.write(self._held.popleft())
        return len(self._held[-1])

    def flush(self) -> None:
        """Nothing is to be seen before it is closed."""

    def close(self) -> None:
        """Nothing: the stream is its owner's."""

    def change_footer(self, change: Change) -> None:
        """Write another footer in place of what is held; what is held, where the footer was not written at once."""
        held = b"".join(self._held)
        footer = self._held[0] if self._held else b""
        self._held.clear()
        self._to.write(ended(change(footer)) if held == ended(footer) else held)


def footer_of(handle: int) -> tuple[int, bytes]:
    """Where the footer of an open Parquet file begins, and its bytes, without what follows them.

    Raises:
        ValueError: this is not a Parquet file.
    """
    size = os.fstat(handle).st_size
    tail = os.pread(handle, TAIL, size - TAIL)
    at = size - TAIL - int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or at < len(MAGIC):
        raise ValueError("this is not a Parquet file")
    return at, os.pread(handle, size - TAIL - at, at)


def ended(footer: bytes) -> bytes:
    """A footer and what follows it."""
    return footer + len(footer).to_bytes(4, "little") + MAGIC
