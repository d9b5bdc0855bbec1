"""Bare source: a number of rows in, a Python data source that hands out that many constant ones from memory.

What it takes is what Spark takes for any source in Python, however fast that reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from kafkalike.spark.format.input_partitions import FIELDS, schema_of

PARTITIONS = 4
BATCH_ROWS = 62_500
COLUMNS = tuple(name for name in FIELDS if name != "headers")


@cache
def constant_rows() -> pa.RecordBatch:
    """Rows of the size of the benchmarks' records."""
    one = {"key": b"k" * 16, "value": b"v" * 100, "topic": "bench", "timestampType": 0}
    number = range(BATCH_ROWS)
    columns = [
        pa.array(number if name in {"offset", "timestamp"} else [one.get(name, 1)] * BATCH_ROWS, FIELDS[name].type)
        for name in COLUMNS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([FIELDS[name] for name in COLUMNS]))


class Rows(InputPartition):
    """So many rows."""

    def __init__(self, count: int) -> None:
        super().__init__(None)
        self.count = count


def _read(partition: InputPartition) -> Iterator[Any]:
    assert isinstance(partition, Rows)
    for begin in range(0, partition.count, BATCH_ROWS):
        yield constant_rows().slice(0, min(BATCH_ROWS, partition.count - begin))


def _parts(rows: int) -> list[InputPartition]:
    return [Rows(rows // PARTITIONS) for _ in range(PARTITIONS)]


class BareBatch(DataSourceReader):
    """All rows in one batch."""

    def __init__(self, rows: int) -> None:
        self.rows = rows

    def partitions(self) -> list[InputPartition]:
        """As many as a benchmark's topic has."""
        return _parts(self.rows)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Constant rows."""
        return _read(partition)


class BareStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows in so many micro-batches."""

    def __init__(self, rows: int, batches: int) -> None:
        self.rows, self.batches = rows, batches

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """The first micro-batch."""
        return {"at": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """None: each micro-batch has the same size."""
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end is always the same."""

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: ARG002, N802
        """The next micro-batch, until there are enough."""
        return {"at": min(self.batches, start["at"] + 1)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """As many as a benchmark's topic has."""
        return _parts(self.rows // self.batches * (end["at"] - start["at"]))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Constant rows."""
        return _read(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do."""


class BareSource(DataSource):
    """The format `bare`, with options `rows` and `batches`."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "bare"

    def schema(self) -> StructType:
        """Columns of Spark's Kafka source."""
        return schema_of(COLUMNS)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """For a batch."""
        return BareBatch(int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """For a stream."""
        return BareStream(int(self.options["rows"]), int(self.options["batches"]))


def register_bare(spark: SparkSession) -> None:
    """Make the format known."""
    spark.dataSource.register(BareSource)
