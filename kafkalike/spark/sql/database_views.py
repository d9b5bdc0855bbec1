"""SQL database: topics in, views of a database that stay and that other sessions see out.

Views, because Spark lets everybody write to a table: an `INSERT` would give an offset to a second record. Each view
says in its properties which topic of which cluster it is; nothing that does not say so is replaced or dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.topic_sql import view_names
from kafkalike.spark.reads.conditions import readable_sql
from kafkalike.spark.sql.range_functions import range_functions
from kafkalike.spark.sql_text import identifier, literal, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.model.topic import TopicInfo

CLUSTER: Final = "kafkalike.cluster"
TOPIC: Final = "kafkalike.topic"
DEFINITION: Final = "kafkalike.definition"
"""Properties of a view: the cluster's root, the topic's name, and a hash of what the view selects."""


@dataclass(frozen=True, slots=True)
class _Existing:
    """A view of this cluster that is in the database."""

    topic: str
    definition: str


class DatabaseViews:
    """The views of a cluster's topics in a database. `plan` checks and changes nothing; `make` changes.

    Args:
        spark: a session.
        cluster: whose topics.
        database: the database, without a catalog.

    Raises:
        IllegalArgumentError: that is no name of a database.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, database: str) -> None:
        if not re.fullmatch(r"\w+", database):
            raise IllegalArgumentError(f"database must be a name of letters, digits and underscores, not {database!r}")
        self._spark = spark
        self._cluster = cluster
        # However its roots are ordered.
        self._root = ",".join(sorted(cluster.root.split(",")))
        self._database = database
        self._existing: dict[str, _Existing] = {}
        self._names: dict[str, str] = {}

    def plan(self, topics: Iterable[str], chosen: Iterable[str]) -> dict[str, str]:
        """Return the SQL name of each chosen topic's view.

        Args:
            topics: all topics of the cluster.
            chosen: those that get a view.

        Raises:
            IllegalArgumentError: the database has views of another cluster, or something that is no such view has the
                name of one.
        """
        others: set[str] = set()
        if self._spark.catalog.databaseExists(quoted(self._database)):
            others = self._look()
        self._names = view_names(topics, {name: found.topic for name, found in self._existing.items()})
        for topic in sorted(chosen):
            if self._names[topic] in others:
                raise IllegalArgumentError(
                    f"{self._database}.{self._names[topic]} exists and is no view that kafkalike has made, so topic "
                    f"{topic} cannot have that name; nothing was made. Rename it, or register in another database"
                )
        return {topic: f"{identifier(self._database)}.{identifier(self._names[topic])}" for topic in chosen}

    def _look(self) -> set[str]:
        """Find this cluster's views; returns the names of everything else."""
        others = {row["tableName"] for row in self._rows(f"SHOW TABLES IN {quoted(self._database)}")}
        for row in self._rows(f"SHOW VIEWS IN {quoted(self._database)}"):
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
        """Make the views and functions that `plan` has planned.

        Args:
            chosen: the topics that get a view.
            topics: all topics of the cluster.
            drop: whether views of topics that are gone are dropped.

        Returns:
            The views that were dropped.
        """
        statements = [f"CREATE DATABASE IF NOT EXISTS {quoted(self._database)}"]
        for topic, info in sorted(chosen.items()):
            name = self._names[topic]
            select = select_of(self._cluster, info)
            definition = hashlib.sha256(select.encode()).hexdigest()
            old = self._existing.get(name)
            if old is not None and old.definition == definition:
                continue
            # Not over something that somebody has made since `plan`; two may register at once.
            create = "CREATE VIEW IF NOT EXISTS" if old is None else "CREATE OR REPLACE VIEW"
            properties = {CLUSTER: self._root, TOPIC: topic, DEFINITION: definition}
            said = ", ".join(f"{literal(key)} = {literal(value)}" for key, value in properties.items())
            comment = literal(f"Topic {topic} of the kafkalike cluster at {self._cluster.root}; read-only")
            statements.append(
                f"{create} {self._in_database(name)} COMMENT {comment} TBLPROPERTIES ({said}) AS {select}"
            )
        kept = {found.topic: name for name, found in self._existing.items() if found.topic in set(topics)}
        gone = sorted(self._existing.keys() - kept.values()) if drop else []
        views = {topic: self._in_database(name) for topic, name in kept.items()}
        views |= {topic: self._in_database(self._names[topic]) for topic in chosen}
        # Each time: they keep the zone in which texts are times.
        statements += range_functions(views, database=quoted(self._database))
        # Once no function looks for them.
        statements += [f"DROP VIEW IF EXISTS {self._in_database(name)}" for name in gone]
        for statement in statements:
            self._spark.sql(statement)
        return [f"{identifier(self._database)}.{identifier(name)}" for name in gone]

    def _in_database(self, name: str) -> str:
        return f"{quoted(self._database)}.{quoted(name)}"

    def _rows(self, statement: str) -> list[dict[str, str]]:
        return [row.asDict() for row in self._spark.sql(statement).collect()]


def select_of(cluster: Cluster, info: TopicInfo) -> str:
    """Return the query of a topic's view: what `topic_frame` gives."""
    columns = f"key, value, {literal(info.name)} AS topic, partition, offset, timestamp, timestampType, headers"
    # Names and texts are quoted.
    return f"SELECT {columns} FROM delta.{quoted(cluster.table_uri(info))} WHERE {readable_sql(info)}"  # noqa: S608
