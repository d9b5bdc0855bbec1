"""StreamProgress: a real query's batches, in SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kafkalike.spark as ks
from kafkalike.log.cluster.cluster import Cluster
from tests.tools.records import fill

if TYPE_CHECKING:
    from typing import Any

    from pyspark.sql import SparkSession


def test_batches_of_a_query_are_rows_in_sql(spark: SparkSession, root: str, cluster: Cluster, checkpoint: str) -> None:
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", *"abc")
    cluster.create_topic("copy", 2, {})
    listener = ks.StreamProgress(root)
    spark.streams.addListener(listener)
    try:
        frame = ks.read_stream(spark, "t", root, starting_offsets="earliest", options={"maxOffsetsPerTrigger": "2"})
        rows, named = frame.select("partition", "value"), ks.QueryOptions(query_name="copying")
        query = ks.write_stream(
            rows, "copy", root, checkpoint=checkpoint, available_now=True, query_options=named, group_id="copying"
        )
        assert query.awaitTermination(120)
        context: Any = spark.sparkContext
        context._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    listener.close()
    ks.register_sql(spark, root, temporary=True)

    found = spark.sql(
        "SELECT query, topic, engine, input_rows, lag_records, output_rows FROM kafkalike_stream_progress "
        "WHERE input_rows > 0 ORDER BY batch_id"
    ).collect()

    assert [tuple(row) for row in found] == [
        ("copying", "t", "kafkalike", 2, 1, 2),
        ("copying", "t", "kafkalike", 1, 0, 1),
    ]
