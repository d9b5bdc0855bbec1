"""Rows 25 and 26: someone changes a topic's table with plain SQL between two sends; readers and writers must notice."""

import inspect
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kafkalike.connect import connect
from kafkalike.delta.commit_bundles import CommitBundle
from kafkalike.delta.log_files import joined_name
from kafkalike.errors import CorruptRecordError, DataLossError, KafkaError, LogCorruptError, OffsetOutOfRangeError
from kafkalike.log.topic.topic_log import TopicLog
from tests.tools.findings import errors_of, kinds_of
from tests.tools.records import all_records, batch, make_topic

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("foreign_writes")]

WHOLE = {0: [(n, f"v{n}") for n in range(8)], 1: [(0, "w0")]}


@pytest.fixture
def log(root: str) -> TopicLog:
    """A topic of eight records in four files of one partition, and one record in another."""
    made = make_topic(root, (1, "w0"))
    for number in range(0, 8, 2):
        made.append(batch((0, f"v{number}"), (0, f"v{number + 1}")))
    return made


def run(spark: SparkSession, root: str, statement: str, **args: Any) -> None:
    """A statement about the topic's table, which it calls `{t}`."""
    # As a session runs it that has never heard of kafkalike; one that has refuses it (`test_sql_producing.py`).
    plain = inspect.unwrap(type(spark).sql)
    plain(spark, statement.replace("{t}", f"delta.`{root}/t`"), args=args).collect()


def insert(spark: SparkSession, root: str, partition: int, offset: int | None) -> None:
    values = f"({partition}, {'NULL' if offset is None else offset}, timestamp_millis(0), 0, NULL, NULL, NULL)"
    run(spark, root, "INSERT INTO {t} VALUES " + values)  # noqa: S608 - of numbers


def test_an_added_column_is_found_and_disturbs_nobody(spark: SparkSession, root: str, log: TopicLog) -> None:
    """Old files lack it, which Delta allows."""
    run(spark, root, "ALTER TABLE {t} ADD COLUMNS (extra INT)")

    done = log.append(batch((0, "v8")))

    assert done.ranges == {0: range(8, 9)}
    assert all_records(root) == {**WHOLE, 0: [*WHOLE[0], (8, "v8")]}
    assert {"schema", "foreign-commit"} <= kinds_of(root)


