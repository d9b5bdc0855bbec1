"""ColumnBatch: records as Arrow columns, and their Parquet files as an append."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalike.delta.actions import Add
from kafkalike.errors import IllegalArgumentError, InvalidTimestampError
from kafkalike.log.topic.arrow_layouts import check_size, plain_bytes, plain_headers, plain_numbers
from kafkalike.log.topic.batch_payload import BatchPayload, Payload, refused, segment_name, written
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, HEADERS_TYPE
from kafkalike.log.topic.column_rules import Slices, header_sizes, turns
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_ERRORS, RECORD_OVERHEAD, SchemasOf, check_batch
from kafkalike.model import faults
from kafkalike.model.murmur2 import partitions_of_slices
from kafkalike.model.record_batch import Headers, RecordBatch
from kafkalike.model.schemas.admission import HEAD
from kafkalike.storage.arrays import held_numbers, numbers
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.model.config.topic_config import TopicConfig
    from kafkalike.model.topic import TopicInfo


UNROUTED: Final = -1
"""Partition of a record without one."""

_TAKEN: Final = ("key", "value", "headers", "partition", "timestamp")
_IGNORED: Final = frozenset({"topic", "offset", "timestampType"})
"""Columns of `poll_arrow` with a record's former place."""

_INDEX: Final = "__index_level_"
"""Prefix of pandas' columns of an index."""


