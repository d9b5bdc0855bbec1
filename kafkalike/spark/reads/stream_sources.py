"""The sources of a streaming query, settled when it starts: Delta's or the format's, planned in the driver or not.

`read_stream` builds a frame on Delta's source, with a note, if its arguments allow that. `DataStreamWriter.start` then
keeps the source, or replaces it in the query's plan by the format's, because only then are the checkpoint and the sink
known. Delta's source reads the files of a batch in any order, reads files as they were appended, and does not report
records that retention has deleted meanwhile. So it stays only where nobody can tell the difference. Sources of the
format are then given to the driver, see `driver_stream`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafkalike.connect import connect
from kafkalike.errors import CheckpointMismatchError, KafkaError
from kafkalike.log.cluster.topic_lineage import ends_at
from kafkalike.maintenance.verify.untouched_log import is_untouched
from kafkalike.model.segments import MARK
from kafkalike.spark.format.format import FORMAT
from kafkalike.spark.jvm.java_class import java_class
from kafkalike.spark.jvm.query_plans import QueryPlans, children, inner_nodes, loses_order
from kafkalike.spark.jvm.spark_version import HAS_PLANS
from kafkalike.spark.jvm.stream_checkpoint import OFFSETS, BatchOffsets, StreamCheckpoint
from kafkalike.spark.reads.driver_stream import in_driver, sink_in_driver

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster

_log = logging.getLogger(__name__)

NOTE: Final = "kafkalike.stream"
"""Option of Delta's reader, without effect there: the key in `_noted` of the frame's topic."""

START_ARGUMENTS: Final = ("path", "format", "outputMode", "partitionBy", "queryName")
"""Arguments of `DataStreamWriter.start`; all others are options."""

BATCH_TRIGGERS: Final = frozenset({"ProcessingTimeTrigger", "AvailableNowTrigger$", "OneTimeTrigger$"})
"""Triggers of queries in micro-batches."""

UNORDERED_SINKS: Final = frozenset({"noop", "delta", "parquet", "orc", "json", "csv", "text", "avro", "table"})
"""Sinks whose rows have no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotedStream:
    """A frame of `read_stream` on Delta's source; the reader's option `NOTE` has it as text."""

    root: str
    topic: str
    include_headers: bool
    forced: bool
    """True if the caller named the engine, or gave options that only Delta's source has."""

    def options(self) -> dict[str, str]:
        """Return the option for Delta's reader, and have queries over the frame settled at their start."""
        settle_sources()
        return {NOTE: json.dumps(asdict(self))}

    def by_format(self, spark: SparkSession) -> DataFrame:
        """Return a frame of the format with the same columns."""
        said = {"kafka.bootstrap.servers": self.root, "subscribe": self.topic, "startingOffsets": "earliest"}
        headers = str(self.include_headers).lower()
        return spark.readStream.format(FORMAT).options(**said, includeHeaders=headers).load()


def settle_sources() -> None:
    """Patch the methods that start a query to settle its sources; does nothing the second time."""
    for name in ("start", "toTable"):
        method = vars(DataStreamWriter)[name]
        if not hasattr(method, "settles_sources"):
            setattr(DataStreamWriter, name, _settling(method))


