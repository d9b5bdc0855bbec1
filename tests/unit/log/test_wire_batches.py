"""Record batches of the wire protocol, judged by kafka-python's encoder and decoder."""

import gzip
import resource
import struct
import tracemalloc
from typing import Any

import lz4.frame
import numpy as np
import pyarrow as pa
import pytest
import snappy
import zstandard
from crc32c import crc32c
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kafkalike.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, Chunk
from kafkalike.log.topic.record_rules import record_size
from kafkalike.log.wire.batch_heads import CODEC_NAMES, HEAD, WireBatch, read_batches
from kafkalike.log.wire.record_decoder import INT_BYTES, LONG_BYTES, InflatedBatch, decode, read_varints
from kafkalike.log.wire.record_encoder import encode
from kafkalike.model.record_batch import RecordBatch
from tests.tools.effort import examples

NOW = 1_700_000_000_000
LIMIT = 1 << 20
NAMED = (CorruptRecordError, InvalidRecordError, InvalidTimestampError, MessageSizeTooLargeError)

octets = st.none() | st.binary(max_size=40) | st.binary(min_size=120, max_size=140)
headers = st.lists(st.tuples(st.text("aé", max_size=3), octets), max_size=3)
record = st.tuples(st.integers(0, 2 * NOW), octets, octets, headers)
codecs = st.sampled_from(range(len(CODEC_NAMES)))


def built(records: list[tuple[int, Any, Any, list[Any]]], codec: int = 0, **producer: Any) -> bytes:
    """A batch by kafka-python's encoder."""
    builder = DefaultRecordBatchBuilder(
        2,
        codec,
        is_transactional=producer.get("transactional", False),
        producer_id=producer.get("producer_id", -1),
        producer_epoch=producer.get("epoch", -1),
        base_sequence=producer.get("sequence", -1),
        batch_size=1 << 30,
    )
    for offset, (time, key, value, pairs) in enumerate(records):
        builder.append(offset, time, key, value, pairs)
    return bytes(builder.build())


def sealed(batch: bytes) -> bytes:
    """A batch with the length and the checksum that belong to its content."""
    content = bytearray(batch)
    content[8:12] = struct.pack(">i", len(content) - 12)
    content[17:21] = struct.pack(">I", crc32c(bytes(content[21:])))
    return bytes(content)


def changed(batch: bytes, at: int, new: bytes) -> bytes:
    return sealed(batch[:at] + new + batch[at + len(new) :])


def with_body(body: bytes, codec: int, count: int = 1) -> bytes:
    """A batch of one codec with any bytes as its records."""
    return sealed(HEAD.pack(0, 0, 0, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count) + body)


def decoded(batch: WireBatch, max_bytes: int = LIMIT) -> RecordBatch:
    return decode([InflatedBatch(batch, 3, batch.inflated(max_bytes))], now_ms=NOW).records()


Row = tuple[int, int, Any, Any, list[Any]]


def chunk_of(rows: list[Row], kinds: list[int] | None = None) -> Chunk:
    """Rows of offset, time, key, value and headers."""
    offsets, times, keys, values, pairs = zip(*rows, strict=True)
    columns = {
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([time * 1000 for time in times], pa.timestamp("us", "UTC")),
        "timestampType": pa.array(kinds or [0] * len(rows), pa.int32()),
        "key": pa.array(keys, pa.binary()),
        "value": pa.array(values, pa.binary()),
        "headers": pa.array(
            [[{"key": k, "value": v} for k, v in h] or None for h in pairs], CHUNK_SCHEMA.field("headers").type
        ),
    }
    return Chunk(0, pa.table(columns, schema=CHUNK_SCHEMA), offsets[-1] + 1)


def judged(content: bytes) -> list[tuple[Any, ...]]:
    """The records that kafka-python finds."""
    found = []
    for batch in MemoryRecords(content):
        assert batch.validate_crc()
        found += [
            (one.offset, one.timestamp, one.key, one.value, list(one.headers), one.timestamp_type) for one in batch
        ]
    return found


