"""Header names: a column of headers in, the first name that is not UTF-8 out.

Arrow and Spark carry text without looking at its bytes, and Kafka's header keys are UTF-8. Every name is checked
before records are written, and again when they are read, because other engines write the table's files as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class UndecodableName:
    """A header key that is not UTF-8."""

    row: int
    """Row of the record in the column."""
    key: bytes


def first_undecodable(headers: pa.Array) -> UndecodableName | None:
    """Return the first header key that is not UTF-8, or None.

    Args:
        headers: lists of structs `key` STRING and `value` BINARY, slices included; lists, keys and values may be null.
    """
    if headers.null_count == len(headers):
        return None
    try:
        # Arrow checks the whole child of a slice, in one pass over the bytes.
        headers.validate(full=True)
    except pa.ArrowInvalid:
        return _found(headers)
    return None


def _found(headers: pa.Array) -> UndecodableName | None:
    for row, pairs in enumerate(headers):
        entries = pairs.values
        if entries is None:
            continue
        for key in entries.field("key"):
            content = key.as_buffer().to_pybytes() if key.is_valid else b""
            try:
                content.decode()
            except UnicodeDecodeError:
                return UndecodableName(row, content)
    return None
