"""Spark's input partitions: ranges of offsets of a topic partition, read as Arrow batches; and the format's columns.

`plan_range` plans a range in the process that has the log open. The plan names the files, so the task that reads it
does not need the table's log. The task opens the log only if a file is missing.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import InputPartition

from kafkalike import errors
from kafkalike.log.topic.data_file import ReadOptions
from kafkalike.log.topic.segment_rows import MissingInsideError, SegmentRows
from kafkalike.model.concurrency import OnError
from kafkalike.model.segments import Segment
from kafkalike.spark.format.batch_plan import OffsetRun, grouped, split, tasks_for
from kafkalike.spark.format.source_options import SourceOptions
from kafkalike.spark.format.source_topics import SourceTopics
from kafkalike.spark.record_columns import HEADERS
from kafkalike.storage.arrays import repeated
from kafkalike.storage.port import Storage

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


TYPES: Final[Mapping[str, spark_types.DataType]] = {
    "key": spark_types.BinaryType(),
    "value": spark_types.BinaryType(),
    "topic": spark_types.StringType(),
    "partition": spark_types.IntegerType(),
    "offset": spark_types.LongType(),
    "timestamp": spark_types.TimestampType(),
    "timestampType": spark_types.IntegerType(),
    "headers": HEADERS,
}
"""Columns of Spark's Kafka source, in its order. Not as text, because a session's settings may make TIMESTAMP a type
without a zone there."""


def columns_of(options: SourceOptions) -> tuple[str, ...]:
    """Return the names of the columns; `headers` only with `includeHeaders`."""
    return tuple(name for name in FIELDS if name != "headers" or options.include_headers)


def arrow_schema(columns: Iterable[str]) -> pa.Schema:
    """Return the schema of some columns as Arrow has it."""
    return pa.schema([FIELDS[name] for name in columns])


def schema_of(columns: Iterable[str]) -> spark_types.StructType:
    """Return the schema of some columns."""
    return spark_types.StructType([spark_types.StructField(name, TYPES[name]) for name in columns])


class OffsetPartition(InputPartition):
    """Runs of offsets for one task, which reads them one after another."""

    def __init__(self, plans: Sequence[RangePlan], columns: Sequence[str], *, fail_on_data_loss: bool) -> None:
        super().__init__(None)
        self.plans = tuple(plans)
        self.columns = tuple(columns)
        self.fail_on_data_loss = fail_on_data_loss


def parts(
    topics: SourceTopics, options: SourceOptions, runs: Iterable[OffsetRun], *, scale: int = 1
) -> list[InputPartition]:
    """Return input partitions: each has a run, a piece of one (`minPartitions`, `maxRecordsPerPartition`), or several.

    Small runs share a task unless the options set the number of tasks.

    Args:
        topics: topics with refreshed logs.
        options: of the query.
        runs: the runs to read.
        scale: see `tasks_for`.
    """
    root, columns = topics.cluster.store, columns_of(options)
    pieces = split(sorted(runs, key=lambda run: run.tp), options.min_partitions, options.max_records_per_partition)
    most = options.max_partitions
    if most is None and not options.given & {"minPartitions", "maxRecordsPerPartition"}:
        most = tasks_for(sum(map(len, pieces)), sum(_bytes(topics, piece) for piece in pieces), scale=scale)
    return [
        OffsetPartition(
            [plan_range(topics.log(piece.tp.topic), root, piece.tp.partition, piece.offsets) for piece in task],
            columns,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for task in grouped(pieces, most)
    ]


def _bytes(topics: SourceTopics, run: OffsetRun) -> float:
    """Estimate the bytes of files in a run."""
    found = topics.log(run.tp.topic).segments_within(run.tp.partition, run.offsets)
    shares = ((s, min(s.stop, run.offsets.stop) - max(s.start, run.offsets.start)) for s in found)
    return sum(s.size_bytes * share / max(1, s.stop - s.start) for s, share in shares)


def read_part(partition: InputPartition) -> Iterator[Any]:
    """Read the records of an input partition, in the offset order of each Kafka partition."""
    if not isinstance(partition, OffsetPartition):
        # Spark's own empty partition of a batch without any.
        return
    for plan in partition.plans:
        yield from read_range(plan, partition.columns, fail_on_data_loss=partition.fail_on_data_loss)


_log = logging.getLogger(__name__)

BATCH_BYTES: Final = 8 * 1024 * 1024
"""Approximate bytes decoded at a time: large enough for Spark, small enough for two batches in any worker."""

MAX_ROWS: Final = 65_536
"""Most rows decoded at a time."""

SMALL_ROWS: Final = 8_192
"""Smaller batches are joined, so that a topic of tiny appends does not become a stream of tiny batches."""

KEPT_OPEN: Final = 4
"""Files that a process keeps open at the end of its last range, where the next micro-batch starts."""

_BINARY: Final = pa.binary()
_HEADER: Final = pa.struct([("key", pa.string()), ("value", _BINARY)])

FIELDS: Final = {
    "key": pa.field("key", _BINARY),
    "value": pa.field("value", _BINARY),
    "topic": pa.field("topic", pa.string()),
    "partition": pa.field("partition", pa.int32()),
    "offset": pa.field("offset", pa.int64()),
    "timestamp": pa.field("timestamp", pa.timestamp("us", "UTC")),
    "timestampType": pa.field("timestampType", pa.int32()),
    "headers": pa.field("headers", pa.list_(pa.field("element", _HEADER))),
}
"""Columns of Spark's Kafka source, in its order, as Spark's Arrow types."""

CONSTANT: Final = ("topic", "partition")
"""Columns with the same value in every row of a range, which the files do not store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangePlan:
    """A run of offsets and the files that hold it. It can be pickled."""

    root: Storage
    """The cluster's root."""
    topic: str
    topic_id: str
    uri: str
    """The topic's table."""
    files: Storage
    """The table's files."""
    partition: int
    offsets: range
    segments: tuple[Segment, ...]
    sparse_below: int
    """Offset below which a missing record is not a loss, because compaction may have removed it."""


