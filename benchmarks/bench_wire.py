"""Record batches of the wire protocol: records a core decodes and encodes in a second, by size of the batch."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pyarrow as pa
from kafka.record.default_records import DefaultRecordBatchBuilder

from benchmarks.harness import Report
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.column_batch import ColumnBatch
from kafkalike.log.wire.batch_heads import CODEC_NAMES, read_batches
from kafkalike.log.wire.record_decoder import InflatedBatch, decode
from kafkalike.log.wire.record_encoder import encode

NOW = 1_700_000_000_000
SECONDS = 1.0
HEADERS = [("trace", b"0123456789abcdef"), ("kind", b"order")]


def built(count: int, size: int, headers: list[tuple[str, bytes]], codec: str) -> bytes:
    """A batch as a producer sends it; its values can be compressed to a half."""
    builder = DefaultRecordBatchBuilder(2, CODEC_NAMES.index(codec), False, -1, -1, -1, 1 << 30)  # noqa: FBT003
    for number in range(count):
        builder.append(number, NOW + number, b"key%06d" % number, os.urandom(size // 2) * 2, headers)
    return bytes(builder.build())


def rate(call: Callable[[], object], records: int) -> float:
    """Records per second of this thread's CPU."""
    call()
    start, calls = time.thread_time(), 0
    while (spent := time.thread_time() - start) < SECONDS:
        call()
        calls += 1
    return calls * records / spent


def main() -> None:
    """Measure and print."""
    report = Report("wire")
    for count, size, headers, codec in (
        (5_000, 100, [], "none"),
        (5_000, 100, [], "lz4"),
        (5_000, 100, HEADERS, "none"),
        (900, 1_000, [], "none"),
        (150, 100, [], "none"),
        (1, 100, [], "none"),
    ):
        content = built(count, size, headers, codec)

        def decoded(content: bytes = content) -> ColumnBatch:
            return decode([InflatedBatch(one, 0, one.inflated(1 << 26)) for one in read_batches(content)], now_ms=NOW)

        table = decoded().table
        table = table.append_column("offset", pa.array(range(count), pa.int64()))
        table = table.append_column("timestampType", pa.array([0] * count, pa.int32()))
        chunk = Chunk(0, table.select(CHUNK_SCHEMA.names).cast(CHUNK_SCHEMA), count)
        what = f"{count} records of {size} bytes, {len(headers)} headers, {codec}"
        aim = "≥ 300,000" if count >= 900 else ""
        for verb, call in (("decode", decoded), ("encode", lambda: encode(chunk, codec=codec))):  # noqa: B023 - called at once
            found = rate(call, count)
            report.add(f"{verb} {what}", f"{found:,.0f} records/s", aim=aim)
            report.raw[f"{verb} {what}"] = [found]
    report.finish()


if __name__ == "__main__":
    main()
