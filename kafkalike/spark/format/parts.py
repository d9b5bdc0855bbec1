"""Parts: runs of offsets in, Spark's input partitions out, and their records as Arrow batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafkalike.spark.expr.sink import HEADERS
from kafkalike.spark.format.options import SourceOptions
from kafkalike.spark.format.plan import Run, grouped, split, tasks_for
from kafkalike.spark.format.topics import Topics
from kafkalike.spark.range_reader import FIELDS, RangePlan, plan_range, read_range

TYPES: Final[Mapping[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS,
}
"""Columns of Spark's Kafka source, in its order. Not as text, in which a session may take TIMESTAMP for one without
a zone."""


def columns_of(options: SourceOptions) -> tuple[str, ...]:
    """Names of the columns: `headers` only with `includeHeaders`."""
    return tuple(name for name in FIELDS if name != "headers" or options.include_headers)


def schema_of(columns: Iterable[str]) -> StructType:
    """The schema of some columns."""
    return StructType([StructField(name, TYPES[name]) for name in columns])


class Part(InputPartition):
    """Runs of offsets for one task, which reads them one after another."""

    def __init__(self, plans: Sequence[RangePlan], columns: Sequence[str], *, fail_on_data_loss: bool) -> None:
        super().__init__(None)
        self.plans = tuple(plans)
        self.columns = tuple(columns)
        self.fail_on_data_loss = fail_on_data_loss


def parts(topics: Topics, options: SourceOptions, runs: Iterable[Run], *, scale: int = 1) -> list[InputPartition]:
    """Return input partitions: each has a run, a piece of one (`minPartitions`, `maxRecordsPerPartition`), or several.

    Small runs share a task where the options say nothing about the number of tasks.

    Args:
        topics: whose logs are fresh.
        options: of the query.
        runs: what is to be read.
        scale: see `tasks_for`.
    """
    root, columns = topics.cluster.store, columns_of(options)
    pieces = split(sorted(runs, key=lambda run: run.tp), options.min_partitions, options.max_records_per_partition)
    most = options.max_partitions
    if most is None and not options.given & {"minPartitions", "maxRecordsPerPartition"}:
        most = tasks_for(sum(map(len, pieces)), sum(_bytes(topics, piece) for piece in pieces), scale=scale)
    return [
        Part(
            [plan_range(topics.log(piece.tp.topic), root, piece.tp.partition, piece.offsets) for piece in task],
            columns,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for task in grouped(pieces, most)
    ]


def _bytes(topics: Topics, run: Run) -> float:
    """About how many bytes of files a run is."""
    found = topics.log(run.tp.topic).segments_within(run.tp.partition, run.offsets)
    shares = ((s, min(s.stop, run.offsets.stop) - max(s.start, run.offsets.start)) for s in found)
    return sum(s.size_bytes * share / max(1, s.stop - s.start) for s, share in shares)


def read_part(partition: InputPartition) -> Iterator[Any]:
    """The records of an input partition, in the offset order of each Kafka partition."""
    if not isinstance(partition, Part):
        # Spark's own, where a batch has none.
        return
    for plan in partition.plans:
        yield from read_range(plan, partition.columns, fail_on_data_loss=partition.fail_on_data_loss)
