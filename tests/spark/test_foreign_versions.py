"""A foreign writer breaks the log of an open topic: frames over its table raise what the log's own readers do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import kafkalike
import kafkalike.spark as ks
from kafkalike.connect import connect
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError
from kafkalike.spark.files.topic_export import export_topic
from tests.tools.records import batch

pytestmark = pytest.mark.spark

DOUBLED = r"two files hold offsets in \[1, 2\)"
FOREIGN = {
    "insert of an offset that is there": (
        "INSERT INTO company SELECT 0, 1L, timestamp_millis(0), 0, NULL, NULL, NULL",
        CorruptRecordError,
        DOUBLED,
    ),
    "insert above the log end": (
        "INSERT INTO company SELECT 0, 9L, timestamp_millis(0), 0, NULL, NULL, NULL",
        DataLossError,
        r"offsets \[4, 9\) are missing",
    ),
    "insert below 0": (
        "INSERT INTO company SELECT 0, -3L, timestamp_millis(0), 0, NULL, NULL, NULL",
        CorruptRecordError,
        "which the topic does not have",
    ),
    "insert into another partition": (
        "INSERT INTO company SELECT 7, 0L, timestamp_millis(0), 0, NULL, NULL, NULL",
        CorruptRecordError,
        "of partition 7, which the topic does not have",
    ),
    "delete in a file": ("DELETE FROM company WHERE offset = 1", DataLossError, "are missing"),
    "delete of the last file": (
        "DELETE FROM company WHERE offset >= 3",
        DataLossError,
        r"offsets \[3, 4\) are missing",
    ),
    "delete of all": ("DELETE FROM company", DataLossError, r"offsets \[0, 4\) are missing"),
}


@pytest.fixture
def company(spark: SparkSession, root: str, foreign_writes: None) -> Iterator[None]:
    """A topic of four records in two files, whose table the company's catalog calls `company`."""
    cluster = connect(root)
    cluster.create_topic("t", 1, {})
    cluster.log("t").append(batch("a", "b", "c", key=b"k"))
    cluster.log("t").append(batch("d"))
    spark.sql(f"CREATE TABLE company USING DELTA LOCATION '{root}/t'")
    yield
    spark.sql("DROP TABLE company")


@pytest.mark.usefixtures("company")
@pytest.mark.parametrize(("statement", "error", "message"), FOREIGN.values(), ids=FOREIGN)
def test_read_of_a_broken_log_raises_what_consumers_are_told(
    spark: SparkSession, root: str, statement: str, error: type[KafkaError], message: str
) -> None:
    before = ks.read(spark, "t", root)
    assert before.count() == 4

    spark.sql(statement).collect()

    with pytest.raises(error, match=message):
        ks.read(spark, "t", root)
    with pytest.raises(Exception, match=message):
        before.count()
    # As the table is, for whoever wants to see or rescue that.
    spark.read.format("delta").load(f"{root}/t").count()


@pytest.mark.usefixtures("company")
def test_all_doors_to_a_doubled_offset_raise(spark: SparkSession, root: str, tmp_path: Path) -> None:
    ks.register_sql(spark, root, temporary=True)
    view = "SELECT count(*) FROM t"
    assert spark.sql(view).collect()[0][0] == 4
    kept = kafkalike.snapshot("t", root)

    spark.sql(FOREIGN["insert of an offset that is there"][0]).collect()

    broken = kafkalike.snapshot("t", root)
    doors: dict[str, Callable[[], object]] = {
        "view": lambda: spark.sql(view).collect(),
        "range function": lambda: spark.sql("SELECT * FROM kafkalike_range('t', NULL, NULL)").collect(),
        "offsets function": lambda: spark.sql("SELECT * FROM kafkalike_offsets('t', 0, 0, 9)").collect(),
        "key function": lambda: spark.sql("SELECT * FROM kafkalike_key('t', CAST('k' AS BINARY))").collect(),
        "key": lambda: ks.read(spark, "t", root, key="k"),
        "snapshot": lambda: ks.read(spark, "t", root, as_of=broken),
        "version": lambda: ks.read(spark, "t", root, as_of=3),
        "delta's source": lambda: ks.read_stream(spark, "t", root, engine="delta"),
        "export": lambda: export_topic(spark, "t", str(tmp_path / "out"), bootstrap_servers=root),
        "format": lambda: (
            spark.read.format("kafkalike")
            .option("kafka.bootstrap.servers", root)
            .option("subscribe", "t")
            .load()
            .count()
        ),
        "records with a key": lambda: kafkalike.find_records("t", root, key=b"k"),
    }
    for door in doors.values():
        with pytest.raises(Exception, match="two files hold offsets"):
            door()
    assert ks.read(spark, "t", root, as_of=kept).count() == 4
    assert ks.read(spark, "t", root, as_of=2).count() == 4


@pytest.mark.usefixtures("company")
def test_rewrite_of_files_by_a_foreign_writer_is_no_flaw(spark: SparkSession, root: str) -> None:
    frame = ks.read(spark, "t", root)
    spark.sql("OPTIMIZE company").collect()
    spark.sql("UPDATE company SET value = CAST('x' AS BINARY) WHERE offset = 2").collect()

    assert frame.count() == ks.read(spark, "t", root).count() == 4
