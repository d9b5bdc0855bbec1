"""Stream worker: copies what is there into the topic `out`, in batches, and ends; killed by a fault if so ordered."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafkalike.spark import write_stream
from tests.tools.orders import obey


def source(spark: SparkSession, orders: dict[str, Any]) -> DataFrame:
    """Batches of one file each, or of two records of the topic `in`."""
    if orders["source"] == "files":
        return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(orders["folder"])
    topics = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", orders["root"])
    limited = topics.option("subscribe", "in").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2)
    return limited.load().select("partition", "value")


def copy(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Run the query until nothing is left to be read."""
    query = write_stream(
        source(spark, orders),
        "out",
        orders["root"],
        checkpoint=orders["checkpoint"],
        available_now=True,
        txn_id="copy",
        group_id=orders["group"],
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


if __name__ == "__main__":
    obey(copy)
