"""read_stream: which source reads, and that a change of the engine loses and doubles nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kafkalike.errors import CheckpointMismatchError
from kafkalike.log.cluster.cluster import Cluster
from kafkalike.spark import read_stream, write_stream
from tests.tools.records import all_records, batch, fill
from tests.tools.upkeep import AT_ONCE, upkeep

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DELTA, FORMAT = "DeltaSource", "Python or driver"
"""Whether the format's process or the driver plans is not asked here."""


@pytest.fixture
def young(cluster: Cluster) -> Cluster:
    """A topic of two partitions, in two versions after the first one."""
    cluster.create_topic("in", 2, {**AT_ONCE, "retention.ms": "-1"})
    fill(cluster, "in", *"abc")
    fill(cluster, "in", *"de", partition=1)
    return cluster


def stream(spark: SparkSession, root: str, **given: Any) -> DataFrame:
    return read_stream(spark, "in", root, starting_offsets="earliest", **given)


def drain(frame: DataFrame, place: Path, sink: str = "parquet") -> list[tuple[str, int]]:
    """Run a query with a table of its own to the end; the source and the rows of each batch."""
    values = frame.selectExpr("partition", "offset", "CAST(value AS STRING) AS value")
    writer = values.writeStream.format(sink).option("checkpointLocation", str(place / "checkpoint"))
    writer = writer.option("path", str(place / "out")) if sink == "parquet" else writer.queryName("engines")
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    shown = [(progress["sources"][0]["description"], progress["numInputRows"]) for progress in query.recentProgress]
    return [(DELTA if DELTA in what else FORMAT, rows) for what, rows in shown if rows]


def found(spark: SparkSession, place: Path) -> list[str]:
    return sorted(row.value for row in spark.read.parquet(str(place / "out")).select("value").collect())


@pytest.mark.parametrize(
    ("given", "source"),
    [
        pytest.param({}, FORMAT, id="default"),
        pytest.param({"options": {"maxOffsetsPerTrigger": "100"}}, FORMAT, id="limit of offsets"),
        pytest.param({"engine": "kafkalike"}, FORMAT, id="format"),
        pytest.param({"engine": "delta"}, DELTA, id="delta"),
    ],
)
def test_engine_decides_which_source_reads(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path, given: dict[str, Any], source: str
) -> None:
    assert drain(stream(spark, root, **given), tmp_path) == [(source, 5)]
    assert found(spark, tmp_path) == [*"abcde"]


def test_sink_that_shows_the_order_gets_it(spark: SparkSession, root: str, young: Cluster, tmp_path: Path) -> None:
    """Delta's source would read the files of a batch in any order."""
    fill(young, "in", "f")

    assert drain(stream(spark, root), tmp_path, "memory") == [(FORMAT, 6)]
    in_order = spark.sql("SELECT value FROM engines WHERE partition = 0").collect()
    assert [row.value for row in in_order] == [*"abcf"]


def test_checkpoint_of_the_format_goes_on_with_the_format(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path
) -> None:
    drain(stream(spark, root, engine="kafkalike"), tmp_path)
    fill(young, "in", "f")

    assert drain(stream(spark, root), tmp_path) == [(FORMAT, 1)]
    assert found(spark, tmp_path) == [*"abcdef"]


@pytest.mark.parametrize("limit", ["1", "1000"], ids=["within a version", "whole versions"])
def test_checkpoint_of_deltas_source_goes_on_with_the_format(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path, limit: str
) -> None:
    """A batch that was planned and not done is read as it was planned."""
    young.log("in").append(batch((0, "x"), (1, "y")))
    drain(stream(spark, root, engine="delta", options={"maxFilesPerTrigger": limit}), tmp_path)
    last = max(int(path.name) for path in (tmp_path / "checkpoint" / "commits").iterdir() if path.name.isdecimal())
    planned = json.loads((tmp_path / "checkpoint" / "offsets" / str(last)).read_text().splitlines()[-1])
    fill(young, "in", "f", partition=1)

    assert drain(stream(spark, root, options={"maxOffsetsPerTrigger": "100"}), tmp_path) == [(FORMAT, 1)]
    assert found(spark, tmp_path) == [*"abcdefxy"]
    assert planned["reservoirId"] == young.log("in").info.table_id


def test_batch_of_deltas_source_that_failed_is_repeated_by_the_format(
    spark: SparkSession, root: str, young: Cluster, checkpoint: str
) -> None:
    def fail(_: DataFrame, __: int) -> None:
        raise RuntimeError("planned failure")

    frame = stream(spark, root, engine="delta")
    failing = frame.writeStream.foreachBatch(fail).option("checkpointLocation", checkpoint)
    with pytest.raises(StreamingQueryException, match="planned failure"):
        failing.trigger(availableNow=True).start().awaitTermination(120)
    fill(young, "in", "f")
    young.create_topic("out", 2, {})

    rows = stream(spark, root, options={"maxOffsetsPerTrigger": "100"}).select("partition", "value")
    query = write_stream(rows, "out", root, checkpoint=checkpoint, available_now=True)

    assert query.awaitTermination(120)
    assert all_records(root, "out") == all_records(root, "in")
    assert [batch["numInputRows"] for batch in query.recentProgress if batch["numInputRows"]] == [5, 1]


def test_unread_records_that_retention_deleted_are_reported(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path
) -> None:
    """Delta's source would leave them out silently; the format goes on from its checkpoint."""
    drain(stream(spark, root, engine="delta"), tmp_path)
    fill(young, "in", "f", "g")
    young.move_log_start("in", {0: 4}, "retention", "r")

    with pytest.raises(StreamingQueryException, match=r"KAFKA_DATA_LOSS.*offsets \[3, 4\) are lost"):
        drain(stream(spark, root), tmp_path)
    assert drain(stream(spark, root, options={"failOnDataLoss": "false"}), tmp_path) == [(FORMAT, 1)]
    assert found(spark, tmp_path) == [*"abcdeg"]


def test_unread_files_that_were_merged_are_read_by_the_format(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path
) -> None:
    drain(stream(spark, root, engine="delta"), tmp_path)
    for value in "fghij":
        fill(young, "in", value)
    assert upkeep(root, "in").merged_segments > 0

    assert drain(stream(spark, root), tmp_path) == [(FORMAT, 5)]
    assert found(spark, tmp_path) == [*"abcdefghij"]


def test_forced_engine_with_a_checkpoint_of_the_other_is_refused(
    spark: SparkSession, root: str, young: Cluster, tmp_path: Path
) -> None:
    drain(stream(spark, root, engine="kafkalike"), tmp_path)

    with pytest.raises(CheckpointMismatchError, match=r"made by format\(\"kafkalike\"\).*without engine"):
        drain(stream(spark, root, engine="delta"), tmp_path)
