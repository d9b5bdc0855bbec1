"""Views over format("kafkalike"): INSERT INTO adds records as any write does, and nothing else changes a topic."""

# ruff: noqa: S608 - names of tests

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException

from kafkalike import KafkaProducer
from kafkalike.log.cluster.delta_cluster import DeltaCluster
from tests.tools.findings import errors_of
from tests.tools.records import all_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: SparkSession, root: str, cluster: DeltaCluster) -> Iterator[str]:
    """A view over a topic of two partitions."""
    cluster.create_topic("orders", 2, {})
    options = f"`kafka.bootstrap.servers` '{root}', topic 'orders'"
    spark.sql(f"CREATE TEMPORARY VIEW orders_topic USING kafkalike OPTIONS ({options})")
    yield "orders_topic"
    spark.sql("DROP VIEW orders_topic")


def test_an_insert_adds_records(spark: SparkSession, root: str, table: str) -> None:
    """Numbered and partitioned as any write; columns that are left out are null."""
    spark.sql(f"INSERT INTO {table} (key, value, partition) VALUES (X'61', X'62', 1)")
    spark.sql(f"INSERT INTO {table} (value, partition) SELECT CAST(id AS STRING)::BINARY, 0 FROM range(3)")

    found = spark.sql(f"SELECT partition, offset, CAST(value AS STRING) FROM {table} ORDER BY 1, 2").collect()
    assert [tuple(row) for row in found] == [(0, 0, "0"), (0, 1, "1"), (0, 2, "2"), (1, 0, "b")]
    assert errors_of(root) == []


def test_a_view_of_texts_takes_texts(spark: SparkSession, root: str, cluster: DeltaCluster) -> None:
    """Its columns are the user's: for writing."""
    cluster.create_topic("texts", 1, {})
    spark.sql(
        "CREATE TEMPORARY VIEW texts_in (key STRING, value STRING) USING kafkalike "
        f"OPTIONS (`kafka.bootstrap.servers` '{root}', topic 'texts')"
    )
    try:
        spark.sql("INSERT INTO texts_in VALUES ('k', 'v')")
        with pytest.raises(PySparkException, match="has a fixed schema"):
            spark.sql("SELECT * FROM texts_in").collect()
    finally:
        spark.sql("DROP VIEW texts_in")

    assert all_records(root, "texts") == {0: [(0, "v")]}


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM {} WHERE offset = 0",
        "UPDATE {} SET value = X'61'",
        "MERGE INTO {} t USING (SELECT 1 AS o) s ON t.offset = s.o WHEN MATCHED THEN DELETE",
        "TRUNCATE TABLE {}",
        "INSERT OVERWRITE {} (value) VALUES (X'61')",
    ],
)
def test_nothing_but_an_insert_changes_a_topic(spark: SparkSession, root: str, table: str, statement: str) -> None:
    spark.sql(f"INSERT INTO {table} (value, partition) VALUES (X'61', 0)")

    with pytest.raises(PySparkException):
        spark.sql(statement.format(table)).collect()

    assert all_records(root, "orders") == {0: [(0, "a")], 1: []}


def test_inserts_beside_producers_lose_and_double_nothing(spark: SparkSession, root: str, table: str) -> None:
    """Offsets are dense; each one's records stand in its order."""
    done = threading.Event()

    def produce() -> None:
        with KafkaProducer(bootstrap_servers=root) as producer:
            number = 0
            while not done.is_set() or number < 40:
                producer.send("orders", f"p{number}".encode(), partition=0).get(60)
                number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for nth in range(4):
            rows = f"SELECT CAST(concat('s', {nth}, '-', id) AS BINARY), 0 FROM range(5)"
            spark.sql(f"INSERT INTO {table} (value, partition) {rows}")
    finally:
        done.set()
        thread.join()

    found = all_records(root, "orders")[0]
    values = [value for _, value in found]
    assert [offset for offset, _ in found] == list(range(len(found)))
    assert [v for v in values if v[0] == "s"] == [f"s{nth}-{row}" for nth in range(4) for row in range(5)]
    produced = [v for v in values if v[0] == "p"]
    assert produced == [f"p{number}" for number in range(len(produced))]
    assert errors_of(root) == []
