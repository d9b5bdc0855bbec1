"""Checkpoint: writes the actions in force at a version of a Delta log into one file, which spares readers the commits.

A checkpoint is optional, so failing to write one is harmless. It is built from columns, because NumPy and Arrow release
the interpreter to appending threads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalike.delta.log_files import DELETED_FILES_STAY, LAST_CHECKPOINT, checkpoint_name, duration_ms
from kafkalike.delta.snapshot import LogSnapshot
from kafkalike.storage.arrays import held_numbers, scalars
from kafkalike.storage.parquet import ParquetOutput
from kafkalike.storage.port import Storage

FOLDED_COMMITS: Final = 500
"""Commits that are parsed at a time, because their objects take ten times the memory of the checkpoint's columns."""

_KEYS: Final = {"txn": "appId", "add": "path", "remove": "path"}
"""Field that identifies an action, by kind."""


def make_checkpoint(store: Storage, snapshot: LogSnapshot, now_ms: int) -> None:
    """Write a checkpoint.

    Args:
        store: the table.
        snapshot: the version to write.
        now_ms: the time. Files that were removed longer ago than `delta.deletedFileRetentionDuration` are left out.

    Raises:
        OSError, pa.ArrowException: the checkpoint cannot be written.
    """
    content, actions = checkpoint_of(snapshot, now_ms)
    # Replaced as a whole: readers list the folder and use any checkpoint in it.
    store.replace(checkpoint_name(snapshot.newest), content)
    name_last(store, snapshot.newest, actions)


def checkpoint_of(snapshot: LogSnapshot, now_ms: int) -> tuple[bytes, int]:
    """Return the file of a checkpoint and its number of actions; see `make_checkpoint`."""
    columns = _in_force(snapshot)
    properties = snapshot.metadata().get("configuration") or {}
    horizon = now_ms - duration_ms(properties, DELETED_FILES_STAY)
    columns["remove"] = _removed_after(columns["remove"], horizon)
    table = one_each(columns)
    buffer = pa.BufferOutputStream()
    options = {"compression": "snappy", "use_dictionary": False, "write_statistics": False, "write_page_checksum": True}
    with ParquetOutput(buffer, table.schema, options) as file:
        file.write_table(table)
    return buffer.getvalue().to_pybytes(), table.num_rows


def fold(snapshot: LogSnapshot, most: int = FOLDED_COMMITS) -> None:
    """Put the commits of a snapshot into its columns once there are many; for `load_snapshot`."""
    if len(snapshot.commits) >= most:
        snapshot.actions, snapshot.version = _in_force(snapshot), snapshot.newest
        snapshot.commits, snapshot.committed = [], []


def name_last(store: Storage, version: int, actions: int) -> None:
    """Record a checkpoint as the last one in `_last_checkpoint`, where Delta's readers start.

    Args:
        store: the table.
        version: the checkpoint's version.
        actions: number of its actions.

    Raises:
        OSError: the storage refused.
    """
    store.replace(LAST_CHECKPOINT, json.dumps({"version": version, "size": actions}).encode())


def _removed_after(removed: pa.StructArray, horizon_ms: int) -> pa.StructArray:
    """Return the removed files that readers may still need; an unknown removal time counts as 0."""
    # NumPy, because `pyarrow.compute` imports pandas for a number, which takes a thread beside the appends 0.2 s.
    times = removed.field("deletionTimestamp")
    values = held_numbers(times)
    if times.null_count:
        known = np.unpackbits(np.frombuffer(times.buffers()[0], np.uint8), bitorder="little")
        values = np.where(known[times.offset : times.offset + len(times)], values, 0)
    return removed.filter(column((values > horizon_ms).tolist(), pa.bool_()))


