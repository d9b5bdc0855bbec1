"""Views and columns of records with schemas, over several schemas in one topic."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, SchemaRegistryError
from kafkalike.model.record_batch import RecordBatch
from kafkalike.schemas import Registry, Schema
from kafkalike.spark import ReaderSchemaOptions, create_view, from_topic, read, refresh_views
from tests.tools.avro_cases import avro, framed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

OLD = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}, {"name": "gone", "type": "string"}]}
NEW: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "label", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "default": "",
        },
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "int"}}, "default": []},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}, "default": 0},
    ],
}
MARK = "spark.sql.optimizer.avoidDoubleFilterEval"
NAMES = [field["name"] for field in NEW["fields"]]
NEWEST = {**NEW, "fields": [*NEW["fields"], {"name": "more", "type": "string", "default": "m"}]}


def fill(root: str, records: Sequence[tuple[bytes | None, bytes | None]], topic: str = "orders") -> None:
    cluster = connect(root)
    cluster.ensure_topic(topic)
    batch = RecordBatch()
    for key, value in records:
        batch.add(0, key, value, 1_000)
    cluster.log(topic).append(batch)


def register(root: str, schema: Any, subject: str = "orders-value", kind: str = "AVRO") -> int:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return Registry(root).register_schema(subject, Schema(text, kind))


@pytest.fixture(autouse=True)
def nothing_is_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        spark.catalog.dropTempView(view.name)


def new(number: int, **given: Any) -> bytes:
    return avro(
        NEW,
        {"id": 1, "label": None, "at": 1_500, "price": b"\x01\x00", "lines": [{"a": 1}], "clock": 2, **given},
        number,
    )


def test_a_view_over_several_schemas_has_the_columns_of_the_newest(spark: SparkSession, root: str) -> None:
    """Bad records are kept; records of later schemas are read; the view made anew has all of them."""
    first, second = register(root, OLD), register(root, NEW)
    old = avro(OLD, {"id": 7, "gone": "x"}, first)
    fill(root, [(b"k", old), (b"k", new(second, label="é")), (b"k", None), (b"k", b"junk"), (b"k", framed(99, b""))])

    view = create_view(spark, "orders", root, format="avro")

    frame = spark.sql("SELECT * FROM orders__values ORDER BY offset")
    assert view == "orders__values"
    assert frame.columns == [
        *("key", "id", "label", "at", "price", "lines", "clock", "topic", "partition", "offset", "timestamp"),
        *("timestampType", "headers", "_raw", "_error"),
    ]
    assert [f.dataType.simpleString() for f in frame.schema.fields[1:7]] == [
        *("bigint", "string", "timestamp", "decimal(9,2)", "array<map<string,int>>", "bigint"),
    ]
    shown = frame.select(
        "key", "id", "label", F.unix_millis("at"), F.col("price").cast("string"), "lines", "clock", "_error"
    )
    assert [tuple(row) for row in shown.collect()] == [
        ("k", 7, None, 0, "0.00", [], 0, None),
        ("k", 1, "é", 1_500, "2.56", [{"a": 1}], 2_000, None),
        ("k", None, None, None, None, None, None, None),
        *[("k", None, None, None, None, None, None, "the value does not begin with a zero and the id of a schema")],
        *[("k", None, None, None, None, None, None, "schema 99: Schema 99 not found")],
    ]
    assert refresh_views(spark) == []

    third = register(root, NEWEST)
    fill(
        root,
        [
            (
                b"k",
                avro(
                    NEWEST, {"id": 3, "label": "n", "at": 0, "price": b"", "lines": [], "clock": 0, "more": "!"}, third
                ),
            )
        ],
    )

    assert spark.sql("SELECT id, label FROM orders__values WHERE id = 3").collect() == [(3, "n")]
    assert refresh_views(spark) == ["orders__values"]
    assert spark.sql(
        "SELECT more, count(*) FROM orders__values WHERE _error IS NULL GROUP BY 1 ORDER BY 1"
    ).collect() == [
        *[(None, 1), ("!", 1), ("m", 2)],
    ]


def test_a_query_decodes_once_and_only_what_it_asks_for(spark: SparkSession, root: str) -> None:
    """One Python step for the columns that are asked for; conditions on the record's columns are below it.

    A plain count of all rows is answered by Delta from its log, as for the table itself.
    """
    number = register(root, NEW)
    fill(root, [(None, new(number, id=nth)) for nth in range(3)])
    # Its last field is cut off: nothing of it counts, whichever column is asked for.
    fill(root, [(None, new(number, id=3)[:-1])])
    create_view(spark, "orders", root, format="avro")

    frame = spark.sql("SELECT id FROM orders__values WHERE id > 0 AND offset < 2 AND _error IS NULL AND partition = 0")
    count = spark.sql("SELECT count(*) FROM orders__values WHERE offset > 0")
    twice = spark.sql("SELECT a.id FROM orders__values a JOIN orders__values b ON a.id = b.id + 1 AND b.price > 2")

    plan = planned(frame)
    assert plan.count("ArrowEvalPython") == 1
    assert "LessThan(offset,2)" in plan
    assert [name for name in NAMES if re.search(rf"\b{name}\(", plan)] == ["id"]
    assert "ArrowEvalPython" not in planned(count)
    assert planned(spark.sql("SELECT count(*) FROM orders__values")).startswith("LocalTableScan")
    assert planned(spark.sql("SELECT * FROM orders__values WHERE price > 2")).count("ArrowEvalPython") == 1
    assert planned(twice).count("ArrowEvalPython") == 2
    assert frame.collect() == [(1,)]
    assert count.collect() == [(3,)]
    spark.conf.set(MARK, "false")
    try:
        assert spark.sql("SELECT id FROM orders__values WHERE id > 1 AND _error IS NULL").collect() == [(2,)]
    finally:
        spark.conf.unset(MARK)
    assert sorted(twice.collect()) == [(1,), (2,)]
    assert spark.sql("SELECT id, _error IS NULL FROM orders__values WHERE offset >= 2 ORDER BY offset").collect() == [
        *[(2, True), (None, False)],
    ]


def planned(frame: DataFrame) -> str:
    """The plan, before it runs."""
    plan: str = frame._jdf.queryExecution().executedPlan().toString()
    return plan


PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order { int64 id = 1; google.protobuf.Timestamp at = 2; Item item = 3; }
message Item { string sku = 1; uint64 n = 2; }
"""


