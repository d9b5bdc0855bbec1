"""Batches of the format that the driver plans in its own process, and whose files Spark's Parquet reader reads.

Spark starts a Python process for each `load()`, another one for its plan, and passes neither filters nor columns to a
batch reader in Python (decision 010). In a session with a JVM, `DataFrameReader.load` returns a DataFrame over
`TopicBatch.java`. It asks the planner of this module, which has the offsets, tasks and errors of the format's own
reader. Its tasks read the columns that the query needs, without Python. The format's own reader serves all other
batches, and reports the errors of options (decision 107).

SQL reads views and tables `USING kafkalike` in the same way: `ViewScans.java` replaces the format's scan when Spark
optimizes a query.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from functools import wraps
from threading import Lock
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.readwriter import DataFrameReader

from kafkalike.errors import KafkaError
from kafkalike.model.segments import Segment
from kafkalike.spark.format.batch_plan import BATCH_TASKS, OffsetRun
from kafkalike.spark.format.format import FORMAT, batch_runs
from kafkalike.spark.format.input_partitions import OffsetPartition, RangePlan, columns_of, parts, schema_of
from kafkalike.spark.format.source_options import (
    SourceOptions,
    check_batch,
    described,
    parse_options,
    warn_without_meaning,
)
from kafkalike.spark.format.source_topics import SourceTopics, is_in_folder
from kafkalike.spark.jvm.java_class import JavaCalls, java_class, new_object
from kafkalike.spark.jvm.query_plans import QueryPlans
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.reads.driver_stream import files_of

_log = logging.getLogger(__name__)

SWITCH: Final = "spark.kafkalike.batch.driver"
"""Setting of a session: with `false`, the format's own reader reads batches that are loaded from then on."""

SMALL_FILES: Final = 256
"""Files from which on the format opens them faster than Spark, if they are small."""
SMALL_BYTES: Final = 1024 * 1024

MICROS: Final = 1000
"""µs in a ms."""

RULE: Final = "kafkalike.spark.ViewScans"
"""Name of the rule of Spark's optimizer."""


class BatchPlanner(JavaCalls):
    """Plans the queries over one `load()`, with the offsets of the first one.

    Args:
        options: checked options of a batch.
        topics: its topics.
    """

    def __init__(self, options: SourceOptions, topics: SourceTopics) -> None:
        self._options = options
        self._topics = topics
        self._runs: list[OffsetRun] | None = None
        self._lock = Lock()

    def _partitions(self, conditions: str, _: str | None) -> dict[str, Any]:
        asked = json.loads(conditions)
        with self._lock:
            if self._runs is None:
                self._runs = batch_runs(self._topics, self._options)
            else:
                self._topics.require(self._topics.look())
            planned = parts(self._topics, self._options, self._runs, scale=BATCH_TASKS)
        known = [task for task in planned if isinstance(task, OffsetPartition)]
        tasks = [[file for plan in task.plans for file in chosen(plan, asked)] for task in known]
        return {"tasks": [files for files in tasks if files]}


