"""Kept rows: all rows of `__schemas` in, those that a compacted table keeps out; their state is the same.

Of a schema that no version has any more only the fingerprint stays, so that its id is never given to another one.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from kafkalike.model.schemas.rows import SCHEMA, VERSION, Named, SchemaRow, forgotten_value, parse_row
from kafkalike.model.schemas.state import RegistryState


def kept_schema_rows(rows: Sequence[SchemaRow]) -> list[SchemaRow]:
    """The last row of each schema, each version, each level and each mode, and the last row of all.

    Args:
        rows: all of the table, in `seq` order.

    Raises:
        UnsupportedVersionError, LogCorruptError: a row cannot be read.
    """
    state = RegistryState().applied(rows)
    last = {_key(row): row.seq for row in rows}
    kept = []
    for row in rows:
        if last[_key(row)] != row.seq:
            # The next row is numbered from the last one, which has no later one of its key.
            continue
        if row.kind == SCHEMA:
            kept.append(_without_text(row, state))
        elif row.kind == VERSION or row.value or row is rows[-1]:
            kept.append(row)
    return kept


def _key(row: SchemaRow) -> Hashable:
    return (row.kind, row.schema_id) if row.kind == SCHEMA else (row.kind, row.subject, row.version)


def _without_text(row: SchemaRow, state: RegistryState) -> SchemaRow:
    named = parse_row(row)
    assert isinstance(named, Named)
    if named.schema is None or state.schemas[named.id].uses:
        return row
    return replace(row, value=forgotten_value(named))