def test_protobuf_and_json_with_keys_of_their_own(spark: SparkSession, root: str) -> None:
    """Keys may have schemas too; what is wrong with a key is said beside it."""
    json_schema = {"type": "object", "properties": {"id": {"type": "integer"}, "any": {}}}
    proto, key = register(root, PROTO, kind="PROTOBUF"), register(root, "long", "orders-key")
    plain = register(root, json_schema, "plain-value", "JSON")
    fill(root, [(framed(key, b"\x06"), framed(proto, b"\0\x08\x05\x1a\x03\x0a\x01s")), (b"bad", framed(proto, b"\0"))])
    fill(root, [(b"k", framed(plain, b'{"id": 1, "any": [2]}')), (b"k", framed(proto, b"\0"))], "plain")

    create_view(spark, "orders", root, format="protobuf", key_format="avro", name="o")
    create_view(spark, "plain", root, format="json-schema", value_column="v", name="p")

    rows = spark.sql("SELECT key, id, item.sku, item.n, _raw_key, _error FROM o ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [
        (3, 5, "s", 0, framed(key, b"\x06"), None),
        (None, 0, None, None, b"bad", "key: the value does not begin with a zero and the id of a schema"),
    ]
    rows = spark.sql("SELECT v, _error FROM p ORDER BY offset").collect()
    assert [tuple(row) for row in rows] == [
        ((1, "[2]"), None),
        (None, f"schema {proto}: it is a schema of type PROTOBUF, not JSON"),
    ]


