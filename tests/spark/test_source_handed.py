"""Small micro-batches in a real query: the planner gives them to Spark, and no task reads a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark.reads.driver_stream import SWITCH
from tests.tools.records import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_what_was_handed_over_needs_no_file_any_more(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str
) -> None:
    """Where the format's process plans, Spark keeps it as a block until the next batch; all else is as ever."""
    before = str(spark.conf.get(SWITCH, "true"))
    spark.conf.set(SWITCH, "false")
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "a", "b", headers=[("h", b"1")])
    fill(cluster, "t", "c", partition=1)
    seen: list[list[Any]] = []

    def batch(frame: DataFrame, _: int) -> None:
        for _attempt in range(2):
            seen.append(sorted((r.partition, r.offset, bytes(r.value), bool(r.headers)) for r in frame.collect()))
            for file in Path(root).glob("t*/partition=*/*.parquet"):
                file.unlink()

    options = {"kafka.bootstrap.servers": root, "subscribe": "t", "startingOffsets": "earliest"}
    frame = spark.readStream.format("kafkalike").options(**options, includeHeaders="true").load()
    writer = frame.writeStream.foreachBatch(batch).option("checkpointLocation", checkpoint)
    try:
        query = writer.trigger(availableNow=True).start()
    finally:
        spark.conf.set(SWITCH, before)

    assert query.awaitTermination(120)
    assert seen == [[(0, 0, b"a", True), (0, 1, b"b", True), (1, 0, b"c", False)]] * 2
    assert query.lastProgress is not None
    assert '"0":2' in str(query.lastProgress["sources"][0]["latestOffset"]).replace(" ", "").replace("'", '"')
