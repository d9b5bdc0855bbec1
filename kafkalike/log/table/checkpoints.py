"""Checkpoints: a table's log in; a Delta checkpoint that spares readers the single commits, and a shorter log, out.

Everything here is an addition to a log that is right without it: failing is harmless. It works on columns, so that a
thread that makes a checkpoint leaves the interpreter to those who append.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafkalike.log.store.port import Store
from kafkalike.log.table.actions import log_name
from kafkalike.log.table.snapshot import LAST_CHECKPOINT, LogFiles, Snapshot

INTERVAL: Final = 100
"""Fewest commits between two checkpoints; the tables' own `delta.checkpointInterval`."""

SHARE: Final = 10
"""A checkpoint of n files is followed by the next one after n / `SHARE` commits at the earliest: so all checkpoints
that a table ever had hold some `SHARE` times as many entries as the last one, however often it is written to."""

KEPT: Final = 2
"""Checkpoints that stay although a newer one has all that they have: readers may be at them."""

HOUR_MS: Final = 3_600_000

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": HOUR_MS,
    "day": 24 * HOUR_MS,
    "week": 7 * 24 * HOUR_MS,
}

LOG_STAYS: Final = "delta.logRetentionDuration"

DELETED_FILES_STAY: Final = "delta.deletedFileRetentionDuration"

DURATIONS: Final = {LOG_STAYS: 30 * 24 * HOUR_MS, DELETED_FILES_STAY: 7 * 24 * HOUR_MS}
"""Properties that hold durations, with Delta's defaults, ms."""

_MAP: Final = pa.map_(pa.string(), pa.string())

