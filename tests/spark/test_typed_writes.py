"""DataFrames of columns as records with schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, SchemaRegistryError, SerializationError
from kafkalike.schemas import Registry, Schema
from kafkalike.spark import (
    ReaderSchemaOptions,
    RecordSchemas,
    from_topic,
    read,
    read_stream,
    to_topic,
    write,
    write_stream,
)
from tests.tools.lines import Lines

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "string"}}},
        {"name": "n", "type": "int", "default": 4},
    ],
}
ROW = (
    *("id", "'n' || id AS note", "timestamp_millis(1500) AS at", "date'2026-01-02' AS day", "2.5 AS price"),
    "map('a', array('b')) AS tags",
)


@pytest.mark.parametrize(
    "schema", [Schema(json.dumps(ORDER)), "avro", pytest.param("json-schema", marks=pytest.mark.full)]
)
def test_columns_become_records_and_columns_again(spark: SparkSession, root: str, schema: Any) -> None:
    """A schema that is given, or made of the columns; keys too; what a row says of the record stays."""
    frame = spark.range(3).selectExpr("id AS key", "timestamp_millis(7) AS timestamp", *ROW)
    if schema == "json-schema":
        frame = frame.drop("price")

    written = write(frame, "orders", root, schemas=RecordSchemas(value=schema, key="avro"))
    again = write(frame, "orders", root, schemas=RecordSchemas(value="latest", key="latest", register=False))

    assert (sum(map(len, written.values())), sum(map(len, again.values()))) == (3, 3)
    assert Registry(root).get_versions("orders-value") == [1]
    rows = (
        read(spark, "orders", root)
        .select(
            from_topic("key", "orders", root, part="key").alias("k"),
            from_topic("value", "orders", root).alias("v"),
            F.unix_millis("timestamp"),
        )
        .orderBy("k")
    )
    first, second = rows.take(2)
    assert first == second
    assert (first["k"], first["v"]["id"], first["v"]["note"], first[2]) == (0, 0, "n0", 7)
    assert (str(first["v"]["day"]), first["v"]["tags"]) == ("2026-01-02", {"a": ["b"]})
    assert rows.select(F.unix_millis("v.at")).first() == (1500,)
    if schema not in {"avro", "json-schema"}:
        assert (str(first["v"]["price"]), first["v"]["n"]) == ("2.50", 4)


PROTO = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Line { string sku = 1; }
message Order {
  int64 id = 1; repeated Line lines = 2; map<string, int32> counts = 3; google.protobuf.Timestamp at = 4;
}
"""


def test_protobuf_and_a_column_of_tombstones(spark: SparkSession, root: str) -> None:
    """`to_topic` alone, in a projection."""
    connect(root).ensure_topic("orders")
    value = F.expr(
        "named_struct('id', id, 'lines', array(named_struct('sku', 'x')), 'counts', map('a', 1), "
        "'at', timestamp_millis(5))"
    )
    written = to_topic(
        F.when(F.col("id") > 0, value), "orders", root, schema=Schema(PROTO, "PROTOBUF"), message="Order"
    )
    frame = spark.range(2).select(written.alias("value"))

    write(frame, "orders", root)

    back = read(spark, "orders", root).select(
        from_topic("value", "orders", root, schema_options=ReaderSchemaOptions(message="Order")).alias("v")
    )
    rows = back.select("v.id", "v.lines.sku", "v.counts", F.unix_millis("v.at")).collect()
    assert sorted(map(tuple, rows), key=str) == [(1, ["x"], {"a": 1}, 5), (None, None, None, None)]


def test_a_protobuf_schema_of_columns_is_made_once(spark: SparkSession, root: str) -> None:
    """Later writes must fit it, whatever the order of their columns is: its numbers are never given anew."""
    connect(root).ensure_topic("orders")
    first = spark.sql("SELECT 1L AS id, 'a' AS name")

    write(first, "orders", root, schemas="protobuf")
    write(spark.sql("SELECT 'b' AS name, 2L AS id"), "orders", root, schemas="protobuf")
    write(spark.sql("SELECT 3L AS id"), "orders", root, schemas="protobuf")
    with pytest.raises(SerializationError, match="has added, which orders_value does not have"):
        write(first.withColumn("added", F.lit(1)), "orders", root, schemas="protobuf")

    back = read(spark, "orders", root).select(from_topic("value", "orders", root).alias("v")).select("v.id", "v.name")
    assert sorted(map(tuple, back.collect())) == [(1, "a"), (2, "b"), (3, None)]
    assert Registry(root).get_versions("orders-value") == [1]


