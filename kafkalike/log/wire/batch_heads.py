"""Batch heads: find the record batches in the bytes of one partition, check them, and inflate their records.

The bytes come from the network. Lengths are compared with the bytes that exist before anything is allocated, and a
batch inflates to no more than its caller allows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from crc32c import crc32c

from kafkalike.errors import CorruptRecordError, InvalidRecordError, MessageSizeTooLargeError

HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""Offset, length, leader epoch, magic, checksum, attributes, last offset delta, base time, latest time, producer id,
producer epoch, sequence, and number of records: 61 bytes."""

CHECKED_FROM: Final = 21
"""First byte of a batch that its checksum covers, which is the first one after the checksum."""

LENGTH_FROM: Final = 12
"""First byte that a batch's length counts."""

MAGIC: Final = 2
"""Version of the format; clients of Kafka 4 use no other."""

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""Codecs by their number in the attributes of a batch; `lz4` has frames here, unlike in Parquet files."""

LOG_APPEND_TIME: Final = 0x08
_TRANSACTIONAL: Final = 0x10
_CONTROL: Final = 0x20
_DELETE_HORIZON: Final = 0x40
_CODEC: Final = 0x07

NO_PRODUCER: Final = -1
"""Producer id, epoch and sequence of a batch that no idempotent producer sent."""

NO_TIME: Final = -1
"""Times of a batch without records."""

_LEAST_RECORD: Final = 7
"""Bytes of the smallest record: its length, attributes, two deltas, two lengths and the number of headers."""


@dataclass(frozen=True, slots=True)
class WireBatch:
    """A record batch whose head has been checked."""

    content: memoryview
    """The whole batch, head included."""
    base_offset: int
    codec: str
    """Name in `CODEC_NAMES`, from the attributes."""
    log_append_time: bool
    """True if all records have `max_timestamp`, False if each has its own time."""
    transactional: bool
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    """`NO_PRODUCER` if the producer is not idempotent."""
    producer_epoch: int
    base_sequence: int
    count: int
    """Number of records, as the head says: at least 1."""

    @property
    def idempotent(self) -> bool:
        """True if the batch has a producer id, so the append checks its sequence."""
        return self.producer_id != NO_PRODUCER

    def inflated(self, max_bytes: int) -> bytes | memoryview:
        """Return the bytes of the records.

        Args:
            max_bytes: most bytes to inflate to. No more memory than that is used, and none without compression.

        Raises:
            MessageSizeTooLargeError: the records have more bytes.
            InvalidRecordError: the bytes are not of the batch's codec, or too few for the number of records.
        """
        body = self.content[HEAD.size :]
        if self.codec == "none":
            content: bytes | memoryview = body
        elif self.codec == "snappy":
            content = _snappy(body, max_bytes)
        else:
            try:
                with pa.CompressedInputStream(pa.BufferReader(body), self.codec) as stream:
                    # `read` would never free its bytes after an error.
                    content = memoryview(stream.read_buffer(max_bytes + 1))
            except (OSError, pa.ArrowException) as cause:
                raise InvalidRecordError(f"a record batch is not of its codec {self.codec}: {cause}") from cause
        if len(content) > max_bytes:
            raise _too_large(max_bytes)
        if len(content) < self.count * _LEAST_RECORD:
            raise InvalidRecordError(f"a record batch of {self.count} records has only {len(content)} bytes")
        return content


def read_batches(content: bytes | memoryview) -> list[WireBatch]:
    """Return the record batches in a partition's part of a produce request.

    Args:
        content: the bytes, which must stay unchanged while the batches are in use. Nothing is copied.

    Raises:
        CorruptRecordError: a batch is cut off, has a wrong length or a wrong checksum. Sending it again may help.
        InvalidRecordError: the content is empty; or a batch has an old format, an unknown codec, control records, gaps
            between its offsets, or a producer id without epoch and sequence.
    """
    view, batches, at = memoryview(content), list[WireBatch](), 0
    while at < len(view):
        if len(view) - at < HEAD.size:
            raise CorruptRecordError(f"a record batch is cut off after {len(view) - at} bytes")
        (length,) = struct.unpack_from(">i", view, at + 8)
        end = at + LENGTH_FROM + length
        magic = view[at + 16]
        if magic != MAGIC:
            raise InvalidRecordError(
                f"a record batch has format {magic}, and only format {MAGIC} is supported: use a client of Kafka 0.11 "
                "or newer"
            )
        if end < at + HEAD.size or end > len(view):
            raise CorruptRecordError(f"a record batch has the length {length}, and {len(view) - at} bytes are there")
        batches.append(_checked(view[at:end]))
        at = end
    if not batches:
        raise InvalidRecordError("the request has no records for a partition")
    return batches


def is_plain(content: bytes | memoryview) -> bool:
    """Return whether a partition's part of a produce request is surely one batch without compression, or malformed."""
    if len(content) < HEAD.size:
        return True
    (length,) = struct.unpack_from(">i", content, LENGTH_FROM - 4)
    return length == len(content) - LENGTH_FROM and not content[CHECKED_FROM + 1] & _CODEC


