"""Read: a topic in, a native Delta DataFrame with Spark's Kafka columns out."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.errors import IllegalArgumentError
from kafkalike.log.connect import connect_delta
from kafkalike.model.topic import TopicInfo


def read(
    spark: SparkSession,
    topic: str | Iterable[str],
    bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
    *,
    include_headers: bool = True,
) -> DataFrame:
    """A topic, or several, as a DataFrame over the Delta tables themselves.

    All of Delta's pruning works: by partition, and by file for `offset` and `timestamp`. The records are those of the
    moment a query runs; those below the log start, which retention has let go, are left out.

    Args:
        spark: a session with Delta.
        topic: name, or names.
        bootstrap_servers: the cluster's root; see `kafkalike.log.connect.connect`.
        include_headers: whether the column `headers` is there.

    Returns:
        Columns `key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
        timestampType INT`, and `headers ARRAY<STRUCT<key STRING, value BINARY>>`, as Spark's Kafka source has them.

    Raises:
        InvalidTopicError, UnknownTopicOrPartitionError: no such topic.
    """
    cluster = connect_delta(bootstrap_servers)
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names:
        message = "at least one topic is needed"
        raise IllegalArgumentError(message)
    infos = [cluster.topic(name) for name in names]
    frames = [topic_frame(spark, info, cluster.table_uri(info), include_headers=include_headers) for info in infos]
    return reduce(DataFrame.unionByName, frames)


def topic_frame(spark: SparkSession, info: TopicInfo, uri: str, *, include_headers: bool) -> DataFrame:
    """The DataFrame of one topic's table; see `read` for its columns."""
    frame = spark.read.format("delta").load(uri)
    for partition, start in sorted(info.log_starts.items()):
        below = (F.col("partition") == F.lit(partition)) & (F.col("offset") < F.lit(start.offset))
        frame = frame.where(~below)
    names = ["key", "value", "partition", "offset", "timestamp", "timestampType"]
    names += ["headers"] if include_headers else []
    columns = [F.col(name) for name in names]
    columns.insert(2, F.lit(info.name).alias("topic"))
    selected: DataFrame = frame.select(*columns)
    return selected
