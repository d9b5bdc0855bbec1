"""Topics as external tables of a catalog: they come and go with the topics, and nobody writes through them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafkalike.spark as ks
from kafkalike import ConfigResource, ConfigResourceType, KafkaAdminClient, KafkaProducer
from kafkalike.errors import IllegalArgumentError


@pytest.fixture
def database(spark: SparkSession) -> Iterator[str]:
    yield "topic_tables"
    spark.sql("DROP DATABASE IF EXISTS topic_tables CASCADE")


def send(root: str, **values: str) -> None:
    with KafkaProducer(bootstrap_servers=root) as producer:
        for topic, value in values.items():
            producer.send(topic.replace("__", "."), value.encode(), key=b"ann")


def tables(spark: SparkSession, database: str) -> list[str]:
    found = spark.sql(f"SHOW TABLES IN {database}").collect()
    # Temporary views of other tests in this session belong to no database, and are listed in each.
    return sorted(row.tableName for row in found if not row.isTemporary)


def test_tables_follow_the_topics_and_refuse_writes(spark: SparkSession, root: str, database: str) -> None:
    send(root, orders="tea", web__clicks="x")
    first = ks.register_sql(spark, root, database=database, tables=True)
    assert dict(first) == {"orders": "topic_tables.orders", "web.clicks": "topic_tables.web_clicks"}
    assert [bytes(row.value) for row in spark.table("topic_tables.orders").collect()] == [b"tea"]
    with pytest.raises((PySparkException, Py4JJavaError), match="changeOnlyThroughKafkalike"):
        spark.sql("INSERT INTO topic_tables.orders SELECT * FROM topic_tables.orders")
    spark.sql("CREATE TABLE topic_tables.own (id INT) USING delta")

    KafkaAdminClient(bootstrap_servers=root).delete_topics(["orders"])
    send(root, payments="1")
    second = ks.register_sql(spark, root, database=database, tables=True)

    assert second.dropped == ("topic_tables.orders",)
    assert tables(spark, database) == ["own", "payments", "web_clicks"]
    send(root, orders="new")
    ks.register_sql(spark, root, database=database, tables=True)
    assert [bytes(row.value) for row in spark.table("topic_tables.orders").collect()] == [b"new"]


def test_taken_names_open_topics_and_sessions_without_a_database_are_refused(
    spark: SparkSession, root: str, database: str
) -> None:
    send(root, own="x")
    spark.sql("CREATE DATABASE topic_tables")
    spark.sql("CREATE TABLE topic_tables.own (id INT) USING delta")

    with pytest.raises(IllegalArgumentError, match="own exists, but is not a table of topic own"):
        ks.register_sql(spark, root, database=database, tables=True)
    with pytest.raises(IllegalArgumentError, match="goes with database"):
        ks.register_sql(spark, root, tables=True, temporary=True)
    spark.sql("DROP TABLE topic_tables.own")
    admin = KafkaAdminClient(bootstrap_servers=root)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "own", {"kafkalike.foreign.writes": "allow"})])
    with pytest.raises(IllegalArgumentError, match="open to foreign writers"):
        ks.register_sql(spark, root, database=database, tables=True)
    assert tables(spark, database) == []
