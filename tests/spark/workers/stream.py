"""Stream worker: copies what is there into the topic `out`, in batches, and ends; killed by a fault if so ordered.

With `letters` it copies the ids of JSON values, and what is none becomes a dead letter. With `shown` the source itself
commits its progress for a group.
"""

from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import DeadLetterOptions, decoded_values, read_stream, write_stream
from tests.tools.orders import obey


def source(spark: SparkSession, orders: dict[str, Any]) -> DataFrame:
    """Batches of one file each; or of the topic `in`, of two records or one file."""
    if orders["source"] == "files":
        return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(orders["folder"])
    if orders["source"] == "table":
        table = {"maxFilesPerTrigger": "1"}
        found = read_stream(spark, "in", orders["root"], engine="delta", starting_offsets="earliest", options=table)
        return found.select("partition", "value")
    topics = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", orders["root"])
    limited = topics.option("subscribe", "in").option("maxOffsetsPerTrigger", 2)
    if orders["source"] == "committed":
        begin = {"startingOffsets": "committed", "kafka.group.id": "before", "kafka.auto.offset.reset": "earliest"}
        return limited.options(**begin).load().select("partition", "value")
    limited = limited.option("startingOffsets", "earliest")
    if orders["source"] == "letters":
        return limited.option("includeHeaders", "true").load()
    if orders["source"] == "shown":
        limited = limited.option("kafka.group.id", "copies")
    return limited.load().select("partition", "value")


def copy(spark: SparkSession, orders: dict[str, Any]) -> None:
    """Run the query until nothing is left to be read."""
    rows, tolerance = source(spark, orders), "none"
    if orders["source"] == "letters":
        rows = decoded_values(rows, schema="id BIGINT").withColumn("value", F.col("id").cast("string"))
        tolerance = "all"
    query = write_stream(
        rows,
        "out",
        orders["root"],
        checkpoint=orders["checkpoint"],
        available_now=True,
        txn_id="copy",
        group_id=orders["group"],
        dead_letters=DeadLetterOptions(errors_tolerance=tolerance),
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


if __name__ == "__main__":
    obey(copy)
