"""Streams of the format that the driver plans and commits in its own process, without Python tasks.

Spark runs the planner of a Python source in a Python process for each query, and reads records in Python tasks. Both
cost more than the records. In a session with a JVM, `DataStreamWriter.start` therefore replaces the format's source by
`TopicStream.java`, which Spark's own compiler Janino compiles. It asks the planner of this module, which is the reader
that the format's process would run, and its tasks read Parquet files without Python. Offsets, checkpoints, order and
reports of lost records are the same. The format's process still plans where the storage is not a folder of this machine
(decision 107).

The format's sink is replaced by `TopicSink.java` where all tasks run on this machine: they write their rows as Arrow
files, which this process stages and commits by the code of the format's own sink.
"""

from __future__ import annotations

import json
import logging
import os
import time
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, IllegalStateError, KafkaError
from kafkalike.maintenance.staging_folder import staging_place
from kafkalike.model.segments import MARK
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.format import FORMAT
from kafkalike.spark.format.input_partitions import (
    MOST_OFFSETS,
    OffsetPartition,
    RangePlan,
    arrow_schema,
    columns_of,
    lost_range,
    read_small,
    schema_of,
)
from kafkalike.spark.format.option_values import MAX_LONG
from kafkalike.spark.format.positions import offsets_of
from kafkalike.spark.format.sink import SinkOptions, check_sink_columns, commit_batch, parse_stream
from kafkalike.spark.format.source_options import SourceOptions, check_stream, described, parse_options
from kafkalike.spark.format.source_topics import SourceTopics, is_in_folder
from kafkalike.spark.format.stream_reader import TABLE, MarkedReader
from kafkalike.spark.jvm.java_class import JavaCalls, java_class, new_object
from kafkalike.spark.jvm.query_plans import QueryPlans
from kafkalike.spark.jvm.spark_connect import tasks_here
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.jvm.spark_version import ReadAllAvailable, ReadMaxRows
from kafkalike.spark.record_columns import arrow_columns, sink_columns
from kafkalike.spark.writes.staged_files import StagingTarget, TaskResult, stage_topics
from kafkalike.spark.writes.targets import target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.maintenance.staging_prefix import StagingFolder

_log = logging.getLogger(__name__)

SWITCH: Final = "spark.kafkalike.stream.driver"
"""Setting of a session: with `false`, the format's process plans streams that start from then on."""

SINK_SWITCH: Final = "spark.kafkalike.sink.driver"
"""Setting of a session: with `false`, the format's own sink commits what streams write that start from then on."""

CONSTANTS: Final = ("topic", "partition")
"""Columns that the files do not store."""

ALWAYS: Final = ("offset", *CONSTANTS)
"""Columns that a task needs, or that cost nothing."""


