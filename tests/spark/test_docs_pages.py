"""The pages of docs/ about Spark: their code blocks run, one after the other, in one Spark for all pages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, functions

import kafkalike.spark as ks
from kafkalike import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafkalike.connect import connect
from kafkalike.schemas import Registry, Schema
from tests.tools.cli import call
from tests.tools.pages import World, filled, read_by

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PRICED = {**ORDER, "fields": [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.0}]}
CLASHING = {**ORDER, "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    """An empty folder, the session, and what the pages call their root; the session is as before afterwards."""
    root = str(tmp_path / "kafkalike-data")
    names: dict[str, Any] = {
        "spark": spark,
        "ks": ks,
        "F": functions,
        "root": root,
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    # Spark's relative paths are those of the folder where its JVM was started.
    places = {
        "/data/log": root,
        '"/tables/': f'"{tmp_path}/',
        '"/checkpoints/': f'"{tmp_path}/',
        '"checkpoints/': f'"{tmp_path}/',
    }
    places |= {f'"./{name}"': f'"{tmp_path}/{name}"' for name in ("copies", "data", "kafkalike-data")}
    yield World(tmp_path, names, places, settle=lambda: _settle(spark))
    for table in spark.catalog.listTables():
        if table.isTemporary:
            spark.catalog.dropTempView(table.name)
    for database in ("log", "topic_tables"):
        spark.sql(f"DROP DATABASE IF EXISTS {database} CASCADE")


def _settle(spark: SparkSession) -> None:
    """Let the streams of a block write what there is, and end them."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def ends(root: str, *topics: str) -> dict[str, int]:
    """Records of topics, of all partitions."""
    with KafkaConsumer(bootstrap_servers=root) as consumer:
        return {
            topic: sum(
                consumer.end_offsets(
                    [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic) or ()]
                ).values()
            )
            for topic in topics
        }


@pytest.mark.timeout(300)
def test_exactly_once(world: World) -> None:
    """Every program copies the ten records once, also when it is run again."""
    root = world.names["root"]
    again = ["A Spark batch into several topics", "A stream into topics and a group"]

    first = world.run("exactly-once.md")
    second = "".join(world.run("exactly-once.md", heading) for heading in again)

    assert "TopicPartition(topic='invoices', partition=0): range(0, 10)" in first
    assert "10 rows\n10\n" in first
    assert "position=OffsetAndMetadata(offset=10" in first
    assert "10 rows in the table" in first
    assert "10 rows in the table" in second
    ten = ("orders", "invoices", "parcels", "archive", "parcels-nightly")
    five = ("early", "late", "cheap", "dear", "a-half", "the-other")
    assert ends(root, *ten, *five) == dict.fromkeys(ten, 10) | dict.fromkeys(five, 5)
    for group in ("shipping", "split"):
        with KafkaConsumer(bootstrap_servers=root, group_id=group) as consumer:
            assert consumer.committed(TopicPartition("orders", 0)) == 10


@pytest.mark.timeout(300)
def test_schemas(world: World, spark: SparkSession) -> None:
    """The registry, its command and its service, serializers, typed SQL, dead letters."""
    root, folder = world.names["root"], world.folder
    for name, schema in {"order": ORDER, "order2": CLASHING}.items():
        (folder / f"{name}.avsc").write_text(json.dumps(schema))
    (folder / "schemas.txt").write_text(_exported(folder))
    _letters(root)
    filled(folder, "numbers", partitions=3)
    world.names |= {
        "frame": spark.sql("SELECT 7L AS id, 'a' AS key"),
        "text": json.dumps(PRICED),
        "stream": ks.read_stream(spark, "numbers", root, starting_offsets="earliest"),
    }
    world.codes = {"schemas check": 1}

    told = world.run("schemas.md")

    assert "orders-value" in told
    assert "{'id': 7}" in told
    assert "ValueError" in told
    assert ends(root, "orders", "prices", "returns") == {"orders": 3, "prices": 1, "returns": 2}


def _exported(folder: Path) -> str:
    """Records of a topic `_schemas`, with a subject that the page's registry does not have."""
    other = Registry(str(folder / "other"))
    for number in range(20):
        other.register_schema(f"filler-{number}", Schema(json.dumps({**ORDER, "name": f"Filler{number}"})))
    other.register_schema("customers-value", Schema(json.dumps({**ORDER, "name": "Customer"})))
    return call(connect(str(folder / "other")), "schemas", "export", "--prefix", "customers").out


def _letters(root: str) -> None:
    """A dead letter in `orders.dlq`, of a topic beside the page's own."""
    with KafkaProducer(bootstrap_servers=root) as producer:
        producer.send("returns", b"no number")
    with KafkaConsumer(
        "returns",
        bootstrap_servers=root,
        group_id="counting",
        auto_offset_reset="earliest",
        value_deserializer=int,
        errors_tolerance="all",
        errors_deadletterqueue_topic_name="orders.dlq",
        consumer_timeout_ms=200,
    ) as consumer:
        assert list(consumer) == []


@pytest.mark.timeout(300)
def test_spark(world: World, spark: SparkSession) -> None:
    """The format as a source and as a sink: a batch writes two records, a stream copies a topic. A queue."""
    filled(world.folder, "orders", partitions=3)
    read_by(world.folder, "billing", "orders")
    root = world.names["root"]
    with KafkaAdminClient(bootstrap_servers=root) as admin:
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): OffsetAndMetadata(2)})

    assert "|     0| tea| 4.50|" in "".join(
        world.run("spark.md", heading) for heading in ("A first program", "Reading", "Where a group stands", "Writing")
    )
    told = world.run("spark.md", "A work queue")

    assert "12 records done" in told
    assert spark.read.format("delta").load(f"{world.folder}/results").count() == 12
    assert ks.read(spark, "copies", root).count() == 12
    assert ks.read(spark, "copies", root).select("value").distinct().count() == 12


@pytest.mark.timeout(300)
def test_sql(world: World, spark: SparkSession) -> None:
    """Ranges, columns, a database, time travel, INSERT."""
    root = world.names["root"]
    for _ in range(4):
        filled(world.folder, "orders", records=400, partitions=4)
    ks.register_sql(spark, root, temporary=True)
    spark.range(3).createOrReplaceTempView("new_orders")
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{root}/orders`").first()
    assert newest is not None
    world.replaced = {**world.replaced, "2026-01-02 09:30:00": str(newest["timestamp"]), "AS OF 12": "AS OF 2"}

    told = world.run("sql.md")

    assert "|version|" in told
    assert ks.read(spark, "orders", root).count() == 1603


@pytest.mark.timeout(300)
def test_streaming(world: World, spark: SparkSession) -> None:
    """Streams into topics, by a query, a function of one's own and Delta's source."""
    filled(world.folder, "numbers", root="data", partitions=3)
    root = world.names["root"] = str(world.folder / "data")
    stream = ks.read_stream(spark, "numbers", root, starting_offsets="earliest")
    world.names["frame"] = stream

    world.run("spark.md", "Streams into topics")

    assert ends(root, "orders", "copies") == {"orders": 20, "copies": 20}


@pytest.mark.timeout(300)
def test_tutorial(world: World) -> None:
    """Each step prints what the page shows."""
    told = world.run("tutorial.md")

    assert "orders:0:29\norders:1:57\norders:2:14\n" in told
    assert "270 euro billed" in told
    assert "20 big orders" in told
    assert "|customer-0|    15|" in told
    assert "|   billing|orders| 40|" in told
    assert "|big-orders|orders|  0|" in told
    assert "0 errors, 0 warnings" in told
