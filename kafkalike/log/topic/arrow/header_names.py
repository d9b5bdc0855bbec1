"""Header names: a column of headers in, the first name that is no text out.

Arrow and Spark carry text without looking at its bytes, and Kafka's header keys are UTF-8. Every name is checked
before records are written, and again when they are read, because other engines write the table's files as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class UndecodableName:
    """A header without a key that is text."""

    row: int
    """Row of the record in the column."""
    key: bytes | None
    """The key; None where there is none."""

    def __str__(self) -> str:
        """What the record has, in words."""
        if self.key is None:
            return "a header without key"
        return f"a header with the key {self.key!r}, which is not UTF-8"


def first_undecodable(headers: pa.Array) -> UndecodableName | None:
    """Return the first header whose key is null or not UTF-8, or None.

    Args:
        headers: lists of structs `key` STRING and `value` BINARY, slices included; anything in it may be null.
    """
    if headers.null_count == len(headers):
        return None
    entries = headers.values
    if entries.null_count or entries.field("key").null_count:
        return _found(headers)
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
        if entries.null_count:
            return UndecodableName(row, None)
        for key in entries.field("key"):
            if not key.is_valid:
                return UndecodableName(row, None)
            content = key.as_buffer().to_pybytes()
            try:
                content.decode()
            except UnicodeDecodeError:
                return UndecodableName(row, content)
    return None
