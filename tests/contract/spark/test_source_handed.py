"""Small micro-batches that the planner hands over: the calls of Spark's runner in, what it sends to the JVM out."""

from __future__ import annotations

import json
import pickle
import struct
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.serializers import SpecialLengths
from pyspark.sql.streaming import python_streaming_source_runner as runner

from kafkalike.connect import connect
from kafkalike.errors import DataLossError
from kafkalike.spark.format import input_partitions as handed
from kafkalike.spark.format.format import KafkalikeSource
from kafkalike.spark.format.input_partitions import FIELDS
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.format.stream_reader import HandingReader
from tests.tools.effort import examples
from tests.tools.interrupts import sweep
from tests.tools.records import fill

NOT_HANDED, HANDED = runner.PREFETCHED_RECORDS_NOT_FOUND, runner.NON_EMPTY_PYARROW_RECORD_BATCHES


class Asked:
    """What Spark's runner sends when it asks a reader for the input partitions of its next batch."""

    def __init__(self, reader: HandingReader, start: Any = None) -> None:
        self.start = reader.initialOffset() if start is None else start
        self.end = reader.latestOffset(self.start, reader.getDefaultReadLimit())
        sent, got = BytesIO(), BytesIO()
        for offsets in (self.start, self.end):
            text = json.dumps(offsets).encode()
            sent.write(struct.pack(">i", len(text)) + text)
        sent.seek(0)
        source = KafkalikeSource({})
        schema: Any = pa_schema_of_spark()
        runner.partitions_func(reader, source, schema, 10_000, sent, got)
        got.seek(0)
        self.parts = [pickle.loads(_text(got)) for _ in range(_int(got))]  # noqa: S301 - as Spark does it
        self.said = _int(got)
        self.rows: list[dict[str, Any]] = []
        if self.said == HANDED:
            assert _int(got) == SpecialLengths.START_ARROW_STREAM
            self.rows = pa.ipc.open_stream(got).read_all().to_pylist()


def pa_schema_of_spark() -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(pa.schema([field for name, field in FIELDS.items() if name != "headers"]))


def _int(stream: BytesIO) -> int:
    found: int = struct.unpack(">i", stream.read(4))[0]
    return found


def _text(stream: BytesIO) -> bytes:
    return stream.read(_int(stream))


def reader(root: str, **given: str) -> HandingReader:
    options = {"kafka.bootstrap.servers": root, "subscribe": "t", "startingOffsets": "earliest"} | given
    return HandingReader(parse_options(options))


def offsets_of(rows: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(row["partition"], row["offset"]) for row in rows]


def filled(root: str) -> str:
    cluster: Any = connect(root)
    cluster.create_topic("t", 2, {})
    fill(cluster, "t", "a", "b", "c")
    fill(cluster, "t", "d", "e", partition=1)
    return root


@pytest.fixture
def root(root: str) -> str:
    return filled(root)


def test_a_small_batch_is_handed_over_with_the_partition_that_a_task_could_read(any_root: str) -> None:
    """From a disk and from object stores."""
    mine = reader(filled(any_root))

    asked = Asked(mine)

    assert asked.said == HANDED
    assert offsets_of(asked.rows) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    # Where the block is lost, a task reads the same.
    assert [row for batch in mine.read(asked.parts[0]) for row in batch.to_pylist()] == asked.rows


def test_the_query_goes_on_as_if_a_task_had_read(root: str) -> None:
    """Batch after batch, with the log ends told, and nothing of a batch handed over twice."""
    mine = reader(root, maxOffsetsPerTrigger="2")
    first = Asked(mine)
    told = BytesIO()
    runner.report_latest_offset_func(mine, told)
    mine.commit(first.end)

    second = Asked(mine, first.end)

    assert b'"0": 3' in told.getvalue()
    assert not set(offsets_of(first.rows)) & set(offsets_of(second.rows))
    assert second.said == HANDED


def test_the_same_batch_is_handed_over_again(root: str) -> None:
    """Spark plans one again after a restart."""
    asked = Asked(reader(root))

    again = Asked(reader(root), asked.start)

    assert again.rows == asked.rows


def test_an_empty_batch_has_no_partition_and_nothing_is_handed_over(root: str) -> None:
    mine = reader(root, startingOffsets="latest")

    asked = Asked(mine)

    assert (asked.parts, asked.said) == ([], NOT_HANDED)


def test_a_batch_for_several_tasks_is_left_to_them(root: str) -> None:
    asked = Asked(reader(root, minPartitions="2"))

    assert (len(asked.parts), asked.said) == (2, NOT_HANDED)


@pytest.mark.parametrize(("name", "most"), [("MOST_OFFSETS", 4), ("MOST_BYTES", 10)])
def test_a_large_batch_is_left_to_a_task(root: str, monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    monkeypatch.setattr(handed, name, most)

    asked = Asked(reader(root))

    assert (len(asked.parts), asked.said) == (1, NOT_HANDED)


def test_what_cannot_be_read_is_left_to_a_task_that_tells_it(root: str) -> None:
    for file in Path(root).glob("t*/partition=0/*.parquet"):
        file.unlink()
    mine = reader(root)

    asked = Asked(mine)

    assert asked.said == NOT_HANDED
    with pytest.raises(DataLossError, match="t-0"):
        list(mine.read(asked.parts[0]))


def test_records_that_are_gone_are_skipped_where_that_is_allowed(root: str) -> None:
    for file in Path(root).glob("t*/partition=0/*.parquet"):
        file.unlink()

    asked = Asked(reader(root, failOnDataLoss="false"))

    assert offsets_of(asked.rows) == [(1, 0), (1, 1)]


class Planning:
    """A planner that plans one batch and hands it over; see `tests.tools.interrupts.Case`."""

    def __init__(self, root: str) -> None:
        self.mine = reader(root, maxOffsetsPerTrigger="3")
        self.start = self.mine.initialOffset()

    def operate(self) -> None:
        end = self.mine.latestOffset(self.start, self.mine.getDefaultReadLimit())
        self.mine.partitions(self.start, end)
        list(self.mine.getCache(self.start, end))

    def judge(self) -> list[str]:
        """The batch and those after it are handed over whole, and the end is where nothing is new."""
        seen, start = list[tuple[int, int]](), self.start
        while (asked := Asked(self.mine, start)).end != start:
            if asked.said != HANDED:
                return [f"{asked.start} to {asked.end} was not handed over"]
            seen += offsets_of(asked.rows)
            start = asked.end
        return [] if sorted(seen) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)] else [f"handed over: {seen}"]

    def close(self) -> None:
        self.mine.stop()


@pytest.mark.slow
def test_a_planner_that_is_interrupted_hands_each_record_over_once(root: str) -> None:
    found = sweep(lambda: Planning(root), most=examples(200, 20))

    assert not found.wrong, str(found)
    assert found.raised > 0