@given(st.lists(st.tuples(st.lists(record, min_size=1, max_size=7), codecs), min_size=1, max_size=4))
def test_batches_of_kafka_python_decode_to_their_records(sent: list[tuple[list[Any], int]]) -> None:
    batches = [batch for records, codec in sent for batch in read_batches(built(records, codec))]
    inflated = [InflatedBatch(batch, at, batch.inflated(LIMIT)) for at, batch in enumerate(batches)]
    columns = decode(inflated, now_ms=NOW)
    found = columns.records()

    records = [one for several, _ in sent for one in several]
    assert found.partitions == [at for at, (several, _) in enumerate(sent) for _ in several]
    assert found.timestamps == [time for time, *_ in records]
    assert found.keys == [key for _, key, *_ in records]
    assert found.values == [value for _, _, value, _ in records]
    assert found.headers == [pairs or None for *_, pairs in records]
    assert columns.sizes.tolist() == [record_size(key, value, pairs) for _, key, value, pairs in records]


@given(st.lists(st.tuples(st.integers(1, 300), record), min_size=1, max_size=20), codecs)
def test_chunk_with_holes_encodes_to_what_kafka_python_reads(steps: list[Any], codec: int) -> None:
    rows, offset = [], 10_000_000_000
    for step, found in steps:
        offset += step
        rows.append((offset, *found))
    content = encode(chunk_of(rows), codec=CODEC_NAMES[codec], leader_epoch=7)

    assert judged(content) == [(*row, 0) for row in rows]
    (batch,) = MemoryRecords(content)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch) == (rows[0][0], rows[-1][0], 7)
    assert batch.max_timestamp == max(time for _, time, *_ in rows)


def test_slice_of_a_chunk_encodes_to_its_records() -> None:
    rows = [(n, NOW + n, b"k%d" % n, None, [("h", b"%d" % n)] if n % 2 else []) for n in range(10)]
    _, rest = chunk_of(rows).split(4)
    assert rest is not None
    assert judged(encode(rest)) == [(*row, 0) for row in rows[4:]]


def test_records_with_log_append_time_get_a_batch_for_each_time() -> None:
    rows: list[Row] = [(0, 5, None, b"a", []), (1, 7, None, b"b", []), (2, 7, None, b"c", []), (3, 9, None, b"d", [])]
    content = encode(chunk_of(rows, kinds=[0, 1, 1, 1]))

    assert [len(list(batch)) for batch in MemoryRecords(content)] == [1, 2, 1]
    assert judged(content) == [(*row, kind) for row, kind in zip(rows, [0, 1, 1, 1], strict=True)]


def test_offsets_too_far_apart_get_batches_of_their_own() -> None:
    rows: list[Row] = [(0, 5, None, b"a", []), (2**31 - 1, 5, None, b"b", []), (2**31, 5, None, b"c", [])]
    content = encode(chunk_of(rows))
    assert [len(list(batch)) for batch in MemoryRecords(content)] == [2, 1]
    assert judged(content) == [(*row, 0) for row in rows]


def test_empty_chunk_encodes_to_no_bytes() -> None:
    assert encode(Chunk(0, CHUNK_SCHEMA.empty_table(), 5)) == b""


def test_batches_of_a_request_are_read_with_their_heads() -> None:
    first = built([(NOW, b"a", b"1", [])] * 2, producer_id=9, epoch=4, sequence=70, transactional=True)
    second = built([(NOW, b"b", b"2" * 100, [])], codec=4)
    one, two = read_batches(memoryview(first + second))

    assert (one.producer_id, one.producer_epoch, one.base_sequence, one.count) == (9, 4, 70, 2)
    assert (one.idempotent, one.transactional, one.codec) == (True, True, "none")
    assert (two.idempotent, two.transactional, two.codec) == (False, False, "zstd")
    assert bytes(two.content) == second