def plan_range(log: TopicLog, root: Storage, partition: int, offsets: range) -> RangePlan:
    """Name the files that hold a run of offsets, as of the log's last `refresh`; `root` is the cluster's."""
    segments = tuple(log.segments_within(partition, offsets))
    return RangePlan(
        root=root.tasks.sendable(root),
        topic=log.info.name,
        topic_id=log.info.topic_id,
        uri=log.files.uri,
        files=log.files.tasks.sendable(log.files),
        partition=partition,
        offsets=offsets,
        segments=segments,
        sparse_below=_sparse_below(log, partition, offsets, segments),
    )


def _sparse_below(log: TopicLog, partition: int, offsets: range, segments: Sequence[Segment]) -> int:
    at = offsets.start
    for segment in segments:
        log.check_no_overlap(segment, offsets.start)
        if segment.start > at or segment.num_records != segment.stop - segment.start:
            return log.holes_below(partition)
        at = segment.stop
    return 0 if at >= offsets.stop else log.holes_below(partition)


def read_range(plan: RangePlan, columns: Sequence[str], *, fail_on_data_loss: bool = True) -> Iterator[pa.RecordBatch]:
    """Read the records of a plan in offset order.

    Args:
        plan: the plan.
        columns: columns of `FIELDS`, in the order wanted.
        fail_on_data_loss: whether missing records are an error; otherwise they are skipped with a warning.

    Raises:
        DataLossError: records of the plan are missing; names topic, partition, offsets and reason.
        CorruptRecordError: a file is damaged.
    """
    reader = RangeReader(plan, columns, fail_on_data_loss=fail_on_data_loss)
    return map(reader.shaped, _joined(reader.batches()))


