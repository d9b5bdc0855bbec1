"""Batch encoder: convert records of a topic to record batches of the wire protocol.

NumPy writes the varints of a column at once, and Arrow joins them with keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from kafkalike.log.topic.chunk import Chunk
from kafkalike.log.wire import batch_heads
from kafkalike.storage.arrays import binaries, held_integers, held_numbers, lengths_of

Longs = npt.NDArray[np.int64]

NULL: Final = -1
"""Length of a null value, as the format has it."""

_MOST_DELTA: Final = 2**31 - 1
"""Largest offset delta of a record, which has 32 bits."""

# Not `pa.scalar`, which imports pandas.
_BINARY_NOTHING, _NO_HEADERS = binaries([b"", b"\0"])
"""Nothing, and the number of headers of a record without any."""


def encode(chunk: Chunk, *, codec: str = "none", leader_epoch: int = 0) -> bytes:
    """Return the record batches of a chunk.

    There is one batch, unless offsets are more than 2^31 apart or the kinds of timestamps differ. Records with
    LogAppendTime have a batch for each time, because the format stores that time once.

    Args:
        chunk: records of at most 1 GiB; empty chunks give no bytes.
        codec: a name in `CODEC_NAMES`.
        leader_epoch: of the partition.
    """
    table = chunk.table.combine_chunks()
    if not table.num_rows:
        return b""
    offsets = held_numbers(table.column("offset").chunk(0))
    times = _milliseconds(held_numbers(table.column("timestamp").chunk(0)))
    kinds = held_integers(table.column("timestampType").chunk(0))
    batches = list[bytes]()
    for rows in _runs(offsets, times, kinds):
        part = table.slice(rows.start, rows.stop - rows.start)
        payload = _records(part, times[rows] - times[rows.start], offsets[rows] - offsets[rows.start])
        attributes = batch_heads.CODEC_NAMES.index(codec) | (batch_heads.LOG_APPEND_TIME if kinds[rows.start] else 0)
        if codec != "none":
            payload = pa.Codec(codec).compress(payload, asbytes=True)
        head = bytearray(
            batch_heads.HEAD.pack(
                int(offsets[rows.start]),
                batch_heads.HEAD.size - batch_heads.LENGTH_FROM + len(payload),
                leader_epoch,
                batch_heads.MAGIC,
                0,
                attributes,
                int(offsets[rows.stop - 1] - offsets[rows.start]),
                int(times[rows.start]),
                int(times[rows].max()),
                batch_heads.NO_PRODUCER,
                batch_heads.NO_PRODUCER,
                batch_heads.NO_PRODUCER,
                rows.stop - rows.start,
            )
        )
        checksum = crc32c(payload, crc32c(head[batch_heads.CHECKED_FROM :]))
        head[batch_heads.CHECKED_FROM - 4 : batch_heads.CHECKED_FROM] = checksum.to_bytes(4, "big")
        batches += [bytes(head), payload]
    return b"".join(batches)


def encode_hole(start: int, stop: int, *, leader_epoch: int = 0) -> bytes:
    """Return a record batch without records, by which a consumer continues behind offsets that have none.

    Args:
        start: the first of these offsets, at which the consumer is.
        stop: the offset after them; the batch covers fewer if its offset delta cannot hold them.
        leader_epoch: of the partition.
    """
    none = batch_heads.NO_PRODUCER
    times = batch_heads.NO_TIME, batch_heads.NO_TIME
    length = batch_heads.HEAD.size - batch_heads.LENGTH_FROM
    last = min(stop - 1 - start, _MOST_DELTA)
    head = bytearray(
        batch_heads.HEAD.pack(start, length, leader_epoch, batch_heads.MAGIC, 0, 0, last, *times, none, none, none, 0)
    )
    checked_from = batch_heads.CHECKED_FROM
    head[checked_from - 4 : checked_from] = crc32c(head[checked_from:]).to_bytes(4, "big")
    return bytes(head)


def _milliseconds(times: Longs) -> Longs:
    """Convert times from µs to ms, truncated towards 0."""
    found: Longs = np.sign(times) * (np.abs(times) // 1000)
    return found


def _runs(offsets: Longs, times: Longs, kinds: Longs) -> Iterator[slice]:
    """Yield the rows of each batch."""
    breaks = (kinds[1:] != kinds[:-1]) | ((kinds[1:] == 1) & (times[1:] != times[:-1]))
    stops = [*(np.flatnonzero(breaks) + 1).tolist(), len(offsets)]
    start = 0
    for stop in stops:
        while start < stop:
            end = min(stop, int(np.searchsorted(offsets, offsets[start] + _MOST_DELTA, side="right")))
            yield slice(start, end)
            start = end


def _records(table: pa.Table, time_deltas: Longs, offset_deltas: Longs) -> bytes:
    """Return the records of a batch before compression."""
    keys, values = table.column("key").chunk(0), table.column("value").chunk(0)
    headers = table.column("headers").chunk(0)
    key_lengths, value_lengths = lengths_of(keys, NULL), lengths_of(values, NULL)
    has_headers = headers.null_count < len(headers)
    if has_headers:
        tails = _header_parts(headers)
        tail_sizes = lengths_of(tails, NULL)
    else:
        tails, tail_sizes = _NO_HEADERS, np.ones(len(keys), np.int64)
    sizes = (
        # The attributes.
        1
        + _widths(_zigzag(time_deltas))
        + _widths(_zigzag(offset_deltas))
        + _widths(_zigzag(key_lengths))
        + np.maximum(key_lengths, 0)
        + _widths(_zigzag(value_lengths))
        + np.maximum(value_lengths, 0)
        + tail_sizes
    )
    before = _varints(sizes, np.zeros_like(sizes), time_deltas, offset_deltas, key_lengths)
    return _joined(before, keys, _varints(value_lengths), values, tails)


def _header_parts(headers: pa.Array) -> pa.Array:
    """Return the number of headers and the headers of each record."""
    counts = lengths_of(headers, 0)
    entries = headers.flatten()
    names = entries.field("key").cast(pa.binary())
    values = entries.field("value")
    each = pc.binary_join_element_wise(
        _varints(lengths_of(names, NULL)),
        names,
        _varints(lengths_of(values, NULL)),
        values,
        _BINARY_NOTHING,
        null_handling="replace",
        null_replacement="",
    )
    ends = np.concatenate([[0], np.cumsum(lengths_of(each, NULL))])[np.concatenate([[0], np.cumsum(counts)])]
    body = each.buffers()[2] if len(each) else None
    whole = pa.Array.from_buffers(pa.binary(), len(counts), [None, pa.py_buffer(ends.astype(np.int32)), body])
    return pc.binary_join_element_wise(_varints(counts), whole, _BINARY_NOTHING)


def _joined(*parts: pa.Array) -> bytes:
    """Join the parts of each row, and all rows; null parts have no bytes."""
    found = pc.binary_join_element_wise(*parts, _BINARY_NOTHING, null_handling="replace", null_replacement="")
    size = int(np.frombuffer(found.buffers()[1], np.int32)[len(found)])
    body = found.buffers()[2]
    return b"" if body is None else body.slice(0, size).to_pybytes()


_WIDER: Final = np.array([1 << 7 * width for width in range(1, 10)], np.uint64)
"""The smallest numbers that need 2 to 10 bytes."""


def _zigzag(values: Longs) -> npt.NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def _widths(values: npt.NDArray[np.uint64]) -> Longs:
    """Return the bytes of each varint."""
    if len(values) and values.max() < _WIDER[0]:
        return np.ones(len(values), np.int64)
    return np.searchsorted(_WIDER, values, side="right") + 1


def _varints(*columns: Longs) -> pa.Array:
    """Return the zigzag varints of all columns, joined for each row, as a BINARY array."""
    blocks, masks = list[npt.NDArray[np.uint8]](), list[npt.NDArray[np.bool_]]()
    for column in columns:
        values = _zigzag(column)
        widths = _widths(values)
        most = int(widths.max(initial=1))
        places = np.arange(most, dtype=np.uint64)
        block = ((values[:, np.newaxis] >> (places * np.uint64(7))) & np.uint64(0x7F)).astype(np.uint8)
        block |= np.where(places < (widths[:, np.newaxis] - 1), 0x80, 0).astype(np.uint8)
        blocks.append(block)
        masks.append(places < widths[:, np.newaxis])
    mask = np.concatenate(masks, axis=1)
    body = np.concatenate(blocks, axis=1)[mask]
    ends = np.concatenate([[0], np.cumsum(mask.sum(axis=1))]).astype(np.int32)
    return pa.Array.from_buffers(
        pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(body))]
    )