class StreamPlanner(JavaCalls):
    """Plans the micro-batches of one query for `TopicStream`, which calls it on the query's own thread.

    Args:
        options: checked options of a stream.
        folder: for small batches that this process reads, for tasks of the same machine; None leaves them to tasks.
        columns: of the rows, in the order of `output_columns`.
    """

    def __init__(self, options: SourceOptions, folder: str | None, columns: Sequence[str]) -> None:
        self._reader = MarkedReader(options)
        self._awaits_records = options.min_offsets_per_trigger is None
        """True if a query without new records waits for them alone, and not for a time."""
        self._folder = folder
        self._columns = columns
        self._handed: tuple[tuple[str, str], Path] | None = None
        """Start and end of the batch that was read last, and its file."""

    def _initial(self, *_: str | None) -> dict[str, Any]:
        return {"offset": json.dumps(self._reader.initialOffset())}

    def _limit(self, *_: str | None) -> dict[str, Any]:
        limit = self._reader.getDefaultReadLimit()
        return {"rows": limit.max_rows if isinstance(limit, ReadMaxRows) else None}

    def _prepare(self, *_: str | None) -> dict[str, Any]:
        self._reader.prepareForTriggerAvailableNow()
        self._awaits_records = False
        return {}

    def _latest(self, start: str, rows: str | None) -> dict[str, Any]:
        begun, topics = json.loads(start), self._reader.topics
        awaited = topics.next_files()
        end = self._reader.latestOffset(begun, ReadAllAvailable() if rows is None else ReadMaxRows(int(rows)))
        latest = self._reader.reportLatestOffset()
        # Other threads may have read a commit that this look did not see.
        is_quiet = end is begun and self._awaits_records and awaited == topics.next_files()
        return {
            # The same text without news, as Spark compares it.
            "offset": start if end is begun else json.dumps(end),
            "latest": None if latest is None else json.dumps(latest),
            "awaited": awaited if is_quiet else [],
            "metrics": None if end is begun else self._figures(end),
        }

    def _partitions(self, start: str, end: str) -> dict[str, Any]:
        planned = self._reader.partitions(json.loads(start), json.loads(end))
        tasks = [part for part in planned if isinstance(part, OffsetPartition)]
        if self._folder is not None and len(tasks) == 1:
            rows = self._hand(tasks[0], (start, end), self._folder)
            if rows is not None:
                return {"rows": rows}
        return {"tasks": [[file for plan in task.plans for file in files_of(plan)] for task in tasks]}

    def _hand(self, task: OffsetPartition, batch: tuple[str, str], folder: str) -> str | None:
        """Read a small batch into a file, which stays until the next batch; None leaves it to its task."""
        if self._handed is not None and self._handed[0] == batch:
            # A query that joins a stream with itself asks twice.
            return str(self._handed[1])
        self._forget()
        found = read_small(OffsetPartition(task.plans, self._columns, fail_on_data_loss=True))
        if found is None:
            return None
        place = Path(folder, f"kafkalike-batch-{uuid.uuid4().hex}.arrow")
        try:
            with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_stream(sink, arrow_schema(self._columns)) as stream:
                for rows in found:
                    stream.write_batch(rows)
        except OSError as cause:
            # The disk is full, or something has removed the folder.
            _log.warning("a batch is read by a task, as it cannot be written to %s: %s", place, cause)
            place.unlink(missing_ok=True)
            return None
        self._handed = batch, place
        return str(place)

    def _forget(self) -> None:
        if self._handed is not None:
            self._handed[1].unlink(missing_ok=True)
            self._handed = None

    def _metrics(self, consumed: str, _: str | None) -> dict[str, Any]:
        return self._figures(json.loads(consumed))

    def _figures(self, done: Mapping[str, Any]) -> dict[str, Any]:
        latest = self._reader.reportLatestOffset()
        # A batch that Delta's source planned ends at a version of the table.
        unknown = latest is None or TABLE in done
        behind = {} if unknown else self._reader.topics.lags(ends_of(latest or {}), ends_of(done))
        return {name: str(figure) for name, figure in behind.items()}

    def _commit(self, end: str, _: str | None) -> dict[str, Any]:
        self._reader.commit(json.loads(end))
        return {}

    def _stop(self, *_: str | None) -> dict[str, Any]:
        self._reader.stop()
        self._forget()
        return {}


def files_of(plan: RangePlan) -> Iterator[Mapping[str, Any]]:
    """Yield the files of a plan in offset order, with the offsets to read of each.

    Raises:
        DataLossError: no file holds some records of the plan, or a file is missing.
        CorruptRecordError: a file does not have the size that the table's log says.
        IllegalStateError: another writer made a file since the query was started.
    """
    at = plan.offsets.start
    for segment in plan.segments:
        begin, until = max(segment.start, at), min(segment.stop, plan.offsets.stop)
        if begin > at and begin > plan.sparse_below:
            raise lost_range(plan, range(at, begin), "no file of the table holds them")
        place = Path(plan.uri, segment.path)
        try:
            size = place.stat().st_size
        except FileNotFoundError:
            raise lost_range(plan, range(begin, until), f"{place} is missing") from None
        if size != segment.size_bytes:
            # Spark's reader counts no records of a part of a compacted file, nor where a condition leaves out some.
            raise CorruptRecordError(
                f"{place} has {size} bytes instead of {segment.size_bytes}; run `kafkalike verify`"
            )
        if not segment.has_own_name:
            raise IllegalStateError(
                f"{place}: another writer has rewritten records; start the query or load them again"
            )
        is_cut = begin > segment.start or until < segment.stop
        is_dense = segment.num_records == segment.stop - segment.start
        yield {
            "topic": plan.topic,
            "partition": plan.partition,
            "path": str(place),
            "segment": segment.path,
            "size": segment.size_bytes,
            "from": begin,
            "until": until,
            "cut": is_cut,
            # A compacted file does not tell how many records it has in some of its offsets.
            "records": until - begin if is_dense else -1 if is_cut else segment.num_records,
        }
        at = until
    if at < plan.offsets.stop and plan.offsets.stop > plan.sparse_below:
        raise lost_range(plan, range(at, plan.offsets.stop), "no file of the table holds them")


