"""Arrow values: convert a column of any Arrow layout to the plain layout of bytes or header lists.

Tools store one content in many layouts: views, large and fixed sizes, dictionaries, runs. Arrow's kernels cast only
some of them, so values are gathered by their positions here. A type with another content raises an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.errors import IllegalArgumentError, InvalidRecordError
from kafkalike.log.topic.chunk import HEADERS_TYPE, first_undecodable
from kafkalike.storage.arrays import numbers

MAX_BATCH_BYTES: Final = 1024 * 1024 * 1024
"""Bytes of one batch: Arrow addresses 2 GiB in a column, and an append holds its records twice."""

Longs = npt.NDArray[np.int64]

_TEXT: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_OFFSET_LISTS: Final = (pa.types.is_list, pa.types.is_large_list, pa.types.is_map)
_LIST_VIEWS: Final = (pa.types.is_list_view, pa.types.is_large_list_view)

VIEW_WORDS: Final = 4
"""Words of 32 bits that a view of bytes has; the first one is the length."""


def check_size(num_bytes: int) -> None:
    """Raise IllegalArgumentError if a table, or a column of it, has more than `MAX_BATCH_BYTES`."""
    if num_bytes > MAX_BATCH_BYTES:
        raise IllegalArgumentError(
            f"the table has {num_bytes} bytes; at most {MAX_BATCH_BYTES} go into one batch: send slices of it"
        )


def plain_bytes(column: pa.ChunkedArray, name: str) -> pa.Array:
    """Return a column of bytes or text as one BINARY array.

    Args:
        column: bytes or text in any Arrow layout; extension types count as their storage.
        name: of the column, for errors.

    Raises:
        TypeError: the column holds something else.
        IllegalArgumentError: its values have more than `MAX_BATCH_BYTES`.
    """
    if not _holds_bytes(column.type):
        raise TypeError(f"column {name!r} must hold bytes or text, not {column.type}: encode it first")
    check_size(sum(int(_lengths(chunk).sum()) for chunk in column.chunks))
    return _joined([_binary(chunk) for chunk in column.chunks], pa.binary())


def plain_numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column with its dictionary, runs or extension type replaced by their values."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return plain_numbers(pa.chunked_array([chunk.storage for chunk in column.chunks], kind.storage_type))
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        parts = [_positions(chunk) for chunk in column.chunks]
        return plain_numbers(pa.chunked_array([values.take(at) for values, at in parts], kind.value_type))
    return column


def plain_headers(column: pa.ChunkedArray) -> pa.Array:
    """Return a column of headers as one array of `HEADERS_TYPE`; an empty list counts as none, as in `send`.

    Args:
        column: lists of structs `key` and `value`, or maps, in any Arrow layout.

    Raises:
        TypeError: the column holds something else.
        InvalidRecordError: a header has no key, or a key that is not UTF-8.
        IllegalArgumentError: the headers have more than `MAX_BATCH_BYTES`.
    """
    _check_headers_type(column.type)
    held, rows = list[pa.Array](), 0
    left = MAX_BATCH_BYTES
    for chunk in column.chunks:
        lists = _lists(chunk)
        left -= lists.num_bytes()
        check_size(MAX_BATCH_BYTES - min(left, 0))
        held.append(lists.headers(rows))
        rows += len(chunk)
    return _joined(held, HEADERS_TYPE)


def _joined(parts: Sequence[pa.Array], kind: pa.DataType) -> pa.Array:
    if len(parts) == 1:
        return parts[0]
    return pa.concat_arrays(parts) if parts else pa.nulls(0, kind)


# --- layouts ---------------------------------------------------------------------------------


def _content(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, without the layouts that repeat them."""
    if isinstance(kind, pa.BaseExtensionType):
        return _content(kind.storage_type)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _content(kind.value_type)
    return kind


def _holds_bytes(kind: pa.DataType) -> bool:
    held = _content(kind)
    return any(is_kind(held) for is_kind in (*_TEXT, *_BYTES, pa.types.is_null))