def _in_force(snapshot: LogSnapshot) -> dict[str, pa.StructArray]:
    """Return the actions in force at a snapshot's version, by kind."""
    import pyarrow.compute as pc  # 30 ms, which most processes never need

    columns = {kind: cast_structs(snapshot.actions.get(kind), type_) for kind, type_ in COLUMNS.items()}
    newer: dict[str, dict[str, Mapping[str, Any]]] = {kind: {} for kind in COLUMNS}
    touched: dict[str, None] = {}
    for _, actions in snapshot.commits:
        for action in actions:
            for kind in newer.keys() & action.keys():
                body = action[kind]
                key = str(body[_KEYS[kind]]) if kind in _KEYS else ""
                if kind in {"add", "remove"}:
                    newer["remove" if kind == "add" else "add"].pop(key, None)
                    touched[key] = None
                newer[kind][key] = body
    for kind, bodies in newer.items():
        if kind in {"add", "remove"}:
            gone = column(list(touched), pa.string())
            columns[kind] = columns[kind].filter(pc.invert(pc.is_in(columns[kind].field("path"), gone)))
        elif bodies and kind == "txn":
            known = column(list(bodies), pa.string())
            columns[kind] = columns[kind].filter(pc.invert(pc.is_in(columns[kind].field("appId"), known)))
        elif bodies:
            columns[kind] = columns[kind].slice(0, 0)
        if bodies:
            columns[kind] = pa.concat_arrays([columns[kind], column(_seen_before(kind, bodies), COLUMNS[kind])])
    return columns


def _seen_before(kind: str, bodies: Mapping[str, Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return actions as a checkpoint holds them: its `add` actions do not change data."""
    return [{**body, "dataChange": False} if kind == "add" else body for body in bodies.values()]


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
"""Columns of a checkpoint: one per kind of action; each row fills a single one."""


def column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Build an Arrow array from Python values without `pyarrow.array`; see `kafkalike.storage.arrays`.

    Args:
        values: texts, whole numbers, booleans, lists, mappings for maps and structs, or None for null.
        kind: type of the array. Missing fields of a struct become null; unknown ones are left out.

    Raises:
        pa.ArrowInvalid: a value has another type.
    """
    try:
        return _column(values, kind)
    except (ValueError, TypeError, AttributeError, OverflowError) as cause:
        raise pa.ArrowInvalid(f"an action does not fit {kind}: {cause}") from cause


def _column(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    if not pa.types.is_nested(kind):
        return scalars(values, kind)
    valid = _bits(np.array([v is not None for v in values], np.bool_)) if None in values else None
    if pa.types.is_struct(kind):
        parts = [_column([None if v is None else v.get(f.name) for v in values], f.type) for f in kind]
        return pa.Array.from_buffers(kind, len(values), [valid], children=parts)
    ends = np.zeros(len(values) + 1, np.int32)
    np.cumsum([0 if v is None else len(v) for v in values], out=ends[1:])
    return pa.Array.from_buffers(kind, len(values), [valid, pa.py_buffer(ends)], children=[_inner(values, kind)])


def _inner(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the items of all lists, or the pairs of all maps, as one array."""
    if pa.types.is_list(kind):
        return _column([item for v in values if v is not None for item in v], kind.value_type)
    pairs = [pair for v in values if v is not None for pair in v.items()]
    sides = [_column([key for key, _ in pairs], kind.key_type), _column([item for _, item in pairs], kind.item_type)]
    return pa.Array.from_buffers(pa.struct([kind.key_field, kind.item_field]), len(pairs), [None], children=sides)


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def cast_structs(found: pa.StructArray | None, type_: pa.StructType) -> pa.StructArray:
    """Return a checkpoint's column with our fields; fields that its writer left out are null."""
    if found is None:
        return column([], type_)
    names = {field.name for field in found.type}
    parts = [_child(found.field(f.name), f.type) if f.name in names else pa.nulls(len(found), f.type) for f in type_]
    return pa.StructArray.from_arrays(parts, fields=list(type_))


def _child(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Cast a column to our type.

    Maps are rebuilt, because writers name the parts of a map differently, which a cast refuses.
    """
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
    """Stack the actions of all kinds into one table, each kind in its own column."""
    rows = sum(len(column) for column in columns.values())
    arrays, at = [], 0
    for kind, column in columns.items():
        above, below = pa.nulls(at, COLUMNS[kind]), pa.nulls(rows - at - len(column), COLUMNS[kind])
        arrays.append(pa.concat_arrays([above, column, below]))
        at += len(column)
    return pa.table(arrays, names=list(columns))