def test_from_topic_is_a_column(spark: SparkSession, root: str) -> None:
    """Null where a value cannot be decoded, or an error."""
    number = register(root, NEW)
    fill(root, [(None, new(number)), (None, b"junk"), (None, None)])
    frame = read(spark, "orders", root)

    decoded = frame.select(from_topic("value", "orders", root).alias("v")).select("v.id", F.col("v").isNull())
    failing = frame.select(from_topic("value", "orders", root, on_error="fail"))

    assert sorted(decoded.collect(), key=str) == [(1, False), (None, True), (None, True)]
    with pytest.raises(Exception, match="SerializationError: a value cannot be decoded: the value does not begin"):
        failing.collect()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"format": "thrift"}, IllegalArgumentError),
        ({"format": "protobuf"}, IllegalArgumentError),
        ({"format": "avro", "value_format": "csv"}, IllegalArgumentError),
        ({"format": "avro", "schema": "id BIGINT"}, SchemaRegistryError),
        ({"format": "avro", "schema": 7}, IllegalArgumentError),
        ({"format": "avro", "schema_options": {"message": "x.Y"}}, IllegalArgumentError),
        ({"format": "avro", "schema_options": {"depth": 0}}, IllegalArgumentError),
        ({"format": "avro", "key_format": "avro"}, SchemaRegistryError),
        ({"format": "avro", "key_format": "csv"}, IllegalArgumentError),
        ({"format": "avro", "topic": "empty"}, SchemaRegistryError),
        ({"format": "avro", "value_column": "offset"}, IllegalArgumentError),
        ({"schema": "id BIGINT", "schema_options": {"registry": "http://127.0.0.1:1"}}, IllegalArgumentError),
    ],
)
def test_bad_arguments_are_refused(
    spark: SparkSession, root: str, arguments: dict[str, Any], error: type[Exception]
) -> None:
    """No view is made."""
    register(root, NEW)
    for topic in ("orders", "empty"):
        connect(root).ensure_topic(topic)
    # Those of tests that had the session before.
    before = spark.catalog.listTables()

    def create() -> None:
        given = {"topic": "orders", "bootstrap_servers": root, **arguments}
        if "schema_options" in given:
            given["schema_options"] = ReaderSchemaOptions(**given["schema_options"])
        create_view(spark, **given)

    with pytest.raises(error):
        create()

    assert spark.catalog.listTables() == before


def test_a_view_shows_no_value_in_another_unit_and_follows_anchors(spark: SparkSession, root: str) -> None:
    """A day that became a time is an error; a reference to an anchor has its column, not the whole document's."""
    old, new = (
        {"type": "record", "name": "R", "fields": [{"name": "at", "type": {"type": kind, "logicalType": logical}}]}
        for kind, logical in (("int", "date"), ("long", "timestamp-millis"))
    )
    Registry(root).set_compatibility(subject_name="orders-value", level="NONE")
    fill(
        root,
        [(None, avro(old, {"at": 20_000}, register(root, old))), (None, avro(new, {"at": 5}, register(root, new)))],
    )
    anchored = {"properties": {"at": {"$ref": "#money"}}, "$defs": {"m": {"$anchor": "money", "type": "integer"}}}
    number = register(root, anchored, "prices-value", "JSON")
    fill(root, [(None, framed(number, b'{"at":7}'))], "prices")

    create_view(spark, "orders", root, format="avro", name="orders_v")
    create_view(spark, "prices", root, format="json-schema", name="prices_v")

    rows = spark.sql("SELECT unix_micros(at) AS at, _error FROM orders_v ORDER BY offset").collect()
    assert [row["at"] for row in rows] == [None, 5_000]
    assert "int (date)" in rows[0]["_error"]
    assert [tuple(row) for row in spark.sql("SELECT at, _error FROM prices_v").collect()] == [(7, None)]