def test_what_does_not_fit_writes_and_registers_nothing(spark: SparkSession, root: str) -> None:
    """Columns are looked at before the job, rows in it."""
    connect(root).ensure_topic("orders")
    narrow = Schema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}))
    frame = spark.range(1 << 31, (1 << 31) + 1)

    with pytest.raises(SerializationError, match="has more, which record R does not have"):
        write(frame.selectExpr("id", "1 AS more"), "orders", root, schemas=narrow)
    assert Registry(root).get_subjects() == []
    with pytest.raises(SerializationError, match="id is not of the schema"):
        write(frame, "orders", root, schemas=narrow)
    assert connect(root).log("orders").log_end(0) == 0


def avro_field(kind: Any) -> Schema:
    return Schema(json.dumps({"type": "record", "name": "R", "fields": [{"name": "price", "type": kind}]}))


def json_field(kind: Any) -> Schema:
    return Schema(json.dumps({"type": "object", "properties": {"price": kind}}), "JSON")


def test_a_value_that_a_schema_would_change_is_refused_by_its_column(spark: SparkSession, root: str) -> None:
    """The whole matrix stands in tests/unit/schemas/test_matrix_*.py; the last value fits."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    cases = [
        ("0.1D", avro_field("float")),
        ("TIMESTAMP_NTZ'2026-01-02 03:04:05'", avro_field(millis)),
        ("CAST(X'FF' AS STRING)", avro_field("string")),
        ("0.12345678901234567890BD", json_field({"type": "number"})),
        ("9007199254740993L", Schema('syntax = "proto3"; message R { double price = 1; }', "PROTOBUF")),
    ]

    for nth, (value, schema) in enumerate(cases):
        topic = f"orders-{nth}"
        with pytest.raises(SerializationError, match="price"):
            write(spark.sql(f"SELECT {value} AS price"), topic, root, schemas=schema)
        assert topic not in connect(root).topics() or connect(root).log(topic).log_end(0) == 0

    write(spark.sql("SELECT 0.1BD AS price"), "orders", root, schemas=json_field({"type": "number"}))
    (row,) = read(spark, "orders", root).collect()
    assert bytes(row["value"][5:]) == b'{"price":0.1}'


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"schemas": "latest"}, SchemaRegistryError),
        ({"schemas": "thrift"}, IllegalArgumentError),
        ({"schemas": 7}, IllegalArgumentError),
        ({"schemas": "avro", "topic": None}, IllegalArgumentError),
        ({"schemas": RecordSchemas(key="avro")}, IllegalArgumentError),
        ({"schemas": RecordSchemas(Schema('"long"'), register=False)}, SerializationError),
        ({"schemas": RecordSchemas("avro", register=False)}, SchemaRegistryError),
    ],
    ids=["no-schema-yet", "unknown-format", "no-schema", "no-topic", "no-key", "does-not-fit", "not-registered"],
)
def test_bad_arguments_are_refused(
    spark: SparkSession, root: str, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """Nothing is written or registered."""
    with pytest.raises(error):
        write(spark.range(1), **{"topic": "orders", "bootstrap_servers": root, **arguments})

    assert Registry(root).get_subjects() == []


def test_a_stream_of_columns_and_back(spark: SparkSession, root: str, lines: Lines, checkpoint: str) -> None:
    """What one query writes with a schema another one reads as columns; records of newer schemas too."""
    connect(root).ensure_topic("orders")
    lines.add("a", "b")
    frame = lines.frame().selectExpr("value AS name", "length(value) AS n")
    write_stream(frame, "orders", root, checkpoint=checkpoint, available_now=True, schemas="avro").awaitTermination()
    options = {"startingOffsets": "earliest"}

    query = (
        read_stream(spark, "orders", root, format="avro", options=options)
        .where("_error IS NULL")
        .select("name", "n", "offset")
        .writeStream.format("memory")
        .queryName("typed_stream")
        .option("checkpointLocation", f"{checkpoint}-back")
        .start()
    )
    write(spark.createDataFrame([("c", 1, "!")], "name STRING, n INT, more STRING"), "orders", root, schemas="avro")
    query.processAllAvailable()
    query.stop()

    assert sorted(map(tuple, spark.table("typed_stream").collect()), key=str) == [("a", 1, 0), ("b", 1, 1), ("c", 1, 2)]
    spark.catalog.dropTempView("typed_stream")
    assert "value" in read_stream(spark, "orders", root).columns
    with pytest.raises(IllegalArgumentError):
        read_stream(spark, "orders", root, format="csv")
    with pytest.raises(IllegalArgumentError):
        read_stream(spark, "orders", root, key_format="avro")
