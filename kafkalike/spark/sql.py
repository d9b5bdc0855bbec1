"""SQL: a cluster in, a view for each topic and for the cluster itself, and functions for parts of a topic, out.

`topics`, `partitions`, `consumer_offsets`, `lag`, `lag_history`, `transactions`, `brokers` and `replicas` are live; a
topic's view is the topic as `kafkalike.spark.read` gives it. Names follow `kafkalike.model.sql_names.sql_name`:
`orders` is `orders`, and `a.b` is `a__db`. A name that is a number or a keyword to SQL, such as a topic `2024`, is put
between backticks in a query.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from kafkalike.cuts.value import Snapshot
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from kafkalike.log.connect import connect_delta
from kafkalike.log.jvm.hadoop import tell_hadoop
from kafkalike.model.names import check_topic_name
from kafkalike.model.sql_names import own_names, sql_name
from kafkalike.model.topic import TopicInfo
from kafkalike.spark.conditions import readable_sql, soundness
from kafkalike.spark.format.format import with_storage
from kafkalike.spark.format.table_schemas import SCHEMAS
from kafkalike.spark.frames import as_of, check_root, refuse_reserved, topic_frame
from kafkalike.spark.sql_names import literal, quoted
from kafkalike.spark.sql_ranges import FUNCTIONS, range_functions
from kafkalike.spark.tables import FORMAT, ClusterTables, offsets_then

VIEWS_SETTING: Final = "spark.kafkalike.sql.views"
"""Setting of a session that holds, as JSON, the root of each view that `register_sql` made in it."""

FUNCTIONS_SETTING: Final = "spark.kafkalike.sql.functions"
"""Setting of a session that holds a hash of the functions that `register_sql` made in it."""

_ZONE: Final = "spark.sql.session.timeZone"

_registering = threading.Lock()
"""Threads that share a session take turns: dropping and making again are several statements."""


def register_sql(
    spark: SparkSession,
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    topics: Iterable[str] | None = None,
    database: str | None = None,
    at: Snapshot | None = None,
    storage_options: Any = None,  # noqa: ANN401 - see `connect`
) -> dict[str, str]:
    """Make every topic, and each table of `kafkalike.spark.tables`, such as `topics` and `lag`, a temporary view.

    And the functions `kafkalike_range(topic, since, until)` and `kafkalike_offsets(topic, partition, since, until)`;
    see `kafkalike.spark.sql_ranges`. Call it again to see topics created since, and new log starts; views that it made
    before for topics that are gone by now are dropped. Until then a query over such a view fails: Spark finds no table.
    A query over a topic that is open to foreign writers (`kafkalike.foreign.writes=allow`) fails with the error of
    `kafkalike.spark.read` once one has broken its log; views of a `database` do not ask.
    Threads that share a session may call it, and query views and functions, at the same time.

    Args:
        spark: a session with Delta.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        topics: only these; None for all. A view costs a fraction of a second.
        database: a database of Spark's catalog, made when it is missing, in which each topic becomes a view under the
            same name: it stays when the session ends, other sessions with Delta see it, and nobody can write to it.
        at: a snapshot (`kafkalike.snapshot`): its topics become views as of it, and `consumer_offsets` has what it has
            of its groups, so that a join shows all or nothing of every transaction. The other views stay live. It goes
            with `topics` that it has, and not with `database`.
        storage_options: who asks an object store; see `kafkalike.spark.read`.

    Returns:
        The view of each topic, by the topic's name.

    Raises:
        UnknownTopicOrPartitionError: one of `topics` does not exist.
        IllegalArgumentError: a snapshot of another cluster, without one of the topics, or of one that was deleted
            since; a snapshot and a database; or the database has a table with records of its own under the name of a
            topic. Nothing was made.
        KafkaConfigurationError: see `kafkalike.spark.read`.
    """
    cluster = connect_delta(bootstrap_servers, storage_options)
    tell_hadoop(spark, cluster)
    refuse_reserved(spark)
    if at is not None:
        check_root(at, cluster.root)
        if database is not None:
            raise IllegalArgumentError("views of a database outlive a snapshot, whose versions the tables forget")
    with _registering:
        chosen = _chosen(cluster, at.topics if at is not None and topics is None else topics)
        travels = {name: {} if at is None else as_of(at, cluster.root, info) for name, info in chosen.items()}
        old_tables = [] if database is None else _old_tables(spark, chosen, database)
        spark.dataSource.register(with_storage(ClusterTables, cluster.store.sent_options()))
        for table in SCHEMAS:
            frame = spark.read.format(FORMAT).option("table", table).option("root", cluster.root).load()
            frame.createOrReplaceTempView(table)
        if at is not None:
            spark.createDataFrame(offsets_then(at), SCHEMAS["consumer_offsets"]).createOrReplaceTempView(
                "consumer_offsets"
            )
        views = {}
        real = own_names(chosen)
        for name, info in chosen.items():
            views[name] = sql_name(name)
            uri = cluster.table_uri(info)
            sound = None if travels[name] else soundness(spark, cluster, info)
            frame = topic_frame(spark, info, uri, include_headers=True, options=travels[name], sound=sound)
            frame.createOrReplaceTempView(quoted(views[name]))
            if name in real:
                frame.createOrReplaceTempView(quoted(name))
        _make_functions(spark, views)
        # Now that no function looks for them.
        _drop_gone(spark, cluster, {*views.values(), *real}, keep_others=topics is not None or at is not None)
        if database is not None:
            for statement in database_statements(cluster, chosen, database, old_tables):
                spark.sql(statement)
        return views


def view_statements(bootstrap_servers: Any = None) -> list[str]:  # noqa: ANN401 - see `connect`
    """The same views and functions as SQL statements, for `spark-sql -i`.

    `spark-sql` finds the format of the live views through the module `pyspark_kafkalike_tables`, which Spark loads by
    itself when its Python has this package.
    """
    cluster = connect_delta(bootstrap_servers)
    root = literal(cluster.root)
    statements = [
        f"CREATE OR REPLACE TEMPORARY VIEW {table} USING {FORMAT} OPTIONS (table {literal(table)}, root {root})"
        for table in SCHEMAS
    ]
    found = cluster.topics()
    real = own_names(found)
    for name, info in sorted(found.items()):
        statements += [
            f"CREATE OR REPLACE TEMPORARY VIEW {quoted(view)} AS {_select(cluster, info)}"
            for view in (sql_name(name), *([name] if name in real else []))
        ]
    return statements + range_functions({name: sql_name(name) for name in found}, replace=True)


def database_statements(
    cluster: DeltaCluster, topics: Mapping[str, TopicInfo], database: str, old_tables: Iterable[str]
) -> list[str]:
    """Statements that make each topic a view of a database.

    Views, because Spark lets everybody write to a table: an `INSERT` would give an offset to a second record.

    Args:
        cluster: where the topics are.
        topics: the topics by name.
        database: its name.
        old_tables: see `_old_tables`.
    """
    statements = [f"CREATE DATABASE IF NOT EXISTS {quoted(database)}"]
    statements += [f"DROP TABLE IF EXISTS {table}" for table in old_tables]
    for name, info in sorted(topics.items()):
        view = f"{quoted(database)}.{quoted(sql_name(name))}"
        statements.append(f"CREATE OR REPLACE VIEW {view} AS {_select(cluster, info)}")
    return statements


def _select(cluster: DeltaCluster, info: TopicInfo) -> str:
    """The query of a topic's view: what `topic_frame` gives."""
    columns = f"key, value, {literal(info.name)} AS topic, partition, offset, timestamp, timestampType, headers"
    where = readable_sql(info)
    # Names and texts are quoted.
    return f"SELECT {columns} FROM delta.{quoted(cluster.table_uri(info))} WHERE {where}"  # noqa: S608


