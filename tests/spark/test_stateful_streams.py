"""Queries with state: what a crash leaves between a batch's write and Spark's note of it, and what they go on with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.spark import QueryOptions, StreamWriter, write_stream
from tests.tools.findings import errors_of
from tests.tools.records import all_records, make_topic

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from tests.tools.lines import Lines

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

Start = Callable[[DataFrame, str, str], "StreamingQuery"]


def by_function(rows: DataFrame, root: str, checkpoint: str) -> StreamingQuery:
    return write_stream(
        rows, "out", root, checkpoint=checkpoint, query_options=QueryOptions(output_mode="update"), available_now=True
    )


def by_the_users_function(rows: DataFrame, root: str, checkpoint: str) -> StreamingQuery:
    """A function of one's own, in which the writer is one of several things."""
    writer = StreamWriter("out", root, checkpoint=checkpoint)

    def work(frame: DataFrame, batch_id: int) -> None:
        writer.write(frame.select("value"), batch_id)

    stream = rows.writeStream.outputMode("update").option("checkpointLocation", checkpoint)
    return stream.trigger(availableNow=True).foreachBatch(work).start()


def to_several_topics(rows: DataFrame, root: str, checkpoint: str) -> StreamingQuery:
    """Each batch is a transaction."""
    named = rows.withColumn("topic", F.when(F.col("value").startswith("a"), "out").otherwise("other"))
    return write_stream(
        named, None, root, checkpoint=checkpoint, query_options=QueryOptions(output_mode="update"), available_now=True
    )


def by_format(rows: DataFrame, root: str, checkpoint: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": root, "topic": "out", "checkpointLocation": checkpoint}
    stream = rows.writeStream.format("kafkalike").options(**options).outputMode("complete")
    return stream.trigger(availableNow=True).start()


STARTS = {
    "write_stream": by_function,
    "foreach-batch": by_the_users_function,
    "several-topics": to_several_topics,
    "format": by_format,
}


def counted(lines: Lines) -> DataFrame:
    """How often each line came so far."""
    counts = lines.frame().groupBy("value").count()
    return counts.select(F.concat_ws(":", "value", F.col("count")).alias("value"))


def run(start: Start, lines: Lines, root: str, checkpoint: str) -> None:
    query = start(counted(lines), root, checkpoint)
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()


def values(root: str, *topics: str) -> list[str]:
    return sorted(value for topic in topics for rows in all_records(root, topic).values() for _, value in rows)


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_a_stateful_query_that_died_before_the_commit_note_goes_on(
    lines: Lines, root: str, checkpoint: str, start: Start
) -> None:
    """The batch is in the topic and Spark does not know it: its state is made again, and its records are not."""
    for topic in ("out", "other"):
        make_topic(root, topic=topic, partitions=1)
    lines.add("a", "b", "a")
    run(start, lines, root, checkpoint)
    lines.add("b", "c", "ab")
    run(start, lines, root, checkpoint)
    for note in Path(checkpoint, "commits").glob("*1*"):
        note.unlink()

    lines.add("a", "c", "c")
    run(start, lines, root, checkpoint)

    changed = ["a:2", "a:3", "ab:1", "b:1", "b:2", "c:1", "c:3"]
    # In complete mode each batch has all counts.
    unchanged = ["a:2", "ab:1", "b:2"] if start is by_format else []
    assert values(root, "out", "other") == sorted(changed + unchanged)
    assert errors_of(root) == []


@pytest.mark.parametrize("start", [by_function, by_format], ids=["write_stream", "format"])
def test_a_stateful_query_killed_while_it_wrote_its_first_offsets_starts(
    lines: Lines, root: str, checkpoint: str, start: Start
) -> None:
    """Spark writes a temporary file and renames it: a kill leaves it behind, beside nothing else of the query."""
    make_topic(root, topic="out", partitions=1)
    offsets = Path(checkpoint, "offsets")
    offsets.mkdir(parents=True)
    (offsets / ".0.9b2e7f0c-1d57-4a52-9c3c-6d4f6f1c2a11.tmp").touch()

    lines.add("a")
    run(start, lines, root, checkpoint)

    assert values(root, "out") == ["a:1"]