_COLUMNS: Final = {
    "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
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

_KEYS: Final = {"txn": "appId", "add": "path", "remove": "path"}
"""What makes an action of a kind the same one as an earlier one."""


def is_due(version: int, last: int, files: int) -> bool:
    """Whether a commit is to be followed by a checkpoint.

    Args:
        version: the commit's.
        last: the latest checkpoint's; -1 when there is none.
        files: data files that the table has.
    """
    return version > 0 and version - max(last, 0) >= max(INTERVAL, files // SHARE)


def checkpoint_name(version: int) -> str:
    """File of a checkpoint, relative to the table's folder."""
    return f"_delta_log/{version:020d}.checkpoint.parquet"


def make_checkpoint(store: Store, snapshot: Snapshot, now_ms: int) -> None:
    """Write a checkpoint.

    Args:
        store: the table.
        snapshot: the version that it is to be of.
        now_ms: the time: files that were removed so long ago that no reader can want them are forgotten.

    Raises:
        OSError, pa.ArrowException: it cannot be written.
    """
    columns = _in_force(snapshot)
    properties = snapshot.metadata().get("configuration") or {}
    horizon = now_ms - duration_ms(properties, DELETED_FILES_STAY)
    removed = columns["remove"]
    columns["remove"] = removed.filter(pc.greater(pc.fill_null(removed.field("deletionTimestamp"), 0), horizon))
    table = _one_each(columns)
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="snappy", use_dictionary=False, write_statistics=False)
    # Whole or not at all: readers list the folder, and take what they find.
    store.replace(checkpoint_name(snapshot.newest), buffer.getvalue().to_pybytes())
    store.replace(LAST_CHECKPOINT, json.dumps({"version": snapshot.newest, "size": table.num_rows}).encode())


def _in_force(snapshot: Snapshot) -> dict[str, pa.StructArray]:
    """The actions in force at a snapshot's version, by kind."""
    columns = {kind: _cast(snapshot.actions.get(kind), type_) for kind, type_ in _COLUMNS.items()}
    newer: dict[str, dict[str, Mapping[str, Any]]] = {kind: {} for kind in _COLUMNS}
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
            gone = pa.array(list(touched), pa.string())
            columns[kind] = columns[kind].filter(pc.invert(pc.is_in(columns[kind].field("path"), gone)))
        elif bodies and kind == "txn":
            known = pa.array(list(bodies), pa.string())
            columns[kind] = columns[kind].filter(pc.invert(pc.is_in(columns[kind].field("appId"), known)))
        elif bodies:
            columns[kind] = columns[kind].slice(0, 0)
        if bodies:
            columns[kind] = pa.concat_arrays([columns[kind], _structs(list(bodies.values()), _COLUMNS[kind])])
    return columns


def _structs(bodies: Sequence[Mapping[str, Any]], type_: pa.StructType) -> pa.StructArray:
    rows = [{f.name: _pairs(body.get(f.name), f.type) for f in type_} for body in bodies]
    # Everything in a checkpoint counts as seen before.
    for row in rows if type_ == _COLUMNS["add"] else ():
        row["dataChange"] = False
    return pa.array(rows, type_)


def _pairs(value: Any, type_: pa.DataType) -> Any:  # noqa: ANN401 - what an action may hold
    if value is None:
        return None
    if pa.types.is_map(type_):
        return list(value.items())
    if pa.types.is_struct(type_):
        return {f.name: _pairs(value.get(f.name), f.type) for f in type_}
    return value


def _cast(found: pa.StructArray | None, type_: pa.StructType) -> pa.StructArray:
    """The columns that we write of a checkpoint's; what another writer's lacks is null."""
    if found is None:
        return pa.array([], type_)
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
        return pc.if_else(flat.is_valid(), made, pa.nulls(len(made), type_)) if flat.null_count else made
    if pa.types.is_struct(type_):
        return _cast(values, type_)
    return values.cast(type_)


def _one_each(columns: Mapping[str, pa.StructArray]) -> pa.Table:
    """Actions of all kinds below each other, each in its own column."""
    rows = sum(len(column) for column in columns.values())
    arrays, at = [], 0
    for kind, column in columns.items():
        above, below = pa.nulls(at, _COLUMNS[kind]), pa.nulls(rows - at - len(column), _COLUMNS[kind])
        arrays.append(pa.concat_arrays([above, column, below]))
        at += len(column)
    return pa.table(arrays, names=list(columns))


# --- a shorter log --------------------------------------------------------------------------------


def clean_log(store: Store, now_ms: int, properties: Mapping[str, str]) -> int:
    """Remove commits past the table's `delta.logRetentionDuration`, and checkpoints that newer ones make unnecessary.

    Time travel reaches back as far as that setting says; a version within it stays readable.

    Args:
        store: the table.
        now_ms: the time, ms.
        properties: the table's configuration.

    Returns:
        How many files went.

    Raises:
        OSError: the storage refused.
    """
    files = LogFiles.listed(store)
    horizon = now_ms - duration_ms(properties, LOG_STAYS)
    base = _base(files, horizon)
    gone = [log_name(v) for v in files.commits if v < base]
    for version in _superseded(files, base):
        gone += [f"_delta_log/{name}" for name in files.checkpoints[version]]
    # From the oldest on: cut off anywhere, what is left is a log without holes.
    for name in sorted(gone, key=lambda name: name.rpartition("/")[2]):
        store.remove(name)
    return len(gone)


def _base(files: LogFiles, horizon_ms: int) -> int:
    """Version of the checkpoint that the log shall begin with; -1 when it shall stay as it is.

    The newest one at or below the last commit that is older than the horizon: the versions since then stay readable. A
    commit counts as no older than those before it, whatever its writer's clock said.
    """
    last, latest_ms = -1, 0
    for version in files.commits:
        latest_ms = max(latest_ms, files.modified_ms.get(version, 0))
        if latest_ms >= horizon_ms:
            break
        last = version
    return max((c for c in files.checkpoints if c <= last), default=-1)


def _superseded(files: LogFiles, base: int) -> list[int]:
    """Checkpoints that nobody needs: below the log's beginning, or with all commits since then still there."""
    kept = set(sorted(files.checkpoints)[-KEPT:])
    begins = base if base >= 0 else (files.commits or (0,))[0] - 1
    if begins >= 0:
        # A log without its first commits rests on the oldest checkpoint that the others follow on from.
        kept.add(min((c for c in files.checkpoints if c >= begins), default=-1))
    return [c for c in files.checkpoints if c not in kept]


def duration_ms(properties: Mapping[str, str], name: str) -> int:
    """A duration among a table's properties, ms; Delta's default where it is not set, or not said as Delta says it.

    Args:
        properties: the table's configuration, which anybody may change.
        name: a key of `DURATIONS`.
    """
    found = _parsed_ms(properties.get(name, ""))
    return DURATIONS[name] if found is None else found


def _parsed_ms(interval: str) -> int | None:
    """A duration such as `interval 1 days 12 hours`, ms; None for anything else: nothing may go because of it."""
    words = interval.lower().split()
    pairs = list(zip(words[1::2], words[2::2], strict=False))
    if len(pairs) * 2 + 1 != len(words) or words[0] != "interval" or not pairs:
        return None
    total = 0
    for amount, unit in pairs:
        of_unit = _UNITS_MS.get(unit.removesuffix("s"))
        if of_unit is None or not amount.isdecimal():
            return None
        total += int(amount) * of_unit
    return total
