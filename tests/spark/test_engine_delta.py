"""read_stream(engine="delta"): a topic's table through Delta's own source, with Kafka's columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from kafkalike import KafkaConsumer, TopicPartition
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark import read_stream, write_stream
from tests.tools.findings import errors_of
from tests.tools.records import all_records, fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def copy(spark: SparkSession, root: str, checkpoint: str, **given: Any) -> None:
    frame = read_stream(spark, "in", root, engine="delta", **given)
    query = write_stream(
        frame.select("partition", "value"), "out", root, checkpoint=checkpoint, available_now=True, group_id="g"
    )
    assert query.awaitTermination(120)


def test_a_topic_is_copied_and_its_lag_shown(spark: SparkSession, root: str, cluster: Cluster, checkpoint: str) -> None:
    """Twice, from the same checkpoint; the group stands where each batch of the table ended."""
    cluster.create_topic("in", 2, {})
    cluster.create_topic("out", 2, {})
    fill(cluster, "in", *"abc")
    copy(spark, root, checkpoint, starting_offsets="earliest")
    fill(cluster, "in", *"de")
    fill(cluster, "in", *"xy", partition=1)
    copy(spark, root, checkpoint, starting_offsets="earliest")

    assert all_records(root, "out") == all_records(root, "in")
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        assert [consumer.committed(TopicPartition("in", p)) for p in (0, 1)] == [5, 2]
    assert errors_of(root) == []


@pytest.mark.usefixtures("foreign_writes")
def test_a_young_table_is_read_commit_by_commit_and_goes_on_when_it_is_young_no_more(
    spark: SparkSession, root: str, cluster: Cluster, checkpoint: str
) -> None:
    """A file in each batch, however they were written; the group follows from the first one on."""
    cluster.create_topic("in", 1, {})
    cluster.create_topic("out", 1, {})
    for values in ("ab", "c", "de"):
        fill(cluster, "in", *values)
    seen: list[list[str]] = []
    limit = {"maxFilesPerTrigger": "1"}
    frame = read_stream(spark, "in", root, engine="delta", starting_offsets="earliest", options=limit)

    def note(rows: DataFrame, _: int) -> None:
        seen.append([bytes(row.value).decode() for row in rows.orderBy("offset").collect()])

    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", f"{checkpoint}-seen")
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    copy(spark, root, checkpoint, starting_offsets="earliest", options=limit)
    DeltaTable(f"{root}/in").optimize.compact()
    fill(cluster, "in", "f")
    copy(spark, root, checkpoint, starting_offsets="earliest")

    assert seen == [["a", "b"], ["c"], ["d", "e"]]
    assert all_records(root, "out") == all_records(root, "in")
    with KafkaConsumer(bootstrap_servers=root, group_id="g") as consumer:
        assert consumer.committed(TopicPartition("in", 0)) == 6
    assert errors_of(root) == []


def test_columns_are_those_of_the_format(spark: SparkSession, root: str, cluster: Cluster) -> None:
    cluster.create_topic("in", 1, {})
    delta = read_stream(spark, "in", root, engine="delta")
    own = read_stream(spark, "in", root, options={"includeHeaders": "true"})

    assert [(f.name, f.dataType) for f in delta.schema] == [(f.name, f.dataType) for f in own.schema]


def test_what_it_cannot_do_is_refused(spark: SparkSession, root: str, cluster: Cluster) -> None:
    """By name."""
    cluster.create_topic("in", 1, {})

    with pytest.raises(IllegalArgumentError, match="begins at earliest or latest"):
        read_stream(spark, "in", root, engine="delta", starting_offsets="committed")
    with pytest.raises(IllegalArgumentError, match="not maxoffsetspertrigger"):
        read_stream(spark, "in", root, engine="delta", options={"maxOffsetsPerTrigger": "1"})
    with pytest.raises(IllegalArgumentError, match="give group_id to write_stream"):
        read_stream(spark, "in", root, engine="delta", group_id="g")
    with pytest.raises(IllegalArgumentError, match="engine must be one of"):
        read_stream(spark, "in", root, engine="jvm")