def ends_of(marked: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """Return the offsets of a checkpoint's text, without the mark."""
    return offsets_of({topic: ends for topic, ends in marked.items() if topic != MARK})


def options_for_driver(given: Mapping[str, str], *, near: bool) -> SourceOptions | None:
    """Return the options of a stream that the driver can plan; None if the format's process should, or report an error.

    The files are for Spark's reader: see `is_in_folder` and `SourceTopics.are_ours`. Small batches are
    parts of row groups, which Spark's reader decodes each time. A process keeps its place: the driver's for tasks on
    this machine (`near`), else the format's.
    """
    try:
        options = parse_options(given)
        check_stream(options)
        if not near and (options.max_offsets_per_trigger or MAX_LONG) <= MOST_OFFSETS:
            return None
        topics = SourceTopics(options)
        found = topics.look() if is_in_folder(topics.cluster) and options.fail_on_data_loss else None
    except KafkaError as cause:
        _log.debug("a stream is planned by the format's process: %s", cause)
        return None
    return options if found and topics.are_ours(found) else None


def in_driver(spark: SparkSession, plan: Any) -> Any:  # noqa: ANN401 - nodes of Spark's plan
    """Return a streaming plan whose sources of the format are planned in the driver; the same one if there are none."""
    streams = java_class("java.util.ArrayList")()
    return QueryPlans(spark).with_leaves(plan, partial(_in_driver, spark, streams))


def _in_driver(spark: SparkSession, streams: Any, leaf: Any, wanted: Any) -> Any:  # noqa: ANN401 - nodes of Spark's plan
    if leaf.nodeName() != "StreamingRelationV2" or leaf.table().name() != FORMAT:
        return None
    if spark.conf.get(SWITCH, "true") != "true":
        return None
    given = dict(leaf.extraOptions().asCaseSensitiveMap())
    options = options_for_driver(given, near=tasks_here(spark) is not None)
    if options is None:
        return None
    try:
        output = {leaf.output().apply(n).name(): leaf.output().apply(n) for n in range(leaf.output().size())}
        # Spark does not leave out columns of a stream itself.
        known = {
            name: output[name]
            for name in output_columns(options)
            if wanted is None or name in ALWAYS or wanted.contains(output[name])
        }
        relation = _with_source(spark, streams, leaf, options, known)
        return QueryPlans(spark).project([output[name] for name in output if name in known], relation)
    except (*SPARK_FAILURES, OSError, AttributeError, TypeError) as cause:
        _log.warning("a stream is planned by a process of its own: %s", cause)
        return None


def output_columns(options: SourceOptions) -> tuple[str, ...]:
    """Return the columns of `TopicStream`: Spark's reader gives constants after the columns of the files."""
    return (*(name for name in columns_of(options) if name not in CONSTANTS), *CONSTANTS)


def _with_source(
    spark: Any,  # noqa: ANN401
    streams: Any,  # noqa: ANN401 - a list in the JVM
    leaf: Any,  # noqa: ANN401
    options: SourceOptions,
    columns: Mapping[str, Any],
) -> Any:  # noqa: ANN401
    """Return a leaf whose source the driver plans, with some columns of the leaf by their names.

    The source is added to the streams of its query.
    """
    parse = java_class("org.apache.spark.sql.types.DataType").fromJson
    table = new_object(
        spark,
        "TopicStream",
        StreamPlanner(options, tasks_here(spark), tuple(columns)),
        f"kafkalike[{described(options)}]",
        spark._jsparkSession,  # noqa: SLF001
        parse(schema_of(tuple(columns)[: -len(CONSTANTS)]).json()),
        parse(schema_of(CONSTANTS).json()),
        options.group_id is not None,
        streams,
    )
    return leaf.copy(
        leaf.source(),
        leaf.sourceName(),
        table,
        leaf.extraOptions(),
        spark.sparkContext._jvm.PythonUtils.toSeq(list(columns.values())),  # noqa: SLF001 - PySpark has no names for plans
        leaf.catalog(),
        leaf.identifier(),
        leaf.v1Relation(),
        leaf.sourceIdentifyingName(),
    )


class SinkCommitter(JavaCalls):
    """Commits the micro-batches of one query for `TopicSink`, which calls it on the query's own thread.

    Args:
        cluster: the cluster of the topics.
        options: checked options of a sink.
        columns: of the rows.
    """

    def __init__(self, cluster: Cluster, options: SinkOptions, columns: Collection[str]) -> None:
        self._options = options
        self._cluster = cluster
        self._names_partitions = "partition" in columns
        self._place = ExitStack()
        self._batch: tuple[StagingTarget, StagingFolder] | None = None
        """Topics and staging folder of the batch that is being computed."""

    def _begin(self, *_: str | None) -> dict[str, Any]:
        self._place.close()
        target = target_of(
            self._cluster,
            self._options.topic,
            codec=self._options.codec,
            timestamps=self._options.timestamps,
            names_partitions=self._names_partitions,
        )
        self._batch = target, self._place.enter_context(staging_place(self._cluster.store))
        return {"folder": self._batch[1].files.uri}

    def _commit(self, given: str, batch_id: str) -> dict[str, Any]:
        asked, batch = json.loads(given), self._batch
        if batch is None:
            raise IllegalStateError(f"batch {batch_id} was not begun; start the query again")
        start = time.monotonic()
        with self._place, ThreadPoolExecutor(os.cpu_count()) as threads:
            results = list(threads.map(partial(staged_rows, *batch), asked["files"]))
            written = commit_batch(
                self._cluster, self._options, [asked["query"]], int(batch_id), results, batch[1].files
            )
        self._batch = None
        records = {f"records.{topic}": sum(map(len, done.ranges.values())) for topic, done in written.items()}
        return {"metrics": {**records, "commitMs": round(1000 * (time.monotonic() - start))}}

    def _abort(self, *_: str | None) -> dict[str, Any]:
        self._batch = None
        self._place.close()
        return {}


def staged_rows(target: StagingTarget, folder: StagingFolder, file: Mapping[str, Any]) -> TaskResult:
    """Stage the rows of an Arrow file, and remove it.

    Raises:
        CorruptRecordError: the file does not have as many rows as its task wrote.
    """
    place, found = Path(folder.files.uri, file["name"]), 0

    def counted(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        nonlocal found
        for batch in rows:
            found += batch.num_rows
            yield batch

    with pa.memory_map(str(place)) as mapped, pa.ipc.open_stream(mapped) as rows:
        staged = stage_topics(target, folder, counted(rows), file["task"])
    if staged.error is None and found != file["rows"]:
        raise CorruptRecordError(f"{place} has {found} rows of {file['rows']}; nothing was written")
    place.unlink()
    return staged


def sink_in_driver(spark: Any, frame: DataFrame, given: Mapping[str, str]) -> tuple[DataFrame, Any] | None:  # noqa: ANN401
    """Return the rows of a query for `TopicSink`, and that table; None if the format's own sink should write.

    Args:
        spark: the query's session.
        frame: its DataFrame.
        given: options of its writer.
    """
    if spark.conf.get(SINK_SWITCH, "true") != "true" or tasks_here(spark) is None:
        return None
    try:
        options = parse_stream(given)
        check_sink_columns(frame.schema, options)
        cluster = connect(options.root, access="spark_write")
        if not is_in_folder(cluster):
            return None
        committer = SinkCommitter(cluster, options, frame.columns)
        known = frame if options.timestamps else frame.drop("timestamp")
        rows = arrow_columns(sink_columns(known, needs_topic=options.topic is None))
        size = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch"))
        return rows, new_object(spark, "TopicSink", committer, f"kafkalike[{options.topic or 'topics'}]", size)
    except (KafkaError, *SPARK_FAILURES, OSError, AttributeError, TypeError) as cause:
        # The format's own sink reports the error.
        _log.debug("a stream is written by the format's own sink: %s", cause)
        return None