@pytest.mark.full
def test_spark_does_not_look_at_joined_commits(spark: SparkSession, root: str, log: TopicLog) -> None:
    """Whatever they say; at every version, above a checkpoint of its own, and when it writes."""
    wrong = CommitBundle(
        table_id=log.info.topic_id, first=0, contents=[b'{"remove":{"path":"x"}}\n'] * 9, tags=[""] * 9
    )
    Path(root, "t", joined_name(0)).write_bytes(wrong.packed())

    def count(version: int) -> int:
        return spark.sql(f"SELECT * FROM delta.`{root}/t` VERSION AS OF {version}").count()  # noqa: S608

    assert [count(version) for version in range(6)] == [0, 1, 3, 5, 7, 9]
    run(spark, root, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
    run(spark, root, "OPTIMIZE {t}")
    Path(root, "t", joined_name(100)).write_bytes(wrong.packed())
    assert spark.read.format("delta").load(f"{root}/t").count() == 9
    assert DeltaTable(f"{root}/t").to_pyarrow_table().num_rows == 9


@pytest.mark.full
@pytest.mark.parametrize("fresh", [True, False])
def test_after_a_restore_no_offset_is_given_out_again(
    spark: SparkSession, root: str, log: TopicLog, *, fresh: bool
) -> None:
    """Whether the writer has seen the lost records or comes new."""
    writer: Any = connect(root).log("t") if fresh else log
    run(spark, root, "RESTORE TABLE {t} TO VERSION AS OF 3")

    with pytest.raises(LogCorruptError, match="RESTORE at version"):
        writer.append(batch((0, "again")))

    assert errors_of(root) != []


@pytest.mark.full
def test_a_restore_hidden_behind_another_commit_is_seen_too(spark: SparkSession, root: str, log: TopicLog) -> None:
    """The last commit is not the one that took records back."""
    run(spark, root, "RESTORE TABLE {t} TO VERSION AS OF 3")
    run(spark, root, "ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'harmless')")

    with pytest.raises(LogCorruptError, match="RESTORE at version"):
        connect(root).log("t").append(batch((0, "again")))


# A writer that has seen the lost records: after a restore, above.
@pytest.mark.parametrize("fresh", [True, pytest.param(False, marks=pytest.mark.full)])
def test_after_an_overwrite_no_offset_is_given_out_again(
    spark: SparkSession, root: str, log: TopicLog, *, fresh: bool
) -> None:
    """INSERT OVERWRITE by a foreign writer leaves one record where there were eight."""
    writer: Any = connect(root).log("t") if fresh else log
    row = "SELECT 0, 0L, timestamp_millis(0), 0, NULL, NULL, NULL"
    run(spark, root, f"INSERT OVERWRITE {{t}} {row}")

    done = writer.append(batch((1, "w1"), (0, "new")))

    assert done.ranges == {0: range(8, 9), 1: range(1, 2)}
    with pytest.raises(DataLossError, match=r"offsets \[1, 8\) are missing"):
        all_records(root)
    assert errors_of(root) != []


def test_rows_without_offset_are_refused_by_the_table(spark: SparkSession, root: str, log: TopicLog) -> None:
    """The column is NOT NULL in the table itself."""
    with pytest.raises((PySparkException, Py4JJavaError), match="NOT NULL constraint violated"):
        insert(spark, root, 0, None)

    assert all_records(root) == WHOLE


def test_a_second_record_at_an_offset_is_found(spark: SparkSession, root: str, log: TopicLog) -> None:
    """Nobody can say which of the two is the record: readers name both files."""
    insert(spark, root, 0, 3)

    with pytest.raises(CorruptRecordError, match=r"two files hold offsets in \[3, 4\)"):
        all_records(root)

    assert {"overlap", "foreign-commit"} <= kinds_of(root)


def test_a_record_far_above_the_log_end_makes_a_hole_that_is_named(
    spark: SparkSession, root: str, log: TopicLog
) -> None:
    """Nobody waits for the offsets between, and they are not given out later."""
    insert(spark, root, 0, 100)

    with pytest.raises(DataLossError, match=r"offsets \[8, 100\) are missing"):
        all_records(root)

    assert log.append(batch((0, "next"))).ranges == {0: range(101, 102)}
    assert "gap" in kinds_of(root)


@pytest.mark.parametrize("offset", [pytest.param(-1, marks=pytest.mark.full), -(2**63), 2**63 - 1])
def test_an_impossible_offset_ends_in_an_error_of_ours(
    spark: SparkSession, root: str, log: TopicLog, offset: int
) -> None:
    """Below zero, or the last number there is: the readers end, `verify` finds it."""
    insert(spark, root, 0, offset)

    try:
        found = all_records(root)
    except (DataLossError, LogCorruptError, OffsetOutOfRangeError):
        found = {}

    assert found.get(0, WHOLE[0])[:8] == WHOLE[0]
    assert errors_of(root) != []


def test_a_record_in_a_partition_that_does_not_exist_is_found(spark: SparkSession, root: str, log: TopicLog) -> None:
    """It disturbs no reader."""
    insert(spark, root, 7, 0)

    assert all_records(root) == WHOLE
    assert "unknown-partition" in kinds_of(root)


def test_optimize_by_a_foreign_writer_loses_no_record(spark: SparkSession, root: str, log: TopicLog) -> None:
    """It may merge files in any order: a reader gives all records in offset order, or an error, and never fewer."""
    reader = log.reader(0, 0)
    run(spark, root, "OPTIMIZE {t}")

    try:
        found = all_records(root)
        log.refresh()
        first = reader.read(1)
    except KafkaError:
        assert errors_of(root) != []
        return

    assert found == WHOLE
    assert first is not None
    assert first.offset_at(0) == 0
    assert log.append(batch((0, "v8"))).ranges == {0: range(8, 9)}


@pytest.mark.parametrize("statement", ["DELETE FROM {t} WHERE offset = 3", "DELETE FROM {t} WHERE offset IN (2, 3)"])
def test_deleted_records_are_a_hole_that_is_named(
    spark: SparkSession, root: str, log: TopicLog, statement: str
) -> None:
    """One row of a file, or all of it."""
    run(spark, root, statement)

    with pytest.raises(DataLossError, match="are missing"):
        all_records(root)

    assert errors_of(root) != []
    assert log.append(batch((0, "v8"))).ranges == {0: range(8, 9)}


@pytest.mark.parametrize("checkpoint", [False, True])
def test_deleting_the_last_records_does_not_give_their_offsets_out_again(
    spark: SparkSession, root: str, log: TopicLog, *, checkpoint: bool
) -> None:
    """Not even to a writer that comes new, after an append to another partition."""
    run(spark, root, "DELETE FROM {t} WHERE partition = 0 AND offset >= 4")
    if checkpoint:
        DeltaTable(f"{root}/t").create_checkpoint()
    connect(root).log("t").append(batch((1, "w1")))

    done = connect(root).log("t").append(batch((0, "new")))

    assert done.ranges == {0: range(8, 9)}


def test_an_update_of_values_keeps_offsets_and_is_found(spark: SparkSession, root: str, log: TopicLog) -> None:
    """The log is the log, whatever is in it; but somebody has rewritten history."""
    run(spark, root, "UPDATE {t} SET value = CAST('x' AS BINARY) WHERE offset = 3 AND partition = 0")

    found = all_records(root)

    assert [o for o, _ in found[0]] == list(range(8))
    assert "foreign-commit" in kinds_of(root)


def test_a_table_feature_that_readers_do_not_know_is_refused(spark: SparkSession, root: str, log: TopicLog) -> None:
    """Deletion vectors would bring deleted rows back for whoever reads the files alone."""
    run(spark, root, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")

    for look in (lambda: log.append(batch((0, "new"))), lambda: all_records(root)):
        with pytest.raises(KafkaError, match="another writer has enabled a table feature"):
            look()

    assert errors_of(root) != []


def test_spark_sees_the_same_records_as_the_reader_in_process(
    spark: SparkSession, root: str, log: TopicLog, tmp_path: Path
) -> None:
    """Without foreign writers: the plain table is the topic."""
    rows = spark.read.format("delta").load(f"{root}/t").select("partition", "offset", "value").collect()

    assert sorted((p, o, bytes(v).decode()) for p, o, v in rows) == sorted(
        (p, o, v) for p, records in WHOLE.items() for o, v in records
    )
