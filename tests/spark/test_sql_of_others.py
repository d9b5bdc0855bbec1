"""Names in SQL: nothing that others have made is replaced, hidden or dropped, and new topics are found."""

# ruff: noqa: S608 - names of tests

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException, PySparkException

from kafkalike.errors import IllegalArgumentError, KafkaConnectionError
from kafkalike.spark import create_view, register_sql
from tests.tools.clusters import on_disk
from tests.tools.records import fill

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster


@pytest.fixture
def cluster(root: str) -> Cluster:
    made = on_disk(root)
    for topic in ("orders", "web.clicks"):
        made.create_topic(topic, 1, {})
        fill(made, topic, topic)
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)
        else:
            spark.sql(f"DROP TABLE IF EXISTS `{view.name}`")
    spark.sql("DROP DATABASE IF EXISTS log CASCADE")


def temporary(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables() if table.isTemporary}


def in_log(spark: SparkSession) -> set[str]:
    return {table.name for table in spark.catalog.listTables("log") if not table.isTemporary}


def test_register_sql_without_a_place_is_refused(spark: SparkSession, root: str, cluster: Cluster) -> None:
    with pytest.raises(IllegalArgumentError, match=r"database=.log.*or temporary=True"):
        register_sql(spark, root)

    assert temporary(spark) == set()


def test_database_gets_views_and_the_session_none(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Tables and views of the session under the names of topics, or of the cluster's tables, are as before."""
    spark.sql("SELECT 'mine' AS whose").createOrReplaceTempView("topics")
    spark.sql("CREATE TABLE orders AS SELECT 'mine' AS whose")

    views = register_sql(spark, root, database="log")

    assert views == {"orders": "log.orders", "web.clicks": "log.web_clicks"}
    assert (views.tables, views.dropped) == ({}, ())
    assert temporary(spark) == {"topics"}
    for table in ("topics", "orders"):
        assert spark.sql(f"SELECT whose FROM {table}").collect() == [("mine",)]
    other = spark.newSession()
    assert other.sql("SELECT topic FROM log.web_clicks").collect() == [("web.clicks",)]
    ranged = "SELECT CAST(value AS STRING) FROM log.kafkalike_offsets('orders', 0, 0, NULL)"
    assert other.sql(ranged).collect() == [("orders",)]


@pytest.mark.parametrize("make", ["CREATE TABLE {} AS SELECT 1 AS one", "CREATE VIEW {} AS SELECT 1 AS one"])
def test_database_with_a_table_of_the_name_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, make: str
) -> None:
    spark.sql("CREATE DATABASE log")
    spark.sql(make.format("log.web_clicks"))

    with pytest.raises(IllegalArgumentError, match=r"log\.web_clicks exists, but kafkalike has not made it"):
        register_sql(spark, root, database="log")

    assert in_log(spark) == {"web_clicks"}
    assert spark.sql("SELECT * FROM log.web_clicks").collect() == [(1,)]


def test_external_table_at_the_topics_place_is_not_dropped(spark: SparkSession, root: str, cluster: Cluster) -> None:
    spark.sql("CREATE DATABASE log")
    spark.sql(f"CREATE TABLE log.orders USING delta LOCATION '{root}/orders'")

    with pytest.raises(IllegalArgumentError, match="nothing was made"):
        register_sql(spark, root, database="log")

    assert spark.sql("SELECT count(*) FROM log.orders").collect() == [(1,)]


def test_database_of_another_cluster_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    other = str(tmp_path / "other")
    on_disk(other).create_topic("orders", 1, {})
    register_sql(spark, root, database="log")

    with pytest.raises(IllegalArgumentError, match=f"database log has views of the cluster at {root}"):
        register_sql(spark, other, database="log")

    assert spark.sql("SELECT count(*) FROM log.orders").collect() == [(1,)]