def test_log_append_time_of_a_batch_is_the_time_of_all_records() -> None:
    batch = built([(NOW, None, b"1", []), (NOW + 5, None, b"2", [])])
    (found,) = read_batches(changed(batch, 21, struct.pack(">h", 8)))
    assert decoded(found).timestamps == [NOW + 5, NOW + 5]


def test_records_without_time_get_the_present() -> None:
    batch = built([(5, None, b"1", []), (6, None, b"2", [])])
    (found,) = read_batches(changed(batch, 27, struct.pack(">q", -1)))
    assert decoded(found).timestamps == [NOW, 0]


@pytest.mark.parametrize("size", [1, 70_000], ids=["one-block", "several-blocks"])
def test_snappy_is_read_with_and_without_the_framing_of_java(size: int) -> None:
    body = built([(NOW, b"k", b"v" * size, [])])[HEAD.size :]
    blocks = [snappy.compress(body[at : at + 32_768]) for at in range(0, len(body), 32_768)]
    framed = b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01" + b"".join(
        struct.pack(">i", len(block)) + block for block in blocks
    )
    for compressed in (framed, snappy.compress(body)):
        (batch,) = read_batches(with_body(compressed, codec=2))
        assert decoded(batch).values == [b"v" * size]


@pytest.mark.parametrize(
    "compress", [gzip.compress, lz4.frame.compress, zstandard.compress], ids=["gzip", "lz4", "zstd"]
)
def test_frames_after_each_other_are_one_batch(compress: Any) -> None:
    body = built([(NOW, b"k", b"v" * 5000, [])])[HEAD.size :]
    codec = {gzip.compress: 1, lz4.frame.compress: 3, zstandard.compress: 4}[compress]
    (batch,) = read_batches(with_body(compress(body[:300]) + compress(body[300:]), codec))
    assert decoded(batch).values == [b"v" * 5000]


def bomb(codec: int) -> bytes:
    """512 MiB of zeros in one compressed stream, or what pretends to be that much."""
    part = bytes(16 << 20)
    if codec == 1:
        return gzip.compress(part, 9) * 32
    if codec == 2:
        return b"\x80\x80\x80\x80\x02" + b"\xfe\x00\x00" * 10
    if codec == 3:
        return bytes(lz4.frame.compress(part) * 32)
    return zstandard.compress(part, 19) * 32


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=CODEC_NAMES[1:])
def test_compression_bomb_of_512_mib_is_refused_and_costs_little_memory(codec: int) -> None:
    (batch,) = read_batches(with_body(bomb(codec), codec))
    before, most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, pa.default_memory_pool().max_memory()

    with pytest.raises(MessageSizeTooLargeError, match="more than 1048576 bytes"):
        batch.inflated(LIMIT)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024
    assert pa.default_memory_pool().max_memory() <= max(most, 32 << 20)


@pytest.mark.parametrize("codec", [1, 2, 3, 4], ids=CODEC_NAMES[1:])
def test_damaged_compression_leaves_no_memory_behind(codec: int) -> None:
    """`NativeFile.read` of pyarrow never frees its bytes after an error: a client could take all memory."""
    body = built([(NOW, b"k", b"v" * 500, [])], codec)[HEAD.size :]
    (batch,) = read_batches(with_body(body[:-12] + b"\xff" * 3, codec))
    tracemalloc.start()
    try:
        for _ in range(10):
            with pytest.raises(InvalidRecordError):
                batch.inflated(LIMIT)
        assert tracemalloc.get_traced_memory()[0] < LIMIT
    finally:
        tracemalloc.stop()


def test_records_at_the_limit_are_read_and_one_byte_more_is_refused() -> None:
    records: list[Any] = [(NOW, b"k", b"v" * 500, [])]
    body = len(built(records)) - HEAD.size
    for codec in range(5):
        (batch,) = read_batches(built(records, codec))
        assert decoded(batch, max_bytes=body).values == [b"v" * 500]
        with pytest.raises(MessageSizeTooLargeError):
            decoded(batch, max_bytes=body - 1)


