"""Views over format("kafkalike"): INSERT INTO adds records as any write does, and nothing else changes a topic."""

# ruff: noqa: S608 - names of tests

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import pytest
from pyspark.errors import AnalysisException, PySparkException

from kafkalike import KafkaProducer
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark import register_sql
from tests.tools.findings import errors_of
from tests.tools.records import all_records

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def table(spark: SparkSession, root: str, cluster: Cluster) -> Iterator[str]:
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


def test_a_view_of_texts_takes_texts(spark: SparkSession, root: str, cluster: Cluster) -> None:
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


STATEMENTS: Final = (
    ("DELETE FROM {} WHERE offset = 0", "kafkalike delete-records"),
    ("UPDATE {} SET value = X'61'", "max_by"),
    ("MERGE INTO {} t USING (SELECT 1 AS o) s ON t.offset = s.o WHEN MATCHED THEN DELETE", "max_by"),
    ("TRUNCATE TABLE {}", "kafkalike delete-records"),
    ("INSERT OVERWRITE {} (value) VALUES (X'61')", "cannot be overwritten"),
)


def test_nothing_but_an_insert_changes_a_topic(spark: SparkSession, root: str, table: str) -> None:
    """Neither through the view that takes inserts, nor through the one that `register_sql` makes; it says what does."""
    register_sql(spark, root, temporary=True)
    spark.sql(f"INSERT INTO {table} (value, partition) VALUES (X'61', 0)")

    for view in (table, "orders"):
        for statement, instead in STATEMENTS:
            with pytest.raises(AnalysisException, match=rf"{instead}.* Spark said: "):
                spark.sql(statement.format(view)).collect()
    with pytest.raises(AnalysisException, match="CREATE TEMPORARY VIEW"):
        spark.sql("INSERT INTO orders (value) VALUES (X'61')")

    assert all_records(root, "orders") == {0: [(0, "a")], 1: []}


def test_the_path_of_a_topics_table_is_no_way_round(spark: SparkSession, root: str, table: str) -> None:
    """Delta would do it, behind the log's back: a session that knows the format refuses it, and reads as ever."""
    spark.sql(f"INSERT INTO {table} (value, partition) VALUES (X'61', 0)")
    path = f"delta.`{root}/orders`"

    for statement, instead in [*STATEMENTS, ("INSERT INTO {} (value) VALUES (X'61')", "CREATE TEMPORARY VIEW")]:
        with pytest.raises(AnalysisException, match=rf"nothing was changed: .*{instead}"):
            spark.sql(statement.format(path))

    assert spark.sql(f"SELECT * FROM {path}").count() == 1
    assert all_records(root, "orders") == {0: [(0, "a")], 1: []}
    assert errors_of(root) == []


def test_what_is_wrong_with_an_insert_and_with_other_tables_is_told_by_spark_alone(
    spark: SparkSession, table: str
) -> None:
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW other AS SELECT 1 AS a")

    for statement in (f"INSERT INTO {table} (value) VALUES (1)", "TRUNCATE TABLE other", "UPDATE missing SET a = 1"):
        with pytest.raises(PySparkException) as raised:
            spark.sql(statement)
        assert "Spark said" not in str(raised.value)


def test_an_error_is_raised_and_not_logged_as_well(
    spark: SparkSession, table: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """PySpark logs those with a place in the text as JSON, with all frames of the JVM."""
    with pytest.raises(PySparkException):
        spark.sql(f"TRUNCATE TABLE {table}")

    assert capfd.readouterr().err == ""


def test_a_table_that_nothing_could_open_is_not_made(spark: SparkSession, root: str) -> None:
    """With Delta's catalog; the test's session has it."""
    with pytest.raises(AnalysisException, match="use CREATE TEMPORARY VIEW"):
        spark.sql(f"CREATE TABLE unusable USING kafkalike OPTIONS (`kafka.bootstrap.servers` '{root}', topic 'orders')")

    assert not spark.catalog.tableExists("unusable")


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
