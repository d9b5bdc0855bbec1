"""Numbering: records with their partition in, the same records with offsets out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

PARTITION: Final = "partition"
OFFSET: Final = "offset"

_TASK_ROW_BITS: Final = 33
"""`monotonically_increasing_id` counts the rows of a task in its lower 33 bits."""


def with_offsets(frame: DataFrame, log_end: Mapping[int, int], num_partitions: int) -> DataFrame:
    """Number the records of each partition from its log end on.

    `repartitionById` puts Kafka partition p into Spark partition p, where the row's number in its task is a dense
    index: no sort, no count beforehand.

    Args:
        frame: needs column `partition` INT, from 0 to `num_partitions` - 1, never null.
        log_end: next offset by partition; 0 for one that is not named.
        num_partitions: how many partitions the topic has.

    Returns:
        The frame with `offset` BIGINT added. Rows that arrive in another task than the one of their partition, which
        would get a wrong offset, make the job fail.
    """
    ends = F.array(*[F.lit(log_end.get(p, 0)).cast("bigint") for p in range(num_partitions)])
    index = F.monotonically_increasing_id().bitwiseAND(F.lit((1 << _TASK_ROW_BITS) - 1))
    wrong_task = F.raise_error(F.lit("a record reached another task than its partition's")).cast("bigint")
    offset = F.when(F.spark_partition_id() == F.col(PARTITION), F.get(ends, F.col(PARTITION)) + index)
    return frame.repartitionById(num_partitions, PARTITION).withColumn(OFFSET, offset.otherwise(wrong_task))


def at_or_above(log_end: Mapping[int, int]) -> Column:
    """Condition on `partition` and `offset`: records that a rival has written at or above these log ends.

    The partition is compared with literals only, so that Delta's conflict check works by partition.
    """
    conditions = [
        (F.col(PARTITION) == F.lit(p)) & (F.col(OFFSET) >= F.lit(end).cast("bigint"))
        for p, end in sorted(log_end.items())
    ]
    return any_of(conditions)


def any_of(conditions: Sequence[Column]) -> Column:
    """True where at least one condition is; false when there is none."""
    combined = F.lit(False)  # noqa: FBT003
    for condition in conditions:
        combined |= condition
    return combined