GOOD = built([(NOW, b"k", b"v", [("h", b"x")]), (NOW, None, None, [])], producer_id=5, epoch=0, sequence=3)


@pytest.mark.parametrize(
    ("content", "error", "text"),
    [
        pytest.param(b"", InvalidRecordError, "no records", id="nothing"),
        pytest.param(GOOD[:40], CorruptRecordError, "cut off after 40 bytes", id="within-the-head"),
        pytest.param(GOOD[:-1], CorruptRecordError, "bytes are there", id="within-the-records"),
        pytest.param(GOOD + b"\0", CorruptRecordError, "cut off after 1 bytes", id="more-bytes"),
        pytest.param(GOOD[:8] + b"\xff" * 4 + GOOD[12:], CorruptRecordError, "length -1", id="negative-length"),
        pytest.param(GOOD[:8] + b"\x00\x00\x00\x09" + GOOD[12:], CorruptRecordError, "length 9", id="short-length"),
        pytest.param(GOOD[:-1] + b"y", CorruptRecordError, "checksum", id="checksum"),
        pytest.param(changed(GOOD, 16, b"\x01"), InvalidRecordError, "format 1", id="old-format"),
        pytest.param(changed(GOOD, 21, b"\x00\x20"), InvalidRecordError, "control records", id="control"),
        pytest.param(changed(GOOD, 21, b"\x00\x40"), InvalidRecordError, "delete horizon", id="delete-horizon"),
        pytest.param(changed(GOOD, 21, b"\x00\x05"), InvalidRecordError, "unknown codec 5", id="codec"),
        pytest.param(changed(GOOD, 57, b"\x00\x00\x00\x00"), InvalidRecordError, "0 records", id="no-records"),
        pytest.param(changed(GOOD, 57, b"\x7f\xff\xff\xff"), InvalidRecordError, "offset delta 1", id="count"),
        pytest.param(changed(GOOD, 51, b"\xff\xff"), InvalidRecordError, "epoch -1", id="epoch"),
        pytest.param(changed(GOOD, 53, b"\xff" * 4), InvalidRecordError, "sequence -1", id="sequence"),
        pytest.param(
            with_body(b"", 0x10), InvalidRecordError, "transactional record batch has no producer", id="transactional"
        ),
    ],
)
def test_head_that_is_refused(content: bytes, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        read_batches(content)


def test_claimed_records_are_compared_with_the_bytes_before_memory_is_used() -> None:
    (batch,) = read_batches(with_body(b"\0" * 70, 0, count=2**31 - 1))
    with pytest.raises(InvalidRecordError, match="2147483647 records has only 70 bytes"):
        decoded(batch)


BODIES = {
    "truncated-record": b"\x0e\x00\x00\x00\x01\x01",
    "trailing-bytes": b"\x0c\x00\x00\x00\x01\x01\x00" + b"\x00" * 3,
    "negative-record": b"\x01\x00\x00\x00\x01\x01\x00",
    "endless-length": b"\xff" * 8,
    "key-beyond-record": b"\x0c\x00\x00\x00\x20\x01\x00",
    "key-shorter-than-null": b"\x0c\x00\x00\x00\x03\x01\x00",
    "value-beyond-record": b"\x0c\x00\x00\x00\x01\x20\x00",
    "offset-gap": b"\x0c\x00\x00\x02\x01\x01\x00",
    "negative-headers": b"\x0c\x00\x00\x00\x01\x01\x01",
    "more-headers-than-bytes": b"\x10\x00\x00\x00\x01\x01\x7e\x00\x00",
    "header-without-key": b"\x10\x00\x00\x00\x01\x01\x02\x01\x01",
    "header-beyond-record": b"\x10\x00\x00\x00\x01\x01\x02\x00\x7e",
    "header-not-text": b"\x12\x00\x00\x00\x01\x01\x02\x02\xff\x01",
    "varint-of-11-bytes": b"\x22\x00" + b"\xff" * 10 + b"\x00\x00\x01\x01\x00\x00",
    "key-length-of-35-bits": b"\x18\x00\x00\x00\xff\xff\xff\xff\x7f\x01\x00\x00\x00",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_records_that_are_not_whole_are_refused(body: bytes) -> None:
    (batch,) = read_batches(with_body(body, 0))
    with pytest.raises(InvalidRecordError):
        decoded(batch)


def test_time_after_the_year_9999_is_refused_by_its_record() -> None:
    (batch,) = read_batches(built([(NOW, None, b"1", []), (253_402_214_400_000, None, b"2", [])]))
    with pytest.raises(InvalidTimestampError, match="record 1: timestamp 253402214400000"):
        decoded(batch)


MANY = built([(NOW + n, b"k%d" % n, b"v" * n, [("h", b"x" * n)] * (n % 3)) for n in range(30)])


@given(codecs, st.data())
@example(0, None)
def test_damaged_batches_give_named_errors_only(codec: int, data: Any) -> None:
    content = bytearray(MANY if codec == 0 else with_body(compressed(codec), codec, count=30))
    if data is not None:
        for _ in range(data.draw(st.integers(1, 4))):
            at = data.draw(st.integers(0, len(content) - 1))
            content[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
    try:
        for batch in read_batches(sealed(bytes(content).ljust(HEAD.size, b"\0"))):
            decoded(batch)
    except NAMED:
        pass


def compressed(codec: int) -> bytes:
    body = MANY[HEAD.size :]
    compress = {1: gzip.compress, 2: snappy.compress, 3: lz4.frame.compress, 4: zstandard.compress}[codec]
    return bytes(compress(body))


ints = st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), -65, -64, -1, 0, 63, 64, 8191, 8192, 2**31 - 1])
longs = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), 2**62, 2**63 - 1])