def _checked(content: memoryview) -> WireBatch:
    """Check a batch of the right length."""
    head = HEAD.unpack_from(content)
    base_offset, _, _, _, checksum, attributes, last_delta, base_time, max_time, producer, epoch, sequence, count = head
    if crc32c(content[CHECKED_FROM:]) != checksum:
        raise CorruptRecordError("a record batch does not match its checksum: it was damaged on its way")
    if attributes & _CONTROL:
        raise InvalidRecordError("a record batch has control records, which clients may not send")
    if attributes & _DELETE_HORIZON:
        raise InvalidRecordError("a record batch has a delete horizon, which only a log cleaner sets")
    if attributes & _CODEC >= len(CODEC_NAMES):
        raise InvalidRecordError(f"a record batch has the unknown codec {attributes & _CODEC}")
    if count < 1 or last_delta != count - 1:
        raise InvalidRecordError(f"a record batch of {count} records has the last offset delta {last_delta}")
    transactional = bool(attributes & _TRANSACTIONAL)
    if producer == NO_PRODUCER:
        if transactional:
            raise InvalidRecordError("a transactional record batch has no producer id")
    elif producer < 0 or epoch < 0 or sequence < 0:
        raise InvalidRecordError(
            f"a batch has the producer id {producer}, epoch {epoch} and sequence {sequence}; none may be negative"
        )
    return WireBatch(
        content=content,
        base_offset=base_offset,
        codec=CODEC_NAMES[attributes & _CODEC],
        log_append_time=bool(attributes & LOG_APPEND_TIME),
        transactional=transactional,
        base_timestamp=base_time,
        max_timestamp=max_time,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        count=count,
    )


def _too_large(max_bytes: int) -> MessageSizeTooLargeError:
    return MessageSizeTooLargeError(
        f"a record batch has more than {max_bytes} bytes after decompression: send smaller batches"
    )


# --- snappy ----------------------------------------------------------------------------------

_XERIAL: Final = b"\x82SNAPPY\x00"
"""Beginning of a stream of snappy blocks, as Java clients send it; other clients send one block without a head."""

_XERIAL_HEAD: Final = 16
"""Bytes before the first block: the mark, a version, and the oldest version that can read the stream."""

_MOST_SIZE_BYTES: Final = 5
"""Bytes of the longest varint of 32 bits, with which a snappy block begins."""


def _snappy(body: memoryview, max_bytes: int) -> bytes:
    if bytes(body[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(body, max_bytes)
    blocks, left, at = list[bytes](), max_bytes, _XERIAL_HEAD
    while at < len(body):
        if len(body) - at < 4:  # noqa: PLR2004 - a block's length has 32 bits
            raise InvalidRecordError("a snappy stream is cut off within the length of a block")
        (length,) = struct.unpack_from(">i", body, at)
        at += 4
        if not 0 < length <= len(body) - at:
            raise InvalidRecordError(f"a snappy block has the length {length}, and {len(body) - at} bytes are there")
        blocks.append(_snappy_block(body[at : at + length], left))
        left -= len(blocks[-1])
        at += length
    return b"".join(blocks)


def _snappy_block(block: memoryview, max_bytes: int) -> bytes:
    size = 0
    for at, byte in enumerate(block[:_MOST_SIZE_BYTES]):
        size |= (byte & 0x7F) << 7 * at
        if byte < 0x80:  # noqa: PLR2004 - the last byte of a varint
            break
    else:
        raise InvalidRecordError("a snappy block does not begin with its size")
    if size > max_bytes:
        raise _too_large(max_bytes)
    try:
        content: bytes = pa.decompress(block, decompressed_size=size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowException) as cause:
        raise InvalidRecordError(f"a record batch is not of its codec snappy: {cause}") from cause
    return content
