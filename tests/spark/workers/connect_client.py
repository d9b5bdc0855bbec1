"""Connect client worker: everything that kafkalike does with a session, from a client of Spark Connect; prints JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import kafkalike.spark as ks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def values(frame: DataFrame) -> list[str]:
    return sorted(bytes(row.value).decode() for row in frame.select("value").collect())


def written(spark: SparkSession, root: str, folder: str) -> Any:
    """`write`: the offsets, and nothing for a rerun of the same name."""
    frame = spark.createDataFrame([("k", "a"), ("k", "b")], "key STRING, value STRING")
    first = ks.write(frame, "orders", root, txn_id="job", txn_version=1)
    again = ks.write(frame, "orders", root, txn_id="job", txn_version=1)
    return [{f"{tp.topic}-{tp.partition}": [r.start, r.stop] for tp, r in first.items()}, again.duplicate]


def read(spark: SparkSession, root: str, folder: str) -> Any:
    """`read`, over tables and through the format."""
    by_format = spark.read.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", "orders")
    return [values(ks.read(spark, "orders", root)), values(by_format.load())]


def written_by_the_format(spark: SparkSession, root: str, folder: str) -> Any:
    """A batch through the format; without a mode it says which word is missing."""
    writer = spark.createDataFrame([("f",)], "value STRING").write.format("kafkalike")
    writer = writer.option("kafka.bootstrap.servers", root).option("topic", "formatted")
    said = ""
    try:
        writer.save()
    except Exception as error:  # noqa: BLE001 - it is printed
        said = str(error).partition(":")[0]
    writer.mode("append").save()
    return [said, values(ks.read(spark, "formatted", root))]


def in_a_transaction(spark: SparkSession, root: str, folder: str) -> Any:
    """Two topics, by one decision."""
    frame = spark.createDataFrame([("t",)], "value STRING")
    with ks.transaction("tx", root) as transaction:
        transaction.write(frame, "one")
        transaction.write(frame, "two")
    return [values(ks.read(spark, name, root)) for name in ("one", "two")]


def streamed(spark: SparkSession, root: str, folder: str) -> Any:
    """`write_stream` twice from one checkpoint, with a group; then the format's sink."""
    for _ in range(2):
        frame = ks.read_stream(spark, "orders", root, starting_offsets="earliest").select("key", "value")
        query = ks.write_stream(frame, "copy", root, checkpoint=f"{folder}/copy", available_now=True, group_id="copies")
        assert query.awaitTermination(120)
    frame = ks.read_stream(spark, "orders", root, starting_offsets="earliest").select("value")
    sink = frame.writeStream.format("kafkalike").option("kafka.bootstrap.servers", root).option("topic", "sink")
    query = sink.option("checkpointLocation", f"{folder}/sink").trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    lag = spark.sql("SELECT sum(lag) FROM kafkalike_lag WHERE group_id = 'copies'").collect()[0][0]
    return [values(ks.read(spark, "copy", root)), values(ks.read(spark, "sink", root)), lag]


def in_sql(spark: SparkSession, root: str, folder: str) -> Any:
    """`register_sql` and `create_view`."""
    ks.register_sql(spark, root, temporary=True)
    counted = spark.sql("SELECT count(*) FROM orders").collect()[0][0]
    some = spark.sql("SELECT count(*) FROM kafkalike_offsets('orders', 0, 1, 2)").collect()[0][0]
    ks.create_view(spark, "orders", root, value_format="string")
    decoded = spark.sql("SELECT value FROM orders__values").collect()
    return [counted, some, sorted(row[0] for row in decoded)]


def refused(spark: SparkSession, root: str, folder: str) -> Any:
    """What needs a JVM says so in one sentence."""
    try:
        ks.CheckpointProgress(spark, folder, "g", root)
    except Exception as error:  # noqa: BLE001 - it is printed
        return [type(error).__name__, str(error)]
    return None


STEPS: tuple[Callable[[SparkSession, str, str], Any], ...] = (
    written,
    read,
    written_by_the_format,
    in_a_transaction,
    in_sql,
    streamed,
    refused,
)


def main() -> None:
    """Run all steps, each with what it gave or raised."""
    url, root, folder, settings = sys.argv[1:]
    spark = ks.session(**{"spark.remote": url})
    for name, value in json.loads(settings).items():
        spark.conf.set(name, value)
    found = {}
    for step in STEPS:
        try:
            found[step.__name__] = step(spark, root, folder)
        except Exception as error:  # noqa: BLE001 - it is printed
            found[step.__name__] = f"{type(error).__name__}: {error}"[:3_000]
    sys.stdout.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main()