@dataclass(slots=True, eq=False, kw_only=True)
class ColumnBatch:
    """Records on their way into one topic, in sending order. Created by `column_batch`."""

    table: pa.Table
    """Columns `key` and `value` BINARY, `timestamp` in µs and whole ms, `headers` (null for none), one chunk each."""
    partitions: np.ndarray
    """INT32; `UNROUTED` for a partition to be chosen. Replaced as a whole."""
    sizes: np.ndarray
    """Bytes of each record, as `max.message.bytes` counts them."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.partitions)

    @property
    def size(self) -> int:
        """Total bytes of all records."""
        return int(self.sizes.sum())

    def part(self, start: int, stop: int) -> ColumnBatch:
        """Return some consecutive records; nothing is copied."""
        rows = slice(start, stop)
        table = self.table.slice(start, stop - start)
        return ColumnBatch(table=table, partitions=self.partitions[rows], sizes=self.sizes[rows])

    def counts(self) -> Counter[int]:
        """Return the number of records by partition."""
        found, counts = np.unique(self.partitions, return_counts=True)
        return Counter(dict(zip(found.tolist(), counts.tolist(), strict=True)))

    def split(self, before: int, after: int) -> None:
        """Move the records to the partitions of their families; see `kafkalike.model.groups.partition_split`."""
        keys = Slices.of(self.table.column("key"))
        keyed = ~keys.null & (self.partitions >= 0)
        found = self.partitions.copy()
        if keyed.any():
            hashed = partitions_of_slices(keys.data, keys.starts[keyed], keys.ends[keyed], after)
            found[keyed] += before * (hashed // before)
        self.partitions = found

    def route(self, num_partitions: int, first: int) -> None:
        """Choose the missing partitions: murmur2 of the key; without a key, runs of records take turns.

        Args:
            num_partitions: of the topic.
            first: first partition to use.
        """
        found = self.partitions.copy()
        keys = Slices.of(self.table.column("key"))
        unrouted = found == UNROUTED
        keyed = unrouted & ~keys.null
        if keyed.any():
            found[keyed] = partitions_of_slices(keys.data, keys.starts[keyed], keys.ends[keyed], num_partitions)
        rest = unrouted & keys.null
        found[rest] = turns(first, int(rest.sum()), num_partitions)
        self.partitions = found

    def records(self, rows: np.ndarray | None = None) -> RecordBatch:
        """Return the records, or some of them, as Python objects."""
        picked = self.table if rows is None else self.table.take(numbers(rows.astype(np.int64), pa.int64()))
        partitions = self.partitions if rows is None else self.partitions[rows]
        headers = picked.column("headers")
        return RecordBatch(
            partitions=partitions.tolist(),
            keys=picked.column("key").to_pylist(),
            values=picked.column("value").to_pylist(),
            timestamps=(held_numbers(picked.column("timestamp").combine_chunks()) // 1000).tolist(),
            headers=[None] * len(partitions)
            if headers.null_count == len(partitions)
            else [_pairs(h) for h in headers.to_pylist()],
        )

    def few_records(self, rows: Sequence[int]) -> RecordBatch:
        """Return a few records as Python objects, one by one: `take` costs more than a handful of rows."""
        keys, values, headers = (self.table.column(name).chunk(0) for name in ("key", "value", "headers"))
        times = held_numbers(self.table.column("timestamp").chunk(0))
        return RecordBatch(
            partitions=[int(self.partitions[row]) for row in rows],
            keys=[keys[row].as_py() for row in rows],
            values=[values[row].as_py() for row in rows],
            timestamps=[int(times[row]) // 1000 for row in rows],
            headers=[_pairs(headers[row].as_py()) for row in rows],
        )

    def extremes(self, parts: Collection[str]) -> np.ndarray:
        """Return the rows that break a topic's rule if any row does: first, last, largest, without key, of each schema.

        Args:
            parts: `key`, `value` or both, if their schemas are checked.
        """
        times = held_numbers(self.table.column("timestamp").chunk(0))
        found = {int(at) for column in (self.partitions, times) for at in (column.argmin(), column.argmax())}
        found.add(int(self.sizes.argmax()))
        keys = self.table.column("key")
        if keys.null_count:
            found.add(int(Slices.of(keys).null.argmax()))
        for part in parts:
            found |= _first_of_each_head(self.table.column(part).chunk(0))
        return np.array(sorted(found), np.int64)


def _pairs(headers: list[dict[str, Any]] | None) -> Headers | None:
    return None if headers is None else [(one["key"], one["value"]) for one in headers]


def _first_of_each_head(column: pa.Array) -> set[int]:
    """Return one row for each different beginning, which names a schema."""
    heads = pc.binary_slice(column, 0, HEAD).dictionary_encode()
    codes = heads.indices.drop_null().to_numpy()
    rows = np.flatnonzero(~Slices.of(pa.chunked_array([column])).null)
    return set(rows[np.unique(codes, return_index=True)[1]].tolist())


def joined(batches: Sequence[ColumnBatch]) -> ColumnBatch:
    """Concatenate the records of batches."""
    if len(batches) == 1:
        return batches[0]
    return ColumnBatch(
        table=pa.concat_tables([batch.table for batch in batches]).combine_chunks(),
        partitions=np.concatenate([batch.partitions for batch in batches]),
        sizes=np.concatenate([batch.sizes for batch in batches]),
    )


def column_batch(data: Any, now_ms: int) -> ColumnBatch:  # noqa: ANN401 - whatever speaks Arrow
    """Convert a table to a batch.

    Args:
        data: a pyarrow Table or RecordBatch, or an object with Arrow's PyCapsule interface or the dataframe interchange
            protocol: polars, pandas, DuckDB and others.
        now_ms: time of records without one.

    Raises:
        TypeError: the data are not a table, or a column has a wrong type.
        IllegalArgumentError: the table has no rows, no `value`, an unknown column, a row without key and value, a
            negative partition, or more than `MAX_BATCH_BYTES`.
        InvalidTimestampError: a time is negative or too large.
        InvalidRecordError: a header has no key, or a key that is not UTF-8.
    """
    table = _table(data)
    _check_names(table.column_names)
    rows = table.num_rows
    if not rows:
        raise IllegalArgumentError("nothing to send: the table has no rows")
    key, value = _bytes(table, "key"), _bytes(table, "value")
    headers = _headers(table)
    check_size(key.nbytes + value.nbytes + headers.nbytes)
    keys, values = Slices.of(pa.chunked_array([key])), Slices.of(pa.chunked_array([value]))
    neither = keys.null & values.null
    if neither.any():
        raise IllegalArgumentError(f"row {int(neither.argmax())}: a record needs a key or a value")
    sizes = keys.lengths + values.lengths + RECORD_OVERHEAD
    if headers.null_count < rows:
        sizes += header_sizes(headers)
    columns = {"timestamp": _times(table, now_ms), "key": key, "value": value, "headers": headers}
    return ColumnBatch(table=pa.table(columns), partitions=_partitions(table), sizes=sizes)


def _table(data: Any) -> pa.Table:  # noqa: ANN401
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        if hasattr(data, "__dataframe__"):
            from pyarrow.interchange import from_dataframe

            return from_dataframe(data)
    except (pa.ArrowException, ValueError, TypeError) as cause:
        raise TypeError(f"the data cannot be read as a table of records: {cause}") from cause
    raise TypeError(
        f"expected a table (pyarrow, polars, pandas, or an object with Arrow's interface), not {type(data).__name__}"
    )


def _check_names(names: list[str]) -> None:
    for name in names:
        if name not in _TAKEN and name not in _IGNORED and not name.startswith(_INDEX):
            near = difflib.get_close_matches(name, _TAKEN, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise IllegalArgumentError(f"unknown column {name!r}; a record has {', '.join(_TAKEN)}{hint}")
    doubled = [name for name, count in Counter(names).items() if count > 1]
    if doubled:
        raise IllegalArgumentError(f"the table has column {doubled[0]!r} twice")
    if "value" not in names:
        raise IllegalArgumentError("the table needs a column 'value'")


def _cast(table: pa.Table, name: str, kind: pa.DataType, wanted: str) -> pa.Array:
    column = plain_numbers(table.column(name))
    try:
        held = column if column.type == kind else column.cast(kind)
    except (pa.ArrowException, TypeError) as cause:
        raise TypeError(f"column {name!r} must hold {wanted}, not {column.type}: {cause}") from cause
    return held.chunk(0) if held.num_chunks == 1 else pa.concat_arrays(held.chunks)


def _bytes(table: pa.Table, name: str) -> pa.Array:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, pa.binary())
    return plain_bytes(table.column(name), name)


def _headers(table: pa.Table) -> pa.Array:
    """Return the headers; an empty list counts as none, as in `send`."""
    if "headers" not in table.column_names:
        return pa.nulls(table.num_rows, HEADERS_TYPE)
    return plain_headers(table.column("headers"))


def _partitions(table: pa.Table) -> np.ndarray:
    if "partition" not in table.column_names:
        return np.full(table.num_rows, UNROUTED, np.int32)
    kind = plain_numbers(table.column("partition")).type
    if not (pa.types.is_integer(kind) or pa.types.is_null(kind)):
        raise TypeError(f"column 'partition' must hold whole numbers, not {kind}")
    column = _cast(table, "partition", pa.int32(), "whole numbers")
    lowest = pc.min(column).as_py()
    if lowest is not None and lowest < 0:
        raise IllegalArgumentError(f"partition must not be negative, but is {lowest}")
    return np.array(column.fill_null(UNROUTED).to_numpy(zero_copy_only=False), np.int32)


def _times(table: pa.Table, now_ms: int) -> pa.Array:
    """Return the times in whole ms, the present for missing ones.

    Always a copy, because the data may be shared memory.
    """
    rows = table.num_rows
    if "timestamp" not in table.column_names:
        return numbers(np.full(rows, now_ms * 1000, np.int64), pa.timestamp("us", "UTC"))
    kind = plain_numbers(table.column("timestamp")).type
    if pa.types.is_timestamp(kind):
        if kind.tz is None:
            raise TypeError("column 'timestamp' has no time zone: give it one, UTC for instance")
        # Times before 1970 and parts of a millisecond are cut to the millisecond before, as everywhere.
        column = _cast(table, "timestamp", pa.timestamp(kind.unit, "UTC"), "times").view(pa.int64())
        per_ms = {"s": 0.001, "ms": 1, "us": 1000, "ns": 1_000_000}[kind.unit]
    elif pa.types.is_integer(kind) or pa.types.is_null(kind):
        column, per_ms = _cast(table, "timestamp", pa.int64(), "ms since the epoch"), 1
    else:
        raise TypeError(f"column 'timestamp' must hold times or ms since the epoch, not {kind}")
    given = np.array(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
    most = MAX_TIMESTAMP_MS // 1000 if per_ms < 1 else MAX_TIMESTAMP_MS * int(per_ms) + int(per_ms) - 1
    wrong = (given < 0) | (given > most)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidTimestampError(f"row {row}: timestamp must be in [0, {MAX_TIMESTAMP_MS}] ms")
    ms = given * 1000 if per_ms < 1 else given // int(per_ms)
    if column.null_count:
        ms[np.asarray(column.is_null().to_numpy(zero_copy_only=False))] = now_ms
    return numbers(ms * 1000, pa.timestamp("us", "UTC"))


IN_THREADS: Final = 4 * 1024 * 1024
"""Bytes from which writing the files of an append in parallel on a local disk pays off."""


@dataclass(frozen=True, slots=True)
class ColumnPayload:
    """Arrow columns as a payload."""

    batch: ColumnBatch
    schemas: SchemasOf | None
    """The cluster's schema registry."""

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        return self.batch.counts()

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Apply `check_batch` to the rows that break a rule if any row does."""
        try:
            rows = self.batch.extremes(config.schemas.parts).tolist()
            check_batch(self.batch.few_records(rows), info, config, now_ms, self.schemas)
        except RECORD_ERRORS:
            # Check all rows, so that the error names the record.
            check_batch(self.batch.records(), info, config, now_ms, self.schemas)
            raise

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """Write one Parquet file per partition; see `Payload.write`."""
        faults.point("append.before_files")
        names = {p: segment_name(p, run.start) for p, run in plan.items()}
        try:
            calls = [
                partial(written, files, names[p], p, plan[p], table, codec, now_ms)
                for p, table in self._tables(plan, now_ms if now_counts else None)
            ]
            return _beside(files, calls, self.batch.size)
        except (OSError, pa.ArrowException) as cause:
            raise refused(files, names.values(), cause) from cause

    def _tables(self, plan: Mapping[int, range], append_time_ms: int | None) -> Iterator[tuple[int, pa.Table]]:
        """Yield the rows of each partition, in sending order."""
        whole, where, rows = self.batch.table, self.batch.partitions, len(self.batch)
        if (where[1:] < where[:-1]).any():
            # NumPy sorts numbers of 16 bits in linear time.
            few = where.astype(np.uint16) if where.max() <= np.iinfo(np.uint16).max else where
            order = np.argsort(few, kind="stable")
            whole = whole.take(numbers(order.astype(np.int64), pa.int64()))
        columns = {name: whole.column(name) for name in whole.column_names}
        offsets = np.concatenate([np.arange(run.start, run.stop, dtype=np.int64) for _, run in sorted(plan.items())])
        columns["offset"] = numbers(offsets, pa.int64())
        columns["timestampType"] = numbers(np.full(rows, int(append_time_ms is not None), np.int32), pa.int32())
        if append_time_ms is not None:
            columns["timestamp"] = numbers(np.full(rows, append_time_ms * 1000, np.int64), pa.timestamp("us", "UTC"))
        table = pa.Table.from_arrays([columns[f.name] for f in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)
        start = 0
        for partition, run in sorted(plan.items()):
            yield partition, table.slice(start, len(run))
            start += len(run)


def _beside(files: Storage, calls: Sequence[Callable[[], Add]], size: int) -> list[Add]:
    """Make all calls, in parallel if that helps, and wait for them."""
    if files.scheduler.is_remote or len(calls) == 1 or size < IN_THREADS:
        return files.scheduler.beside(calls)
    with ThreadPoolExecutor(min(len(calls), os.cpu_count() or 1)) as pool:

        def start(call: Callable[[], Add]) -> Callable[[], Add]:
            try:
                return pool.submit(call).result
            except RuntimeError:
                # The interpreter exits, and no thread can be started.
                return call

        return [result() for result in [start(call) for call in calls]]


def payload_of(batch: ColumnBatch, schemas: SchemasOf, most_loose: int) -> Payload:
    """Return a batch as a payload.

    Args:
        batch: the records.
        schemas: the cluster's schema registry.
        most_loose: most bytes of a batch whose records become Python objects, because it may wait in a staged file.
    """
    if batch.size <= most_loose:
        return BatchPayload(batch.records(), schemas)
    return ColumnPayload(batch, schemas)
