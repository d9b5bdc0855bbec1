"""Waiting batch: records of one append ↔ the file in which they wait beside a topic's table.

A line with the format and a checksum of all that follows, a line of JSON with the lengths, then the bytes. Small, and
read by kafkalike alone, so not Parquet. Anybody who may write to the storage may have put the file there, and what it
holds is committed by somebody else: so nothing in it is believed unchecked.
"""

from __future__ import annotations

import json
import zlib
from typing import Any, Final

from kafkalike.config.topic import CODECS
from kafkalike.errors import CorruptRecordError
from kafkalike.model.appends import TxnId
from kafkalike.model.batch import Headers, RecordBatch

FORMAT: Final = 1

INT32: Final = range(-(2**31), 2**31)
INT64: Final = range(-(2**63), 2**63)

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
    head = {
        "codec": codec,
        "txn": None if txn is None else [txn.app_id, txn.version, txn.after],
        "partitions": batch.partitions,
        "timestamps": batch.timestamps,
        **columns,
    }
    return sealed(json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(pieces))


def sealed(rest: bytes) -> bytes:
    """Head and body with the line before them."""
    return _seal(rest) + b"\n" + rest


def _seal(rest: bytes | memoryview) -> bytes:
    return b"%d %08x" % (FORMAT, zlib.crc32(rest))


def unpack(content: bytes) -> Loose:
    """What waits in a file.

    Raises:
        CorruptRecordError: it is none, or is damaged, or only a newer release can read it.
    """
    try:
        return _unpacked(content)
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as cause:
        message = f"an append that waits cannot be read: {cause}"
        raise CorruptRecordError(message) from cause


def _unpacked(content: bytes) -> Loose:
    seal, _, rest = content.partition(b"\n")
    if seal != _seal(rest):
        raise ValueError("another format, or a wrong checksum")
    line, _, body = rest.partition(b"\n")
    head = json.loads(line)
    taker = _Taker(body)
    batch = RecordBatch(
        partitions=[_whole(p, INT32) for p in _list(head["partitions"])],
        timestamps=[_whole(t, INT64) for t in _list(head["timestamps"])],
        keys=[taker.taken(size) for size in _list(head["keys"])],
        values=[taker.taken(size) for size in _list(head["values"])],
        headers=[_headers(h, taker) for h in _list(head["headers"])],
    )
    columns = (batch.timestamps, batch.keys, batch.values, batch.headers)
    if taker.at != len(body) or any(len(column) != len(batch) for column in columns):
        raise ValueError("lengths that do not fit")
    codec = _text(head["codec"])
    if codec not in CODECS:
        message = f"codec {codec!r}"
        raise ValueError(message)
    return batch, codec, _txn(head["txn"])


def _headers(found: Any, taker: _Taker) -> Headers | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    headers = []
    for header in _list(found):
        name, size = _list(header)
        headers.append((_text(name), taker.taken(size)))
    return headers


def _txn(found: Any) -> TxnId | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    app_id, version, after = _list(found)
    return TxnId(_text(app_id), _whole(version, INT64), None if after is None else _whole(after, INT64))


def _list(found: Any) -> list[Any]:  # noqa: ANN401 - any JSON
    if type(found) is not list:
        message = f"{type(found).__name__} where a list must be"
        raise TypeError(message)
    return found


def _whole(found: Any, within: range) -> int:  # noqa: ANN401 - any JSON
    if type(found) is not int or found not in within:
        message = f"{type(found).__name__} where a number of {within} must be, or one outside it"
        raise ValueError(message)
    return found


def _text(found: Any) -> str:  # noqa: ANN401 - any JSON
    if type(found) is not str:
        message = f"{type(found).__name__} where text must be"
        raise TypeError(message)
    # Half a surrogate pair is text to JSON, and can be stored nowhere.
    found.encode()
    return found


class _Taker:
    """Takes bytes off the front."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def taken(self, size: Any) -> bytes | None:  # noqa: ANN401 - any JSON
        if size is None:
            return None
        stop = self.at + _whole(size, range(len(self._body) - self.at + 1))
        found, self.at = self._body[self.at : stop], stop
        return found
