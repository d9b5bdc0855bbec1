"""Dead letters of DataFrames and streams: bad rows become letters, once, with the good ones and the group's offsets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

import kafkalike.spark as ks
from kafkalike import TopicPartition
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.model.config.dead_letter_config import settings_of
from kafkalike.schemas import Registry, Schema
from kafkalike.spark.files.consume import FileTarget, consume
from kafkalike.spark.files.value_decoder import Decoding
from tests.tools.letters import lettered, letters
from tests.tools.partitions import partition_values
from tests.tools.records import fill

pytestmark = pytest.mark.timeout(300)

SCHEMA = "id BIGINT"


@pytest.fixture
def orders(cluster: Cluster) -> Cluster:
    """A topic with two bad values."""
    cluster.create_topic("orders", 1, {})
    fill(cluster, "orders", b'{"id": 1}', b"bad", b'{"id": 3}', b"\xff", key=b"k", headers=[("h", b"1")])
    return cluster


def test_bad_rows_of_a_view_become_records_of_the_dead_letter_topic(spark: SparkSession, orders: Cluster) -> None:
    """Only they; whoever calls it says where good rows go."""
    view = ks.create_view(spark, "orders", orders.root, schema=SCHEMA)

    ks.write(ks.dead_letters(spark.table(view), connector="nightly", task="7"), None, orders.root)

    found = letters(orders)
    assert [value for value, _ in found] == [b"bad", b"\xff"]
    about = found[0][1]
    assert (about.origin, about.offset, about.connector, about.task) == (TopicPartition("orders", 0), 1, "nightly", "7")
    assert (about.stage, about.message) == ("VALUE_CONVERTER", "not an object of JSON with these fields")
    log = orders.log("orders.dlq")
    chunk = log.reader(0, 0).read(1 << 20)
    assert chunk is not None
    columns = chunk.columns()
    assert (columns.keys, columns.timestamps) == ([b"k", b"k"], [1001, 1003])
    assert columns.headers is not None
    assert columns.headers[0][0] == ("h", b"1")


def test_rows_that_say_no_error_are_refused(spark: SparkSession, orders: Cluster) -> None:
    with pytest.raises(IllegalArgumentError, match="_error"):
        ks.dead_letters(ks.read(spark, "orders", orders.root))
    with pytest.raises(IllegalArgumentError, match="name the dead-letter topic"):
        ks.dead_letters(ks.decoded_values(ks.read(spark, "orders", orders.root), schema=SCHEMA).drop("topic"))


def streamed(spark: SparkSession, root: str, checkpoint: str, topic: str | None = None) -> StreamingQuery:
    """A stream that copies ids to `ids`, as far as it can read them."""
    source = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    source = source.option("subscribe", "orders").option("startingOffsets", "earliest").option("includeHeaders", "true")
    rows = ks.decoded_values(source.load(), schema=SCHEMA).withColumn("value", F.col("id").cast("string"))
    query = ks.write_stream(
        rows,
        "ids",
        root,
        checkpoint=checkpoint,
        available_now=True,
        group_id="ids",
        dead_letters=ks.DeadLetterOptions(errors_tolerance="all", errors_deadletterqueue_topic_name=topic),
    )
    assert query.awaitTermination(120)
    return query


def test_a_batch_of_a_stream_is_one_decision_of_records_letters_and_offsets(
    spark: SparkSession, orders: Cluster, checkpoint: str
) -> None:
    """Run again after a crash it adds nothing."""
    streamed(spark, orders.root, checkpoint)
    for log in Path(checkpoint, "commits").glob("*0*"):
        log.unlink()
    streamed(spark, orders.root, checkpoint)

    assert partition_values(orders.log("ids")) == [b"1", b"3"]
    assert lettered(orders) == [(0, 1), (0, 3)]
    assert letters(orders)[0][1].task == "0"
    assert orders.topic("orders.dlq").configs["kafkalike.retention.clock"] == "append"
    group = orders.groups.refresh().group("ids").offsets
    assert group[TopicPartition("orders", 0)].position.offset == 4
    decided = [s.committed for s in orders.groups.state.transactions.values() if s.committed]
    assert len(decided) == 1

    fill(orders, "orders", b"worse", b'{"id": 6}')
    streamed(spark, orders.root, checkpoint)
    assert partition_values(orders.log("ids")) == [b"1", b"3", b"6"]
    assert lettered(orders) == [(0, 1), (0, 3), (0, 4)]


def test_a_stream_may_leave_bad_rows_out(spark: SparkSession, orders: Cluster, checkpoint: str) -> None:
    streamed(spark, orders.root, checkpoint, topic="")

    assert partition_values(orders.log("ids")) == [b"1", b"3"]
    assert sorted(orders.topics()) == ["ids", "orders"]


def test_records_with_schemas_become_letters_with_their_keys(
    spark: SparkSession, cluster: Cluster, tmp_path: Path
) -> None:
    """A consuming batch: bad values, a bad key, an unknown schema; letters have the bytes of both parts."""
    cluster.create_topic("typed", 1, {})
    schema = Schema(json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}))
    registry = Registry(cluster)
    registry.register_schema("typed-value", schema)
    registry.register_schema("typed-key", Schema('"string"'))
    value, key = b"\0\0\0\0\x01\x02", b"\0\0\0\0\x02\x02k"
    for k, v in ((key, value), (key, b"bad"), (b"bad", value), (key, b"\0\0\0\0\x63\x02"), (key, None)):
        fill(cluster, "typed", v, key=k)
    decoding = Decoding(value_format="avro", key_format="avro")

    done = consume(
        spark,
        "typed",
        FileTarget(format="json", path=str(tmp_path / "out")),
        cluster,
        group_id="g",
        decoding=decoding,
        dead_letters=settings_of("all", "bad"),
    )

    assert (done.records, done.letters, done.committed) == (2, 3, True)
    log = cluster.log("bad")
    chunk = log.reader(0, 0).read(1 << 20)
    assert chunk is not None
    columns = chunk.columns()
    assert set(zip(columns.keys, columns.values, strict=True)) == {
        (key, b"bad"),
        (b"bad", value),
        (key, b"\0\0\0\0\x63\x02"),
    }