def _positions(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the values of a dictionary or of runs, and each row's position among them (null for none)."""
    if pa.types.is_dictionary(array.type):
        return array.dictionary, array.indices
    rows = np.arange(array.offset, array.offset + len(array), dtype=np.int64)
    # A slice has the children of the whole array.
    ends = array.run_ends.cast(pa.int64()).to_numpy()
    return array.values, numbers(np.searchsorted(ends, rows, side="right").astype(np.int64), pa.int64())


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return found


def _at(values: Longs, positions: pa.Array) -> Longs:
    """Return the numbers at some positions; 0 for a null position."""
    found = np.zeros(len(positions), np.int64)
    valid = _valid(positions)
    found[valid] = values[positions.drop_null().cast(pa.int64()).to_numpy()]
    return found


def _lengths(array: pa.Array) -> Longs:
    """Return the bytes of each value, 0 for null, without copying values, which may expand a dictionary or views."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _lengths(array.storage)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        values, positions = _positions(array)
        return _at(_lengths(values), positions)
    if pa.types.is_null(kind):
        return np.zeros(len(array), np.int64)
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        words = np.frombuffer(array.buffers()[1] or b"", np.int32)[::VIEW_WORDS]
        found = words[array.offset : array.offset + len(array)].astype(np.int64)
        found[~_valid(array)] = 0
        return found
    lengths: Longs = pc.fill_null(pc.binary_length(array), 0).cast(pa.int64()).to_numpy()
    return lengths


def _binary(array: pa.Array) -> pa.Array:
    """Return values as BINARY; their size has been checked."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _binary(array.storage)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        values, positions = _positions(array)
        return _binary(values).take(positions)
    return array if kind == pa.binary() else array.cast(pa.binary())


# --- headers ---------------------------------------------------------------------------------


def _check_headers_type(kind: pa.DataType) -> None:
    held = _content(kind)
    if pa.types.is_null(held):
        return
    wanted = f"column 'headers' must hold lists of (key STRING, value BINARY), not {kind}"
    if pa.types.is_map(held):
        key, value = held.key_type, held.item_type
    else:
        if not any(is_kind(held) for is_kind in (*_OFFSET_LISTS, *_LIST_VIEWS, pa.types.is_fixed_size_list)):
            raise TypeError(wanted)
        entry = held.value_type
        if pa.types.is_null(entry):
            return
        if not pa.types.is_struct(entry) or sorted(field.name for field in entry) != ["key", "value"]:
            raise TypeError(wanted)
        key, value = entry.field("key").type, entry.field("value").type
    for name, part in (("key", key), ("value", value)):
        if not _holds_bytes(part):
            raise TypeError(f"{wanted}: {name} is {part}")


@dataclass(frozen=True, slots=True)
class _Lists:
    """Lists of headers as slices of one array of entries, which may overlap and stand in any order."""

    starts: Longs
    counts: Longs
    """Number of entries; 0 for a row without a list."""
    names: pa.Array
    contents: pa.Array
    absent: npt.NDArray[np.bool_]
    """Entries that are null."""

    def at(self, positions: pa.Array) -> _Lists:
        """Return the lists at some positions; empty for a null position."""
        return _Lists(_at(self.starts, positions), _at(self.counts, positions), self.names, self.contents, self.absent)

    def num_bytes(self) -> int:
        """Return the bytes of all names and contents, with the lengths that Arrow keeps of each."""
        total = int(self.counts.sum())
        if not total:
            return 0
        check_size(total * 8)
        entry = _lengths(self.names) + _lengths(self.contents) + 8
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(entry)])
        return int((before[self.starts + self.counts] - before[self.starts]).sum())

    def headers(self, first_row: int) -> pa.Array:
        """Return the lists in the plain layout; null for empty ones."""
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.counts)])
        entries = np.repeat(self.starts - ends[:-1], self.counts) + np.arange(ends[-1], dtype=np.int64)
        names, contents = self._entries(entries)
        missing = self.absent[entries] | ~_valid(names)
        if missing.any():
            row = first_row + int(np.searchsorted(ends, int(missing.argmax()), side="right")) - 1
            raise InvalidRecordError(f"row {row}: the record has a header without key")
        # Bytes that no check has seen are put into a column of text, and checked there.
        text = pa.Array.from_buffers(pa.string(), len(names), names.buffers(), names.null_count, names.offset)
        inner = pa.StructArray.from_arrays([text, contents], fields=list(HEADERS_TYPE.value_type))
        made = pa.ListArray.from_arrays(
            numbers(ends.astype(np.int32), pa.int32()), inner, type=HEADERS_TYPE, mask=pa.array(self.counts == 0)
        )
        wrong = first_undecodable(made)
        if wrong is not None:
            raise InvalidRecordError(f"row {first_row + wrong.row}: the record has {wrong}")
        return made

    def _entries(self, entries: Longs) -> tuple[pa.Array, pa.Array]:
        """Return the names and contents of some entries."""
        held = _binary(self.names), _binary(self.contents)
        whole = len(entries) and np.array_equal(entries, np.arange(entries[0], entries[0] + len(entries)))
        if whole:
            return held[0].slice(int(entries[0]), len(entries)), held[1].slice(int(entries[0]), len(entries))
        at = numbers(entries, pa.int64())
        return held[0].take(at), held[1].take(at)


def _lists(array: pa.Array) -> _Lists:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _lists(array.storage)
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        values, positions = _positions(array)
        return _lists(values).at(positions)
    if pa.types.is_null(kind):
        none = np.zeros(len(array), np.int64)
        return _Lists(none, none, pa.nulls(0, pa.binary()), pa.nulls(0, pa.binary()), np.zeros(0, np.bool_))
    if pa.types.is_fixed_size_list(kind):
        size = kind.list_size
        starts = np.arange(array.offset, array.offset + len(array), dtype=np.int64) * size
        counts = np.full(len(array), size, np.int64)
    else:
        offsets = array.offsets.cast(pa.int64()).to_numpy()
        if any(is_kind(kind) for is_kind in _LIST_VIEWS):
            starts, counts = offsets.copy(), array.sizes.cast(pa.int64()).to_numpy().copy()
        else:
            starts, counts = offsets[:-1].copy(), np.diff(offsets)
    # The position of a null row is undefined.
    null = ~_valid(array)
    starts[null] = counts[null] = 0
    if pa.types.is_map(kind):
        return _Lists(starts, counts, array.keys, array.items, np.zeros(len(array.keys), np.bool_))
    entries = array.values
    if pa.types.is_null(entries.type):
        nothing = pa.nulls(len(entries), pa.binary())
        return _Lists(starts, counts, nothing, nothing, np.ones(len(entries), np.bool_))
    return _Lists(starts, counts, entries.field("key"), entries.field("value"), ~_valid(entries))
