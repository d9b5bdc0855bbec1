"""SQL: a cluster in, a view for each topic and for the cluster itself out.

`topics`, `partitions`, `consumer_offsets` and `lag` are live; a topic's view is the topic as `kafkalike.spark.read`
gives it. Names follow `kafkalike.log.layout.sql_name`: `orders` is `orders`, `a.b` is `a__db`. A name that is a number
or a keyword to SQL, such as a topic `2024`, is put between backticks in a query.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from kafkalike.log.connect import connect_delta
from kafkalike.log.layout import sql_name
from kafkalike.spark.read import topic_frame
from kafkalike.spark.tables import FORMAT, SCHEMAS, ClusterTables


def register_sql(spark: SparkSession, bootstrap_servers: Any = None) -> dict[str, str]:  # noqa: ANN401 - see `connect`
    """Make every topic, and `topics`, `partitions`, `consumer_offsets` and `lag`, a temporary view.

    Call it again to see topics created since, and new log starts.

    Args:
        spark: a session with Delta.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.

    Returns:
        The view of each topic, by the topic's name.
    """
    cluster = connect_delta(bootstrap_servers)
    spark.dataSource.register(ClusterTables)
    for table in SCHEMAS:
        frame = spark.read.format(FORMAT).option("table", table).option("root", cluster.root).load()
        frame.createOrReplaceTempView(table)
    views = {}
    for name, info in cluster.topics().items():
        views[name] = sql_name(name)
        frame = topic_frame(spark, info, cluster.table_uri(info), include_headers=True)
        frame.createOrReplaceTempView(quoted(views[name]))
    return views


def view_statements(bootstrap_servers: Any = None) -> list[str]:  # noqa: ANN401 - see `connect`
    """The same views as SQL statements, for `spark-sql -i`.

    `spark-sql` finds the format of the live views through the module `pyspark_kafkalike`, which Spark loads by itself
    when its Python has this package.
    """
    cluster = connect_delta(bootstrap_servers)
    root = literal(cluster.root)
    statements = [
        f"CREATE OR REPLACE TEMPORARY VIEW {table} USING {FORMAT} OPTIONS (table {literal(table)}, root {root})"
        for table in SCHEMAS
    ]
    for name, info in sorted(cluster.topics().items()):
        columns = f"key, value, {literal(name)} AS topic, partition, offset, timestamp, timestampType, headers"
        below = [f"NOT (partition = {p} AND offset < {start.offset})" for p, start in sorted(info.log_starts.items())]
        where = f" WHERE {' AND '.join(below)}" if below else ""
        source = f"delta.{quoted(cluster.table_uri(info))}"
        # Names are made of [a-z0-9_], but may be numbers or keywords; texts are quoted.
        view = f"CREATE OR REPLACE TEMPORARY VIEW {quoted(sql_name(name))} AS SELECT {columns} FROM {source}{where}"  # noqa: S608
        statements.append(view)
    return statements


def literal(text: str) -> str:
    """A text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quoted(name: str) -> str:
    """A name as a SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
