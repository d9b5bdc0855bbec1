"""Whole files: a data file of a topic in; all of its rows, or the hash of its content, out; for maintenance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from kafkalike.errors import CorruptRecordError
from kafkalike.log.topic.data_file import COLUMNS, Reading
from kafkalike.log.topic.segment_rows import SegmentRows

if TYPE_CHECKING:
    from kafkalike.log.store.port import Store
    from kafkalike.model.segments import Segment

BATCH_ROWS: Final = 65_536
BATCH_BYTES: Final = 16 * 1024 * 1024
"""Rows decoded at a time at most, and about how many bytes."""

PART_BYTES: Final = 1024 * 1024
"""Bytes read at a time where nothing is decoded."""


def read_segment(files: Store, segment: Segment, columns: tuple[str, ...] = COLUMNS) -> Iterator[pa.Table]:
    """The rows of a segment in offset order, some ten thousand at a time.

    Args:
        files: the topic's table.
        segment: a live one.
        columns: columns of `CHUNK_SCHEMA` to read, `offset` among them.

    Raises:
        CorruptRecordError: it cannot be read, is no file of a topic, or does not hold what the log says.
        KafkaStorageError: the storage cannot be read now.
    """
    reading = Reading(columns=columns, batch_bytes=BATCH_BYTES, max_rows=BATCH_ROWS)
    rows = SegmentRows(files, segment, segment.start, reading, name=f"partition {segment.partition}")
    try:
        while (batch := rows.next()) is not None:
            yield pa.Table.from_batches([batch])
    except FileNotFoundError as cause:
        message = f"{files.uri}/{segment.path} is missing, so its partition is left as it is"
        raise CorruptRecordError(message) from cause
    except CorruptRecordError as cause:
        message = f"{cause}. Its partition is left as it is"
        raise CorruptRecordError(message) from cause
    finally:
        rows.close()


def sha256_of(files: Store, name: str) -> str:
    """SHA-256 of a file's content.

    Raises:
        FileNotFoundError: there is none.
        OSError: the storage does not answer.
    """
    hashed = hashlib.sha256()
    with files.open_input(name) as stream:
        while part := stream.read(PART_BYTES):
            hashed.update(part)
    return hashed.hexdigest()
