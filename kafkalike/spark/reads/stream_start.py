"""The start of a streaming query, with its sources and its sink given to the driver, see `driver_stream`.

`DataStreamWriter.start` is patched, because the checkpoint and the sink are known only then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafkalike.errors import CheckpointMismatchError
from kafkalike.model.segments import MARK
from kafkalike.spark.format.format import FORMAT
from kafkalike.spark.jvm.java_class import java_class
from kafkalike.spark.jvm.query_plans import QueryPlans
from kafkalike.spark.jvm.spark_version import HAS_PLANS
from kafkalike.spark.jvm.stream_checkpoint import OFFSETS, StreamCheckpoint
from kafkalike.spark.reads.driver_stream import in_driver, sink_in_driver

NOTE: Final = "kafkalike.topic"
"""Option of Delta's reader, without effect there: the topic whose table it reads."""

START_ARGUMENTS: Final = ("path", "format", "outputMode", "partitionBy", "queryName")
"""Arguments of `DataStreamWriter.start`; all others are options."""

BATCH_TRIGGERS: Final = frozenset({"ProcessingTimeTrigger", "AvailableNowTrigger$", "OneTimeTrigger$"})
"""Triggers of queries in micro-batches."""


def start_in_driver() -> None:
    """Patch the methods that start a query, so that the driver plans and commits it; a second call does nothing."""
    for name in ("start", "toTable"):
        method = vars(DataStreamWriter)[name]
        if not hasattr(method, "starts_in_driver"):
            setattr(DataStreamWriter, name, _starting(method))


def _starting(method: Any) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def starting(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        writer = SparkWriter(self, args, kwargs)
        writer.replace_sources()
        query = writer.start_sink() if HAS_PLANS and method.__name__ == "start" else None
        return method(self, *args, **kwargs) if query is None else self._sq(query)

    starting.starts_in_driver = True  # type: ignore[attr-defined]
    return starting


class SparkWriter:
    """A `DataStreamWriter` that is about to start its query.

    PySpark has no names for the writer's settings and for a frame's plan, so they are read in the JVM.

    Args:
        writer: the writer.
        args: arguments of `start` or `toTable`.
        kwargs: likewise.
    """

    def __init__(self, writer: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ANN401
        self._args, self._kwargs = args, kwargs
        self._given = writer
        self._frame: DataFrame = writer._df  # noqa: SLF001 - PySpark has no name for it
        self._writer: Any = writer._jwrite  # noqa: SLF001

    def replace_sources(self) -> None:
        """Replace the format's sources that the driver can plan.

        Raises:
            CheckpointMismatchError: Delta's source would read, and the checkpoint is the format's.
        """
        plan, spark = self._frame._jdf.logicalPlan(), self._frame.sparkSession  # noqa: SLF001
        self._check_checkpoint(plan)
        replaced = in_driver(spark, plan) if HAS_PLANS else plan
        if replaced is not plan:
            self._java_field("ds").set(self._writer, QueryPlans(spark).dataset(replaced))

    def start_sink(self) -> Any:  # noqa: ANN401 - the JVM's query
        """Start a query whose batches the driver commits; None if Spark has to start it, or to report an error."""
        said = {**dict(zip(START_ARGUMENTS, self._args, strict=False)), **self._kwargs}
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

    def _check_checkpoint(self, plan: Any) -> None:  # noqa: ANN401
        leaves = plan.collectLeaves()
        topics = {topic for n in range(leaves.size()) if (topic := _topic_of(leaves.apply(n))) is not None}
        checkpoint = self._checkpoint() if topics else None
        planned = None if checkpoint is None else checkpoint.last(OFFSETS)
        ours = [line for line in planned.sources if MARK in line] if planned is not None else []
        read = sorted(topic for topic in topics if any(f'"{topic}"' in line for line in ours))
        if read:
            raise CheckpointMismatchError(
                f'{read[0]}: the checkpoint was made by format("kafkalike"), and the frame is bound to Delta\'s '
                "source; nothing was read. Call read_stream without engine, and the query continues"
            )

    def _checkpoint(self) -> StreamCheckpoint | None:
        """Open the query's checkpoint; None if the query gets a new one."""
        spark, options = self._frame.sparkSession, self._field("extraOptions")
        given = {name.lower(): value for name, value in self._kwargs.items()}

        def option(name: str) -> str | None:
            if name in given:
                return str(given[name])
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


def _topic_of(leaf: Any) -> str | None:  # noqa: ANN401 - a node of Spark's plan
    if leaf.nodeName() != "StreamingRelation":
        return None
    found = leaf.dataSource().options().get(NOTE)
    return str(found.get()) if found.isDefined() else None
