"""SQL over a part of a topic, and over a topic as it was."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession

from kafkalike import KafkaProducer, find_records
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import create_view, read, register_sql
from kafkalike.spark.sql.topic_views import view_statements
from kafkalike.storage.parquet import FILTER_ROWS
from tests.tools.clusters import on_disk
from tests.tools.footers import filters
from tests.tools.records import make_topic

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY = dt.timedelta(days=1)
FIRST = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def fill(cluster: Cluster, *records: tuple[int, dt.datetime], topic: str = "orders") -> None:
    """One append of records by partition and time; the value is the time."""
    batch = RecordBatch()
    for partition, moment in records:
        batch.add(partition, None, moment.isoformat().encode(), int(moment.timestamp() * 1000))
    cluster.log(topic).append(batch)


def offsets(spark: SparkSession, query: str) -> list[tuple[int, int]]:
    """Partition and offset of the rows of a query."""
    return sorted((row["partition"], row["offset"]) for row in spark.sql(query).collect())


@pytest.fixture
def cluster(root: str) -> Cluster:
    """Two topics; three days of `orders`, a file for each day and partition, and one commit for each day."""
    made = on_disk(root)
    made.create_topic("orders", 2, {"retention.ms": "-1"})
    made.create_topic("a.b", 1, {})
    for day in range(3):
        fill(made, (0, FIRST + day * DAY), (1, FIRST + day * DAY), (0, FIRST + day * DAY + DAY / 2))
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)
    spark.sql("DROP DATABASE IF EXISTS shared CASCADE")


def test_a_range_is_half_open_and_has_a_views_columns(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """By time and by offset; ends may be texts, times or left open."""
    views = register_sql(spark, root, temporary=True)

    expected = {
        "kafkalike_range('orders', '2026-01-02', '2026-01-02 12:00:00')": [(0, 2), (1, 1)],
        "kafkalike_range('orders', NULL, timestamp'2026-01-02') WHERE partition = 0": [(0, 0), (0, 1)],
        "kafkalike_range('orders', until => NULL, since => '2026-01-03 12:00')": [(0, 5)],
        "kafkalike_offsets('orders', 0, 2, 4)": [(0, 2), (0, 3)],
        "kafkalike_offsets('orders', 1, 2, NULL)": [(1, 2)],
        "kafkalike_range('a.b', NULL, NULL)": [],
    }
    assert {part: offsets(spark, "SELECT * FROM " + part) for part in expected} == expected  # noqa: S608
    columns = spark.sql("SELECT * FROM kafkalike_range('a.b', NULL, NULL)").dtypes
    assert columns == spark.sql("SELECT * FROM orders").dtypes
    assert views == {"orders": "orders", "a.b": "a_b"}


def test_a_key_is_found_wherever_it_was_placed(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """By `read`, in SQL and without Spark; only who asks for one partition gets one, and the log start counts."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        keys = [f"{n}" for n in range(FILTER_ROWS * 2)]
        for _ in range(2):
            producer.send_arrow("orders", pa.table({"key": keys, "value": keys})).get(60)
        own = 1 - partition_for_key(b"77", 2)
        last = producer.send("orders", b"own", key=b"77", partition=own).get(60)
    register_sql(spark, root, topics=["orders"], temporary=True)

    found = sorted((row["partition"], row["offset"]) for row in read(spark, "orders", root, key="77").collect())
    placed = read(spark, "orders", root, key=b"77", placed_by_key=True).collect()

    assert len(found) == 3
    assert (own, last.offset) in found
    assert offsets(spark, "SELECT * FROM kafkalike_key('orders', CAST('77' AS BINARY))") == found
    assert sorted((r.partition, r.offset) for r in find_records("orders", root, key="77").records) == found
    assert {row["partition"] for row in placed} == {1 - own}
    assert read(spark, "orders", root, key="absent").collect() == []
    cluster.move_log_start("orders", {own: last.offset + 1}, "test", "r")
    assert len(read(spark, "orders", root, key="77").collect()) == 2
    with pytest.raises(IllegalArgumentError, match="placed_by_key goes with key"):
        read(spark, "orders", root, placed_by_key=True)


