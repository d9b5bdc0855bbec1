"""Record decoder: convert record batches of the wire protocol to columns for an append.

Only the lengths of records, and headers, are read one by one. NumPy reads all other numbers a column at a time, and
Arrow copies keys and values.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalike.errors import InvalidRecordError, InvalidTimestampError
from kafkalike.log.topic.chunk import HEADERS_TYPE, first_undecodable
from kafkalike.log.topic.column_batch import ColumnBatch
from kafkalike.log.topic.column_rules import header_sizes
from kafkalike.log.topic.record_rules import MAX_TIMESTAMP_MS, RECORD_OVERHEAD
from kafkalike.log.wire.batch_heads import WireBatch
from kafkalike.storage.arrays import flags_of, numbers

Longs = npt.NDArray[np.int64]

NO_TIMESTAMP: Final = -1
"""Time of a record that its producer gave none."""

INT_BYTES: Final = 5
"""Bytes of the longest varint of 32 bits."""

LONG_BYTES: Final = 10
"""Bytes of the longest varint of 64 bits."""

_MORE: Final = 0x80
"""Bit of a varint's byte that another byte follows."""


@dataclass(frozen=True, slots=True)
class InflatedBatch:
    """A record batch of one partition before its records are decoded."""

    wire: WireBatch
    partition: int
    content: bytes | memoryview
    """The bytes of its records, from `WireBatch.inflated`."""


def decode(batches: Sequence[InflatedBatch], *, now_ms: int) -> ColumnBatch:
    """Return the records of all batches as columns, in their order.

    Many small batches at once cost a quarter of decoding each. If that fails, decode each to find the wrong one.

    Args:
        batches: at least one, with less than 2 GiB together.
        now_ms: time of records without one.

    Raises:
        InvalidTimestampError: a time is negative or too large.
        InvalidRecordError: the bytes are not records, there are gaps between offsets, or the key of a header is null or
            not UTF-8.
    """
    content = b"".join([batch.content for batch in batches])
    counts = [batch.wire.count for batch in batches]
    starts, ends = _bounds(content, counts, list(itertools.accumulate(len(batch.content) for batch in batches)))
    data = np.frombuffer(content, np.uint8)
    # The first byte holds the record's attributes, which have no meaning yet.
    time_deltas, at = read_varints(data, starts + 1, LONG_BYTES)
    offset_deltas, at = read_varints(data, at, INT_BYTES)
    total = len(starts)
    within = np.arange(total) - np.repeat(np.cumsum([0, *counts[:-1]]), counts)
    if (offset_deltas != within).any():
        raise InvalidRecordError("there are gaps between the offsets of a record batch")
    key_lengths, keys_at = read_varints(data, at, INT_BYTES)
    keys_end = keys_at + np.maximum(key_lengths, 0)
    _check_within(key_lengths, keys_end, ends)
    value_lengths, values_at = read_varints(data, keys_end, INT_BYTES)
    values_end = values_at + np.maximum(value_lengths, 0)
    _check_within(value_lengths, values_end, ends)
    header_counts, at = read_varints(data, values_end, INT_BYTES)
    if header_counts.any():
        headers = _headers(content, at, header_counts, ends)
    elif (at != ends).any():
        raise InvalidRecordError(f"record {int((at != ends).argmax())} of a batch has another length than its parts")
    else:
        headers = pa.nulls(total, HEADERS_TYPE)
    keys, values = _slices(content, [(keys_at, keys_end, key_lengths), (values_at, values_end, value_lengths)])
    sizes = keys_end - keys_at + values_end - values_at + RECORD_OVERHEAD
    if headers.null_count < total:
        sizes += header_sizes(headers)
    times = _times([batch.wire for batch in batches], time_deltas, now_ms)
    columns = {"timestamp": times, "key": keys, "value": values, "headers": headers}
    partitions = np.repeat(np.array([batch.partition for batch in batches], np.int32), counts)
    return ColumnBatch(table=pa.table(columns), partitions=partitions, sizes=sizes)


