"""Views of topics in Spark's catalog: temporary views of a session, or permanent views of a database.

Temporary views made by kafkalike are recorded in the session and marked. In a database, properties of each view name
its topic and cluster. Views and tables without these are never replaced or dropped. Topics become views because Spark
lets anybody write to a table, and an `INSERT` would give an offset to a second record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.topic_sql import TEXT, own_names, table_view, view_names
from kafkalike.spark import sql_text
from kafkalike.spark.format.format import with_storage
from kafkalike.spark.reads.conditions import readable_sql, soundness
from kafkalike.spark.reads.frames import topic_frame
from kafkalike.spark.sql.cluster_tables import FORMAT, SCHEMAS, ClusterTables, offsets_then

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.snapshots import Snapshot
    from kafkalike.model.topic import TopicInfo


VIEWS_SETTING: Final = "spark.kafkalike.sql.views"
"""Setting of a session with the root and topic of each temporary view from `register_sql`, as JSON."""

FUNCTIONS_SETTING: Final = "spark.kafkalike.sql.functions"
"""Setting of a session with a hash of the functions from `register_sql`."""


_ZONE: Final = "spark.sql.session.timeZone"


class SessionViews:
    """The temporary views of a session. `plan` checks the names without changes; `make` makes the changes.

    Args:
        spark: the session.
        cluster: the cluster of the topics.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster) -> None:
        self._spark = spark
        self._cluster = cluster
        self._recorded = recorded_views(spark)
        self._names: dict[str, str] = {}
        self._tables: dict[str, str] = {}
        self._own: set[str] = set()
        self._all: set[str] = set()

    def plan(self, topics: Iterable[str], chosen: Iterable[str]) -> dict[str, str]:
        """Return the SQL name of each chosen topic's view.

        Args:
            topics: all topics of the cluster.
            chosen: topics that get a view.

        Raises:
            IllegalArgumentError: a table or view that kafkalike has not made has such a name.
        """
        spark = self._spark
        names, own = view_names(topics, _held(spark, self._cluster.root)), own_names(topics)
        self._names = {topic: names[topic] for topic in chosen}
        self._own = {topic for topic in self._names if topic in own}
        views = [name for view in self._names.values() for name in (view, view + TEXT)]
        self._all = {*map(table_view, SCHEMAS), *views, *self._own}
        for view in _existing(spark, self._all):
            if not self._is_ours(view):
                raise IllegalArgumentError(
                    f"{view} is a table or view of this session that kafkalike has not made, and a temporary view of "
                    "that name would hide it; nothing was made. Register topics in a database of their own "
                    "(database='log'), or only some of them (topics=[…])"
                )
        return {topic: sql_text.identifier(view) for topic, view in self._names.items()}

    def _is_ours(self, view: str) -> bool:
        # A user's view that is derived from ours may have the mark, too.
        if view not in self._recorded:
            return False
        table = next((table for table in SCHEMAS if table_view(table) == view), None)
        if table is None:
            return sql_text.is_marked(self._spark, view)
        return self._spark.table(sql_text.quoted(view)).columns == SCHEMAS[table].names

    def make(
        self,
        chosen: Mapping[str, TopicInfo],
        travels: Mapping[str, Mapping[str, str]],
        at: Snapshot | None,
        *,
        drop: bool,
        functions: bool,
    ) -> list[str]:
        """Create the views and functions.

        Args:
            chosen: topics that get a view.
            travels: options of Delta's reader, by topic.
            at: the snapshot, if there is one.
            drop: whether to drop earlier views of this cluster that are not made in this call.
            functions: whether to create the functions.

        Returns:
            The views that were dropped.
        """
        spark, cluster = self._spark, self._cluster
        self._tables = {topic: cluster.table_uri(info) for topic, info in chosen.items()}
        # Recorded before they are created, so that the views of an interrupted call are known as ours.
        self._record(self._recorded | self._made())
        spark.dataSource.register(with_storage(ClusterTables, cluster.store.tasks.sent_options()))
        for table in SCHEMAS:
            frame = spark.read.format(FORMAT).option("table", table).option("root", cluster.root).load()
            if table == "consumer_offsets" and at is not None:
                frame = spark.createDataFrame(offsets_then(at), SCHEMAS[table])
            # Without a mark, because it needs a projection, over which Spark's refusal to change the table is an
            # internal error.
            frame.createOrReplaceTempView(sql_text.quoted(table_view(table)))
        # Marked in the columns: `make_marked` would analyze each view once more.
        mark = {sql_text.MARK: "view"}
        key, *others = map(F.expr, TEXT_COLUMNS)
        text_columns = (key.alias("key", metadata=mark), *others)
        for topic, view in self._names.items():
            info = chosen[topic]
            uri = cluster.table_uri(info)
            sound = None if travels[topic] else soundness(spark, cluster, info)
            frame = topic_frame(spark, info, uri, include_headers=True, options=travels[topic], sound=sound, mark=mark)
            frame.createOrReplaceTempView(sql_text.quoted(view))
            frame.select(*text_columns).createOrReplaceTempView(sql_text.quoted(view + TEXT))
            if topic in self._own:
                frame.createOrReplaceTempView(sql_text.quoted(topic))
        gone = [
            view
            for view, made in self._recorded.items()
            if view not in self._all and (drop or made["root"] != cluster.root) and self._is_ours(view)
        ]
        kept = {
            view: made for view, made in self._recorded.items() if view not in gone and made["root"] == cluster.root
        }
        if functions:
            _make_functions(spark, {topic: sql_text.quoted(view) for topic, view in self._names.items()})
        # The new functions do not refer to them.
        for view in gone:
            # A plain name here, unlike for createOrReplaceTempView.
            spark.catalog.dropTempView(view)
        self._record(kept | self._made())
        return [sql_text.identifier(view) for view in gone]

    def _made(self) -> dict[str, dict[str, str | None]]:
        topics = {view: topic for topic, view in self._names.items()} | {topic: topic for topic in self._own}
        topics |= {view + TEXT: topic for topic, view in self._names.items()}
        return {
            view: {
                "root": self._cluster.root,
                "topic": topics.get(view),
                "table": self._tables.get(topics.get(view, "")),
            }
            for view in self._all
        }

    def _record(self, made: Mapping[str, Mapping[str, str | None]]) -> None:
        self._spark.conf.set(VIEWS_SETTING, json.dumps(made))


