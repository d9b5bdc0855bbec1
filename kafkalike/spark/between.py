"""Between: where a batch over tables begins and ends, as the format's options say it, in; conditions on offsets out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.model.structs import TopicPartition
from kafkalike.spark.format.batch import batch_runs
from kafkalike.spark.format.options import parse_options
from kafkalike.spark.format.topics import Topics

if TYPE_CHECKING:
    from kafkalike.config.storage import SentOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """What a user has said."""

    starting_offsets: str | None
    ending_offsets: str | None
    group_id: str | None
    auto_offset_reset: str | None

    def __bool__(self) -> bool:
        """Whether anything was said."""
        return any((self.starting_offsets, self.ending_offsets, self.group_id, self.auto_offset_reset))

    def ranges(self, root: str, storage: SentOptions | None, names: list[str]) -> dict[TopicPartition, range]:
        """Offsets of each partition, as of now.

        Raises:
            IllegalArgumentError, UnknownTopicOrPartitionError, NoOffsetForPartitionError, DataLossError: as with
                format `kafkalike`.
        """
        said = {
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
            "group_id": self.group_id,
            "kafka.auto.offset.reset": self.auto_offset_reset,
        }
        given = {name: value for name, value in said.items() if value is not None}
        options = parse_options({"kafka.bootstrap.servers": root, "subscribe": ",".join(names)} | given, storage)
        return {run.tp: run.offsets for run in batch_runs(Topics(options), options)}


def within(ranges: Mapping[TopicPartition, range], topic: str) -> Column:
    """The condition on a row of a topic's table to be in its partition's range."""
    mine = {tp.partition: run for tp, run in sorted(ranges.items()) if tp.topic == topic and run}
    conditions = [
        (F.col("partition") == F.lit(partition)) & F.col("offset").between(F.lit(run.start), F.lit(run.stop - 1))
        for partition, run in mine.items()
    ]
    return reduce(Column.__or__, conditions, F.lit(False))  # noqa: FBT003 - a Column
