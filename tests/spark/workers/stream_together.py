"""Stream worker: copies the topic `in` into three topics, with its progress; killed by a fault if so ordered."""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import write_stream
from tests.tools.orders import obey

TOPICS = ("a", "b", "c")


def copies(frame: DataFrame) -> DataFrame:
    """Each row for each topic."""
    names = F.array(*map(F.lit, TOPICS))
    return frame.select("value", F.explode(names).alias("topic"), F.lit(0).alias("partition"))


def copy(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Run the query until nothing is left to be read: two records a batch."""
    source = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", orders["root"])
    limited = source.option("subscribe", "in").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 2)
    frame = copies(limited.load())
    if orders.get("by_format"):
        given = {"kafka.bootstrap.servers": orders["root"], "checkpointLocation": orders["checkpoint"]}
        query = frame.writeStream.format("kafkalike").options(**given).trigger(availableNow=True).start()
    else:
        query = write_stream(
            frame, None, orders["root"], checkpoint=orders["checkpoint"], available_now=True, group_id="g"
        )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


if __name__ == "__main__":
    obey(copy)
