"""Action columns: actions, as JSON or as another writer's checkpoint has them, in; columns of a checkpoint out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalike.storage.arrays import binaries

_MAP: Final = pa.map_(pa.string(), pa.string())

COLUMNS: Final = {
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", pa.list_(pa.string())),
            ("writerFeatures", pa.list_(pa.string())),
        ]
    ),
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "add": pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", _MAP),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
            ("tags", _MAP),
        ]
    ),
    "remove": pa.struct(
        [
            ("path", pa.string()),
            ("deletionTimestamp", pa.int64()),
            ("dataChange", pa.bool_()),
            ("extendedFileMetadata", pa.bool_()),
            ("partitionValues", _MAP),
            ("size", pa.int64()),
        ]
    ),
}
"""Columns of a checkpoint: the kinds of actions, each row has one of them."""


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Python values, or None for null, as an array; without `pyarrow.array`, see `kafkalike.storage.arrays`.

    Args:
        values: texts, whole numbers, truth values, lists, or mappings for maps and structs.
        kind: of the values; what a struct lacks is null, and what it has besides is left out.

    Raises:
        pa.ArrowInvalid: one is of another kind.
    """
    try:
        return _column(values, kind)
    except (ValueError, TypeError, AttributeError, OverflowError) as cause:
        raise pa.ArrowInvalid(f"an action does not fit {kind}: {cause}") from cause


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    present = np.array([v is not None for v in values], np.bool_)
    valid = None if present.all() else _bits(present)
    if pa.types.is_string(kind):
        texts = binaries([None if v is None else v.encode() for v in values])
        return pa.Array.from_buffers(kind, len(values), texts.buffers())
    if pa.types.is_struct(kind):
        parts = [_column([None if v is None else v.get(f.name) for v in values], f.type) for f in kind]
        return pa.Array.from_buffers(kind, len(values), [valid], children=parts)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        ends = np.zeros(len(values) + 1, np.int32)
        np.cumsum([0 if v is None else len(v) for v in values], out=ends[1:])
        return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(ends)], children=[_inner(values, kind)])
    if pa.types.is_boolean(kind):
        return pa.Array.from_buffers(kind, len(values), [valid, _bits(np.array([bool(v) for v in values], np.bool_))])
    held = np.array([0 if v is None else v for v in values], np.dtype(f"int{kind.bit_width}"))
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(held)])


def _inner(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """The items of all lists, or the pairs of all maps, below each other."""
    if pa.types.is_list(kind):
        return _column([item for v in values if v is not None for item in v], kind.value_type)
    pairs = [pair for v in values if v is not None for pair in v.items()]
    sides = [_column([key for key, _ in pairs], kind.key_type), _column([item for _, item in pairs], kind.item_type)]
    return pa.Array.from_buffers(pa.struct([kind.key_field, kind.item_field]), len(pairs), [None], children=sides)


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def cast_structs(found: pa.StructArray | None, type_: pa.StructType) -> pa.StructArray:
    """The columns that we write of a checkpoint's; what another writer's lacks is null."""
    if found is None:
        return column([], type_)
    names = {field.name for field in found.type}
    parts = [_child(found.field(f.name), f.type) if f.name in names else pa.nulls(len(found), f.type) for f in type_]
    return pa.StructArray.from_arrays(parts, fields=list(type_))


def _child(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column in our type; maps differ between writers in the names of their parts, which a cast does not take."""
    if values.type == type_:
        return values
    if pa.types.is_map(type_):
        flat = values if values.offset == 0 else pa.concat_arrays([values])
        made = pa.MapArray.from_arrays(flat.offsets, flat.keys.cast(pa.string()), flat.items.cast(pa.string()))
        import pyarrow.compute as pc  # 30 ms, which most processes never need

        return pc.if_else(flat.is_valid(), made, pa.nulls(len(made), type_)) if flat.null_count else made
    if pa.types.is_struct(type_):
        return cast_structs(values, type_)
    return values.cast(type_)


def one_each(columns: Mapping[str, pa.StructArray]) -> pa.Table:
    """Actions of all kinds below each other, each in its own column."""
    rows = sum(len(column) for column in columns.values())
    arrays, at = [], 0
    for kind, column in columns.items():
        above, below = pa.nulls(at, COLUMNS[kind]), pa.nulls(rows - at - len(column), COLUMNS[kind])
        arrays.append(pa.concat_arrays([above, column, below]))
        at += len(column)
    return pa.table(arrays, names=list(columns))