def temporary_names(spark: SparkSession, cluster: Cluster) -> dict[str, str]:
    """Return the topic of each temporary view that a session has or would get, by the view's name."""
    topics = cluster.topics()
    views = {view: topic for topic, view in view_names(topics, _held(spark, cluster.root)).items()}
    return {topic: topic for topic in own_names(topics)} | views | {view + TEXT: topic for view, topic in views.items()}


def _existing(spark: SparkSession, names: Iterable[str]) -> list[str]:
    """Return the names that a table or view has, sorted. One listing spares a look-up of each free name."""
    if spark.catalog.currentCatalog() != "spark_catalog":
        # Other catalogs list no temporary views.
        return sorted(name for name in names if spark.catalog.tableExists(sql_text.quoted(name)))
    folded = str(spark.conf.get("spark.sql.caseSensitive")).lower() != "true"
    listed = {row["tableName"].lower() if folded else row["tableName"] for row in spark.sql("SHOW TABLES").collect()}
    return sorted(name for name in names if (name.lower() if folded else name) in listed)


def recorded_views(spark: SparkSession) -> dict[str, dict[str, str | None]]:
    """Return root, topic and table of each temporary view that was made in this session."""
    found: dict[str, dict[str, str | None]] = json.loads(spark.conf.get(VIEWS_SETTING, "{}") or "{}")
    return found


def _held(spark: SparkSession, root: str) -> dict[str, str]:
    """Return this cluster's topics that have views in the session, by view, without derived views and own names."""
    return {
        view: topic
        for view, made in recorded_views(spark).items()
        if (topic := made["topic"]) is not None and made["root"] == root and not {".", "-"} & set(view)
        if not view.endswith(TEXT)
    }


