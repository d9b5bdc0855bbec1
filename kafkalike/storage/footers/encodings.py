"""Encodings: a Parquet footer in, the same one out without the count of pages by encoding of one column.

Java's readers, Spark's among them, ask a column's dictionary before its Bloom filter, where this count says that all
pages go by the dictionary. They read all of it for that, and make an object and a hash of each value: 5 ms of each file
of 250,000 records in a trial. Without the count they take it that some page may have other values, and go on to the
filter, a tenth as large. The count is optional, and the encodings of the column are named beside it.

A file with the count is as sound as one without. So a footer that is not understood to its last byte, as one of a later
version of Parquet, is left as it is.

Source of the fields' numbers: parquet.thrift of Apache Parquet's format.
"""

from __future__ import annotations

from typing import Final, cast

from kafkalike.model.row_value import UNREADABLE
from kafkalike.storage.footers.thrift import Struct, items, read_struct, write_struct

_ROW_GROUPS: Final = 4
_COLUMNS: Final = 1
_ABOUT: Final = 3
_PATH, _COUNTS, _FILTER = 3, 13, 14


def without_counts(footer: bytes, column: str) -> bytes:
    """The footer, less the count of a column in each row group where it has a Bloom filter.

    Args:
        footer: as it stands in a file, without what follows it.
        column: its name; one of the highest level.

    Returns:
        The other one; the same bytes where they are no footer that is known here.
    """
    try:
        return _without_counts(footer, column)
    except UNREADABLE:
        return footer


def _without_counts(footer: bytes, column: str) -> bytes:
    fields = read_struct(footer)
    if write_struct(fields) != footer:
        # What follows the struct, or stands in it in another form, would be lost.
        return footer
    for group in _structs(fields, _ROW_GROUPS):
        for chunk in _structs(group, _COLUMNS):
            about = cast("Struct", chunk[_ABOUT].value)
            if items(about, _PATH) == [column.encode()] and _FILTER in about:
                about.pop(_COUNTS, None)
    return write_struct(fields)


def _structs(fields: Struct, number: int) -> list[Struct]:
    return cast("list[Struct]", items(fields, number))
