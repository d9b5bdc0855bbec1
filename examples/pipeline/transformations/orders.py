"""A pipeline between topics and tables; see "Declarative pipelines" in docs/spark.md."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
ROOT = {"kafka.bootstrap.servers": spark.conf.get("example.root")}


def topic(name: str) -> DataFrame:
    """Stream a topic from its first record."""
    return spark.readStream.format("kafkalike").options(**ROOT, subscribe=name, startingOffsets="earliest").load()


@dp.table(format="delta")
def orders() -> DataFrame:
    """A streaming table from a topic: each run adds the new records."""
    order = F.from_json(F.col("value").cast("string"), "item STRING, amount DOUBLE")
    return topic("orders").select(
        F.col("key").cast("string").alias("customer"), order.alias("o"), "timestamp", "offset"
    )


@dp.materialized_view(format="delta")
def spending() -> DataFrame:
    """A table that each run computes from another one."""
    return spark.read.table("orders").groupBy("customer").agg(F.sum("o.amount").alias("amount"))


dp.create_sink("large_orders_topic", "kafkalike", {**ROOT, "topic": "large-orders"})


@dp.append_flow(target="large_orders_topic")
def large_orders() -> DataFrame:
    """A sink into a topic, exactly once."""
    amount = F.get_json_object(F.col("value").cast("string"), "$.amount").cast("double")
    return topic("orders").where(amount >= 100).select("key", "value")
