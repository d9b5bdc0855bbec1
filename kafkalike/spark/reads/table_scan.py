"""Scans of the format as scans of the topics' tables, where that is faster and gives the same rows.

Spark 4.2 passes neither filters nor columns to a batch reader in Python (decision 010). So before an action runs, the
format's nodes in its plan are replaced by Delta's scan of the same offsets, which reads only the columns and files that
the query needs. The format itself reads where it is as fast: queries that return whole records of most files.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from functools import reduce, wraps
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from kafkalike.errors import KafkaError
from kafkalike.spark.format.format import FORMAT, batch_runs
from kafkalike.spark.format.source_options import SourceOptions, check_batch, parse_options
from kafkalike.spark.format.source_topics import SourceTopics
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.jvm.spark_session import check_delta
from kafkalike.spark.reads.conditions import within
from kafkalike.spark.reads.frames import refuse_reserved, topic_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

SWITCH: Final = "spark.kafkalike.format.tables"
"""Setting of a session: `true` when the format is registered, and later, lets queries scan tables."""

ACTIONS: Final = (
    *("collect", "count", "explain", "isEmpty", "toArrow", "toLocalIterator", "toPandas", "write", "_show_string"),
)
"""Methods of PySpark's DataFrame that run its plan, or show it."""

OPTIONS: Final = frozenset(
    {
        *("kafka.bootstrap.servers", "subscribe", "subscribePattern", "assign", "topic", "includeHeaders"),
        *("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
        *("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "kafka.group.id", "group_id"),
        *("kafka.auto.offset.reset", "kafka.isolation.level"),
    }
)
"""Options with which a table scan gives the same rows. Others set the tasks, the replica, or skip lost records."""

SMALL_FILES: Final = 256
"""Files from which on the format opens them faster than Spark, if they are small."""
SMALL_BYTES: Final = 1024 * 1024

PLACE: Final = frozenset({"partition", "offset", "timestamp"})
"""Columns by which Delta skips files."""


UNORDERED_NODES: Final = frozenset(
    {"Project", "Filter", "SubqueryAlias", "EventTimeWatermark", "Union", "Join", "Aggregate", "Expand", "Generate"}
)
"""Nodes of a query's plan whose rows do not depend on the order of their input."""

_ORDERED: Final = re.compile(r"\b(first|last|collect|any_value|array_agg|listagg|string_agg|mode|\w*udf|\w*udaf)\w*\(")
"""Aggregate functions that do."""


def scan_tables() -> None:
    """Patch the actions of PySpark's DataFrame to scan tables; does nothing the second time."""
    from pyspark.sql.classic.dataframe import DataFrame as Classic

    for name in ACTIONS:
        found = vars(Classic)[name]
        if isinstance(found, property):
            get: Any = found.fget
            if not hasattr(get, "scans_tables"):
                setattr(Classic, name, property(_scanning(get)))
        elif not hasattr(found, "scans_tables"):
            setattr(Classic, name, _scanning(found))


def _scanning(method: Any) -> Any:  # noqa: ANN401 - PySpark's method
    @wraps(method)
    def scanning(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        return method(as_tables(self, counts=method.__name__ in {"count", "isEmpty"}), *args, **kwargs)

    scanning.scans_tables = True  # type: ignore[attr-defined]
    return scanning


def as_tables(frame: DataFrame, *, counts: bool = False) -> DataFrame:
    """Return a DataFrame that scans tables in place of the format, or the same one.

    Args:
        frame: any DataFrame of a session with a JVM.
        counts: whether the action only counts rows.
    """
    try:
        plan = frame._jdf.logicalPlan()  # noqa: SLF001 - PySpark has no name for it
        leaves = plan.collectLeaves()
        if not any(_is_format(leaves.apply(n)) for n in range(leaves.size())) or frame.isStreaming:
            return frame
        spark: Any = frame.sparkSession
        cached = spark._jsparkSession.sharedState().cacheManager()  # noqa: SLF001
        # Spark finds cached data by the plan that was cached.
        if spark.conf.get(SWITCH, "false") != "true" or not cached.isEmpty():
            return frame
        check_delta(spark)
        refuse_reserved(spark)
        made = _Scan(spark, plan, counts=counts).rebuilt(plan, above=())
        return frame if made is plan else DataFrame(QueryPlans(spark).dataset(made), spark)
    except (KafkaError, *SPARK_FAILURES, AttributeError, TypeError) as cause:
        # The format reads, or reports the error.
        _log.debug("the format reads a query: %s", cause)
        return frame


def _is_format(node: Any) -> bool:  # noqa: ANN401 - a node of Spark's plan
    return bool(node.nodeName() == "DataSourceV2Relation" and node.table().name() == FORMAT)


class _Scan:
    """Replaces the format's nodes of one plan.

    Args:
        spark: the session.
        plan: the plan of the action's DataFrame.
        counts: whether the action only counts rows.
    """

    def __init__(self, spark: SparkSession, plan: Any, *, counts: bool) -> None:  # noqa: ANN401 - a node
        self._spark = spark
        self._plans = QueryPlans(spark)
        self._output = plan.outputSet()
        self._counts = counts

    def rebuilt(self, node: Any, above: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a node
        """Return a node over tables; the same one if nothing below is replaced.

        Args:
            node: the node.
            above: the nodes above it, the root first.
        """
        below = children(node)
        if not below:
            return self._table(node, above) if _is_format(node) else node
        made = [self.rebuilt(child, (*above, node)) for child in below]
        same = all(new is old for new, old in zip(made, below, strict=True))
        return node if same else self._plans.with_children(node, made)

    def _table(self, leaf: Any, above: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a node
        is_unordered = self._counts or any(map(_breaks_order, above))
        columns = {leaf.output().apply(n).name(): leaf.output().apply(n) for n in range(leaf.output().size())}
        if not (is_unordered or self._skips_files(columns, above) or not self._reads_records(columns, above)):
            return leaf
        given = dict(leaf.options().asCaseSensitiveMap())
        options = parse_options(given)
        if not options.given <= OPTIONS:
            return leaf
        frame = table_frame(self._spark, options)
        if frame is None:
            return leaf
        # Spark leaves the sort out where an operator above does not need it.
        frame = frame.orderBy("topic", "partition", "offset")
        return self._plans.renamed(frame._jdf.logicalPlan(), leaf)  # noqa: SLF001

    def _skips_files(self, columns: Mapping[str, Any], above: tuple[Any, ...]) -> bool:
        """Return whether a condition above lets Delta skip files."""
        places = [columns[name] for name in PLACE]
        filters = (node for node in above if node.nodeName() == "Filter")
        return any(node.references().contains(place) for node in filters for place in places)

    def _reads_records(self, columns: Mapping[str, Any], above: tuple[Any, ...]) -> bool:
        """Return whether the query needs keys, values or headers."""
        records = [column for name, column in columns.items() if name in {"key", "value", "headers"}]
        return any(
            self._output.contains(column) or any(node.references().contains(column) for node in above)
            for column in records
        )


def _breaks_order(node: Any) -> bool:  # noqa: ANN401 - a node of Spark's plan
    return node.nodeName() in {"Aggregate", "Join", "Sort", "Distinct"} and (
        node.nodeName() == "Sort" or loses_order(node)
    )


def table_frame(spark: SparkSession, options: SourceOptions) -> DataFrame | None:
    """Return a batch of the format as a DataFrame over tables; None if the format should read it.

    Raises:
        KafkaError: the format cannot read it either.
    """
    check_batch(options)
    topics = SourceTopics(options)
    cluster, runs = topics.cluster, batch_runs(topics, options)
    if "," in cluster.root or cluster.store.scheduler.is_remote or not runs:
        return None
    frames = []
    for name in sorted({run.tp.topic for run in runs}):
        log = topics.log(name)
        ranges = {run.tp.partition: run.offsets for run in runs if run.tp.topic == name}
        segments = [one for p, offsets in ranges.items() for one in log.segments_within(p, offsets)]
        is_small = len(segments) > SMALL_FILES and sum(s.size_bytes for s in segments) < SMALL_BYTES * len(segments)
        if is_small or not cluster.server.is_closed(log.info.configs):
            return None
        frame = topic_frame(spark, log.info, cluster.table_uri(log.info), include_headers=options.include_headers)
        whole = {p: range(log.log_start(p), log.log_end(p)) for p in log.info.partitions}
        # Without a condition, Delta counts rows without reading files.
        frames.append(frame if ranges == whole else frame.where(within(ranges)))
    return reduce(DataFrame.unionByName, frames)


class QueryPlans:
    """Makes nodes of Spark's logical plans in a session's JVM.

    Args:
        spark: the session.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark: Any = spark
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - PySpark has no names for plans

    def with_children(self, node: Any, nodes: list[Any]) -> Any:  # noqa: ANN401
        """Return a node with other children."""
        return node.withNewChildren(self._seq(nodes))

    def renamed(self, plan: Any, wanted: Any) -> Any:  # noqa: ANN401
        """Return a plan whose columns have the names and ids of another node's columns, so that it can replace it."""
        catalyst, none, empty = self._jvm.org.apache.spark.sql.catalyst, self._jvm.scala.Option.empty(), self._seq([])
        given, names = plan.output(), wanted.output()
        aliases = [
            catalyst.expressions.Alias(
                given.apply(n), names.apply(n).name(), names.apply(n).exprId(), empty, none, empty
            )
            for n in range(names.size())
        ]
        return catalyst.plans.logical.Project(self._seq(aliases), plan)

    def dataset(self, plan: Any) -> Any:  # noqa: ANN401
        """Return the JVM's dataset of a plan."""
        return self._jvm.org.apache.spark.sql.classic.Dataset.ofRows(self._spark._jsparkSession, plan)  # noqa: SLF001

    def _seq(self, items: list[Any]) -> Any:  # noqa: ANN401
        return self._jvm.PythonUtils.toSeq(items)


def children(node: Any) -> list[Any]:  # noqa: ANN401 - a node of Spark's plan
    """Return the children of a node."""
    found = node.children()
    return [found.apply(n) for n in range(found.size())]


def inner_nodes(node: Any) -> Iterable[Any]:  # noqa: ANN401 - a node of Spark's plan
    """Return the nodes of a plan that have children, the root first."""
    below = children(node)
    if below:
        yield node
        for child in below:
            yield from inner_nodes(child)


def loses_order(node: Any) -> bool:  # noqa: ANN401 - a node of Spark's plan
    """Return whether a node's result does not depend on the order of its input."""
    name = str(node.nodeName())
    return name in UNORDERED_NODES and (name != "Aggregate" or _ORDERED.search(node.simpleString(10_000)) is None)
