"""Placeholder offsets: offsets in a Parquet file that the records' own ones are written over later.

A Spark task knows its records long before anybody knows their offsets. It writes the file as it is to be, with offsets
that no log reaches (`placeholders`); once the offsets are known, the pages of that one column are written over, and the
footer after them. All other bytes stay.

The column stays where it was, the first of its row group: readers find out by its place which of the tasks that share
a file reads a row group. So the new pages must not be longer than the old ones. They hardly ever are: both count up by
one, and a placeholder is a longer number. Where they are, the file is left as it is, and the caller writes a new one.

Source of the fields' numbers: parquet.thrift of Apache Parquet's format.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

import numpy as np
import pyarrow as pa

from kafkalike.storage.arrays import numbers
from kafkalike.storage.parquet import TAIL, ended, footer_of, parquet_writer
from kafkalike.storage.parquet_footer import Field, Struct, items, read_struct, write_struct

FIRST: Final = 1 << 62
"""The first placeholder."""

# Fields of the footer, of a row group, of a column chunk and of its metadata.
_ROW_GROUPS: Final = 4
_COLUMNS, _BYTES, _ROWS, _STORED = 1, 2, 3, 6
_ABOUT: Final = 3
_PATH, _PLAIN_SIZE, _SIZE, _DATA_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 11

_OFFSET: Final = pa.schema([pa.field("offset", pa.int64(), nullable=False)])


def placeholders(rows: int, before: int) -> pa.Array:
    """Offsets for records that have none yet.

    Args:
        rows: how many.
        before: how many records are in the file already.
    """
    return numbers(np.arange(FIRST + before, FIRST + before + rows, dtype=np.int64), pa.int64())


def renumber(path: str, offsets: range, footer_crc: int) -> bool:
    """Give the records of a file their offsets, in place.

    Args:
        path: a file that nobody reads, as `parquet_writer` writes it, with `offset` first of several columns and
            uncompressed.
        offsets: those of its records.
        footer_crc: `footer_checksum` when it was finished.

    Returns:
        Whether it was done. If not, the file is as it was: its footer is not the one that it was finished with, as an
        earlier call or damage has changed it, or the offsets need more room.

    Raises:
        OSError: it cannot be read or written.
        ValueError: it is not such a file.
    """
    try:
        return _renumber(path, offsets, footer_crc)
    except (LookupError, TypeError, AttributeError) as cause:
        raise ValueError(f"its footer is damaged: {cause!r}") from cause


def _renumber(path: str, offsets: range, footer_crc: int) -> bool:
    with open(path, "r+b") as file:  # noqa: PTH123 - bytes at places
        found = _footer(file.fileno())
        if found.checksum != footer_crc:
            return False
        groups = [cast("Struct", group) for group in items(found.fields, _ROW_GROUPS)]
        rows = [_number(group, _ROWS) for group in groups]
        if sum(rows) != len(offsets):
            raise ValueError(f"it has {sum(rows)} records instead of {len(offsets)}")
        pages = _pages(offsets.start, rows)
        for group, page in zip(groups, pages, strict=True):
            if len(page.content) > _room(group):
                return False
        for group, page in zip(groups, pages, strict=True):
            # Not pwrite: a disk that is full may take a part of it, and says so only to who looks.
            file.seek(_number(_first_column(group), _DATA_PAGE))
            file.write(page.content)
            _put_first_column(group, page.about)
        file.seek(found.at)
        file.write(ended(write_struct(found.fields)))
        file.truncate()
    return True


def footer_checksum(path: str) -> int:
    """CRC-32 of the footer of a finished file."""
    with open(path, "rb") as file:  # noqa: PTH123 - bytes at places
        return _footer(file.fileno()).checksum


@dataclass(frozen=True, slots=True)
class _Footer:
    at: int
    """Where in the file it begins."""
    fields: Struct
    checksum: int
    """CRC-32 of its bytes."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The offsets of a row group."""

    content: bytes
    about: Struct
    """Metadata of the column."""


def _footer(handle: int) -> _Footer:
    at, content = footer_of(handle)
    return _Footer(at, read_struct(content), zlib.crc32(content))


def _pages(start: int, rows: Sequence[int]) -> list[_Page]:
    """The column as pyarrow writes it, row group by row group."""
    sink = pa.BufferOutputStream()
    at = start
    with parquet_writer(_OFFSET, sink, "none") as writer:
        for count in rows:
            offsets = numbers(np.arange(at, at + count, dtype=np.int64), pa.int64())
            writer.write_table(pa.Table.from_arrays([offsets], schema=_OFFSET), row_group_size=count)
            at += count
    content = sink.getvalue().to_pybytes()
    size = int.from_bytes(content[-TAIL:-4], "little")
    groups = items(read_struct(content[-TAIL - size : -TAIL]), _ROW_GROUPS)
    return [_page(content, _first_column(cast("Struct", group))) for group in groups]


def _page(content: bytes, about: Struct) -> _Page:
    at = _number(about, _DATA_PAGE)
    return _Page(content[at : at + _number(about, _SIZE)], about)


def _first_column(group: Struct) -> Struct:
    """Metadata of the offsets of a row group."""
    about = cast("Struct", cast("Struct", items(group, _COLUMNS)[0])[_ABOUT].value)
    if items(about, _PATH) != [b"offset"] or _DICTIONARY_PAGE in about:
        raise ValueError("the first column is not one of plain offsets")
    return about


def _room(group: Struct) -> int:
    """Bytes between the first page of offsets and what follows them."""
    following = cast("Struct", cast("Struct", items(group, _COLUMNS)[1])[_ABOUT].value)
    begins = [_number(following, number) for number in (_DICTIONARY_PAGE, _DATA_PAGE) if number in following]
    return min(begins) - _number(_first_column(group), _DATA_PAGE)


def _put_first_column(group: Struct, about: Struct) -> None:
    """Put other metadata in the place of those of the offsets, whose pages begin where they did."""
    old = _first_column(group)
    new = {**about, _DATA_PAGE: old[_DATA_PAGE]}
    cast("Struct", items(group, _COLUMNS)[0])[_ABOUT].value = new
    for total, part in ((_BYTES, _PLAIN_SIZE), (_STORED, _SIZE)):
        if total in group:
            grown = _number(new, part) - _number(old, part)
            group[total] = Field(group[total].kind, _number(group, total) + grown)


def _number(fields: Struct, number: int) -> int:
    found = fields[number].value if number in fields else None
    if not isinstance(found, int):
        message = f"the Parquet footer lacks field {number}"
        raise ValueError(message)  # noqa: TRY004 - the file is wrong, not the caller
    return found
