"""Waiting batch: records of one append ↔ the file in which they wait beside a topic's table.

A line of JSON with the lengths, then the bytes. Small, and read by kafkalike alone, so not Parquet.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from typing import Any, Final

from kafkalike.errors import CorruptRecordError
from kafkalike.model.appends import TxnId
from kafkalike.model.batch import RecordBatch

FORMAT: Final = 1

Loose = tuple[RecordBatch, str, TxnId | None]
"""Records, the producer's codec, and the write's name."""


def pack(batch: RecordBatch, codec: str, txn: TxnId | None) -> bytes:
    """The file of an append."""
    pieces: list[bytes] = []

    def length(value: bytes | None) -> int | None:
        if value is None:
            return None
        pieces.append(value)
        return len(value)

    # In the order in which `unpack` takes the bytes again.
    columns = {
        "keys": [length(key) for key in batch.keys],
        "values": [length(value) for value in batch.values],
        "headers": [None if h is None else [[name, length(value)] for name, value in h] for h in batch.headers],
    }
    body = b"".join(pieces)
    head = {
        "format": FORMAT,
        "crc": zlib.crc32(body),
        "codec": codec,
        "txn": None if txn is None else [txn.app_id, txn.version, txn.after],
        "partitions": batch.partitions,
        "timestamps": batch.timestamps,
        **columns,
    }
    return json.dumps(head, separators=(",", ":")).encode() + b"\n" + body


def unpack(content: bytes) -> Loose:
    """What waits in a file.

    Raises:
        CorruptRecordError: it is none, or one that only a newer release can read.
    """
    line, _, body = content.partition(b"\n")
    try:
        head = json.loads(line)
        if head["format"] != FORMAT or head["crc"] != zlib.crc32(body):
            raise ValueError("another format, or a wrong checksum")  # noqa: TRY301 - told with the others
        taker = _Taker(body)
        batch = RecordBatch(
            partitions=[int(p) for p in head["partitions"]],
            timestamps=[int(t) for t in head["timestamps"]],
            keys=taker.taken(head["keys"]),
            values=taker.taken(head["values"]),
            headers=[
                None if h is None else list(zip([n for n, _ in h], taker.taken([size for _, size in h]), strict=True))
                for h in head["headers"]
            ],
        )
        columns = (batch.timestamps, batch.keys, batch.values, batch.headers)
        if taker.at != len(body) or any(len(column) != len(batch) for column in columns):
            raise ValueError("lengths that do not fit")  # noqa: TRY301
        txn = None if head["txn"] is None else TxnId(*head["txn"])
        return batch, str(head["codec"]), txn
    except (ValueError, KeyError, TypeError, AttributeError) as cause:
        message = f"an append that waits cannot be read: {cause}"
        raise CorruptRecordError(message) from cause


class _Taker:
    """Takes bytes off the front."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def taken(self, sizes: Sequence[Any]) -> list[bytes | None]:
        found: list[bytes | None] = []
        for size in sizes:
            if size is None:
                found.append(None)
                continue
            found.append(self._body[self.at : self.at + size])
            self.at += size
        return found
