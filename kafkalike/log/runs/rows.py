"""Rows: staged columns of records in, the columns of a segment out."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE
from kafkalike.storage.arrays import numbers


def segment_rows(body: pa.Table, offsets: pa.Array, now_ms: int, *, log_append_time: bool) -> pa.Table:
    """Put the columns of a segment together.

    Args:
        body: columns `value`, and optionally `timestamp`, `key` and `headers`, with `has_headers` where null headers
            stand as empty ones.
        offsets: those of the records.
        now_ms: time of records that have none, ms.
        log_append_time: it is the time of all records.

    Returns:
        Columns as `CHUNK_SCHEMA` says.
    """
    rows = body.num_rows
    columns = {
        "offset": offsets,
        "timestamp": _times(body, now_ms * 1000, log_append_time=log_append_time),
        "timestampType": numbers(np.full(rows, int(log_append_time), np.int32), pa.int32()),
        "key": body.column("key") if "key" in body.column_names else pa.nulls(rows, pa.binary()),
        "value": body.column("value"),
        "headers": _headers(body, rows),
    }
    arrays = [
        column if column.type == f.type else column.cast(f.type)
        for f, column in ((f, columns[f.name]) for f in CHUNK_SCHEMA)
    ]
    return pa.Table.from_arrays(arrays, schema=CHUNK_SCHEMA)


def time_range(rows: pa.Table) -> tuple[int, int]:
    """The first and the last time of a segment's records, ms."""
    times = rows.column("timestamp").cast(pa.int64()).to_numpy()
    return int(times.min()) // 1000, int(times.max()) // 1000


def _times(body: pa.Table, now: int, *, log_append_time: bool) -> pa.Array:
    """Times in whole ms; `now`, in µs, where the topic or the record asks for it."""
    if log_append_time or "timestamp" not in body.column_names:
        return numbers(np.full(body.num_rows, now, np.int64), pa.timestamp("us", "UTC"))
    times = body.column("timestamp").cast(pa.int64()).fill_null(now).to_numpy()
    return numbers(times // 1000 * 1000, pa.timestamp("us", "UTC"))


def _headers(body: pa.Table, rows: int) -> pa.Array | pa.ChunkedArray:
    """Headers, null where the flag says that they were."""
    if "headers" not in body.column_names:
        return pa.nulls(rows, HEADERS_TYPE)
    lists = body.column("headers").cast(HEADERS_TYPE)
    if "has_headers" not in body.column_names:
        return lists
    absent = pc.invert(body.column("has_headers"))
    if not pc.any(absent).as_py():
        return lists
    held = pa.concat_arrays(lists.chunks)
    return pa.ListArray.from_arrays(held.offsets, held.values, type=HEADERS_TYPE, mask=pa.concat_arrays(absent.chunks))
