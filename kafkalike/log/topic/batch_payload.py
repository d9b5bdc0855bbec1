"""Batch payload: a producer's batch as the Parquet files of an append, or as one staged file.

Parquet files are written without a JVM (decision 002): a record takes milliseconds from `send` to the commit, a Spark
job half a second.

A staged file lies beside a topic's table until a group commit or a transaction appends its records. It has a line with
the format and a checksum of the rest, a line of JSON with the lengths, and the bytes. It is small and only kafkalike
reads it, so it is not Parquet. Any process with access to the storage may have written it, so everything in it is
checked.
"""

from __future__ import annotations

import json
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from kafkalike.delta.actions import Add
from kafkalike.delta.damage import opened, sealed
from kafkalike.errors import CorruptRecordError, KafkaStorageError
from kafkalike.log.topic.chunk import CHUNK_SCHEMA, earliest_due
from kafkalike.log.topic.record_rules import SchemasOf, check_batch
from kafkalike.model import faults
from kafkalike.model.appends.producer_sequences import SequencedBatch
from kafkalike.model.config.topic_config import CODECS, TopicConfig
from kafkalike.model.record_batch import Headers, RecordBatch, TxnId
from kafkalike.model.row_value import INT32, INT64, UNREADABLE, checked_int, checked_list, checked_text
from kafkalike.model.segments import DUE_KEY, Segment, segment_path
from kafkalike.storage.arrays import binaries, held_numbers, numbers
from kafkalike.storage.parquet import put_parquet
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.model.topic import TopicInfo


PARQUET_CODECS: Final = {"none": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}
"""Names of Kafka's codecs in pyarrow; its `lz4` is Parquet's LZ4_RAW, which every reader knows."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Payload(Protocol):
    """Records that have no offsets yet."""

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        ...

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Raise an error if the topic rejects a record, by its newest settings."""
        ...

    def write(
        self,
        files: Storage,
        plan: Mapping[int, range],
        *,
        codec: str,
        now_ms: int,
        now_counts: bool,
    ) -> list[Add]:
        """Write the data files under new names, which no commit names yet.

        Args:
            files: the topic's table.
            plan: the records' offsets, by partition.
            codec: a key of `PARQUET_CODECS`.
            now_ms: time of the append.
            now_counts: whether every record gets that time as its timestamp (LogAppendTime).

        Raises:
            KafkaStorageError: the storage refused. Written files are removed, or left to VACUUM.
        """
        ...


@dataclass(frozen=True, slots=True)
class BatchPayload:
    """A producer's batch as a payload."""

    batch: RecordBatch
    schemas: SchemasOf | None = None
    """The cluster's registry; None if the batch was checked before."""

    def counts(self) -> Mapping[int, int]:
        """Return the number of records by partition."""
        return Counter(self.batch.partitions)

    def check(self, info: TopicInfo, config: TopicConfig, now_ms: int) -> None:
        """Raise an error if the topic rejects a record."""
        check_batch(self.batch, info, config, now_ms, self.schemas)

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
        names: list[str] = []
        calls: list[Callable[[], Add]] = []
        try:
            for partition, table in _tables(self.batch, plan, now_ms if now_counts else None):
                run = plan[partition]
                names.append(segment_name(partition, run.start))
                calls.append(partial(written, files, names[-1], partition, run, table, codec, now_ms))
            return [calls[0]()] if len(calls) == 1 else files.scheduler.beside(calls)
        except (OSError, pa.ArrowException) as cause:
            raise refused(files, names, cause) from cause


