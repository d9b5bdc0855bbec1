"""Topics as DataFrames and as SQL: Spark's Kafka columns, live tables about the cluster, names that need escaping."""

from __future__ import annotations

import datetime as dt
import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from kafkalike.admin.testing import MemoryCluster
from kafkalike.errors import (
    IllegalArgumentError,
    InvalidTopicError,
    KafkaConfigurationError,
    UnknownTopicOrPartitionError,
)
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.producer import KafkaProducer
from kafkalike.spark import read, register_sql, session
from kafkalike.spark.jvm.spark_session import SESSION_CONF
from kafkalike.spark.sql.topic_views import view_statements
from kafkalike.spark.sql_text import literal, quoted
from tests.tools import records
from tests.tools.blocks import blocks
from tests.tools.clusters import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kafkalike.model.group_state import GroupsState

ODD_TOPICS = [
    "orders",
    "a.b",
    "a_b",
    "A_b",
    "a-b",
    "lag",
    "topics",
    "2024",
    "1e5",
    "select",
    "order",
    "x" * 249,
    "Z" * 249,
]
UTC = dt.UTC

fill = partial(records.fill, key=b"k", step_ms=0)


@pytest.fixture
def cluster(root: str) -> Cluster:
    """A cluster with a topic of two partitions."""
    made = on_disk(root)
    made.create_topic("orders", 2, {"retention.ms": "1000"})
    return made


@pytest.fixture(autouse=True)
def no_views_are_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)


# --- read --------------------------------------------------------------------------------------


