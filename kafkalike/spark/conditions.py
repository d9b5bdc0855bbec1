"""Conditions: offsets by partition in, one condition on the rows of a topic's table out.

The offsets stand in an array that is looked up by partition, so a condition is as small for thousands of
partitions as for one. With a comparison for each of 600 partitions, Spark's analyzer takes 8 seconds, and the code that
Spark makes is too long for Java.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from kafkalike.model.topic import TopicInfo

MOST_SINGLE: Final = 16
"""Partitions that get a comparison each. Delta prunes their files one by one; of more, by the bounds of all."""


def readable(info: TopicInfo) -> Column | None:
    """Return the condition to be at or above the log start; None where no partition has one."""
    starts = _log_starts(info)
    if not starts:
        return None
    partition, offset = F.col("partition"), F.col("offset")
    return (offset >= F.lit(_least(info))) & (offset >= F.coalesce(F.get(_array(starts), partition), F.lit(0)))


def readable_sql(info: TopicInfo) -> str:
    """Return the same condition as SQL.

    It is never empty: Delta deletes through a view that only selects columns, but not through one with a condition.
    """
    starts, least = _log_starts(info), f"offset >= {_least(info)}"
    if not starts:
        return least
    return f"{least} AND offset >= coalesce(get(CAST(split('{_text(starts)}', ',') AS ARRAY<BIGINT>), partition), 0L)"


def within(ranges: Mapping[int, range]) -> Column:
    """Return the condition to be in the range of one's partition.

    Args:
        ranges: offsets by partition, half-open; nothing is read of the others.
    """
    full = {partition: run for partition, run in sorted(ranges.items()) if run}
    partition, offset = F.col("partition"), F.col("offset")
    if len(full) <= MOST_SINGLE:
        runs = [
            (partition == F.lit(p)) & (offset >= F.lit(run.start)) & (offset < F.lit(run.stop))
            for p, run in full.items()
        ]
        return reduce(or_, runs) if runs else F.lit(False)  # noqa: FBT003 - a Column
    starts = {p: run.start for p, run in full.items()}
    stops = {p: run.stop for p, run in full.items()}
    # Spark cannot look into the arrays, and leaves out files by these.
    bounds = (offset >= F.lit(min(starts.values()))) & (offset < F.lit(max(stops.values())))
    mine = (offset >= F.get(_array(starts), partition)) & (offset < F.get(_array(stops), partition))
    return bounds & mine


def _log_starts(info: TopicInfo) -> dict[int, int]:
    return {partition: start.offset for partition, start in info.log_starts.items() if start.offset}


def _least(info: TopicInfo) -> int:
    """The lowest log start: Spark cannot look into the array, and leaves out files by this one."""
    return min(map(info.log_start, info.partitions))


def _array(offsets: Mapping[int, int]) -> Column:
    """Offsets by partition as an array: one literal, however many there are, which Spark computes once."""
    return F.split(F.lit(_text(offsets)), ",").cast("array<bigint>")


def _text(offsets: Mapping[int, int]) -> str:
    return ",".join(str(offsets.get(partition, 0)) for partition in range(max(offsets) + 1))
