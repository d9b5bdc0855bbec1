"""`kafkalike sql-views --tables`: topics as external tables, as SQL for a catalog of one's own."""

from __future__ import annotations

from kafkalike.connect import connect
from tests.tools.cli import call


def test_each_topic_is_a_table_of_the_named_catalog_and_database(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("web.clicks", 1, {})
    cluster.create_topic("orders", 1, {})

    done = call(cluster, "sql-views", "--tables", "unity.log")

    assert done.out.splitlines() == [
        "CREATE DATABASE IF NOT EXISTS `unity`.`log`;",
        f"CREATE TABLE IF NOT EXISTS `unity`.`log`.`orders` USING delta LOCATION '{root}/orders';",
        f"CREATE TABLE IF NOT EXISTS `unity`.`log`.`web_clicks` USING delta LOCATION '{root}/web.clicks';",
    ]


def test_topic_that_is_open_to_foreign_writers_is_refused_by_name(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("orders", 1, {"kafkalike.foreign.writes": "allow"})

    done = call(cluster, "sql-views", "--tables", "log")

    assert done.code == 1
    assert "topic orders is open to foreign writers" in done.err
    assert not done.out