def _make_functions(spark: SparkSession, views: Mapping[str, str]) -> None:
    """Create or replace the functions, so that other threads' queries find them at any moment."""
    statements = sql_text.range_functions(views, replace=False)
    # The functions keep the time zone in which they parse texts.
    wanted = hashlib.sha256("\n".join([*statements, str(spark.conf.get(_ZONE))]).encode()).hexdigest()
    made = spark.conf.get(FUNCTIONS_SETTING, None)
    if made == wanted and all(map(spark.catalog.functionExists, sql_text.FUNCTIONS)):
        return
    if made is None:
        # Replacing a missing function would search the catalog, which creates the folder `spark-warehouse`.
        for name in sql_text.FUNCTIONS:
            spark.sql("DROP TEMPORARY FUNCTION IF EXISTS IDENTIFIER(:name)", args={"name": name})
    for statement in statements if made is None else sql_text.range_functions(views, replace=True):
        spark.sql(statement)
    spark.conf.set(FUNCTIONS_SETTING, wanted)


CLUSTER: Final = "kafkalike.cluster"
TOPIC: Final = "kafkalike.topic"
TABLE: Final = "kafkalike.table"
DEFINITION: Final = "kafkalike.definition"
"""Properties of a view: the cluster's root, the topic's name and its table, and a hash of the view's query."""


@dataclass(frozen=True, slots=True)
class _Existing:
    """An existing view of this cluster in the database."""

    topic: str
    definition: str


