"""A topic's table is closed to Spark's writers, by path and by a catalog's name, and open to all of its readers."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafkalike.spark as ks
from kafkalike.connect import connect
from tests.tools.findings import errors_of
from tests.tools.records import all_records, batch

FEATURE = "changeOnlyThroughKafkalike"
RECORDS = {0: [(0, "a"), (1, "b")]}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The root of a topic of two records in two files, for tests all of whose writes are rejected."""
    root = str(tmp_path_factory.mktemp("shared") / "cluster")
    make(root)
    return root


@pytest.fixture(scope="module")
def table(spark: SparkSession, shared: str) -> Iterator[str]:
    """The name that the company's catalog has for the table of the shared topic."""
    yield from named(spark, shared, "company_orders")


@pytest.fixture
def own_table(spark: SparkSession, root: str) -> Iterator[str]:
    """The same for a topic of the test's own."""
    make(root)
    yield from named(spark, root, "company_returns")


def make(root: str) -> None:
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch("a"))
    cluster.log("t").append(batch("b"))


def named(spark: SparkSession, root: str, name: str) -> Iterator[str]:
    spark.sql(f"CREATE TABLE {name} USING DELTA LOCATION '{root}/t'")
    yield name
    spark.sql(f"DROP TABLE {name}")


ROW = "SELECT 0, 5L, timestamp_millis(0), 0, NULL, NULL, NULL"
STATEMENTS = {
    "insert": f"INSERT INTO {{t}} {ROW}",
    "insert overwrite": f"INSERT OVERWRITE {{t}} {ROW}",
    "update": "UPDATE {t} SET value = key",
    "delete": "DELETE FROM {t}",
    "truncate": "TRUNCATE TABLE {t}",
    "merge": "MERGE INTO {t} AS x USING (SELECT 0L AS o) AS y ON x.offset = y.o WHEN MATCHED THEN DELETE",
    "alter": "ALTER TABLE {t} SET TBLPROPERTIES ('a' = 'b')",
    "add column": "ALTER TABLE {t} ADD COLUMNS (extra INT)",
    "restore": "RESTORE TABLE {t} TO VERSION AS OF 0",
    "optimize": "OPTIMIZE {t}",
    "vacuum": "VACUUM {t}",
}


@pytest.mark.parametrize("statement", STATEMENTS.values(), ids=STATEMENTS)
def test_statement_by_a_catalog_name_is_rejected_by_the_table(
    spark: SparkSession, shared: str, table: str, statement: str
) -> None:
    with pytest.raises((PySparkException, Py4JJavaError), match=FEATURE):
        spark.sql(statement.format(t=table)).collect()

    assert all_records(shared) == RECORDS
    assert errors_of(shared) == []


@pytest.mark.parametrize("statement", ["insert", "delete", "restore"])
def test_statement_by_path_of_a_session_without_kafkalike_is_rejected_by_the_table(
    spark: SparkSession, shared: str, table: str, statement: str
) -> None:
    plain: Any = inspect.unwrap(type(spark).sql)

    with pytest.raises((PySparkException, Py4JJavaError), match=FEATURE):
        plain(spark, STATEMENTS[statement].format(t=f"delta.`{shared}/t`")).collect()

    assert all_records(shared) == RECORDS


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("by", ["path", "name"])
def test_frame_is_not_written_into_a_closed_table(
    spark: SparkSession, shared: str, table: str, mode: str, by: str
) -> None:
    writer = spark.sql(ROW).toDF(*spark.table(table).columns).write.format("delta").mode(mode)

    with pytest.raises((PySparkException, Py4JJavaError), match=FEATURE):
        writer.saveAsTable(table) if by == "name" else writer.save(f"{shared}/t")

    assert all_records(shared) == RECORDS


def test_stream_is_not_written_into_a_closed_table(
    spark: SparkSession, shared: str, table: str, tmp_path: Path
) -> None:
    frame = spark.readStream.format("delta").load(f"{shared}/t")
    query = (
        frame.writeStream.format("delta")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(f"{shared}/t")
    )

    with pytest.raises(PySparkException, match=FEATURE):
        query.awaitTermination()

    assert all_records(shared) == RECORDS


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.collect())


def test_all_readers_of_spark_read_a_closed_table(spark: SparkSession, shared: str, table: str) -> None:
    assert offsets(spark.read.format("delta").load(f"{shared}/t")) == [0, 1]
    assert offsets(spark.table(table).where("offset = 1")) == [1]
    assert offsets(spark.read.option("versionAsOf", 2).table(table)) == [0, 1]
    assert offsets(ks.read(spark, "t", shared)) == [0, 1]
    operations = [row.operation for row in spark.sql(f"DESCRIBE HISTORY {table}").collect()]
    assert operations == ["WRITE", "WRITE", "CREATE TABLE"]
    detail = spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]
    assert (detail.minReaderVersion, detail.minWriterVersion) == (1, 7)


def test_stream_of_deltas_source_goes_on_while_a_table_is_opened_and_closed(
    spark: SparkSession, root: str, own_table: str, tmp_path: Path
) -> None:
    cluster = connect(root)
    seen: list[int] = []

    def run() -> None:
        frame = ks.read_stream(spark, "t", root, engine="delta", starting_offsets="earliest")
        query = (
            frame.writeStream.foreachBatch(lambda batch, _: seen.extend(offsets(batch)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    run()
    cluster.edit_configs("t", lambda _: {"kafkalike.foreign.writes": "allow"})
    cluster.log("t").append(batch("c"))
    run()
    cluster.edit_configs("t", lambda _: {})
    cluster.log("t").append(batch("d"))
    run()

    assert seen == [0, 1, 2, 3]


def test_foreign_write_works_once_the_setting_allows_it(spark: SparkSession, root: str, own_table: str) -> None:
    connect(root).edit_configs("t", lambda _: {"kafkalike.foreign.writes": "allow"})

    spark.sql(f"OPTIMIZE {own_table}").collect()

    assert all_records(root) == RECORDS
    connect(root).log("t").append(batch("c"))
    assert offsets(ks.read(spark, "t", root)) == [0, 1, 2]
