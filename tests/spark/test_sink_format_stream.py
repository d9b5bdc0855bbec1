"""df.writeStream.format("kafkalike"): each record once, whatever happens to the query and its checkpoint."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from tests.tools.lines import Lines
from tests.tools.records import all_records, make_topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)


def start(frame: DataFrame, root: str, mode: str = "append", **given: str) -> StreamingQuery:
    """A query that writes to topic `t` what is there, and ends."""
    options = {"kafka.bootstrap.servers": root, "topic": "t", **given}
    return frame.writeStream.format("kafkalike").outputMode(mode).options(**options).trigger(availableNow=True).start()


def drain(frame: DataFrame, root: str, mode: str = "append", **given: str) -> None:
    assert start(frame, root, mode, **given).awaitTermination(120)


def values(root: str, topic: str = "t") -> list[str]:
    return [value for _, value in all_records(root, topic)[0]]


def test_each_batch_is_one_commit_and_a_restart_goes_on(lines: Lines, root: str, checkpoint: str) -> None:
    """Order within a batch too; nothing that was staged is left."""
    log = make_topic(root, partitions=1)
    before = log.version
    lines.add("a", "b")
    lines.add("c")
    drain(lines.frame(), root, checkpointLocation=checkpoint)
    lines.add("d")

    drain(lines.frame(), root, checkpointLocation="file:" + checkpoint)

    log.refresh()
    assert values(root) == ["a", "b", "c", "d"]
    assert log.version == before + 3
    assert list(Path(root, "__staging").iterdir()) == []


def test_a_batch_that_spark_runs_again_adds_nothing(lines: Lines, root: str, checkpoint: str) -> None:
    """Spark has lost its note that the batch is done; the rest of the stream follows it."""
    lines.add("a")
    lines.add("b", "c")
    drain(lines.frame(), root, checkpointLocation=checkpoint)
    for name in ("1", ".1.crc"):
        Path(checkpoint, "commits", name).unlink()
    lines.add("d")

    drain(lines.frame(), root, checkpointLocation=checkpoint)

    assert values(root) == ["a", "b", "c", "d"]


def test_the_column_names_the_topic_of_each_row(lines: Lines, root: str, checkpoint: str) -> None:
    """A batch was decided for all of its topics: one of them that was created again since does not get it again."""
    for topic in ("x", "y"):
        make_topic(root, partitions=1, topic=topic)
    lines.add("x1", "y1", "x2")
    frame = lines.frame().withColumn("topic", F.substring("value", 1, 1))
    query = frame.writeStream.format("kafkalike").option("kafka.bootstrap.servers", root)
    query = query.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    shutil.rmtree(Path(checkpoint, "commits"))
    connect(root).delete_topic("y")
    make_topic(root, partitions=1, topic="y")

    assert query.start().awaitTermination(120)

    assert (values(root, "x"), values(root, "y")) == (["x1", "x2"], [])


def test_a_new_checkpoint_under_a_used_id_is_an_error(lines: Lines, root: str, checkpoint: str) -> None:
    """A name of one's own is that of one stream; see decision 012."""
    lines.add("a")
    drain(lines.frame(), root, checkpointLocation=checkpoint, txnAppId="copy")

    with pytest.raises(
        StreamingQueryException, match=r"CheckpointMismatchError.*another checkpoint has written batch 0"
    ):
        drain(lines.frame(), root, checkpointLocation=checkpoint + "-new", txnAppId="copy")
    drain(lines.frame(), root, checkpointLocation=checkpoint + "-new", txnAppId="copy-2")

    assert values(root) == ["a", "a"]


def test_a_checkpoint_that_is_only_the_sessions_default_is_refused(
    spark: SparkSession, lines: Lines, root: str, tmp_path: Path
) -> None:
    """The sink is not told of it."""
    lines.add("a")
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "default"))
    try:
        with pytest.raises(StreamingQueryException, match=r"checkpointLocation must be given.*write_stream"):
            drain(lines.frame(), root)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")

    assert not Path(root, "t").exists()


def test_complete_mode_adds_each_result_again(lines: Lines, root: str, checkpoint: str) -> None:
    """As Spark's Kafka sink does: nothing is taken back."""
    make_topic(root, partitions=1)
    lines.add("a", "b")
    lines.add("c")
    counts = lines.frame().groupBy().count().select(F.col("count").cast("string").alias("value"))

    drain(counts, root, "complete", checkpointLocation=checkpoint)

    assert values(root) == ["2", "3"]


def test_a_record_that_is_refused_fails_the_query_and_the_batch(lines: Lines, root: str, checkpoint: str) -> None:
    """The next start tries it again; nothing is left behind."""
    make_topic(root, partitions=1)
    lines.add("a", "bad")
    partition = F.when(F.col("value") == "bad", 9).otherwise(0).alias("partition")

    with pytest.raises(StreamingQueryException, match="UnknownTopicOrPartitionError: t: partition 9"):
        drain(lines.frame().select("value", partition), root, checkpointLocation=checkpoint)
    assert values(root) == []
    assert list(Path(root, "__staging").iterdir()) == []
    drain(lines.frame(), root, checkpointLocation=checkpoint)

    assert values(root) == ["a", "bad"]


def test_update_mode_is_refused_by_spark(lines: Lines, root: str, checkpoint: str) -> None:
    """Sinks in Python cannot say that they take it; `write_stream` does."""
    lines.add("a")
    counts = lines.frame().groupBy("value").count().select("value")

    with pytest.raises(PySparkException, match="does not support Update mode"):
        drain(counts, root, "update", checkpointLocation=checkpoint)

    assert not Path(root, "t").exists()
