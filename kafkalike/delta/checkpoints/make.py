"""Checkpoints: a table's log in; a Delta checkpoint, which spares readers the single commits, out.

It is an addition to a log that is right without it: failing is harmless. It is made of columns, so that a thread that
makes one leaves the interpreter to those who append.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafkalike.delta.checkpoints.columns import COLUMNS, cast_structs, column, one_each
from kafkalike.delta.checkpoints.expired import DELETED_FILES_STAY, duration_ms
from kafkalike.delta.log_files import LAST_CHECKPOINT
from kafkalike.delta.snapshot import Snapshot
from kafkalike.storage.arrays import held_numbers
from kafkalike.storage.port import Store

INTERVAL: Final = 100
"""Fewest commits between two checkpoints; the tables' own `delta.checkpointInterval`."""

SHARE: Final = 10
"""A checkpoint of n files is followed by the next one after n / `SHARE` commits at the earliest: so all checkpoints
that a table ever had hold some `SHARE` times as many entries as the last one, however often it is written to."""

FAR_SHARE: Final = 100
"""The same where each commit that a reader finds above a checkpoint is a request, and a put costs the same whatever its
size."""

_KEYS: Final = {"txn": "appId", "add": "path", "remove": "path"}
"""What makes an action of a kind the same one as an earlier one."""


def is_due(version: int, last: int, files: int, share: int = SHARE) -> bool:
    """Whether a commit is to be followed by a checkpoint.

    Args:
        version: the commit's.
        last: the latest checkpoint's; -1 when there is none.
        files: data files that the table has.
        share: `SHARE` or `FAR_SHARE`.
    """
    return version > 0 and version - max(last, 0) >= max(INTERVAL, files // share)


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
    content, actions = checkpoint_of(snapshot, now_ms)
    # Whole or not at all: readers list the folder, and take what they find.
    store.replace(checkpoint_name(snapshot.newest), content)
    name_last(store, snapshot.newest, actions)


def checkpoint_of(snapshot: Snapshot, now_ms: int) -> tuple[bytes, int]:
    """The file of a checkpoint, and how many actions it has. See `make_checkpoint`."""
    columns = _in_force(snapshot)
    properties = snapshot.metadata().get("configuration") or {}
    horizon = now_ms - duration_ms(properties, DELETED_FILES_STAY)
    columns["remove"] = _removed_after(columns["remove"], horizon)
    table = one_each(columns)
    buffer = pa.BufferOutputStream()
    pq.write_table(
        table, buffer, compression="snappy", use_dictionary=False, write_statistics=False, write_page_checksum=True
    )
    return buffer.getvalue().to_pybytes(), table.num_rows


def name_last(store: Store, version: int, actions: int) -> None:
    """Name a checkpoint as the last one, where readers of Delta begin.

    Args:
        store: the table.
        version: the checkpoint's.
        actions: how many it holds.

    Raises:
        OSError: the storage refused.
    """
    store.replace(LAST_CHECKPOINT, json.dumps({"version": version, "size": actions}).encode())


def _removed_after(removed: pa.StructArray, horizon_ms: int) -> pa.StructArray:
    """The removed files that readers may still want; a time that is not known counts as 0."""
    # Not by `pyarrow.compute`, which imports pandas for a number: 0.2 s of a thread beside the appends.
    times = removed.field("deletionTimestamp")
    values = held_numbers(times)
    if times.null_count:
        known = np.unpackbits(np.frombuffer(times.buffers()[0], np.uint8), bitorder="little")
        values = np.where(known[times.offset : times.offset + len(times)], values, 0)
    return removed.filter(column((values > horizon_ms).tolist(), pa.bool_()))


def _in_force(snapshot: Snapshot) -> dict[str, pa.StructArray]:
    """The actions in force at a snapshot's version, by kind."""
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
    """Everything in a checkpoint counts as seen before."""
    return [{**body, "dataChange": False} if kind == "add" else body for body in bodies.values()]