def _old_tables(spark: SparkSession, topics: Iterable[str], database: str) -> list[str]:
    """The external tables that stand where views are to be made, quoted; kafkalike made tables before it made views.

    Raises:
        IllegalArgumentError: a table there has records of its own.
    """
    found = []
    for name in sorted(topics):
        table = f"{quoted(database)}.{quoted(sql_name(name))}"
        kind = spark.catalog.getTable(table).tableType if spark.catalog.tableExists(table) else "VIEW"
        if kind == "MANAGED":
            raise IllegalArgumentError(
                f"{table} is a table with records of its own, so topic {name} cannot become a view of that name; "
                "rename the table, or register in another database"
            )
        if kind != "VIEW":
            found.append(table)
    return found


def _make_functions(spark: SparkSession, views: Mapping[str, str]) -> None:
    """Make the functions, without a moment in which another thread's query would not find them."""
    statements = range_functions(views, replace=False)
    # The functions keep the zone in which texts are times.
    wanted = hashlib.sha256("\n".join([*statements, str(spark.conf.get(_ZONE))]).encode()).hexdigest()
    made = spark.conf.get(FUNCTIONS_SETTING, None)
    if made == wanted and all(map(spark.catalog.functionExists, FUNCTIONS)):
        return
    if made is None:
        # Replacing what is not there would look into the catalog, which makes the folder `spark-warehouse`.
        for name in FUNCTIONS:
            spark.sql("DROP TEMPORARY FUNCTION IF EXISTS IDENTIFIER(:name)", args={"name": name})
    for statement in statements if made is None else range_functions(views, replace=True):
        spark.sql(statement)
    spark.conf.set(FUNCTIONS_SETTING, wanted)


def _chosen(cluster: DeltaCluster, topics: Iterable[str] | None) -> dict[str, TopicInfo]:
    found = cluster.topics()
    if topics is None:
        return dict(found)
    names = [check_topic_name(topic) for topic in ([topics] if isinstance(topics, str) else topics)]
    missing = sorted(set(names) - set(found))
    if missing:
        raise UnknownTopicOrPartitionError(f"no topic {', '.join(missing)} in {cluster.root}")
    return {name: found[name] for name in names}


def _drop_gone(spark: SparkSession, cluster: DeltaCluster, views: set[str], *, keep_others: bool) -> None:
    """Drop the views that this root had in the session and has no topic for any more."""
    owners: dict[str, str] = json.loads(spark.conf.get(VIEWS_SETTING, "{}") or "{}")
    if not keep_others:
        for view in [view for view, root in owners.items() if root == cluster.root and view not in views]:
            # A plain name here, unlike for createOrReplaceTempView.
            spark.catalog.dropTempView(view)
            del owners[view]
    spark.conf.set(VIEWS_SETTING, json.dumps({**owners, **dict.fromkeys(views, cluster.root)}))
