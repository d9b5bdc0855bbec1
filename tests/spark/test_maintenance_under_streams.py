"""Streams over a topic that is merged, cut and vacuumed under them: each record once, as if nothing happened."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamReader

from kafkalike.model.clock import SYSTEM_CLOCK
from tests.tools.findings import errors_of
from tests.tools.records import batch
from tests.tools.upkeep import AT_ONCE, HOUR_MS, topic, upkeep

NOW = SYSTEM_CLOCK.now_ms()
ROUNDS, SIZE = 4, 5


@pytest.fixture(autouse=True)
def no_query_is_left(spark: SparkSession) -> Iterator[None]:
    """However a test ends."""
    yield
    for query in spark.streams.active:
        query.stop()


class Seen:
    """What a stream has given, batch after batch."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        del batch_id
        self.offsets += [row[0] for row in frame.select("offset").collect()]


def started(reader: DataStreamReader, checkpoint: Path, seen: Seen, **where: str) -> StreamingQuery:
    stream = reader.load(**where).writeStream.foreachBatch(seen)
    return stream.option("checkpointLocation", str(checkpoint)).trigger(processingTime="200 milliseconds").start()


def test_a_stream_reads_on_while_what_it_reads_is_merged_cut_and_vacuumed(
    root: str, spark: SparkSession, tmp_path: Path
) -> None:
    """Our source at the tail, and one that comes later, to files that did not exist when the first one read them."""
    log = topic(root, "t", 1, {**AT_ONCE, "retention.ms": str(HOUR_MS)})
    source = spark.readStream.format("kafkalike").option("kafka.bootstrap.servers", root).option("subscribe", "t")
    seen, later = Seen(), Seen()
    for number in range(SIZE):
        log.append(batch((0, f"old-{number}"), at_ms=NOW - 2 * HOUR_MS))
    query = started(source.option("startingOffsets", "earliest"), tmp_path / "tail", seen)
    query.processAllAvailable()

    for round_ in range(ROUNDS):
        for number in range(SIZE):
            log.append(batch((0, f"v-{round_}-{number}"), at_ms=NOW))
        done = upkeep(root)
        query.processAllAvailable()
        assert done.merged_segments > 0
    second = started(source.option("startingOffsets", "earliest"), tmp_path / "later", later)
    second.processAllAvailable()

    assert seen.offsets == list(range((ROUNDS + 1) * SIZE))
    assert later.offsets == list(range(SIZE, (ROUNDS + 1) * SIZE))
    assert errors_of(root) == []


def test_a_native_delta_stream_sees_no_change_in_a_merge(root: str, spark: SparkSession, tmp_path: Path) -> None:
    """Files that were replaced stay on the disk for a day, so that one that lags finds them."""
    settings = {"retention.ms": "-1", "kafkalike.merge.min.age.ms": "0"}
    log = topic(root, "t", 1, settings)
    log.append(batch((0, "first"), at_ms=NOW))
    seen = Seen()
    query = started(spark.readStream.format("delta"), tmp_path / "native", seen, path=log.files.uri)
    query.processAllAvailable()

    for number in range(SIZE):
        log.append(batch((0, f"v{number}"), at_ms=NOW))
    assert upkeep(root).merged_segments == SIZE + 1
    query.processAllAvailable()

    assert sorted(seen.offsets) == list(range(SIZE + 1))