def read_varints(data: npt.NDArray[np.uint8], at: Longs, most_bytes: int) -> tuple[Longs, Longs]:
    """Read one zigzag varint at each position.

    Args:
        data: at least one byte. Beyond its end the last byte is read again, so compare the returned positions with the
            ends of the records.
        at: positions of the varints; not changed.
        most_bytes: `INT_BYTES` or `LONG_BYTES`.

    Returns:
        The numbers, and the positions after them.

    Raises:
        InvalidRecordError: a varint has more bytes, or more than the 32 bits of `INT_BYTES`.
    """
    byte = data.take(at, mode="clip")
    found = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    rows = np.flatnonzero(byte & _MORE)
    shift = 7
    while len(rows):
        if shift == 7 * most_bytes:
            raise InvalidRecordError(f"a varint of a record has more than {most_bytes} bytes")
        byte = data.take(at[rows], mode="clip")
        found[rows] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[rows] += 1
        rows = rows[(byte & _MORE) != 0]
        shift += 7
    if most_bytes == INT_BYTES and shift > 28 and (found >> np.uint64(32)).any():  # noqa: PLR2004 - four bytes
        raise InvalidRecordError("a varint of a record has more than 32 bits")
    return (found >> np.uint64(1)).astype(np.int64) ^ -(found & np.uint64(1)).astype(np.int64), at


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Read one zigzag varint of 32 bits; raises IndexError beyond the end."""
    found = shift = 0
    while True:
        byte = content[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < _MORE:
            return (found >> 1) ^ -(found & 1), at
        shift += 7
        if shift == 7 * INT_BYTES:
            raise InvalidRecordError(f"a varint of a record has more than {INT_BYTES} bytes")


def _bounds(content: bytes, counts: Sequence[int], stops: Sequence[int]) -> tuple[Longs, Longs]:
    """Return where each record begins, after its length, and ends.

    Args:
        content: the records of all batches.
        counts: number of records of each batch.
        stops: where each batch ends.
    """
    starts, ends, at = list[int](), list[int](), 0
    try:
        for count, stop in zip(counts, stops, strict=True):
            for _ in range(count):
                # Only this loop runs once per record: lengths of one and two bytes are read in place.
                length = content[at]
                if length < _MORE:
                    at += 1
                elif content[at + 1] < _MORE:
                    length = length & 0x7F | content[at + 1] << 7
                    at += 2
                else:
                    found, at = _varint(content, at)
                    length = found << 1 if found >= 0 else 1
                if length & 1:
                    raise InvalidRecordError("a record of a batch has a negative length")
                starts.append(at)
                at += length >> 1
                ends.append(at)
            if at != stop:
                break
    except IndexError:
        at = len(content) + 1
    if at != len(content) or len(ends) != sum(counts):
        raise InvalidRecordError("the records of a batch do not have the length of the batch")
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _check_within(lengths: Longs, stops: Longs, ends: Longs) -> None:
    """Refuse keys or values with a wrong length, -1 being that of null, or beyond the end of their record."""
    wrong = (lengths < -1) | (stops >= ends)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidRecordError(f"a part of record {row} of a batch has the length {int(lengths[row])}")


def _slices(content: bytes, parts: Sequence[tuple[Longs, Longs, Longs]]) -> list[pa.Array]:
    """Copy slices of the content into BINARY columns.

    Args:
        content: the bytes.
        parts: for each column, starts, ends and lengths, which are -1 for null. Slices are in the order of the content:
            row by row, and within a row column by column.
    """
    rows, width = len(parts[0][0]), 2 * len(parts)
    bounds = np.stack([bound for starts, ends, _ in parts for bound in (starts, ends)], axis=1)
    offsets = pa.py_buffer(np.ascontiguousarray(bounds, np.int32))
    # Slices alternate with the bytes between them.
    every = pa.Array.from_buffers(pa.binary(), rows * width - 1, [None, offsets, pa.py_buffer(content)])
    return [
        every.take(_nullable(np.arange(2 * column, rows * width, width), lengths < 0))
        for column, (_, _, lengths) in enumerate(parts)
    ]


def _nullable(positions: Longs, null: npt.NDArray[np.bool_]) -> pa.Array:
    valid = pa.py_buffer(np.packbits(~null, bitorder="little")) if null.any() else None
    return pa.Array.from_buffers(pa.int64(), len(positions), [valid, pa.py_buffer(positions)])


def _headers(content: bytes, at: Longs, counts: Longs, ends: Longs) -> pa.Array:
    """Return the headers of all records; null for records without any."""
    bounds = list[tuple[int, int, int, int]]()
    nulls = list[bool]()
    for row, (position, count, end) in enumerate(zip(at.tolist(), counts.tolist(), ends.tolist(), strict=True)):
        # A header has at least two bytes.
        if not 0 <= 2 * count <= end - position:
            raise InvalidRecordError(f"record {row} of a batch has {count} headers in {end - position} bytes")
        where = position
        try:
            for _ in range(count):
                length, name = _varint(content, where)
                if length < 0:
                    raise InvalidRecordError(f"record {row} of a batch has a header without key")
                size, value = _varint(content, name + length)
                if size < -1:
                    raise InvalidRecordError(f"a header of record {row} of a batch has the length {size}")
                where = value + max(size, 0)
                if where > end:
                    break
                bounds.append((name, name + length, value, where))
                nulls.append(size < 0)
        except IndexError:
            where = end + 1
        if where != end:
            raise InvalidRecordError(f"record {row} of a batch has another length than its parts")
    found = np.array(bounds, np.int64)
    none = np.array(nulls, np.bool_)
    names, values = _slices(
        content,
        [
            (found[:, 0], found[:, 1], np.zeros(len(found), np.int64)),
            (found[:, 2], found[:, 3], -none.astype(np.int64)),
        ],
    )
    text = pa.Array.from_buffers(pa.string(), len(names), names.buffers(), names.null_count, names.offset)
    entries = pa.StructArray.from_arrays([text, values], fields=list(HEADERS_TYPE.value_type))
    stops = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    headers = pa.ListArray.from_arrays(
        numbers(stops, pa.int32()), entries, type=HEADERS_TYPE, mask=flags_of(counts == 0)
    )
    wrong = first_undecodable(headers)
    if wrong is not None:
        raise InvalidRecordError(f"record {wrong.row} of a batch has {wrong}")
    return headers


def _times(batches: Sequence[WireBatch], deltas: Longs, now_ms: int) -> pa.Array:
    counts = [batch.count for batch in batches]
    appended = np.repeat([batch.log_append_time for batch in batches], counts)
    base = np.repeat([b.max_timestamp if b.log_append_time else b.base_timestamp for b in batches], counts)
    times = base + np.where(appended, 0, deltas)
    times[times == NO_TIMESTAMP] = now_ms
    wrong = (times < 0) | (times > MAX_TIMESTAMP_MS)
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidTimestampError(f"record {row}: timestamp {int(times[row])} is not in [0, {MAX_TIMESTAMP_MS}] ms")
    return numbers(times * 1000, pa.timestamp("us", "UTC"))
