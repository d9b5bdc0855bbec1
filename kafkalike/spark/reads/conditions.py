"""Conditions on the rows of a topic's table: those above the log start, and those within offsets.

The offsets stand in an array that is looked up by partition, so a condition is as small for thousands of
partitions as for one. With a comparison for each of 600 partitions, Spark's analyzer takes 8 seconds, and the code that
Spark makes is too long for Java.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkalike.connect import connect
from kafkalike.maintenance.verify.untouched_log import check_readable
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.spark.format.format import with_storage

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
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


SOUNDNESS: Final = "kafkalike_soundness"
"""Format of the one row that says that a topic's log is sound."""


def soundness(spark: SparkSession, cluster: Cluster, info: TopicInfo) -> Column | None:
    """Return the condition that no foreign writer has broken a topic's log; None for a topic that is closed to them.

    A topic's frame is Delta's, which reads whatever the table holds when the query runs. Consumers and the format check
    each version that they meet; this asks once in each query, which fails with the error of `check_readable`.
    """
    if cluster.server.is_closed(info.configs):
        return None
    spark.dataSource.register(with_storage(TopicSoundness, cluster.store.tasks.sent_options()))
    options = {"root": cluster.root, "topic": info.name}
    sound: Column = spark.read.format(SOUNDNESS).options(**options).load().scalar()
    return sound


class TopicSoundness(DataSource):
    """The format `kafkalike_soundness`: one row, `true`, or an error; options `root` and `topic`."""

    storage: ClassVar[SentOptions | None] = None
    """Who asks an object store; None leaves it to the environment."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return SOUNDNESS

    def schema(self) -> str:
        """Its one column."""
        return "sound BOOLEAN"

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ANN401, ARG002 - Spark's signature
        """A reader; Spark makes one for each query."""
        return _Reader(str(self.options.get("root")), str(self.options.get("topic")), self.storage)


class _Reader(DataSourceReader):
    def __init__(self, root: str, topic: str, storage: SentOptions | None) -> None:
        self._root = root
        self._topic = topic
        self._storage = storage

    def read(self, partition: InputPartition) -> Iterator[tuple[bool]]:  # noqa: ARG002 - there is one
        check_readable(connect(self._root, self._storage, access="spark").log(self._topic))
        yield (True,)