def _settling(method: Any) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def settling(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        writer = SparkWriter(self, is_table=method.__name__ == "toTable", arguments=(args, kwargs))
        writer.settle()
        query = writer.start_in_driver() if HAS_PLANS and method.__name__ == "start" else None
        return method(self, *args, **kwargs) if query is None else self._sq(query)

    settling.settles_sources = True  # type: ignore[attr-defined]
    return settling


class SparkWriter:
    """A `DataStreamWriter` that is about to start its query.

    PySpark has no names for the writer's settings and for a frame's plan, so they are read in the JVM.

    Args:
        writer: the writer.
        is_table: whether it writes into a table of the catalog.
        arguments: of `start` or `toTable`.
    """

    def __init__(self, writer: Any, *, is_table: bool, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:  # noqa: ANN401
        args, kwargs = self._arguments = arguments
        self._given = writer
        self._frame: DataFrame = writer._df  # noqa: SLF001 - PySpark has no name for it
        self._writer: Any = writer._jwrite  # noqa: SLF001
        self._format = "table" if is_table else kwargs.get("format") or (args[1:2] or (None,))[0]
        self._kwargs = {name.lower(): value for name, value in kwargs.items()}

    def settle(self) -> None:
        """Replace sources of Delta that must not read this query, and sources of the format that the driver can plan.

        Raises:
            CheckpointMismatchError: a frame is bound to Delta's source, and the checkpoint is the format's.
        """
        plan, spark = self._plan(), self._frame.sparkSession
        settled = self._with_engines(spark, plan)
        if HAS_PLANS:
            settled = in_driver(spark, settled)
        if settled is not plan:
            self._java_field("ds").set(self._writer, QueryPlans(spark).dataset(settled))

    def start_in_driver(self) -> Any:  # noqa: ANN401 - the JVM's query
        """Start a query whose batches the driver commits; None if Spark has to start it, or to report an error."""
        said = {**dict(zip(START_ARGUMENTS, self._arguments[0], strict=False)), **self._arguments[1]}
        path, kind, mode, columns, name = (said.pop(argument, None) for argument in START_ARGUMENTS)
        if (kind or self._field("source")) != FORMAT or path is not None or columns is not None:
            return None
        # As PySpark's method does.
        self._given.options(**said)
        if mode is not None:
            self._given.outputMode(mode)
        if name is not None:
            self._given.queryName(name)
        trigger, spark = self._field("trigger"), self._frame.sparkSession
        partitioned = self._field("partitioningColumns").isDefined() or self._field("clusteringColumns").isDefined()
        if partitioned or trigger.getClass().getSimpleName() not in BATCH_TRIGGERS:
            return None
        options, none = self._field("extraOptions"), java_class("scala.Option").empty()
        given = dict(java_class("scala.jdk.javaapi.CollectionConverters").asJava(options.originalMap()))
        made = sink_in_driver(spark, DataFrame(self._field("ds"), spark), given)
        if made is None:
            return None
        rows, table = made
        manager = spark._jsparkSession.sessionState().streamingQueryManager()  # noqa: SLF001
        return manager.startQuery(
            options.get("queryName"),
            self._field("sinkName"),
            options.get("checkpointLocation"),
            rows._jdf,  # noqa: SLF001
            options.originalMap(),
            table,
            self._field("outputMode"),
            False,  # noqa: FBT003 - no temporary checkpoint
            True,  # noqa: FBT003 - continues from its checkpoint
            trigger,
            getattr(manager, "startQuery$default$11")(),
            none,
            none,
        )

    def _with_engines(self, spark: SparkSession, plan: Any) -> Any:  # noqa: ANN401
        leaves = plan.collectLeaves()
        noted = {note for n in range(leaves.size()) if (note := _note_of(leaves.apply(n))) is not None}
        checkpoint = self._checkpoint() if noted else None
        replaced: dict[str, Any] = {}
        for note in sorted(noted):
            stream = NotedStream(**json.loads(note))
            why = self._against(stream, checkpoint)
            chosen = "Delta's source" if why is None else f'format("kafkalike"), because {why}'
            _log.info("%s: the stream is read by %s", stream.topic, chosen)
            if why is not None:
                replaced[note] = stream.by_format(spark)._jdf.logicalPlan()  # noqa: SLF001
        return _rebuilt(QueryPlans(spark), plan, replaced)[0] if replaced else plan

    def _against(self, stream: NotedStream, checkpoint: StreamCheckpoint | None) -> str | None:
        planned = None if checkpoint is None else checkpoint.last(OFFSETS)
        lines = [] if planned is None else planned.sources
        is_format = any(MARK in line and f'"{stream.topic}"' in line for line in lines)
        if is_format and stream.forced:
            raise CheckpointMismatchError(
                f'{stream.topic}: the checkpoint was made by format("kafkalike"), and the frame is bound to Delta\'s '
                "source; nothing was read. Call read_stream without engine and without maxFilesPerTrigger and "
                "maxBytesPerTrigger, and the query continues"
            )
        if is_format:
            return "its checkpoint is the format's"
        if stream.forced:
            return None
        if planned is not None and checkpoint is not None:
            changed = touched(connect(stream.root), stream.topic, checkpoint.last_done())
            if changed is not None:
                return changed
        return None if self._is_unordered() else "the order of the records may matter"

    def _plan(self) -> Any:  # noqa: ANN401
        return self._frame._jdf.logicalPlan()  # noqa: SLF001

    def _is_unordered(self) -> bool:
        spark = self._frame.sparkSession
        sink = self._format or self._field("source") or spark.conf.get("spark.sql.sources.default", "parquet")
        return str(sink).lower() in UNORDERED_SINKS and all(map(loses_order, inner_nodes(self._plan())))

    def _checkpoint(self) -> StreamCheckpoint | None:
        """Open the query's checkpoint; None if the query gets a new one."""
        spark, options = self._frame.sparkSession, self._field("extraOptions")

        def option(name: str) -> str | None:
            if name in self._kwargs:
                return str(self._kwargs[name])
            found = options.get(name)
            return str(found.get()) if found.isDefined() else None

        location = option("checkpointlocation")
        if location is None:
            folder, name = spark.conf.get("spark.sql.streaming.checkpointLocation", None), option("queryname")
            location = str(Path(folder, name)) if folder and name else None
        return None if location is None else StreamCheckpoint(spark, location)

    def _field(self, name: str) -> Any:  # noqa: ANN401
        return self._java_field(name).get(self._writer)

    def _java_field(self, name: str) -> Any:  # noqa: ANN401
        field = self._writer.getClass().getDeclaredField(name)
        field.setAccessible(True)
        return field


def touched(cluster: Cluster, topic: str, done: BatchOffsets | None) -> str | None:
    """Return why Delta's source must not continue a query after a batch; None if it may.

    Args:
        cluster: the cluster.
        topic: the topic that the query reads.
        done: the newest batch that is done; None if the first one was only planned.
    """
    log = cluster.log(topic)
    read = None if done is None else done.tables.get(log.info.table_id)
    since = 0 if read is None else read + 1
    try:
        ends = {} if read is None else ends_at(cluster, log.info, read)
    except KafkaError:
        return "its table's log no longer has all unread versions"
    if any(log.log_start(partition) > ends.get(partition, 0) for partition in log.info.partitions):
        return "unread records were deleted"
    return None if is_untouched(log.files, since) else "unread files were replaced"


def _note_of(leaf: Any) -> str | None:  # noqa: ANN401 - a node of Spark's plan
    if leaf.nodeName() != "StreamingRelation":
        return None
    found = leaf.dataSource().options().get(NOTE)
    return str(found.get()) if found.isDefined() else None


def _rebuilt(plans: QueryPlans, node: Any, replaced: Mapping[str, Any]) -> tuple[Any, str | None]:  # noqa: ANN401
    """Return a node with the plans that replace noted frames, and its note if it is below the frame's own columns."""
    below = children(node)
    if not below:
        note = _note_of(node)
        return node, note if note in replaced else None
    made = [_rebuilt(plans, child, replaced) for child in below]
    note = made[0][1]
    if note is not None:
        # The frame is Delta's source, its conditions, and the columns of the format.
        is_frame = node.nodeName() == "Project"
        return (plans.renamed(replaced[note], node), None) if is_frame else (node, note)
    return plans.with_children(node, [child for child, _ in made]), None