def chosen(plan: RangePlan, conditions: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the files of a plan that may hold records which fit all conditions; see `files_of`.

    Args:
        plan: the plan.
        conditions: each a `column`, a `sign` (`<`, `>` or `=`, all with the bound itself) and a `bound`. Times are in
            µs.

    Raises:
        DataLossError, IllegalStateError: see `files_of`.
    """
    segments = {segment.path: segment for segment in plan.segments}
    return [
        file
        for file in files_of(plan)
        if all(_may_fit(segments[file["segment"]], plan.partition, file, one) for one in conditions)
    ]


def _may_fit(segment: Segment, partition: int, file: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    least, most = {
        "offset": (file["from"], file["until"] - 1),
        "partition": (partition, partition),
        "timestamp": (segment.min_timestamp * MICROS, segment.max_timestamp * MICROS + MICROS - 1),
    }.get(condition["column"], (None, None))
    if least is None or most is None:
        return True
    sign, bound = condition["sign"], condition["bound"]
    return bool((sign == "<" or most >= bound) and (sign == ">" or least <= bound))


def options_for_driver(given: Mapping[str, str]) -> tuple[SourceOptions, SourceTopics] | None:
    """Return the options and topics of a batch that the driver can plan; None if the format's own reader should.

    The files are for Spark's reader: see `is_in_folder` and `SourceTopics.are_ours`.

    Raises:
        KafkaError: an option is wrong, or a topic cannot be opened.
    """
    options = parse_options(given)
    check_batch(options)
    topics = SourceTopics(options)
    if not is_in_folder(topics.cluster) or not options.fail_on_data_loss:
        return None
    found = topics.look()
    topics.require(found)
    logs = [topics.log(name) for name in sorted({tp.topic for tp in found})]
    segments = [
        one
        for log in logs
        for p in log.info.partitions
        for one in log.segments_within(p, range(log.log_start(p), log.log_end(p)))
    ]
    is_small = len(segments) > SMALL_FILES and sum(s.size_bytes for s in segments) < SMALL_BYTES * len(segments)
    return (options, topics) if not is_small and topics.are_ours(found) else None


def scan_in_driver() -> None:
    """Patch PySpark's `DataFrameReader.load` to plan batches of the format in the driver; once."""
    if not hasattr(DataFrameReader.load, "plans_in_driver"):
        DataFrameReader.load = _planning(DataFrameReader.load)  # type: ignore[method-assign]


def _planning(load: Any) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(load)
    def planning(self: Any, path: Any = None, format: Any = None, schema: Any = None, **options: Any) -> DataFrame:  # noqa: A002, ANN401
        if path is None and schema is None:
            if format is not None:
                self.format(format)
            self.options(**options)
            frame = _in_driver(self._spark, self._jreader)
            if frame is not None:
                return frame
        found: DataFrame = load(self, path, format, schema, **options)
        return found

    planning.plans_in_driver = True  # type: ignore[attr-defined]
    return planning


def _in_driver(spark: Any, reader: Any) -> DataFrame | None:  # noqa: ANN401
    """Return the DataFrame of a reader of the format that the driver plans; None if Spark should load it."""

    def field(name: str) -> Any:  # noqa: ANN401
        found = reader.getClass().getSuperclass().getDeclaredField(name)
        found.setAccessible(True)
        return found.get(reader)

    try:
        if field("source") != FORMAT or field("userSpecifiedSchema").isDefined():
            return None
        as_java = java_class("scala.jdk.javaapi.CollectionConverters").asJava
        given = dict(as_java(field("extraOptions").originalMap()))
        table = topic_batch(spark, given)
        if table is None:
            return None
        warn_without_meaning(given)
        none = java_class("scala.Option").empty()
        asked = java_class("org.apache.spark.sql.util.CaseInsensitiveStringMap")(given)
        relation = java_class("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
        return DataFrame(QueryPlans(spark).dataset(relation.create(table, none, none, asked, none)), spark)
    except (*SPARK_FAILURES, OSError, AttributeError, TypeError) as cause:
        _log.debug("a batch is planned by the format's process: %s", cause)
        return None


def topic_batch(spark: Any, given: Mapping[str, str]) -> Any:  # noqa: ANN401
    """Return a `TopicBatch` for options of the format; None if its own reader should read, or report an error."""
    if spark.conf.get(SWITCH, "true") != "true":
        return None
    try:
        made = options_for_driver(given)
        if made is None:
            return None
        schema = java_class("org.apache.spark.sql.types.DataType").fromJson(schema_of(columns_of(made[0])).json())
        name = f"kafkalike[{described(made[0])}]"
        return new_object(spark, "TopicBatch", BatchPlanner(*made), name, spark._jsparkSession, schema)  # noqa: SLF001
    except (KafkaError, *SPARK_FAILURES, OSError, AttributeError, TypeError) as cause:
        _log.debug("a batch is planned by the format's process: %s", cause)
        return None


class ViewTables:
    """Answers `ViewScans.java`: the tables that read the views of a session.

    Args:
        spark: the session.
    """

    Java = JavaCalls.Java

    def __init__(self, spark: Any) -> None:  # noqa: ANN401
        self._spark = spark

    def apply(self, options: Mapping[str, str]) -> Any:  # noqa: ANN401
        """Return the table for a view's options; see `topic_batch`."""
        return topic_batch(self._spark, dict(options))


def scan_views_in_driver(spark: Any) -> None:  # noqa: ANN401
    """Have a session's optimizer plan views and tables of the format in the driver; does nothing the second time."""
    try:
        methods = spark._jsparkSession.experimental()  # noqa: SLF001 - PySpark has no name for it
        rules = methods.extraOptimizations()
        if any(rules.apply(n).ruleName() == RULE for n in range(rules.size())):
            return
        added = new_object(spark, "ViewScans", ViewTables(spark))
        getattr(methods, "extraOptimizations_$eq")(getattr(rules, "$colon$plus")(added))
    except (*SPARK_FAILURES, OSError, AttributeError, TypeError) as cause:
        _log.debug("views are read by the format's process: %s", cause)
