"""The first line of an exception that a notebook shows is kafkalike's, and neither frames nor Java follow it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    PythonException,
    StreamingQueryException,
)
from pyspark.sql.functions import udf

import kafkalike.spark as ks
from tests.tools.clusters import on_disk
from tests.tools.records import fill

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.tools.lines import Lines

TOO_LARGE = "MessageSizeTooLargeError: t: a record has 570 bytes; max.message.bytes=200"
LARGE = "x" * 500


@pytest.fixture
def topics(root: str) -> None:
    """The topic `t` takes small records; the data file of `lost` is missing."""
    cluster = on_disk(root)
    cluster.create_topic("t", 1, {"max.message.bytes": "200"})
    cluster.create_topic("lost", 1, {})
    fill(cluster, "lost", "a")
    for file in Path(root, "lost").rglob("*.parquet"):
        file.unlink()


def read(spark: SparkSession, root: str, topic: str) -> None:
    spark.read.format("kafkalike").options(**{"kafka.bootstrap.servers": root, "subscribe": topic}).load().collect()


def stream(spark: SparkSession, root: str, checkpoint: str) -> None:
    options = {"kafka.bootstrap.servers": root, "subscribe": "nope"}
    frame = spark.readStream.format("kafkalike").options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start().awaitTermination()


def write(spark: SparkSession, root: str) -> None:
    frame = spark.createDataFrame([(LARGE,)], "value STRING")
    frame.write.format("kafkalike").options(**{"kafka.bootstrap.servers": root, "topic": "t"}).mode("append").save()


def text_of(call: Callable[[], object], kind: type[PySparkException]) -> list[str]:
    with pytest.raises(kind) as raised:
        call()
    return str(raised.value).splitlines()


@pytest.mark.usefixtures("topics")
def test_error_of_the_format_is_the_first_line(spark: SparkSession, root: str, checkpoint: str) -> None:
    """A missing topic in a batch and in a stream, a lost file, a record that is too large, a wrong column."""
    missing = text_of(lambda: read(spark, root, "nope"), AnalysisException)
    in_stream = text_of(lambda: stream(spark, root, checkpoint), StreamingQueryException)
    lost = text_of(lambda: read(spark, root, "lost"), IllegalArgumentException)
    large = text_of(lambda: write(spark, root), AnalysisException)

    told = f"UnknownTopicOrPartitionError: nope: no such topic or partition in {root}"
    assert missing == [told, "Spark: [PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions"]
    assert in_stream[0] == told
    assert in_stream[1].startswith("Spark: [STREAM_FAILED] Query [id = ")
    assert lost[0].startswith("DataLossError: KAFKA_DATA_LOSS.COULD_NOT_READ_OFFSET_RANGE: lost-0: offsets [0, 1) are")
    assert lost[1:] == ["Spark: The batch cannot be planned"]
    assert large[0] == TOO_LARGE
    assert max(map(len, (missing, in_stream, lost, large))) == 2


@pytest.mark.usefixtures("topics")
def test_error_of_a_batch_of_write_stream_is_the_first_line(
    spark: SparkSession, root: str, checkpoint: str, lines: Lines
) -> None:
    """Awaited, and asked for afterwards."""
    lines.add(LARGE)
    query = ks.write_stream(lines.frame(), "t", root, checkpoint=checkpoint, available_now=True)

    shown = text_of(query.awaitTermination, StreamingQueryException)

    assert shown[0] == TOO_LARGE
    assert shown[1].startswith("Spark: [STREAM_FAILED] Query [id = ")
    assert len(shown) == 2
    assert str(query.exception()).splitlines()[0] == TOO_LARGE


def test_error_of_the_users_own_function_keeps_its_frames(spark: SparkSession, root: str) -> None:
    def broken(_: int) -> str:
        raise ValueError("a mistake of the query's own")

    frame = spark.range(1).select(udf(broken, "string", useArrow=False)("id").alias("value"))

    shown = text_of(lambda: ks.write(frame, "t", root), PythonException)

    assert "Traceback (most recent call last):" in shown
    assert shown[-1] == "ValueError: a mistake of the query's own"
