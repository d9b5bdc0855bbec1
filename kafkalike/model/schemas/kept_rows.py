"""Kept rows: all rows of `__schemas` in, those that a compacted table keeps out; their state is the same."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from kafkalike.model.schemas.rows import SCHEMA, SchemaRow
from kafkalike.model.schemas.state import RegistryState


def kept_schema_rows(rows: Sequence[SchemaRow]) -> list[SchemaRow]:
    """The last row of each version, each level and each mode, and the last row of all.

    Of a version that is gone the row stays too: it keeps its number and its id from being given again.

    Args:
        rows: all of the table, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    # What cannot be read must not be thrown away.
    RegistryState().applied(rows)
    last = {_key(row): row.seq for row in rows}
    return [row for row in rows if last[_key(row)] == row.seq and (row.kind == SCHEMA or row.value or row is rows[-1])]


def _key(row: SchemaRow) -> Hashable:
    return row.kind, row.subject, row.version