def varint(value: int) -> bytes:
    """By Kafka's rule: zigzag, seven bits a byte, low bits first."""
    rest = (value << 1) ^ (value >> 63)
    rest &= 2**64 - 1
    found = bytearray()
    while rest > 127:
        found.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*found, rest])


@pytest.mark.parametrize(("most", "values"), [(INT_BYTES, ints), (LONG_BYTES, longs)], ids=["int", "long"])
def test_varints_of_a_column_are_read(most: int, values: st.SearchStrategy[int]) -> None:
    @given(st.lists(values, min_size=1, max_size=30))
    def check(numbers: list[int]) -> None:
        pieces = [varint(number) for number in numbers]
        starts = np.cumsum([0, *map(len, pieces)])
        found, after = read_varints(np.frombuffer(b"".join(pieces), np.uint8), starts[:-1], most)
        assert found.tolist() == numbers
        assert after.tolist() == starts[1:].tolist()

    check()


@pytest.mark.slow
def test_many_damaged_batches_give_named_errors_only() -> None:
    """Each byte of a batch replaced by each of some values, for each codec."""
    step = examples(1, 7)
    for codec in range(5):
        content = MANY if codec == 0 else with_body(compressed(codec), codec, count=30)
        for at in range(HEAD.size, len(content), step):
            for new in (b"\x00", b"\x01", b"\x7f", b"\x80", b"\xff", b""):
                try:
                    (batch,) = read_batches(sealed(content[:at] + new + content[at + 1 :]))
                    decoded(batch)
                except NAMED:
                    pass


def test_kafka_python_sees_codec_of_an_encoded_batch() -> None:
    for number, codec in enumerate(CODEC_NAMES):
        content = encode(chunk_of([(0, NOW, b"k", b"v" * 100, [])]), codec=codec)
        assert DefaultRecordBatch(content).compression_type == number
