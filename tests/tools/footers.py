"""Footers of Parquet files, as far as pyarrow does not tell them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kafkalike.storage.parquet_footer import TAIL, Struct, items, read_struct

if TYPE_CHECKING:
    from pathlib import Path

COUNTS: Final = 13
"""Number of the field `encoding_stats` of a column."""

FILTER: Final = 14
"""That of the place of its Bloom filter."""


def footer_of(content: bytes) -> bytes:
    """The footer of a file."""
    size = int.from_bytes(content[-TAIL:-4], "little")
    return content[-TAIL - size : -TAIL]


def columns_of(footer: bytes) -> list[Struct]:
    """What a footer says of each column of each row group."""
    groups = cast("list[Struct]", items(read_struct(footer), 4))
    return [cast("Struct", chunk[3].value) for group in groups for chunk in cast("list[Struct]", items(group, 1))]


def name_of(column: Struct) -> str:
    """Its name, with a dot between levels."""
    return b".".join(cast("list[bytes]", items(column, 3))).decode()


def without_counts(footer: bytes) -> set[str]:
    """The columns without a count of pages by encoding."""
    return {name_of(column) for column in columns_of(footer) if COUNTS not in column}


def filters(root: Path) -> int:
    """Row groups of the data files of a root that have a Bloom filter on their keys.

    Java's readers must go by it: their footers do not count the pages of the keys by encoding, and those of others do.
    """
    columns = [c for path in root.glob("*/partition=*/*.parquet") for c in columns_of(footer_of(path.read_bytes()))]
    keys = [column for column in columns if name_of(column) == "key"]
    assert all((FILTER in key) != (COUNTS in key) for key in keys)
    return sum(FILTER in key for key in keys)