def test_registering_again_follows_topics_and_leaves_other_views(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    register_sql(spark, root, database="log")
    spark.sql("CREATE VIEW log.mine AS SELECT 1 AS one")
    cluster.delete_topic("orders")
    cluster.create_topic("new", 1, {})

    views = register_sql(spark, root, database="log")

    assert views == {"web.clicks": "log.web_clicks", "new": "log.new"}
    assert views.dropped == ("log.orders", "log.orders__text")
    assert in_log(spark) == {"web_clicks", "web_clicks__text", "new", "new__text", "mine"}


@pytest.mark.parametrize(
    ("where", "given"), [("log.", {"database": "log"}), ("", {"temporary": True})], ids=["database", "session"]
)
def test_statement_finds_a_topic_that_was_created_since(
    spark: SparkSession, root: str, cluster: Cluster, where: str, given: dict[str, object]
) -> None:
    """By `sql` and by `table`; what is nowhere is an error as ever, also of a topic that was deleted."""
    register_sql(spark, root, **given)  # type: ignore[arg-type]
    for topic in ("one", "two"):
        cluster.create_topic(topic, 1, {})
        fill(cluster, topic, topic)

        read = spark.sql if topic == "one" else lambda statement: spark.table(statement.split()[-1]).select("topic")

        assert read(f"SELECT topic FROM {where}{topic}").collect() == [(topic,)]
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.sql(f"SELECT * FROM {where}nowhere")


def test_statement_finds_a_new_topic_though_another_registered_cluster_is_gone(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    on_disk(str(gone)).create_topic("other", 1, {})
    register_sql(spark, str(gone), temporary=True)
    register_sql(spark, root, database="log")
    shutil.rmtree(gone)
    cluster.create_topic("one", 1, {})
    fill(cluster, "one", "one")

    assert spark.sql("SELECT topic FROM log.one").collect() == [("one",)]


def test_view_keeps_its_topic_when_another_would_have_its_name(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    register_sql(spark, root, database="log")
    cluster.create_topic("web_clicks", 1, {})

    views = register_sql(spark, root, database="log")

    assert views["web.clicks"] == "log.web_clicks"
    assert views["web_clicks"] == "log.__vweb_clicks"
    assert spark.sql("SELECT topic FROM log.web_clicks").collect() == [("web.clicks",)]


def test_temporary_views_hide_no_table(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Of the catalog or of the session; none is made then."""
    spark.sql("CREATE TABLE web_clicks AS SELECT 'mine' AS whose")
    with pytest.raises(IllegalArgumentError, match="web_clicks is a table or view of this session"):
        register_sql(spark, root, temporary=True)
    spark.sql("DROP TABLE web_clicks")
    spark.sql("SELECT 'mine' AS whose").createOrReplaceTempView("kafkalike_lag")
    with pytest.raises(IllegalArgumentError, match="kafkalike_lag is a table or view of this session"):
        register_sql(spark, root, temporary=True)

    assert temporary(spark) == {"kafkalike_lag"}


@pytest.mark.parametrize("name", ["ORDERS", "Orders__Text"], ids=["topic", "text"])
def test_users_view_in_other_case_hides_a_topic_only_where_case_does_not_count(
    spark: SparkSession, root: str, cluster: Cluster, name: str
) -> None:
    other = spark.newSession()
    other.sql("SELECT 'mine' AS whose").createOrReplaceTempView(name)

    with pytest.raises(IllegalArgumentError, match=rf"{name.lower()} is a table or view .* nothing was made"):
        register_sql(other, root, temporary=True)

    assert temporary(other) == {name.lower()}
    other = spark.newSession()
    other.conf.set("spark.sql.caseSensitive", "true")
    other.sql("SELECT 'mine' AS whose").createOrReplaceTempView(name)
    register_sql(other, root, temporary=True)
    assert other.sql(f"SELECT whose FROM {name}").collect() == [("mine",)]
    assert other.sql("SELECT topic FROM orders__text").collect() == [("orders",)]


def test_view_that_a_user_has_put_in_place_of_ours_is_not_replaced(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    register_sql(spark, root, temporary=True)
    spark.sql("SELECT 'mine' AS whose").createOrReplaceTempView("orders")

    with pytest.raises(IllegalArgumentError, match="orders is a table or view of this session"):
        register_sql(spark, root, temporary=True)

    assert spark.sql("SELECT whose FROM orders").collect() == [("mine",)]


def test_temporary_views_are_of_one_cluster(spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    on_disk(other).create_topic("parcels", 1, {})
    register_sql(spark, root, temporary=True)

    views = register_sql(spark, other, temporary=True)

    assert set(views.dropped) == {"orders", "orders__text", "web_clicks", "web_clicks__text", "`web.clicks`"}
    assert temporary(spark) == {"parcels", "parcels__text", *views.tables.values()}
    assert spark.sql("SELECT topic FROM kafkalike_topics").collect() == [("parcels",)]


def test_topics_in_a_database_and_the_clusters_tables_in_the_session(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    views = register_sql(spark, root, database="log", temporary=True)

    assert views["orders"] == "log.orders"
    assert temporary(spark) == set(views.tables.values())
    assert spark.sql("SELECT view FROM kafkalike_topics ORDER BY topic").collect() == [("orders",), ("web_clicks",)]


def test_create_view_takes_no_name_of_others(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """By its own name and by a given one; its own view is replaced."""
    assert create_view(spark, "web.clicks", root, value_format="string") == "web_clicks__values"
    assert create_view(spark, "web.clicks", root, value_format="binary") == "web_clicks__values"
    spark.sql("CREATE TABLE mine AS SELECT 'mine' AS whose")
    spark.sql("SELECT 'mine' AS whose").createOrReplaceTempView("orders__values")

    for name in ("mine", None):
        with pytest.raises(IllegalArgumentError, match="is a table or view of this session"):
            create_view(spark, "orders", root, value_format="string", name=name)

    assert spark.sql("SELECT whose FROM mine UNION ALL SELECT whose FROM orders__values").count() == 2


@pytest.mark.parametrize("given", [{"database": "log"}, {"temporary": True}], ids=["database", "session"])
@pytest.mark.parametrize("wrong", ["nowhere", "empty"])
def test_register_sql_of_a_misspelt_root_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, tmp_path: Path, given: dict[str, object], wrong: str
) -> None:
    """The views of the right one stay."""
    register_sql(spark, root, **given)  # type: ignore[arg-type]
    before = temporary(spark)
    (tmp_path / "empty").mkdir()

    with pytest.raises(KafkaConnectionError, match=str(tmp_path / wrong)):
        register_sql(spark, str(tmp_path / wrong), **given)  # type: ignore[arg-type]

    assert temporary(spark) == before
    assert not (tmp_path / "nowhere").exists()
    assert spark.sql(f"SELECT topic FROM {'log.' if 'database' in given else ''}orders").collect() == [("orders",)]


def test_table_of_a_cluster_that_is_gone_is_an_error(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """No rows would keep an alert on lag quiet."""
    register_sql(spark, root, temporary=True, topics=[])
    shutil.rmtree(root)

    with pytest.raises(PySparkException, match=f"the root {root} does not exist"):
        spark.sql("SELECT * FROM kafkalike_lag").collect()
