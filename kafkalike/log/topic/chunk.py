"""Chunk: consecutive records of one partition as Arrow columns, as a reader returns them to a consumer.

Arrow and Spark carry text without looking at its bytes, and Kafka's header keys are UTF-8. Header keys are checked when
records are written, and again when they are read, because other engines write the table's files as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from kafkalike.model.record_batch import DELIVER_AT
from kafkalike.storage.arrays import held_numbers, repeated, whole_numbers

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

CHUNK_SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""Columns of a chunk: the topic table's columns without `partition`, which the file's folder names."""

ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", HEADERS_TYPE),
    ]
)
"""Columns of `KafkaConsumer.poll_arrow`: Spark's Kafka source columns, in its order, headers included."""


@dataclass(frozen=True, slots=True)
class ChunkColumns:
    """The records of a chunk as Python lists of equal length."""

    offsets: list[int]
    timestamps: list[int]
    """Times in ms since the epoch."""
    timestamp_types: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[list[tuple[str, bytes | None]]] | None
    """None if no record of the chunk has headers."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition in offset order."""

    partition: int
    table: pa.Table
    """The records with the columns of `CHUNK_SCHEMA`."""
    next_offset: int
    """The offset to continue at; more than the last offset + 1 if compaction left a hole."""

    def __len__(self) -> int:
        """Return the number of records."""
        return int(self.table.num_rows)

    @property
    def num_bytes(self) -> int:
        """Memory of the records in bytes."""
        return int(self.table.nbytes)

    def count_below(self, offset: int) -> int:
        """Return the number of records with lower offsets."""
        return sum(int(np.searchsorted(held_numbers(each), offset)) for each in self.table.column("offset").chunks)

    def offset_at(self, row: int) -> int:
        """Return the offset of the record at a row."""
        return int(self.table.column("offset")[row].as_py())

    def split(self, count: int) -> tuple[Chunk, Chunk | None]:
        """Return the first `count` records, and the rest (None if there is none)."""
        if count >= len(self):
            return self, None
        rest = self.table.slice(count)
        cut = int(rest.column("offset")[0].as_py())
        return Chunk(self.partition, self.table.slice(0, count), cut), Chunk(self.partition, rest, self.next_offset)

    def columns(self) -> ChunkColumns:
        """Return the records as Python lists."""
        table = self.table
        headers = table.column("headers")
        return ChunkColumns(
            offsets=whole_numbers(table.column("offset")),
            timestamps=_milliseconds(table.column("timestamp")),
            timestamp_types=table.column("timestampType").to_pylist(),
            keys=_objects(table.column("key")),
            values=_objects(table.column("value")),
            headers=None if headers.null_count == len(headers) else [_pairs(h) for h in headers.to_pylist()],
        )

    def to_arrow(self, topic: str) -> pa.Table:
        """Return the records with Spark's Kafka columns (`ARROW_SCHEMA`)."""
        rows = len(self)
        table = self.table
        columns: dict[str, Any] = {
            "topic": pa.chunked_array([repeated(topic, rows)]),
            "partition": pa.chunked_array([repeated(self.partition, rows)]),
        }
        return pa.table(
            [columns[f.name] if f.name in columns else table.column(f.name) for f in ARROW_SCHEMA], schema=ARROW_SCHEMA
        )


def concat_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Join tables of one schema without copying; at least one is required."""
    return tables[0] if len(tables) == 1 else pa.concat_tables(tables)


def _milliseconds(column: pa.ChunkedArray) -> list[int]:
    """Convert times from µs to ms, truncated towards 0. Arrow's `cast` would import `pyarrow.compute`: 30 ms."""
    found: list[int] = []
    for run in column.chunks:
        held = held_numbers(run)
        cut = held // 1000
        if len(held) and held.min() < 0:
            cut += (held < 0) & (cut * 1000 != held)
        found += cut.tolist()
    return found


def _objects(column: pa.ChunkedArray) -> list[bytes | None]:
    if column.null_count == len(column):
        return [None] * len(column)
    values: list[bytes | None] = column.to_pylist()
    return values


def _pairs(headers: list[dict[str, Any]] | None) -> list[tuple[str, bytes | None]]:
    return [(h["key"], h["value"]) for h in headers or ()]


@dataclass(frozen=True, slots=True)
class UndecodableName:
    """A header whose key is not text."""

    row: int
    """Row of the record in the column."""
    key: bytes | None
    """The key's bytes; None if the key is null."""

    def __str__(self) -> str:
        """Describe the header for messages."""
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


_DUE_NAME: Final = DELIVER_AT.encode()


def earliest_due(headers: pa.ChunkedArray) -> int:
    """Return the earliest time in the `deliver_at` headers of records; 0 if a record has none.

    Args:
        headers: their headers, slices included.
    """
    if headers.null_count:
        return 0
    return min((_earliest(chunk) for chunk in headers.chunks if len(chunk)), default=0)


def _earliest(headers: pa.ListArray) -> int:
    names = headers.values.field("key").buffers()[2]
    if names is None or _DUE_NAME not in memoryview(names).tobytes():
        return 0
    import pyarrow.compute as pc  # few programs need it

    entries = headers.flatten()
    values = entries.field("value")
    # As `due_ms`, which reads one record.
    is_time = pc.fill_null(pc.match_substring_regex(values, "^[0-9]{1,15}$"), fill_value=False)
    has_time = pc.and_(pc.equal(entries.field("key"), DELIVER_AT), is_time)
    rows, first = np.unique(pc.list_parent_indices(headers).filter(has_time).to_numpy(), return_index=True)
    if len(rows) < len(headers):
        return 0
    times = values.filter(has_time).cast(pa.string()).cast(pa.int64()).to_numpy()
    return int(times[first].min())
