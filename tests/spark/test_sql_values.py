"""Views with columns instead of bytes: what can be decoded is, what cannot is kept and counted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.errors import ParseException
from pyspark.sql import SparkSession

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, UnknownTopicOrPartitionError
from kafkalike.model.record_batch import RecordBatch
from kafkalike.spark import create_view

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GOOD = [b'{"id": 1, "name": "ann"}', b'{"name": "bob", "id": 2, "more": true}', b"{}"]
BAD = [b'{"id": "x"}', b"{no", b"", b" ", b"3", b"null", b'[{"id": 1}]', b'{"name": "\xff"}', b'{"id": 99999999999}']
SCHEMA = "id INT, name STRING"


def fill(root: str, values: Sequence[bytes | None], topic: str = "orders") -> None:
    cluster = connect(root)
    cluster.create_topic(topic, 1, {})
    batch = RecordBatch()
    for nth, value in enumerate(values):
        batch.add(0, f"key-{nth}".encode(), value, 1_000)
    cluster.log(topic).append(batch)


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)


def test_fields_are_columns_beside_those_of_the_record(spark: SparkSession, root: str) -> None:
    """The view has the topic's name and a suffix."""
    fill(root, GOOD)

    view = create_view(spark, "orders", root, schema=SCHEMA)

    frame = spark.sql("SELECT * FROM orders__values")
    assert view == "orders__values"
    assert frame.columns == [
        *("key", "id", "name", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
        *("value_raw", "value_error"),
    ]
    rows = frame.select("key", "id", "name", "offset", "value_error").orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [
        ("key-0", 1, "ann", 0, None),
        ("key-1", 2, "bob", 1, None),
        ("key-2", None, None, 2, None),
    ]


def test_bad_rows_are_kept_counted_and_add_nothing(spark: SparkSession, root: str) -> None:
    """No query fails, whatever columns it asks for; the bytes are there; a tombstone is no bad row."""
    fill(root, [*GOOD, *BAD, None])
    create_view(spark, "orders", root, schema=SCHEMA, name="decoded")

    counts = spark.sql("SELECT count(*), count(value_error), count(id), sum(id), count(value_raw) FROM decoded")
    bad = spark.sql("SELECT value_raw, id, name FROM decoded WHERE value_error IS NOT NULL ORDER BY offset")
    reasons = spark.sql("SELECT DISTINCT value_error FROM decoded WHERE value_error IS NOT NULL")

    assert counts.collect() == [(13, 9, 2, 3, 12)]
    assert [tuple(row) for row in bad.collect()] == [(value, None, None) for value in BAD]
    assert {row[0] for row in reasons.collect()} == {
        "not an object of JSON with these fields",
        "the value is empty",
        "the value is not UTF-8",
    }


def test_a_field_called_like_a_records_column_goes_into_a_struct(spark: SparkSession, root: str) -> None:
    """The error says how."""
    fill(root, [b'{"offset": 7}', b"bad", None])
    with pytest.raises(IllegalArgumentError, match=r"Offset is a column of every record; with value_column="):
        create_view(spark, "orders", root, schema="Offset INT")

    create_view(spark, "orders", root, schema="offset INT", value_column="value", name="decoded")

    rows = spark.sql("SELECT offset, value.offset, value IS NULL FROM decoded ORDER BY 1").collect()
    assert [tuple(row) for row in rows] == [(0, 7, False), (1, None, True), (2, None, True)]


def test_csv_with_options(spark: SparkSession, root: str) -> None:
    """Lines with too few or too many fields are bad."""
    fill(root, [b"1;ann", b"x;bob", b"1", b"1;a;b"])

    create_view(spark, "orders", root, value_format="csv", schema=SCHEMA, options={"sep": ";"}, name="decoded")

    rows = spark.sql("SELECT id, name, value_error IS NULL FROM decoded ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [
        (1, "ann", True),
        (None, None, False),
        (None, None, False),
        (None, None, False),
    ]


@pytest.mark.parametrize(
    ("value_format", "found"),
    [("string", [("é", False), (None, True)]), ("binary", [(b"\xc3\xa9", False), (b"\xff", False)])],
)
def test_values_as_text_or_bytes(
    spark: SparkSession, root: str, value_format: str, found: list[tuple[object, bool]]
) -> None:
    """Bytes that are no text are bad only as text."""
    fill(root, ["é".encode(), b"\xff"])

    create_view(spark, "orders", root, value_format=value_format, key_format="binary", name="decoded")

    rows = spark.sql("SELECT value, value_error IS NOT NULL FROM decoded ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == found
    assert spark.sql("SELECT key FROM decoded LIMIT 1").dtypes == [("key", "binary")]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, IllegalArgumentError),
        ({"value_format": "avro", "schema": SCHEMA}, IllegalArgumentError),
        ({"key_format": "json", "schema": SCHEMA}, IllegalArgumentError),
        ({"value_format": "string", "schema": SCHEMA}, IllegalArgumentError),
        ({"schema": SCHEMA, "options": {"Mode": "DROPMALFORMED"}}, IllegalArgumentError),
        ({"schema": "id NUMBER"}, ParseException),
        ({"schema": SCHEMA, "topic": "nowhere"}, UnknownTopicOrPartitionError),
    ],
)
def test_bad_arguments_are_refused(
    spark: SparkSession, root: str, arguments: dict[str, object], error: type[Exception]
) -> None:
    """No view is made."""
    fill(root, GOOD)
    before = spark.catalog.listTables()

    with pytest.raises(error):
        create_view(spark, **{"topic": "orders", "bootstrap_servers": root, **arguments})  # type: ignore[arg-type]

    assert spark.catalog.listTables() == before
