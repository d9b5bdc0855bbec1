"""Staged append: the records of one append, in a file beside the topic's table where they wait for a group commit.

A line with the format and a checksum of all that follows, a line of JSON with the lengths, then the bytes. Small, and
read by kafkalike alone, so not Parquet. Anybody who may write to the storage may have put the file there, and what it
holds is committed by somebody else: so nothing in it is believed unchecked.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any, Final

from kafkalike.delta.damage import opened, sealed
from kafkalike.errors import CorruptRecordError
from kafkalike.model.config.topic_config import CODECS
from kafkalike.model.json_values import BAD_JSON, INT32, INT64, list_of, text, whole
from kafkalike.model.record_batch import Headers, RecordBatch, TxnId

_PARTITIONS: Final = re.compile(rb'"partitions":\[(\d+(?:,\d+)*)\]')
"""In the head of a file; text in it has a backslash before each quote."""

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


def unpack(content: bytes) -> Loose:
    """What waits in a file.

    Raises:
        CorruptRecordError: it is none, or is damaged, or only a newer release can read it.
    """
    try:
        return _unpacked(content)
    except BAD_JSON as cause:
        raise CorruptRecordError(f"an append that waits cannot be read: {cause}") from cause


def partitions_in(head: bytes) -> Counter[int] | None:
    """Records by partition, of a file's beginning.

    Args:
        head: so many bytes as are at hand. They are not checked: good for showing only.

    Returns:
        None when that does not stand there, or not all of it.
    """
    found = _PARTITIONS.search(head)
    return None if found is None else Counter(map(int, found[1].split(b",")))


def _unpacked(content: bytes) -> Loose:
    line, _, body = opened(content).partition(b"\n")
    head = json.loads(line)
    taker = _Taker(body)
    batch = RecordBatch(
        partitions=[whole(p, INT32) for p in list_of(head["partitions"])],
        timestamps=[whole(t, INT64) for t in list_of(head["timestamps"])],
        keys=[taker.taken(size) for size in list_of(head["keys"])],
        values=[taker.taken(size) for size in list_of(head["values"])],
        headers=[_headers(h, taker) for h in list_of(head["headers"])],
    )
    columns = (batch.timestamps, batch.keys, batch.values, batch.headers)
    if taker.at != len(body) or any(len(column) != len(batch) for column in columns):
        raise ValueError("lengths that do not fit")
    codec = text(head["codec"])
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r}")
    return batch, codec, _txn(head["txn"])


def _headers(found: Any, taker: _Taker) -> Headers | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    headers = []
    for header in list_of(found):
        name, size = list_of(header)
        headers.append((text(name), taker.taken(size)))
    return headers


def _txn(found: Any) -> TxnId | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    app_id, version, after = list_of(found)
    return TxnId(text(app_id), whole(version, INT64), None if after is None else whole(after, INT64))


class _Taker:
    """Takes bytes off the front."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def taken(self, size: Any) -> bytes | None:  # noqa: ANN401 - any JSON
        if size is None:
            return None
        stop = self.at + whole(size, range(len(self._body) - self.at + 1))
        found, self.at = self._body[self.at : stop], stop
        return found