def test_a_key_that_is_nowhere_costs_no_dictionary(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Spark goes by the Bloom filters, which are far smaller than the keys."""
    keys = [f"{n}" + "k" * 64 for n in range(FILTER_ROWS)]
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send_arrow("a.b", pa.table({"key": keys, "value": keys})).get(60)
    register_sql(spark, root, topics=["a.b"], temporary=True)
    assert filters(Path(root)) == 1
    looks = [
        read(spark, "a.b", root, key="absent"),
        spark.sql("SELECT * FROM kafkalike_key('a.b', CAST('absent' AS BINARY))"),
        spark.sql("SELECT * FROM a_b WHERE key = CAST('absent' AS BINARY)"),
    ]

    for frame in looks:
        before = bytes_read(spark)
        assert frame.collect() == []
        assert bytes_read(spark) - before < sum(len(key) for key in keys) / 4


def bytes_read(spark: SparkSession) -> int:
    """From disks, by the session's JVM."""
    jvm: Any = spark.sparkContext._jvm
    return sum(one.getBytesRead() for one in jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics())


@pytest.mark.full
def test_threads_register_one_session_while_others_query(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """The same topics again, and others: no thread meets half a registration, or none."""
    wanted = [None, ["orders"], ["orders"], None]
    together = threading.Barrier(3)

    def work(_: int) -> list[list[str]]:
        together.wait()
        columns = []
        for topics in wanted:
            register_sql(spark, root, topics=topics, temporary=True)
            columns.append(spark.sql("SELECT * FROM kafkalike_offsets('orders', 0, 0, 1)").columns)
        return columns

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(work, range(3)))

    assert found == [[spark.table("orders").columns] * 4] * 3


def test_a_range_reads_the_files_that_it_needs(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Delta's statistics prune below the function: files of other days and partitions may be gone."""
    register_sql(spark, root, temporary=True)
    log = cluster.log("orders")
    for partition, keep in ((0, log.segments(0)[-1]), (1, None)):
        for segment in log.segments(partition):
            if segment != keep:
                Path(log.files.uri, segment.path).unlink()

    query = "SELECT * FROM kafkalike_range('orders', '2026-01-03', '2026-01-04') WHERE partition = 0"

    assert offsets(spark, query) == [(0, 4), (0, 5)]
    assert offsets(spark, "SELECT * FROM kafkalike_offsets('orders', 0, 4, 6)") == [(0, 4), (0, 5)]


def test_a_topic_that_is_not_there_is_an_error_and_no_empty_answer(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Also where only rows are counted."""
    register_sql(spark, root, topics=["orders"], temporary=True)

    for topic in ("'nowhere'", "NULL", "'ORDERS'", "'a.b'"):
        with pytest.raises(PySparkException, match="no topic"):
            spark.sql(f"SELECT count(*) FROM kafkalike_range({topic}, NULL, NULL)").collect()  # noqa: S608


def test_only_the_topics_asked_for_get_a_view(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """A cluster may have many; an unknown one is an error."""
    assert register_sql(spark, root, topics=["a.b"], temporary=True) == {"a.b": "a_b"}

    assert not spark.catalog.tableExists("orders")
    with pytest.raises(UnknownTopicOrPartitionError, match="nowhere"):
        register_sql(spark, root, topics=["nowhere"], temporary=True)


def test_a_view_of_a_topic_that_is_gone_fails_and_the_next_registration_drops_it(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Other views of the session stay."""
    register_sql(spark, root, temporary=True)
    spark.sql("SELECT 1 AS one").createOrReplaceTempView("mine")
    cluster.delete_topic("a.b")
    with pytest.raises(AnalysisException):
        spark.sql("SELECT * FROM a_b").collect()

    register_sql(spark, root, temporary=True)

    assert {table.name for table in spark.catalog.listTables()} >= {"mine", "orders", "kafkalike_lag"}
    assert not spark.catalog.tableExists("a_b")


def test_a_topic_as_of_a_version_and_a_time_in_sql(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """By the path of its table."""
    log = cluster.log("orders")
    table = f"delta.`{cluster.table_uri(log.info)}`"

    history = spark.sql(f"DESCRIBE HISTORY {table}").select("version", "timestamp").orderBy("version").collect()
    assert log.version == history[-1]["version"]
    assert spark.sql(f"SELECT count(*) FROM {table} VERSION AS OF {log.version - 1}").collect() == [(6,)]  # noqa: S608
    moment = history[-2]["timestamp"]
    assert spark.sql(f"SELECT count(*) FROM {table} TIMESTAMP AS OF '{moment}'").collect() == [(6,)]  # noqa: S608


def test_a_database_has_each_topic_as_a_view_that_other_sessions_see(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    """Without what is below the log start; dropping the view leaves the topic alone."""
    version = cluster.log("orders").version
    cluster.move_log_start("orders", {0: 1}, "retention", "r-1")

    register_sql(spark, root, topics=["orders"], database="shared")

    other = spark.newSession()
    assert other.sql("SELECT count(*), min(topic), min(offset) FROM shared.orders").collect() == [(8, "orders", 0)]
    assert other.sql("SELECT min(offset) FROM shared.orders WHERE partition = 0").collect() == [(1,)]
    spark.sql("DROP VIEW shared.orders")
    assert not spark.catalog.tableExists("orders")
    assert read(spark, "orders", root).count() == 8
    assert cluster.log("orders").version == version


def test_a_topic_created_again_is_found_in_the_database(spark: SparkSession, root: str) -> None:
    """Its earlier life must not be found in its place."""
    make_topic(root, (0, "old"), (0, "old"))
    register_sql(spark, root, database="shared")
    assert spark.sql("SELECT count(*) FROM shared.t").collect() == [(2,)]
    assert spark.catalog.getTable("shared.t").tableType == "VIEW"
    on_disk(root).delete_topic("t")
    make_topic(root, (0, "new"))

    register_sql(spark, root, database="shared")

    assert spark.sql("SELECT CAST(value AS STRING) FROM shared.t").collect() == [("new",)]


def test_a_table_of_somebody_else_is_not_replaced_by_a_view(spark: SparkSession, root: str) -> None:
    """It has records of its own; none of the topics is made a view then."""
    make_topic(root, (0, "x"), topic="mine")
    make_topic(root, (0, "x"), topic="another")
    spark.sql("CREATE DATABASE IF NOT EXISTS shared")
    spark.sql("CREATE TABLE shared.mine AS SELECT 1 AS one")
    try:
        with pytest.raises(IllegalArgumentError, match=r"shared.mine exists, but kafkalike has not made it"):
            register_sql(spark, root, database="shared")

        assert spark.sql("SELECT * FROM shared.mine").collect() == [(1,)]
        assert not spark.catalog.tableExists("shared.another")
    finally:
        spark.sql("DROP TABLE shared.mine")


WRITES = (
    "INSERT INTO {0} SELECT * FROM {0}",
    "INSERT OVERWRITE {0} SELECT * FROM {0}",
    "UPDATE {0} SET partition = 0",
    "DELETE FROM {0}",
    "DELETE FROM {0} WHERE partition = 0",
    "MERGE INTO {0} t USING (SELECT 0 AS x) s ON t.partition = s.x WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE {0}",
    "ALTER TABLE {0} SET TBLPROPERTIES ('a' = 'b')",
)


def test_sql_cannot_write_to_a_topic(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """A record that is not numbered by an append would have another one's offset."""
    register_sql(spark, root, database="shared")
    create_view(spark, "orders", root, value_format="binary")
    (statement,) = (made for made in view_statements(root) if " VIEW `orders` " in made)
    spark.sql(statement.replace("`orders`", "from_sql", 1))
    version = cluster.log("orders").version
    register_sql(spark, root, temporary=True)
    doors = ("orders", "shared.orders", "orders__values", "from_sql", "kafkalike_partitions")
    rows = [spark.table(door).count() for door in doors]

    for door in doors:
        for write in WRITES:
            with pytest.raises((AnalysisException, UnsupportedOperationException)):
                spark.sql(write.format(door)).collect()
        with pytest.raises(AnalysisException):
            spark.table(door).write.mode("append").insertInto(door)
        with pytest.raises(AnalysisException):
            spark.table(door).writeTo(door).append()

    assert cluster.log("orders").version == version
    assert [spark.table(door).count() for door in doors] == rows


def test_a_frame_and_a_view_as_of_a_version_or_time(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """The same history in Python; a time as text or datetime, in any zone."""
    version = cluster.log("orders").version
    history = spark.sql(f"DESCRIBE HISTORY delta.`{cluster.table_uri(cluster.topic('orders'))}`").collect()
    commits = {row["version"]: row["timestamp"].replace(tzinfo=dt.UTC) for row in history}
    local = commits[version - 1].astimezone(dt.timezone(dt.timedelta(hours=5)))

    assert read(spark, "orders", root, as_of=version - 2).count() == 3
    assert read(spark, "orders", root, as_of=local).count() == 6
    name = create_view(spark, "orders", root, name="before", value_format="string", as_of=version - 1)
    assert spark.sql("SELECT count(*) FROM before").collect() == [(6,)]
    assert name == "before"


def test_a_moment_belongs_to_one_topic(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Each table has its own versions."""
    with pytest.raises(IllegalArgumentError, match="one topic"):
        read(spark, ["orders", "a.b"], root, as_of=1)
    with pytest.raises(IllegalArgumentError, match="as_of must be"):
        read(spark, "orders", root, as_of=(1, "2026-01-01"))  # type: ignore[arg-type]
    with pytest.raises(AnalysisException, match="99"):
        read(spark, "orders", root, as_of=99)
