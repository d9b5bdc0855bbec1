"""Topics as external tables of a database in Spark's catalog, such as Hive's metastore."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import SparkSession

from kafkalike.connect import check_founded
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.cluster import spark_uri
from kafkalike.model.topic_sql import view_names
from kafkalike.spark import sql_text
from kafkalike.spark.jvm.spark_connect import need_jvm

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo


class DatabaseTables:
    """The topics of a cluster as external tables of a database: entries of a catalog such as Hive's metastore.

    Other engines find topics there, as they know no views of Spark. The tables are read-only, because each topic's
    Delta table refuses foreign writers by its protocol. A table is ours if its location is in the cluster's root.

    Args:
        spark: a session with a JVM.
        cluster: the cluster of the topics.
        database: the database, without a catalog.

    Raises:
        IllegalArgumentError: the name is not valid for a database.
        UnsupportedVersionError: a session of Spark Connect.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, database: str) -> None:
        need_jvm(spark, "registering topics as tables")
        if not re.fullmatch(r"\w+", database):
            raise IllegalArgumentError(f"database must be a name of letters, digits and underscores, not {database!r}")
        self._spark = spark
        self._cluster = cluster
        self._database = database
        session: Any = spark._jsparkSession  # noqa: SLF001 - the only way to a table without its folder
        self._catalog = session.sessionState().catalog().externalCatalog()
        self._held: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def plan(self, topics: Iterable[str], chosen: Iterable[str]) -> dict[str, str]:
        """Return the SQL name of each chosen topic's table.

        Args:
            topics: all topics of the cluster.
            chosen: topics that get a table.

        Raises:
            IllegalArgumentError: a table or view that kafkalike has not made has the name of a topic's table, or a
                topic is open to foreign writers.
        """
        known, others = self._cluster.topics(), set[str]()
        for topic in sorted(chosen):
            if topic in known:
                _check_closed(self._cluster, known[topic])
        if self._catalog.databaseExists(self._database):
            found = self._catalog.listTables(self._database)
            for name in (found.apply(nth) for nth in range(found.size())):
                place = self._catalog.getTable(self._database, name).storage().locationUri()
                uri = str(place.get().toString()) if place.isDefined() else ""
                if any(_within(uri, root) for root in self._cluster.root.split(",")):
                    self._held[name] = uri
                else:
                    others.add(name)
        places = {_plain_uri(self._cluster.table_uri(info)): topic for topic, info in known.items()}
        held = {name: places[_plain_uri(uri)] for name, uri in self._held.items() if _plain_uri(uri) in places}
        self._names = view_names(topics, held)
        taken = sorted(topic for topic in chosen if self._names[topic] in others)
        if taken:
            raise IllegalArgumentError(
                f"{self._database}.{self._names[taken[0]]} exists, but is not a table of topic {taken[0]}; nothing was "
                "made. Rename or drop it, or register in another database"
            )
        return {
            topic: f"{sql_text.identifier(self._database)}.{sql_text.identifier(self._names[topic])}"
            for topic in chosen
        }

    def make(self, chosen: Mapping[str, TopicInfo], topics: Iterable[str], *, drop: bool) -> list[str]:
        """Create the tables of `plan`, and drop the tables of deleted topics; no data is touched.

        Args:
            chosen: topics that get a table.
            topics: all topics of the cluster.
            drop: whether to drop tables of deleted topics.

        Returns:
            The tables that were dropped.
        """
        statements = [f"CREATE DATABASE IF NOT EXISTS {sql_text.quoted(self._database)}"]
        wanted = {self._names[topic] for topic in topics}
        gone = sorted(self._held.keys() - wanted) if drop else []
        for topic, info in sorted(chosen.items()):
            name, uri = self._names[topic], self._cluster.table_uri(info)
            if _plain_uri(self._held.get(name, "")) == _plain_uri(uri):
                continue
            if name in self._held:
                # A topic that was deleted and created again has another folder.
                self._drop(name)
            table = f"{sql_text.quoted(self._database)}.{sql_text.quoted(name)}"
            statements.append(f"CREATE TABLE IF NOT EXISTS {table} USING delta LOCATION {sql_text.literal(uri)}")
        for statement in statements:
            self._spark.sql(statement)
        for name in gone:
            self._drop(name)
        return [f"{sql_text.identifier(self._database)}.{sql_text.identifier(name)}" for name in gone]

    def _drop(self, name: str) -> None:
        # By SQL, Delta would look for the folder, which may be gone.
        self._catalog.dropTable(self._database, name, True, False)  # noqa: FBT003 - ignoreIfNotExists, purge


def table_statements(cluster: Cluster, database: str) -> list[str]:
    """Return statements that create the external tables, for an engine or catalog of your own.

    Args:
        cluster: the cluster of the topics.
        database: the database, which may name its catalog: `unity.log`.

    Raises:
        KafkaConnectionError: the root has no cluster.
        IllegalArgumentError: a topic is open to foreign writers.
    """
    check_founded(cluster)
    topics = cluster.topics()
    for info in topics.values():
        _check_closed(cluster, info)
    place = ".".join(map(sql_text.quoted, database.split(".")))
    return [f"CREATE DATABASE IF NOT EXISTS {place}"] + [
        f"CREATE TABLE IF NOT EXISTS {place}.{sql_text.quoted(name)} USING delta "
        f"LOCATION {sql_text.literal(cluster.table_uri(topics[topic]))}"
        for topic, name in sorted(view_names(topics).items())
    ]


def _check_closed(cluster: Cluster, info: TopicInfo) -> None:
    if not cluster.server.is_closed(info.configs):
        raise IllegalArgumentError(
            f"topic {info.name} is open to foreign writers, so a table in a catalog would let anybody write to it; "
            "nothing was made. Register it as a view, or set kafkalike.foreign.writes=reject"
        )


def _plain_uri(uri: str) -> str:
    """Return a URI or path in the one form that can be compared."""
    return unquote(re.sub(r"^file:/+", "/", uri)).rstrip("/")


def _within(uri: str, root: str) -> bool:
    """Return whether a table's location is a folder of a root."""
    plain = _plain_uri(spark_uri(root))
    return _plain_uri(uri).startswith(f"{plain}/")
