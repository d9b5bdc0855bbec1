"""SQL text: literals, identifiers, the mark of kafkalike's views, and table functions over a part of one topic.

`kafkalike_range('orders', '2026-01-01', '2026-01-02')` returns the records of a time range,
`kafkalike_offsets('orders', 0, 40, 97)` the records of an offset range of a partition. Ranges are half-open, and NULL
leaves an end open.
`kafkalike_key('orders', CAST('k' AS BINARY))` returns the records of a key. The functions are SQL, so Spark inlines
them into the query: literal arguments prune partitions and files as a WHERE over the view does, and the branches of
other topics are removed before the query runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kafkalike.errors import IllegalArgumentError

MARK: Final = "kafkalike"


def literal(text: str) -> str:
    """Quote a text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """Quote a name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


def identifier(name: str) -> str:
    """Write a name with backquotes only if SQL requires them."""
    return name if re.fullmatch(r"[a-z_][a-z0-9_]*", name) else quoted(name)


def is_marked(spark: SparkSession, view: str) -> bool:
    """Return whether kafkalike has made the view of this name in the session; true if the view's topic was deleted."""
    try:
        schema = spark.table(quoted(view)).schema
    except AnalysisException:
        return True
    return any(MARK in field.metadata for field in schema)


def make_marked(frame: DataFrame, view: str) -> None:
    """Register a DataFrame as a temporary view with a mark, replacing any view of that name."""
    frame.withMetadata(frame.columns[0], {MARK: "view"}).createOrReplaceTempView(quoted(view))


def check_free(spark: SparkSession, view: str) -> None:
    """Refuse the name of a table or view that kafkalike has not made, because it would be replaced or hidden.

    Raises:
        IllegalArgumentError: the name is taken; the message names two ways out.
    """
    if spark.catalog.tableExists(quoted(view)) and not is_marked(spark, view):
        raise IllegalArgumentError(
            f"{view} is a table or view of this session that kafkalike has not made, and would be replaced or hidden; "
            "nothing was made. Name the view with name='…', or drop the other one"
        )


RANGE: Final = "kafkalike_range"
OFFSETS: Final = "kafkalike_offsets"
KEY: Final = "kafkalike_key"
FUNCTIONS: Final = (RANGE, OFFSETS, KEY)

_COLUMNS: Final = "key, value, topic, partition, offset, timestamp, timestampType, headers"
_TYPES: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP_LTZ, "
    "timestampType INT, headers ARRAY<STRUCT<key STRING, value BINARY>>"
)
_ARGUMENTS: Final[Mapping[str, str]] = {
    RANGE: "topic_name STRING, since TIMESTAMP_LTZ, until TIMESTAMP_LTZ",
    OFFSETS: "topic_name STRING, partition_id INT, since BIGINT, until BIGINT",
    KEY: "topic_name STRING, record_key BINARY",
}
_WITHIN: Final[Mapping[str, str]] = {
    RANGE: "(since IS NULL OR timestamp >= since) AND (until IS NULL OR timestamp < until)",
    OFFSETS: "partition = partition_id AND (since IS NULL OR offset >= since) AND (until IS NULL OR offset < until)",
    KEY: "key = record_key",
}


def range_functions(views: Mapping[str, str], *, replace: bool = True, database: str = "") -> list[str]:
    """Return statements that create the functions over some topics' views.

    Any other topic fails the query, even a query that only counts, because the check is a filter.

    Args:
        views: by topic, as SQL.
        replace: whether temporary functions may exist already. Spark then searches its catalog as well, which creates
            the catalog's folder.
        database: the database of permanent functions, as SQL; empty for temporary functions.
    """
    return [_function(name, views, replace=replace, database=database) for name in FUNCTIONS]


def _function(name: str, views: Mapping[str, str], *, replace: bool, database: str) -> str:
    parts = [
        f"SELECT {_COLUMNS} FROM {view} WHERE topic_name = {literal(topic)} AND {_WITHIN[name]}"  # noqa: S608
        for topic, view in sorted(views.items())
    ]
    parts.append(_unknown_topic(name, sorted(views)))
    body = " UNION ALL ".join(parts)
    create = "CREATE OR REPLACE" if replace else "CREATE"
    made = f"FUNCTION {database}.{name}" if database else f"TEMPORARY FUNCTION {name}"
    return f"{create} {made}({_ARGUMENTS[name]}) RETURNS TABLE ({_TYPES}) RETURN {body}"


def _unknown_topic(name: str, topics: list[str]) -> str:
    nulls = "CAST(NULL AS BINARY), CAST(NULL AS BINARY), '', 0, 0L, CAST(NULL AS TIMESTAMP_LTZ), 0, NULL"
    known = f"topic_name IN ({', '.join(map(literal, topics))})" if topics else "false"
    problem = f"concat('{name}: no topic ', coalesce(topic_name, 'NULL'), ' is registered (see register_sql)')"
    moved = _moved_zone(name)
    return f"SELECT {nulls} WHERE CASE {moved} WHEN {known} THEN false ELSE raise_error({problem}) IS NULL END"


def _moved_zone(name: str) -> str:
    """Return a branch that fails if the session's time zone differs from the zone in which the function was created.

    Spark converts text arguments to times in the zone in which the function was created. An end is wrong only if its
    local time differs between the two zones.
    """
    if name != RANGE:
        return ""
    then = "CAST(concat(CAST(CAST({end} AS TIMESTAMP_NTZ) AS STRING), '+00:00') AS TIMESTAMP_LTZ)"
    now = "from_utc_timestamp({end}, current_timezone())"
    same = " AND ".join(f"coalesce({then} = {now}, true)".format(end=end) for end in ("since", "until"))
    problem = f"'{name}: the time zone of the session has changed since register_sql, which has to be called again'"
    return f"WHEN NOT ({same}) THEN raise_error({problem}) IS NULL"