class DatabaseViews:
    """The views of a cluster's topics in a database. `plan` checks without changes; `make` makes the changes.

    Args:
        spark: a session.
        cluster: the cluster of the topics.
        database: the database, without a catalog.

    Raises:
        IllegalArgumentError: the name is not valid for a database.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, database: str) -> None:
        if not re.fullmatch(r"\w+", database):
            raise IllegalArgumentError(f"database must be a name of letters, digits and underscores, not {database!r}")
        self._spark = spark
        self._cluster = cluster
        # The order of the roots does not matter.
        self._root = ",".join(sorted(cluster.root.split(",")))
        self._database = database
        self._existing: dict[str, _Existing] = {}
        self._names: dict[str, str] = {}

    def plan(self, topics: Iterable[str], chosen: Iterable[str]) -> dict[str, str]:
        """Return the SQL name of each chosen topic's view.

        Args:
            topics: all topics of the cluster.
            chosen: topics that get a view.

        Raises:
            IllegalArgumentError: the database has views of another cluster, or a table or view that kafkalike has not
                made has the name of a topic's view.
        """
        others: set[str] = set()
        if self._spark.catalog.databaseExists(sql_text.quoted(self._database)):
            others = self._look()
        held = {name: found.topic for name, found in self._existing.items() if not name.endswith(TEXT)}
        self._names = view_names(topics, held)
        for topic in sorted(chosen):
            for name in (self._names[topic], self._names[topic] + TEXT):
                if name in others:
                    raise IllegalArgumentError(
                        f"{self._database}.{name} exists, but kafkalike has not made it, so topic {topic} cannot have "
                        "that name; nothing was made. Rename it, or register in another database"
                    )
        return {
            topic: f"{sql_text.identifier(self._database)}.{sql_text.identifier(self._names[topic])}"
            for topic in chosen
        }

    def _look(self) -> set[str]:
        """Find this cluster's views, and return the names of all other tables and views."""
        others = {row["tableName"] for row in self._rows(f"SHOW TABLES IN {sql_text.quoted(self._database)}")}
        for row in self._rows(f"SHOW VIEWS IN {sql_text.quoted(self._database)}"):
            if row["isTemporary"]:
                continue
            properties = {
                one["key"]: one["value"]
                for one in self._rows(f"SHOW TBLPROPERTIES {self._in_database(row['viewName'])}")
            }
            if CLUSTER not in properties:
                continue
            if properties[CLUSTER] != self._root:
                raise IllegalArgumentError(
                    f"database {self._database} has views of the cluster at {properties[CLUSTER]}, such as "
                    f"{row['viewName']}; nothing was made. Register {self._cluster.root} in a database of its own, or "
                    "drop those views if the cluster has moved"
                )
            self._existing[row["viewName"]] = _Existing(properties[TOPIC], properties.get(DEFINITION, ""))
            others.discard(row["viewName"])
        return others

    def make(self, chosen: Mapping[str, TopicInfo], topics: Iterable[str], *, drop: bool) -> list[str]:
        """Create the views and functions of `plan`.

        Args:
            chosen: topics that get a view.
            topics: all topics of the cluster.
            drop: whether to drop views of deleted topics.

        Returns:
            The views that were dropped.
        """
        statements = [f"CREATE DATABASE IF NOT EXISTS {sql_text.quoted(self._database)}"]
        for topic, info in sorted(chosen.items()):
            name = self._names[topic]
            select = select_of(self._cluster, info)
            table = self._cluster.table_uri(info)
            statements += self._creation(topic, name, select, table)
            statements += self._creation(topic, name + TEXT, text_select(select), table)
        known = set(topics)
        gone = sorted(name for name, found in self._existing.items() if found.topic not in known) if drop else []
        kept = {
            found.topic: name
            for name, found in self._existing.items()
            if found.topic in known and not name.endswith(TEXT)
        }
        views = {topic: self._in_database(name) for topic, name in kept.items()}
        views |= {topic: self._in_database(self._names[topic]) for topic in chosen}
        # At each call, because they keep the time zone in which they parse texts.
        statements += sql_text.range_functions(views, database=sql_text.quoted(self._database))
        # After the functions, which refer to them.
        statements += [f"DROP VIEW IF EXISTS {self._in_database(name)}" for name in gone]
        for statement in statements:
            self._spark.sql(statement)
        return [f"{sql_text.identifier(self._database)}.{sql_text.identifier(name)}" for name in gone]

    def _creation(self, topic: str, name: str, select: str, table: str) -> list[str]:
        """Return the statement that creates a view; nothing if it exists with the same query."""
        definition = hashlib.sha256(select.encode()).hexdigest()
        old = self._existing.get(name)
        if old is not None and old.definition == definition:
            return []
        # Another session may have registered since `plan`; its view is kept.
        create = "CREATE VIEW IF NOT EXISTS" if old is None else "CREATE OR REPLACE VIEW"
        properties = {CLUSTER: self._root, TOPIC: topic, TABLE: table, DEFINITION: definition}
        said = ", ".join(f"{sql_text.literal(key)} = {sql_text.literal(value)}" for key, value in properties.items())
        comment = sql_text.literal(f"Topic {topic} of the kafkalike cluster at {self._cluster.root}; read-only")
        return [f"{create} {self._in_database(name)} COMMENT {comment} TBLPROPERTIES ({said}) AS {select}"]

    def _in_database(self, name: str) -> str:
        return f"{sql_text.quoted(self._database)}.{sql_text.quoted(name)}"

    def _rows(self, statement: str) -> list[dict[str, str]]:
        return [row.asDict() for row in self._spark.sql(statement).collect()]


TEXT_COLUMNS: Final = (
    *(f"make_valid_utf8(CAST({column} AS STRING)) AS {column}" for column in ("key", "value")),
    *("topic", "partition", "offset", "timestamp", "timestampType", "headers"),
)
"""Columns of a topic's view with text, as SQL. Bytes that are not UTF-8 become U+FFFD, so that every client can read
them, and a value that is null is a tombstone."""


def text_select(select: str) -> str:
    """Return the query of a topic's view with text, given that of its view."""
    return f"SELECT {', '.join(TEXT_COLUMNS)} FROM ({select})"  # noqa: S608 - SQL of ours


def select_of(cluster: Cluster, info: TopicInfo) -> str:
    """Return the query of a topic's view, with the columns of `topic_frame`."""
    columns = (
        f"key, value, {sql_text.literal(info.name)} AS topic, partition, offset, timestamp, timestampType, headers"
    )
    # Names and texts are quoted.
    return f"SELECT {columns} FROM delta.{sql_text.quoted(cluster.table_uri(info))} WHERE {readable_sql(info)}"  # noqa: S608
