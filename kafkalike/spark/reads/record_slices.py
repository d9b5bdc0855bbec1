"""Record slices: the runs of offsets that a job has acquired from a queue, their records, and verdicts on them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from heapq import nlargest
from itertools import pairwise
from operator import or_
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.consumer.share_delivery import scheduled_offsets
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.group.share_group import ShareGroup, gaps
from kafkalike.model.clock import Clock
from kafkalike.model.shares.share_partition import Acknowledgement, RecordRun, RecordVerdict
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.reads.conditions import within

if TYPE_CHECKING:
    from kafkalike.consumer.share_fetcher import Taken
    from kafkalike.log.topic.topic_log import TopicLog

FEW_RUNS: Final = 16
"""Up to this number, runs of offsets are comparisons. Above it, a table of offsets is joined, because Spark's analyzer
takes seconds for hundreds of comparisons."""

VERDICTS: Final = {kind.value: kind for kind in (RecordVerdict.ACCEPT, RecordVerdict.RELEASE, RecordVerdict.REJECT)}


class RecordSlice(NamedTuple):
    """A run of offsets that the job has acquired."""

    tp: TopicPartition
    run: RecordRun


def acquired_slices(
    group: ShareGroup, member_id: str, clock: Clock, taken: Taken, logs: dict[str, TopicLog]
) -> list[RecordSlice]:
    """Return the acquired runs without records that are not due, which are given back with their times.

    Raises:
        KafkaError: the logs cannot be read, or the records not be given back; the locks end by time.
    """
    now_ms = clock.now_ms()
    slices: list[RecordSlice] = []
    undue: dict[TopicPartition, list[Acknowledgement]] = {}
    for tp, runs in taken.items():
        for run in runs:
            later = [
                Acknowledgement(offset, offset, RecordVerdict.RETURN, run.deliveries, due)
                for offset, due in scheduled_offsets(logs[tp.topic], tp, run, now_ms)
            ]
            if later:
                undue.setdefault(tp, []).extend(later)
            kept = gaps(run.first, run.last, ((ack.first, ack.last) for ack in later))
            slices += [RecordSlice(tp, run._replace(first=first, last=last)) for first, last in kept]
    if undue:
        group.exchange(member_id, undue)
    return slices


def records_of(spark: SparkSession, frame: DataFrame, topic: str, slices: Sequence[RecordSlice]) -> DataFrame:
    """Return the records of a topic that the job has acquired, with `delivery_count`."""
    runs = sorted((tp.partition, run) for tp, run in slices if tp.topic == topic)
    frame = frame.where(_near(runs))
    if len(runs) <= FEW_RUNS:
        counts = [F.when(_within(p, run.first, run.last), F.lit(run.deliveries)) for p, run in runs]
        return frame.withColumn("delivery_count", F.coalesce(*counts, F.lit(0)))
    rows = [(partition, run.first, run.last, run.deliveries) for partition, run in runs]
    acquired = spark.createDataFrame(rows, "partition INT, first BIGINT, last BIGINT, delivery_count INT").select(
        "partition", F.explode(F.sequence("first", "last")).alias("offset"), "delivery_count"
    )
    return frame.join(F.broadcast(acquired), ["partition", "offset"]).select(*frame.columns, "delivery_count")


def _within(partition: int, first: int, last: int) -> Column:
    return (F.col("partition") == F.lit(partition)) & F.col("offset").between(first, last)


def _near(runs: Sequence[tuple[int, RecordRun]]) -> Column:
    """Return a condition of at most `FEW_RUNS` intervals that cover the runs, with the widest gaps left out."""
    hulls: dict[int, range] = {}
    for partition, run in runs:
        hulls[partition] = range(hulls.get(partition, range(run.first, 0)).start, run.last + 1)
    if len(hulls) > FEW_RUNS or not runs:
        return within(hulls)
    between = [
        (run.first - before.last, partition, run.first)
        for (partition, before), (other, run) in pairwise(runs)
        if partition == other
    ]
    cuts = {(partition, first) for _, partition, first in nlargest(FEW_RUNS - len(hulls), between)}
    intervals: list[tuple[int, int, int]] = []
    for partition, run in runs:
        if intervals and intervals[-1][0] == partition and (partition, run.first) not in cuts:
            intervals[-1] = partition, intervals[-1][1], run.last
        else:
            intervals.append((partition, run.first, run.last))
    return reduce(or_, [_within(*interval) for interval in intervals])


Verdicts = dict[TopicPartition, list[tuple[int, int, RecordVerdict]]]


def verdict_runs(verdicts: DataFrame, topics: set[str]) -> Verdicts:
    """Compute verdicts, as ranges of offsets.

    Raises:
        IllegalArgumentError: a column is missing, a verdict is unknown, or a record has two verdicts.
    """
    missing = {"partition", "offset", "verdict"} - set(verdicts.columns)
    if len(topics) > 1 and "topic" not in verdicts.columns:
        missing.add("topic")
    if missing:
        raise IllegalArgumentError(f"the verdicts have no column {', '.join(sorted(missing))}")
    topic = F.col("topic") if "topic" in verdicts.columns else F.lit(next(iter(topics), ""))
    verdict = F.lower(F.col("verdict"))
    rows = verdicts.select(
        topic.alias("topic"),
        F.col("partition").cast("int").alias("partition"),
        F.col("offset").cast("bigint").alias("offset"),
        verdict.alias("verdict"),
    ).distinct()
    place = Window.partitionBy("topic", "partition", "verdict").orderBy("offset")
    numbered = rows.withColumn("island", F.col("offset") - F.row_number().over(place))
    islands = numbered.groupBy("topic", "partition", "verdict", "island").agg(F.min("offset"), F.max("offset"))
    found: Verdicts = {}
    for name, partition, said, _, first, last in islands.collect():
        if said not in VERDICTS or None in {name, partition, first}:
            raise IllegalArgumentError(
                f"{name}-{partition} @ {first}: the verdict {said!r} is not one of {', '.join(VERDICTS)}, or a column "
                "is null; nothing was acknowledged"
            )
        found.setdefault(TopicPartition(name, partition), []).append((first, last, VERDICTS[said]))
    for tp, runs in found.items():
        runs.sort()
        for (_, last, one), (first, _, other) in pairwise(runs):
            if first <= last:
                raise IllegalArgumentError(
                    f"{tp.topic}-{tp.partition} @ {first} has two verdicts, {one} and {other}; nothing was acknowledged"
                )
    return found