class RangeReader:
    """Reads one plan once, from start to end; see `read_range`."""

    def __init__(self, plan: RangePlan, columns: Sequence[str], *, fail_on_data_loss: bool) -> None:
        self._plan = plan
        self._schema = arrow_schema(columns)
        self._fail = fail_on_data_loss
        self._files = plan.files
        self._position = plan.offsets.start
        self._next = 0
        """Index of the first segment that does not end before the position."""
        self._looked_again = -1
        """Position at which the log was last reopened; it is reopened once per position."""
        wanted = {"offset", *columns} - set(CONSTANT)
        self._stored = tuple(name for name in FIELDS if name in wanted)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read all records of the plan, with the columns that the files store, in the files' batches."""
        stop = self._plan.offsets.stop
        while self._position < stop:
            segment = self._segment_here()
            if segment is None:
                continue
            try:
                yield from self._read_segment(segment, min(stop, segment.stop))
            except (FileNotFoundError, errors.CorruptRecordError) as cause:
                self._explain(segment, cause)
            except MissingInsideError as cause:
                self._lose(cause.lost, str(cause), cause)
                self._position = cause.lost.stop

    def _segment_here(self) -> Segment | None:
        """Return the segment that holds the position; None after a gap was skipped or the plan was replaced."""
        plan, position = self._plan, self._position
        while self._next < len(plan.segments) and plan.segments[self._next].stop <= position:
            self._next += 1
        segment = plan.segments[self._next] if self._next < len(plan.segments) else None
        if segment is not None and segment.start <= position:
            return segment
        until = plan.offsets.stop if segment is None else min(segment.start, plan.offsets.stop)
        if until > plan.sparse_below:
            if self._looked_again != position:
                self._look_again()
                return None
            self._lose(range(position, until), "no file of the table holds them")
        self._position = until
        return None

    def _read_segment(self, segment: Segment, stop: int) -> Iterator[pa.RecordBatch]:
        """Read records from the position to `stop`; moves the position before it yields each batch."""
        rows = _take_open(self._plan.uri, segment.path, self._stored, self._position)
        if rows is None:
            reading = ReadOptions(columns=self._stored, batch_bytes=BATCH_BYTES, max_rows=MAX_ROWS, threads=False)
            rows = SegmentRows(
                self._files,
                segment,
                self._position,
                reading,
                name=self._name,
                holes_below=lambda: self._plan.sparse_below,
            )
        with OnError(rows.close):
            while (batch := rows.next(stop)) is not None:
                self._position = rows.position
                yield batch
        # Compaction may have removed the last records before `stop`.
        self._position = rows.position
        if rows.position < segment.stop:
            _keep_open(self._plan.uri, segment.path, self._stored, rows)

    def shaped(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the wanted columns of a batch from `batches`."""
        columns = []
        for field in self._schema:
            if field.name == "topic":
                columns.append(repeated(self._plan.topic, batch.num_rows))
            elif field.name == "partition":
                columns.append(repeated(self._plan.partition, batch.num_rows))
            else:
                column = batch.column(self._stored.index(field.name))
                columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    # --- missing records ---------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self._plan.topic}-{self._plan.partition}"

    def _explain(self, segment: Segment, cause: Exception) -> None:
        """Handle an unreadable file, which was merged into another file, deleted by retention, or damaged."""
        if self._looked_again != self._position:
            self._look_again()
            if segment not in self._plan.segments:
                return
        if not isinstance(cause, FileNotFoundError):
            raise cause
        lost = range(self._position, min(segment.stop, self._plan.offsets.stop))
        self._lose(lost, f"{self._plan.uri}/{segment.path} is missing", cause)
        self._position = lost.stop

    def _look_again(self) -> None:
        """Replace the plan by a new one from the position on, from the table's current version."""
        # Imported here, because most tasks do not need it.
        from kafkalike.log.cluster.cluster import Cluster

        plan, position = self._plan, self._position
        self._looked_again = position
        try:
            log = Cluster(plan.root).log(plan.topic)
            if log.info.topic_id != plan.topic_id:
                raise errors.TopicDeletedError(plan.topic, plan.topic_id, log.info.topic_id)
        except errors.UnknownTopicOrPartitionError as cause:
            self._lose(range(position, plan.offsets.stop), str(cause), cause)
            self._position = plan.offsets.stop
            return
        start = log.log_start(plan.partition)
        if start > position:
            lost = range(position, min(start, plan.offsets.stop))
            self._lose(lost, log.info.why_gone(plan.partition, position))
            self._position = self._looked_again = lost.stop
        rest = range(self._position, plan.offsets.stop)
        segments = tuple(log.segments_within(plan.partition, rest))
        below = _sparse_below(log, plan.partition, rest, segments)
        self._plan, self._next = replace(plan, segments=segments, sparse_below=below), 0

    def _lose(self, lost: range, reason: str, cause: Exception | None = None) -> None:
        """Raise, or log a warning and let the caller skip the records."""
        error = lost_range(self._plan, lost, reason)
        if self._fail:
            raise error from cause
        _log.warning("%s; they are skipped, as failOnDataLoss is false", error)


def lost_range(plan: RangePlan, lost: range, reason: str) -> errors.DataLossError:
    """Return the error for records of a plan that cannot be read."""
    return errors.DataLossError(
        f"KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE: {plan.topic}-{plan.partition}: offsets [{lost.start}, "
        f"{lost.stop}) are lost: {reason}. Set failOnDataLoss to false to skip lost records"
    )


_open: OrderedDict[tuple[str, ...], SegmentRows] = OrderedDict()
"""Files that this process keeps open, by table, file and columns. Spark's Python workers are reused for other tasks."""


def _take_open(uri: str, path: str, columns: Sequence[str], position: int) -> SegmentRows | None:
    """Return the file in which an earlier range of this process ended, if this range starts there."""
    found = _open.pop((uri, path, *columns), None)
    return found if found is not None and found.position == position else None


def _keep_open(uri: str, path: str, columns: Sequence[str], rows: SegmentRows) -> None:
    _open[uri, path, *columns] = rows
    while len(_open) > KEPT_OPEN:
        _open.popitem(last=False)


def _joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join batches to at least `SMALL_ROWS` rows each, except the last."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not waiting and batch.num_rows >= SMALL_ROWS:
            yield batch
            continue
        waiting.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= SMALL_ROWS or size >= BATCH_BYTES:
            yield _one(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield _one(waiting)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


MOST_OFFSETS: Final = 16_384
"""Most offsets of a batch that the planner hands over. The JVM takes them row by row in one thread; from about twice
this number on, tasks are faster."""

MOST_BYTES: Final = 4 * 1024 * 1024
"""Most bytes of its records, because they stay in the driver's memory until the next batch."""


def read_small(partition: InputPartition) -> list[pa.RecordBatch] | None:
    """Read the records of an input partition; None leaves them to a task, because they are many or unreadable.

    A task reports errors to the user in the usual way.
    """
    assert isinstance(partition, OffsetPartition)
    if sum(len(plan.offsets) for plan in partition.plans) > MOST_OFFSETS:
        return None
    try:
        return _up_to(MOST_BYTES, read_part(partition))
    except (errors.KafkaError, OSError, pa.ArrowException):
        # The task meets the error as well, and reports it.
        _log.debug("the planner leaves a batch to a task", exc_info=True)
        return None


def _up_to(most: int, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch] | None:
    found, size = [], 0
    for batch in batches:
        size += batch.nbytes
        if size > most:
            return None
        found.append(batch)
    return found