def written(  # noqa: PLR0917 - called through `partial` alone
    files: Storage, name: str, partition: int, run: range, table: pa.Table, codec: str, now_ms: int
) -> Add:
    """Write rows (`CHUNK_SCHEMA`, one chunk a column) with the offsets of a run as a file; return its action."""
    size = put_parquet(files, name, table, PARQUET_CODECS[codec])
    times = held_numbers(table.column("timestamp").chunk(0))
    due = earliest_due(table.column("headers"))
    stats = segment_stats(
        len(run), (run.start, run.stop - 1), (int(times.min()) // 1000, int(times.max()) // 1000), due
    )
    return Add(path=name, partition=partition, size=size, modification_ms=now_ms, data_change=True, stats=stats)


def refused(files: Storage, names: Iterable[str], cause: Exception) -> KafkaStorageError:
    """Remove the written files of an append, and return the error with its cause."""
    for name in names:
        files.remove(name, quietly=True)
    return KafkaStorageError(f"{files.uri}: the storage refused the records: {cause}")


def segment_name(partition: int, start: int) -> str:
    """Return a new name for the file of a segment."""
    return segment_path(partition, start, uuid.uuid4().hex)


def _tables(batch: RecordBatch, plan: Mapping[int, range], append_time_ms: int | None) -> list[tuple[int, pa.Table]]:
    rows = len(batch.partitions)
    times = np.full(rows, append_time_ms, np.int64) if append_time_ms is not None else np.array(batch.timestamps)
    headers = CHUNK_SCHEMA.field("headers").type
    whole = {
        "timestamp": numbers(times.astype(np.int64) * 1000, pa.timestamp("us", "UTC")),
        "timestampType": numbers(np.full(rows, int(append_time_ms is not None), np.int32), pa.int32()),
        "key": binaries(batch.keys),
        "value": binaries(batch.values),
        "headers": pa.array([_header_structs(h) for h in batch.headers], headers)
        if any(batch.headers)
        else pa.nulls(rows, headers),
    }
    tables = []
    for partition, picked in _rows_by_partition(batch.partitions, plan).items():
        run = plan[partition]
        columns = {n: c if picked is None else c.take(picked) for n, c in whole.items()}
        columns["offset"] = numbers(np.arange(run.start, run.stop, dtype=np.int64), pa.int64())
        tables.append((partition, pa.Table.from_arrays([columns[f.name] for f in CHUNK_SCHEMA], schema=CHUNK_SCHEMA)))
    return tables


def _rows_by_partition(partitions: Sequence[int], plan: Mapping[int, range]) -> dict[int, pa.Array | None]:
    """Return the row numbers of each partition, in sending order; None stands for all rows."""
    if len(plan) == 1:
        return dict.fromkeys(plan)
    where = np.array(partitions, np.int64)
    order = np.argsort(where, kind="stable")
    found = sorted(plan)
    bounds = [*np.searchsorted(where[order], found).tolist(), len(where)]
    return {p: numbers(order[bounds[at] : bounds[at + 1]], pa.int64()) for at, p in enumerate(found)}


def _header_structs(headers: object) -> list[dict[str, object]] | None:
    return None if headers is None else [{"key": k, "value": v} for k, v in headers]  # type: ignore[attr-defined]


def segment_stats(rows: int, offsets: tuple[int, int], times_ms: tuple[int, int], due: int = 0) -> dict[str, object]:
    """Return Delta's statistics of a segment.

    Args:
        rows: number of records.
        offsets: of the first and the last record.
        times_ms: earliest and latest timestamp.
        due: see `Segment.due_ms`.
    """
    first = iso_time(times_ms[0])
    last = first if times_ms[0] == times_ms[1] else iso_time(times_ms[1])
    return {
        "numRecords": rows,
        "minValues": {"offset": offsets[0], "timestamp": first},
        "maxValues": {"offset": offsets[1], "timestamp": last},
        "nullCount": {"offset": 0, "timestamp": 0},
        **({DUE_KEY: due} if due else {}),
    }


def add_of(segment: Segment) -> Add:
    """Return the action that names a segment's file."""
    return Add(
        path=segment.path,
        partition=segment.partition,
        size=segment.size_bytes,
        modification_ms=segment.modification_ms,
        data_change=True,
        stats=segment_stats(
            segment.num_records,
            (segment.start, segment.stop - 1),
            (segment.min_timestamp, segment.max_timestamp),
            segment.due_ms,
        ),
    )


def iso_time(time_ms: int) -> str:
    """Return a time in the form of Delta's file statistics: ISO 8601 with ms, UTC."""
    return f"{_whole_second(time_ms // 1000)}.{time_ms % 1000:03d}Z"


@lru_cache(maxsize=64)
def _whole_second(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


BEFORE_KEY: Final = "before"
"""Key of the previous version of a name of kafkalike's own, 0 for none, in the note of an append under that name."""


def append_note(append_time_ms: int, txn: TxnId | None, known: Mapping[str, int]) -> dict[str, object]:
    """Return the user metadata of an append's commit, beside its id.

    The time is the records' timestamp in a topic with LogAppendTime. The commit's own time may be a little later.

    Args:
        append_time_ms: that time.
        txn: the write's name.
        known: the versions of names in the table.
    """
    if txn is None:
        return {"time": append_time_ms}
    note: dict[str, object] = {"time": append_time_ms, "txn": [txn.app_id, txn.version]}
    return note | {BEFORE_KEY: known.get(txn.app_id, 0)} if txn.own else note


_PARTITIONS: Final = re.compile(rb'"partitions":\[(\d+(?:,\d+)*)\]')
"""The partitions in the head of a staged file. Text in the head has a backslash before each quote, so it cannot
match."""

Loose = tuple[RecordBatch, str, TxnId | None]
"""Records, the producer's codec, and the write's name."""


StagedSequences = Sequence[tuple[int, int, SequencedBatch | None]]
"""The batches of producers in a staged append, in order: partition, number of records, and sequence."""

BATCHES_KEY: Final = "batches"
"""Key of `StagedSequences` in the head of a staged file, in place of `partitions`: earlier releases, which would not
record the sequences, cannot read such a file."""


_BATCHES: Final = re.compile(rb'"batches":\[((?:\[[0-9,]+\],?)+)\]')
_BATCH: Final = re.compile(rb"\[(\d+),(\d+)[0-9,]*\]")
"""The sequences in the head of a staged file, and their element type."""


def pack(batch: RecordBatch, codec: str, txn: TxnId | None, sequences: StagedSequences = ()) -> bytes:
    """Return the content of an append's staged file.

    Args:
        batch: the records.
        codec: the producer's.
        txn: the write's name.
        sequences: all batches that the records are from; none for an append without sequences.
    """
    pieces: list[bytes] = []

    def length(value: bytes | None) -> int | None:
        if value is None:
            return None
        pieces.append(value)
        return len(value)

    # `unpack` reads the bytes in this order.
    columns = {
        "keys": [length(key) for key in batch.keys],
        "values": [length(value) for value in batch.values],
        "headers": [None if h is None else [[name, length(value)] for name, value in h] for h in batch.headers],
    }
    named: dict[str, Any] = {"partitions": batch.partitions}
    if sequences:
        producers = [() if s is None else (s.producer_id, s.epoch, s.first) for _, _, s in sequences]
        named = {BATCHES_KEY: [[p, count, *more] for (p, count, _), more in zip(sequences, producers, strict=True)]}
    head = {
        "codec": codec,
        "txn": None if txn is None else [txn.app_id, txn.version, txn.after],
        **named,
        "timestamps": batch.timestamps,
        **columns,
    }
    return sealed(json.dumps(head, separators=(",", ":")).encode() + b"\n" + b"".join(pieces))


def unpack(content: bytes) -> Loose:
    """Return the append in a staged file.

    Raises:
        CorruptRecordError: the content is not a staged file, is damaged, or is of a newer release.
    """
    return unpack_sequences(content)[0]


def unpack_sequences(content: bytes) -> tuple[Loose, StagedSequences]:
    """Return the append in a staged file, and the batches of producers in it, if it has sequences; see `unpack`."""
    try:
        return _unpacked(content)
    except UNREADABLE as cause:
        raise CorruptRecordError(f"an append that waits cannot be read: {cause}") from cause


def partitions_in(head: bytes) -> Counter[int] | None:
    """Return the number of records by partition, from a staged file's beginning.

    Args:
        head: the available bytes. They are not checked, so use the result for display only.

    Returns:
        None if the bytes do not contain the complete list.
    """
    batches = _BATCHES.search(head)
    if batches is not None:
        counts = Counter[int]()
        for partition, count in _BATCH.findall(batches[1]):
            counts[int(partition)] += int(count)
        return counts
    found = _PARTITIONS.search(head)
    return None if found is None else Counter(map(int, found[1].split(b",")))


def _unpacked(content: bytes) -> tuple[Loose, StagedSequences]:
    line, _, body = opened(content).partition(b"\n")
    head = json.loads(line)
    taker = _Taker(body)
    timestamps = checked_list(head["timestamps"])
    sequences = [_staged(checked_list(found), len(timestamps)) for found in checked_list(head.get(BATCHES_KEY, []))]
    named = [p for p, count, _ in sequences for _ in range(count)] if sequences else checked_list(head["partitions"])
    batch = RecordBatch(
        partitions=[checked_int(p, INT32) for p in named],
        timestamps=[checked_int(t, INT64) for t in timestamps],
        keys=[taker.taken(size) for size in checked_list(head["keys"])],
        values=[taker.taken(size) for size in checked_list(head["values"])],
        headers=[_headers(h, taker) for h in checked_list(head["headers"])],
    )
    columns = (batch.timestamps, batch.keys, batch.values, batch.headers)
    if taker.at != len(body) or any(len(column) != len(batch) for column in columns):
        raise ValueError("lengths that do not fit")
    codec = checked_text(head["codec"])
    if codec not in CODECS:
        raise ValueError(f"codec {codec!r}")
    return (batch, codec, _txn(head["txn"])), sequences


def _staged(found: list[Any], rows: int) -> tuple[int, int, SequencedBatch | None]:
    partition, count, *sequence = found
    checked = checked_int(partition, INT32), checked_int(count, range(1, rows + 1))
    if not sequence:
        return *checked, None
    producer_id, epoch, first = sequence
    return *checked, SequencedBatch(
        checked_int(producer_id, INT64), checked_int(epoch, INT32), checked[0], checked_int(first, INT32), checked[1]
    )


def _headers(found: Any, taker: _Taker) -> Headers | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    headers = []
    for header in checked_list(found):
        name, size = checked_list(header)
        headers.append((checked_text(name), taker.taken(size)))
    return headers


def _txn(found: Any) -> TxnId | None:  # noqa: ANN401 - any JSON
    if found is None:
        return None
    app_id, version, after = checked_list(found)
    return TxnId(
        checked_text(app_id), checked_int(version, INT64), None if after is None else checked_int(after, INT64)
    )


class _Taker:
    """Reads values from the front of some bytes."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.at = 0

    def taken(self, size: Any) -> bytes | None:  # noqa: ANN401 - any JSON
        if size is None:
            return None
        stop = self.at + checked_int(size, range(len(self._body) - self.at + 1))
        found, self.at = self._body[self.at : stop], stop
        return found
