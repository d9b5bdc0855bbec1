"""`read_queue`: acquire a slice of a share group's records, and make a DataFrame of it."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from operator import or_
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import connect
from kafkalike.consumer.call_checks import check_max, check_timeout
from kafkalike.consumer.record_builders import record_builder
from kafkalike.consumer.share_delivery import HeldRecords
from kafkalike.consumer.slice_fetcher import RecordSlice, SliceFetcher
from kafkalike.errors import IllegalArgumentError, KafkaConfigurationError
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Deadline
from kafkalike.model.concurrency import OnError
from kafkalike.model.config.consumer_config import ShareConsumerConfig
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.shares.share_partition import RecordRun
from kafkalike.spark.queue_batch import QueueBatch
from kafkalike.spark.reads.conditions import within
from kafkalike.spark.reads.frames import log_of, read

SETTINGS: Final = frozenset(
    {
        "client_id",
        "default_api_timeout_ms",
        "errors_deadletterqueue_topic_name",
        "heartbeat_interval_ms",
        "request_timeout_ms",
        "session_timeout_ms",
        "share_auto_offset_reset",
        "share_delivery_count_limit",
        "share_partition_max_record_locks",
        "share_record_lock_duration_ms",
    }
)
"""Settings of a share consumer that a job can have."""

UNLIMITED: Final = 2**31 - 1
"""A job may lock any number of records of a partition, and take any time between two polls."""


FEW_RUNS: Final = 16
"""Up to this number, runs of offsets are comparisons. Above it, a table of offsets is joined, because Spark's analyzer
takes seconds for hundreds of comparisons."""


def read_queue(
    spark: SparkSession,
    topic: str | Iterable[str],
    bootstrap_servers: Address | None = None,
    *,
    group_id: str,
    max_records: int = 10_000,
    timeout_ms: float = 0,
    include_headers: bool = True,
    storage_options: StorageOptionsLike | None = None,
    **settings: Any,  # noqa: ANN401 - as the settings of a consumer
) -> QueueBatch:
    """Take records from topics as from a work queue, to process them with Spark.

    The job is a member of a share group: no other member gets its records while it runs. If it fails or dies, they are
    delivered again. Results, dead letters and acknowledgements can be one transaction, which is committed only if the
    job still holds all records; see `kafkalike.spark.transaction`.

    Args:
        spark: a session with Delta.
        topic: a name, or names.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        group_id: the share group.
        max_records: most records to take.
        timeout_ms: ms to wait for the first record; 0 looks once, infinity waits without end.
        include_headers: whether the frame has the column `headers`.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.
        **settings: settings of a share consumer: `client_id`, `share_auto_offset_reset` (`latest` by default),
            `share_record_lock_duration_ms`, `share_delivery_count_limit`, `share_partition_max_record_locks` (no limit
            by default), `errors_deadletterqueue_topic_name`, `session_timeout_ms`, `heartbeat_interval_ms`,
            `default_api_timeout_ms`, `request_timeout_ms`.

    Returns:
        The batch; use it in a `with` statement.

    Raises:
        KafkaConfigurationError: an unknown setting, a bad value, or a session without Delta.
        InvalidTopicError, UnknownTopicOrPartitionError: the topic does not exist.
        InconsistentGroupProtocolError, GroupIdNotFoundError: it is a consumer group.
        UnsafeStorageError: the root is read-only, or its storage cannot coordinate several writers.
        KafkaError: see `kafkalike.spark.read` and `KafkaShareConsumer.poll`.

    Example:
        ```python
        with (
            ks.read_queue(spark, "jobs", "./data", group_id="workers", share_auto_offset_reset="earliest") as batch,
            ks.transaction("worker", "./data") as t,
        ):
            t.write(batch.frame.select("key", F.upper(F.col("value").cast("string")).alias("value")), "results")
            t.acknowledge(batch)
        ```
    """
    most, timeout = check_max(max_records), check_timeout(timeout_ms)
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names:
        raise IllegalArgumentError("at least one topic is needed")
    config = _config(group_id, settings)
    clock = SYSTEM_CLOCK
    cluster = connect(bootstrap_servers, storage_options, access="spark_write")
    for name in names:
        log_of(cluster, name)
    fetcher = SliceFetcher(
        cluster,
        config,
        member_id=f"{config.client_id}-{uuid.uuid4()}",
        held=HeldRecords(),
        build=record_builder(None, None),
        clock=clock,
    )
    fetcher.topics = tuple(sorted(set(names)))
    with OnError(partial(fetcher.end, config.request_timeout_ms)):
        deadline = Deadline(clock, None if timeout == float("inf") else timeout)
        fetcher.acquire(deadline, most)
        faults.point("queue.acquired")
        frames = [
            records_of(spark, read(spark, name, cluster, include_headers=include_headers), name, fetcher.slices)
            for name in fetcher.topics
        ]
        frame = reduce(DataFrame.unionByName, frames)
        return QueueBatch(cluster.root, fetcher, frame, config.default_api_timeout_ms)


def _config(group_id: str, settings: Mapping[str, Any]) -> ShareConsumerConfig:
    unknown = sorted(settings.keys() - SETTINGS)
    if unknown:
        raise KafkaConfigurationError(
            f"read_queue has no setting {unknown[0]!r}; it takes {', '.join(sorted(SETTINGS))}"
        )
    defaults = {"client_id": "spark", "share_partition_max_record_locks": UNLIMITED}
    return ShareConsumerConfig.of({**defaults, **settings, "group_id": group_id, "max_poll_interval_ms": UNLIMITED})


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
    cuts = {(partition, first) for _, partition, first in sorted(between, reverse=True)[: FEW_RUNS - len(hulls)]}
    intervals: list[tuple[int, int, int]] = []
    for partition, run in runs:
        if intervals and intervals[-1][0] == partition and (partition, run.first) not in cuts:
            intervals[-1] = partition, intervals[-1][1], run.last
        else:
            intervals.append((partition, run.first, run.last))
    return reduce(or_, [_within(*interval) for interval in intervals])