def test_columns_are_those_of_sparks_kafka_source(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Names, types and order; headers last and only when they are wanted."""
    expected = (
        "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
    )
    headers = ", headers array<struct<key:string,value:binary>>"

    for frame, ddl in (
        (read(spark, "orders", root), expected + headers),
        (read(spark, "orders", root, include_headers=False), expected),
    ):
        assert_df_equality(frame, spark.createDataFrame([], ddl), ignore_nullable=True)


def test_records_of_several_topics_say_which_is_theirs(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Keys, times and all."""
    cluster.create_topic("more", 1, {})
    fill(cluster, "orders", b"a", b"b", partition=1)
    fill(cluster, "more", b"c", at_ms=1_709_209_800_123)

    found = read(spark, ["orders", "more"], root, include_headers=False)

    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 123_000, tzinfo=UTC)
    expected = spark.createDataFrame(
        [
            (bytearray(b"k"), bytearray(b"a"), "orders", 1, 0, dt.datetime.fromtimestamp(1, UTC), 0),
            (bytearray(b"k"), bytearray(b"b"), "orders", 1, 1, dt.datetime.fromtimestamp(1, UTC), 0),
            (bytearray(b"k"), bytearray(b"c"), "more", 0, 0, moment, 0),
        ],
        found.schema,
    )
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def test_records_below_the_log_start_are_left_out(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """In their partition only."""
    for p in range(2):
        fill(cluster, "orders", b"0", b"1", b"2", partition=p)
    cluster.move_log_start("orders", {1: 2}, "retention", "r")

    found = read(spark, "orders", root).select("partition", "offset").orderBy("partition", "offset").collect()

    assert [tuple(row) for row in found] == [(0, 0), (0, 1), (0, 2), (1, 2)]


def test_the_same_frame_sees_new_records_when_it_runs_again(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Offsets are bound late, as in Spark's Kafka source."""
    frame = read(spark, "orders", root)
    fill(cluster, "orders", b"a")
    assert frame.count() == 1

    fill(cluster, "orders", b"b")

    assert frame.count() == 2
    assert frame.union(frame).count() == 4


def test_what_cannot_be_read_is_said_at_once(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """No topic, an unknown one, an illegal name, a cluster that has no tables."""
    with pytest.raises(IllegalArgumentError):
        read(spark, [], root)
    with pytest.raises(UnknownTopicOrPartitionError):
        read(spark, ["orders", "nowhere"], root)
    with pytest.raises(InvalidTopicError):
        read(spark, "../orders", root)
    with pytest.raises(KafkaConfigurationError, match="memory"):
        read(spark, "orders", MemoryCluster())


def test_a_topic_created_again_is_read_afresh(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Spark forgets the table that was at its place before."""
    fill(cluster, "orders", b"old", b"old")
    assert read(spark, "orders", root).count() == 2
    cluster.delete_topic("orders")
    cluster.create_topic("orders", 2, {})
    fill(cluster, "orders", b"new")

    assert [bytes(row["value"]) for row in read(spark, "orders", root).collect()] == [b"new"]


# --- views -------------------------------------------------------------------------------------


def test_every_topic_has_a_view_of_its_own(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Also those whose names differ in case or dots only, are keywords or numbers, or those of the cluster's views."""
    # One of each kind: each view costs more than a second of Spark here. `view_statements` is tried with all, below.
    odd = sorted({*ODD_TOPICS} - {"topics", "order", "x" * 249})
    for topic in odd:
        cluster.ensure_topic(topic)
        fill(cluster, topic, topic.encode())

    views = register_sql(spark, root, temporary=True)

    assert views == {
        "1e5": "`1e5`",
        "2024": "`2024`",
        "A_b": "__ua_b",
        "Z" * 249: "z" * 249,
        "a-b": "a__hb",
        "a.b": "a__db",
        "a_b": "a_b",
        "lag": "lag",
        "orders": "orders",
        "select": "select",
    }
    assert views.tables["lag"] == "kafkalike_lag"
    all_of_them = " UNION ALL ".join(f"SELECT topic, CAST(value AS STRING) FROM {v}" for v in views.values())  # noqa: S608
    assert {tuple(row) for row in spark.sql(all_of_them).collect()} == {(topic, topic) for topic in odd}
    assert spark.sql("SELECT count(*) FROM orders").collect() == [(1,)]


def test_a_view_honours_the_log_start(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """As `read` does."""
    fill(cluster, "orders", b"0", b"1")
    cluster.move_log_start("orders", {0: 1}, "retention", "r")

    register_sql(spark, root, temporary=True)

    assert [row[0] for row in spark.sql("SELECT offset FROM orders").collect()] == [1]


def test_tables_about_the_cluster_are_live(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """What changes after the registration is seen by the next query."""
    register_sql(spark, root, temporary=True)
    assert spark.sql("SELECT topic, records FROM kafkalike_topics").collect() == [("orders", 0)]

    fill(cluster, "orders", b"a", b"b", b"c", at_ms=1_709_209_800_123)
    cluster.move_log_start("orders", {0: 1}, "retention", "r")
    topic_id = cluster.topic("orders").topic_id

    def plan(state: GroupsState) -> list[GroupRow]:
        common = {"kind": OFFSET, "topic": "orders", "partition": 0, "time_ms": 1_709_209_800_123, "client_id": "c"}
        return [
            GroupRow(seq=state.seq + 1, group_id="g", topic_id=topic_id, offset=2, metadata="note", **common),  # type: ignore[arg-type]
            GroupRow(seq=state.seq + 2, group_id="behind", topic_id=topic_id, offset=0, **common),  # type: ignore[arg-type]
            GroupRow(seq=state.seq + 3, group_id="old", topic_id="of an earlier life", offset=9, **common),  # type: ignore[arg-type]
        ]

    cluster.groups.transact(plan)

    moment = dt.datetime(2024, 2, 29, 12, 30, 0, 123_000)  # noqa: DTZ001 - as Spark shows it in UTC
    (topic,) = spark.sql("SELECT * FROM kafkalike_topics").collect()
    assert (topic["topic"], topic["topic_id"], topic["partitions"], topic["records"]) == ("orders", topic_id, 2, 2)
    assert topic["configs"] == '{"retention.ms": "1000"}'
    columns = "partition, log_start_offset, log_end_offset, records, segments, last_timestamp"
    partitions = spark.sql(f"SELECT {columns} FROM kafkalike_partitions ORDER BY partition").collect()  # noqa: S608
    assert [tuple(row) for row in partitions] == [(0, 1, 3, 2, 1, moment), (1, 0, 0, 0, 0, None)]
    offsets = spark.sql(
        "SELECT group_id, committed_offset, metadata, client_id FROM kafkalike_consumer_offsets"
    ).collect()
    assert {tuple(row) for row in offsets} == {("g", 2, "note", "c"), ("behind", 0, "", "c"), ("old", 9, "", "c")}
    lag = spark.sql(
        "SELECT group_id, topic, committed_offset, log_end_offset, lag, record_lag FROM kafkalike_lag"
    ).collect()
    assert {tuple(row) for row in lag} == {("g", "orders", 2, 3, 1, 1), ("behind", "orders", 0, 3, 3, 2)}
    history = spark.sql(
        "SELECT group_id, count(*), max_by(lag, time) FROM kafkalike_lag_history GROUP BY group_id"
    ).collect()
    assert {tuple(row) for row in history} == {("g", 37, 1), ("behind", 37, 3)}


def test_transactions_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """A row for each transactional id: one that is open, and one that is committed with a group's offset."""
    root = str(tmp_path / "root")
    on_disk(root).create_topic("orders", 2, {})
    register_sql(spark, root, temporary=True)
    with (
        KafkaProducer(bootstrap_servers=root, transactional_id="done") as done,
        KafkaProducer(bootstrap_servers=root, transactional_id="open", client_id="me") as opened,
    ):
        for producer in (done, opened):
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"v", partition=1).get(60)
        done.send_offsets_to_transaction({TopicPartition("orders", 0): OffsetAndMetadata(1)}, "g")
        done.commit_transaction()
        columns = "transactional_id, state, number, reason, records, unapplied, groups, start_timestamp IS NULL"
        found = spark.sql(f"SELECT {columns} FROM kafkalike_transactions ORDER BY 1").collect()  # noqa: S608
        (client,) = spark.sql(
            "SELECT client_id, timeout_ms FROM kafkalike_transactions WHERE state = 'Ongoing'"
        ).collect()

    assert [tuple(row) for row in found] == [
        ("done", "CompleteCommit", 1, "commit", {"orders": {1: 1}}, [], ["g"], True),
        ("open", "Ongoing", 1, "init", {"orders": {}}, [], [], False),
    ]
    assert tuple(client) == ("me", 60_000)


@pytest.mark.parametrize(
    "folder",
    [
        "it's; a `root` -- x",
        pytest.param('say "cheese" é', marks=pytest.mark.full),
        pytest.param("$(x) #1", marks=pytest.mark.full),
    ],
)
def test_a_roots_name_is_data(spark: SparkSession, tmp_path: Path, folder: str) -> None:
    """Quotes, semicolons and comments in it reach no parser, in either way of making the views."""
    root = str(tmp_path / folder)
    cluster = on_disk(root)
    cluster.create_topic("a.b", 1, {})
    fill(cluster, "a.b", b"v")

    views = register_sql(spark, root, temporary=True)
    assert spark.sql(f"SELECT count(*) FROM {views['a.b']}").collect() == [(1,)]  # noqa: S608
    assert spark.sql("SELECT count(*) FROM `a.b`").collect() == [(1,)]
    assert spark.sql("SELECT topic, view, records FROM kafkalike_topics").collect() == [("a.b", "a_b", 1)]

    for view in [*views.values(), *views.tables.values(), "a.b", "a_b__text"]:
        spark.catalog.dropTempView(view)
    for statement in view_statements(root):
        spark.sql(statement)
    assert spark.sql(f"SELECT topic FROM {views['a.b']}").collect() == [("a.b",)]  # noqa: S608
    assert spark.sql("SELECT topic, records FROM kafkalike_topics").collect() == [("a.b", 1)]
    assert [entry.name for entry in tmp_path.iterdir()] == [folder]


@pytest.mark.parametrize("text", ["", "'", "\\", "\\'", "' OR 1=1 --", "`", "a\nb", "é漢😀", "%s {} $", "\\n"])
def test_a_literal_is_the_text_it_was_made_of(spark: SparkSession, text: str) -> None:
    """Whatever characters it has."""
    assert spark.sql(f"SELECT {literal(text)} AS {quoted('x' + text)}").collect() == [(text,)]


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.timeout(600)  # a second JVM, with Hive's catalog, beside the tests' own
def test_a_spark_sql_shell_takes_the_view_statements(tmp_path: Path, cluster: Cluster, root: str) -> None:
    """A process of its own finds the format of the live tables by itself: the block of docs/operations.md."""
    for topic in ("a.b", "2024", "select", "lag"):
        cluster.create_topic(topic, 1, {})
        fill(cluster, topic, topic.encode())
    fill(cluster, "orders", b"0", b"1")
    cluster.move_log_start("orders", {0: 1}, "retention", "r")
    query = (
        "SELECT 'row', topic, offset, CAST(value AS STRING) FROM orders;"
        "SELECT 'row', topic, offset, CAST(value AS STRING) FROM `2024`;"
        "SELECT 'row', topic, records FROM kafkalike_topics ORDER BY topic;"
    )
    ((_, block),) = blocks("SQL without a notebook", "docs/operations.md")
    own = {"KAFKALIKE_BOOTSTRAP_SERVERS": root, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    own["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    done = subprocess.run(
        ["bash", "-euc", block.replace('"SELECT * FROM kafkalike_lag"', shlex.quote(query))],
        cwd=tmp_path,
        env={**os.environ, **own},
        capture_output=True,
        text=True,
        timeout=580,
        check=False,
    )

    found = [line.split("\t")[1:] for line in done.stdout.splitlines() if line.startswith("row\t")]
    assert found == [
        ["orders", "1", "1"],
        ["2024", "0", "2024"],
        ["2024", "1"],
        ["a.b", "1"],
        ["lag", "1"],
        ["orders", "1"],
        ["select", "1"],
    ], done.stderr[-2_000:]


# --- session -----------------------------------------------------------------------------------


def test_a_session_has_the_settings_it_promises(spark: SparkSession) -> None:
    """Every one of them, in the session that runs."""
    for name, value in SESSION_CONF.items():
        if not name.startswith("spark.hadoop."):
            assert spark.conf.get(name) == value
    assert spark.sparkContext.getConf().get("spark.hadoop.parquet.block.size") == str(16 * 1024 * 1024)


def test_asking_for_a_session_again_gives_the_one_that_runs(spark: SparkSession) -> None:
    """No second JVM."""
    assert session().sparkContext is spark.sparkContext


def test_view_statements_hold_plain_names_only(root: str, cluster: Cluster) -> None:
    """Whatever topics are called."""
    for topic in ODD_TOPICS:
        cluster.ensure_topic(topic)

    for statement in view_statements(root):
        assert re.match(
            r"CREATE (OR REPLACE )?TEMPORARY (VIEW (`[a-zA-Z0-9._-]+`|[a-z_]+) (AS SELECT|USING) |FUNCTION [a-z_]+\()",
            statement,
        )
