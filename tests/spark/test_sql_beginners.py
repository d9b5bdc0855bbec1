"""SQL as beginners write it: text of keys and values, columns without a schema, and errors that name the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

from kafkalike.errors import IllegalArgumentError
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import create_view, register_sql
from tests.tools.clusters import on_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from kafkalike.log.cluster.cluster import Cluster

VALUES = [b'{"id": 1, "amount": 2.5}', b'{"id": 2, "note": "x"}', b"\xff", None]


@pytest.fixture
def cluster(root: str) -> Cluster:
    made = on_disk(root)
    for topic in ("orders", "web.clicks"):
        made.create_topic(topic, 1, {})
        batch = RecordBatch()
        for nth, value in enumerate(VALUES):
            batch.add(0, None if value is None else b"k%d" % nth, value, 1_000)
        made.log(topic).append(batch)
    return made


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)
    spark.sql("DROP DATABASE IF EXISTS log CASCADE")


TEXTS = [
    ("k0", '{"id": 1, "amount": 2.5}', 0),
    ("k1", '{"id": 2, "note": "x"}', 1),
    ("k2", "\ufffd", 2),
    (None, None, 3),
]


def test_text_view_has_valid_text_in_the_session_and_in_a_database(
    spark: SparkSession, root: str, cluster: Cluster
) -> None:
    register_sql(spark, root, temporary=True, database="log")
    views = register_sql(spark, root, temporary=True)

    assert views["web.clicks"] == "web_clicks"
    for view in ("orders__text", "web_clicks__text", "log.orders__text", "log.web_clicks__text"):
        rows = spark.sql(f"SELECT key, value, offset FROM {view} ORDER BY offset").collect()  # noqa: S608
        assert [tuple(row) for row in rows] == TEXTS
    assert spark.table("orders__text").columns == spark.table("orders").columns


def test_text_views_of_a_deleted_topic_go_with_it(spark: SparkSession, root: str, cluster: Cluster) -> None:
    register_sql(spark, root, temporary=True)
    cluster.delete_topic("orders")

    views = register_sql(spark, root, temporary=True)

    assert set(views.dropped) == {"orders", "orders__text"}


def test_inferred_columns_hold_the_sampled_values(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """Fields of all objects, in their order; what is no object is a bad row."""
    create_view(spark, "orders", root, schema="infer", name="now")
    create_view(spark, "orders", root, schema="infer", as_of=1, name="then")

    for view in ("now", "then"):
        frame = spark.sql(f"SELECT id, amount, note, value_error FROM {view} ORDER BY offset")  # noqa: S608
        assert frame.dtypes[:3] == [("id", "bigint"), ("amount", "double"), ("note", "string")]
        assert [tuple(row) for row in frame.collect()] == [
            (1, 2.5, None, None),
            (2, None, "x", None),
            (None, None, None, "the value is not UTF-8"),
            (None, None, None, None),
        ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"value_format": "csv"}, "schema='infer' is for value_format='json', not for 'csv'"),
        ({"format": "avro"}, "format takes the topic's own schemas"),
    ],
    ids=["csv", "avro"],
)
def test_inference_of_other_formats_is_refused(
    spark: SparkSession, root: str, cluster: Cluster, arguments: dict[str, str], message: str
) -> None:
    with pytest.raises(IllegalArgumentError, match=message):
        create_view(spark, "orders", root, schema="infer", **arguments)  # type: ignore[arg-type]


HINTS = {
    "SELECT value:amount FROM orders": "write parse_json(value):field over the view orders__text",
    "SELECT value:amount FROM log.orders": "write parse_json(value):field over the view log.orders__text",
    "SELECT * FROM orders VERSION AS OF 1": "name the table delta.`ROOT/orders` VERSION AS OF 12",
    "SELECT * FROM log.orders TIMESTAMP AS OF '2026-01-01'": "ks.read(spark, 'orders', 'ROOT', as_of=12)",
    "DESCRIBE HISTORY orders": "write DESCRIBE HISTORY delta.`ROOT/orders`",
    "DESCRIBE HISTORY log.orders__text": "write DESCRIBE HISTORY delta.`ROOT/orders`",
    "OPTIMIZE orders": "see kafkalike maintain --help",
    "RESTORE TABLE orders TO VERSION AS OF 1": "only kafkalike changes the table of a topic",
    "SELECT value.amount FROM orders": "orders__text has them as text",
    "SELECT get_json_object(value, '$.amount') FROM orders": "orders__text has them as text",
    "SELECT * FROM web.clicks": "the view of topic web.clicks is web_clicks",
}


def test_error_starts_with_the_way_to_write_it(spark: SparkSession, root: str, cluster: Cluster) -> None:
    register_sql(spark, root, database="log")
    register_sql(spark, root, temporary=True)

    told = {}
    for statement in HINTS:
        with pytest.raises(AnalysisException) as raised:
            spark.sql(statement).collect()
        told[statement] = str(raised.value).split("\n", maxsplit=1)[0].replace(root, "ROOT").replace("file:", "")

    assert {statement: hint for statement, hint in HINTS.items() if hint not in told[statement]} == {}
    assert told["SELECT value:amount FROM orders"].endswith(
        "or ks.create_view(spark, 'orders', 'ROOT', schema='infer') makes columns of JSON fields"
    )


def test_ways_that_are_shown_work(spark: SparkSession, root: str, cluster: Cluster) -> None:
    register_sql(spark, root, temporary=True)

    paths = spark.sql("SELECT try_parse_json(value):amount::DOUBLE FROM orders__text ORDER BY offset").collect()

    assert [row[0] for row in paths] == [2.5, None, None, None]
    assert spark.sql(f"SELECT count(*) FROM delta.`{root}/orders` VERSION AS OF 0").collect() == [(0,)]  # noqa: S608


@pytest.mark.parametrize(
    "statement",
    ["SELECT * FROM nowhere JOIN orders", "SELECT sum(headers) FROM orders", "DESCRIBE HISTORY mine"],
    ids=["other-table", "other-column", "other-view"],
)
def test_other_errors_are_those_of_spark(spark: SparkSession, root: str, cluster: Cluster, statement: str) -> None:
    register_sql(spark, root, temporary=True)
    spark.sql("SELECT 1 AS one").createOrReplaceTempView("mine")

    with pytest.raises(AnalysisException) as raised:
        spark.sql(statement).collect()

    assert str(raised.value).strip().startswith("[")
