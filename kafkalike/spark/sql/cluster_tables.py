"""Live tables in SQL of the cluster's topics, offsets, lag, transactions, brokers and replicas.

They are a Python data source (`kafkalike_tables`), so each query reads the current state of the cluster. It reads Delta
logs and the offsets table in-process, but no records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from kafkalike.admin.group_lag import Lags
from kafkalike.admin.group_lag import lag_history as moved
from kafkalike.admin.share_group_operations import share_partitions
from kafkalike.connect import check_founded, connect
from kafkalike.errors import IllegalArgumentError
from kafkalike.log.snapshots import Snapshot
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.storage_options import SentOptions
from kafkalike.model.structs import CommittedOffset, TopicPartition
from kafkalike.model.topic_sql import PROGRESS_TOPIC, view_names

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


FORMAT: Final = "kafkalike_tables"

Row = tuple[Any, ...]

_PASSWORD: Final = re.compile(r"(?<=//)[^/@:]*:[^/@]*@")
"""A user and a password in a URI; does not match the container in `abfss://container@account`."""


def topics(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `topics`."""
    found = cluster.topics()
    views = view_names(found)
    for name, info in sorted(found.items()):
        log = cluster.log(name)
        segments = [s for p in info.partitions for s in log.segments(p)]
        yield (
            name,
            info.topic_id,
            info.num_partitions,
            sum(log.log_end(p) - log.log_start(p) for p in info.partitions),
            sum(s.size_bytes for s in segments),
            _time(info.created_ms),
            json.dumps(dict(info.configs), sort_keys=True),
            views[name],
        )


def partitions(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `partitions`."""
    for name, info in sorted(cluster.topics().items()):
        log = cluster.log(name)
        for p in info.partitions:
            segments = log.segments(p)
            start, end = log.log_start(p), log.log_end(p)
            newest = max((s.max_timestamp for s in segments), default=None)
            size = sum(s.size_bytes for s in segments)
            yield (name, p, start, end, end - start, len(segments), size, None if newest is None else _time(newest))


def consumer_offsets(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `consumer_offsets`."""
    for group_id, group in sorted(cluster.groups.refresh().groups.items()):
        yield from _offsets(group_id, group.offsets)


def offsets_then(at: Snapshot) -> list[Row]:
    """Return the rows of `consumer_offsets` as of a snapshot."""
    return [row for group_id, offsets in sorted(at.offsets.items()) for row in _offsets(group_id, offsets)]


def _offsets(group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> Iterator[Row]:
    for where, committed in sorted(offsets.items()):
        yield (
            group_id,
            where.topic,
            where.partition,
            committed.position.offset,
            committed.position.metadata,
            committed.position.leader_epoch,
            _time(committed.time_ms),
            committed.member_id,
            committed.client_id,
            committed.topic_id,
        )


def lag(cluster: Cluster, clock: Clock = SYSTEM_CLOCK) -> Iterator[Row]:
    """Yield the rows of `lag`, without commits for topics that were deleted or created again since then."""
    now_ms = clock.now_ms()
    for found in Lags(cluster):
        yield (
            found.group_id,
            found.partition.topic,
            found.partition.partition,
            found.committed.position.offset,
            found.index.log_start,
            found.index.log_end,
            found.lag.offsets,
            _time(found.committed.time_ms),
            found.lag.records,
            found.lag.behind_ms / 1000,
            found.lag.waiting_ms(now_ms) / 1000,
        )


def lag_history(cluster: Cluster, clock: Clock = SYSTEM_CLOCK) -> Iterator[Row]:
    """Yield the rows of `lag_history`, up to now by the clock."""
    for group_id, tp, moment in moved(Lags(cluster), clock.now_ms()):
        yield (
            group_id,
            tp.topic,
            tp.partition,
            _time(moment.time_ms),
            moment.committed,
            moment.log_end,
            moment.lag,
            moment.consumed_per_second,
            moment.produced_per_second,
            moment.catch_up_seconds,
        )


def share_groups(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `share_groups`."""
    for found in share_partitions(cluster):
        oldest = found.oldest_lock_ms
        yield (
            found.group_id,
            found.tp.topic,
            found.tp.partition,
            found.start_offset,
            found.log_end,
            found.lag,
            found.acquired,
            found.scheduled,
            None if oldest is None else _time(oldest),
        )


def share_state(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `share_state`."""
    for found in share_partitions(cluster):
        for run in found.share.runs:
            yield (
                found.group_id,
                found.tp.topic,
                found.tp.partition,
                run.first,
                run.last,
                run.size,
                run.state.name.lower(),
                run.deliveries,
                run.member_id or None,
                _time(run.since_ms) if run.since_ms else None,
                _time(run.until_ms) if run.until_ms else None,
            )


def transactions(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `transactions`."""
    names = [listing.transactional_id for listing in cluster.transactions.listed()]
    for name, found in sorted(cluster.transactions.described(names).items()):
        yield (
            name,
            found.producer_id,
            found.epoch,
            found.state.value,
            found.number,
            found.reason,
            found.client_id,
            found.timeout_ms,
            None if found.start_ms < 0 else _time(found.start_ms),
            _time(found.changed_ms),
            {topic: dict(counts) for topic, counts in found.topics.items()},
            list(found.unapplied),
            list(found.groups),
        )


def brokers(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `brokers`."""
    replication = cluster.replication
    for broker in replication.brokers():
        yield (broker.id, _PASSWORD.sub("", broker.uri), broker.rack, replication.alive(broker.id), broker.draining)


def replicas(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `replicas`."""
    for name, info in sorted(cluster.topics().items()):
        found = cluster.replication.replicas(name, ends=True)
        lags = found.lags()
        for p in info.partitions:
            yield (
                name,
                p,
                found.leader,
                found.epoch,
                list(found.replicas),
                list(found.isr),
                list(found.offline),
                {broker: lag.versions for broker, lag in lags.items()},
                {broker: lag.bytes for broker, lag in lags.items()},
                {broker: lag.seconds for broker, lag in lags.items()},
            )


def stream_progress(cluster: Cluster) -> Iterator[Row]:
    """Yield the rows of `stream_progress`, which `kafkalike.spark.StreamProgress` has recorded in its usual topic."""
    if PROGRESS_TOPIC not in cluster.topics():
        return
    log = cluster.log(PROGRESS_TOPIC)
    for partition in log.info.partitions:
        reader = log.reader(partition, log.log_start(partition))
        while (chunk := reader.read(PROGRESS_BYTES)) is not None:
            for value in chunk.columns().values:
                row: Any = json.loads(value or b"null")
                if isinstance(row, dict):
                    time = datetime.fromisoformat(str(row.pop("time")))
                    yield (time, *map(row.get, SCHEMAS["stream_progress"].names[1:]))


PROGRESS_BYTES: Final = 1024 * 1024
"""Bytes of the topic to decode at a time."""


def _time(time_ms: int) -> datetime:
    return datetime.fromtimestamp(time_ms / 1000, UTC)


ROWS: Final[Mapping[str, Callable[[Cluster], Iterator[Row]]]] = {
    "topics": topics,
    "partitions": partitions,
    "consumer_offsets": consumer_offsets,
    "lag": lag,
    "lag_history": lag_history,
    "share_groups": share_groups,
    "share_state": share_state,
    "transactions": transactions,
    "brokers": brokers,
    "replicas": replicas,
    "stream_progress": stream_progress,
}


class ClusterTables(DataSource):
    """The format `kafkalike_tables`; options `table` (a name of `SCHEMAS`) and `root`."""

    storage: ClassVar[SentOptions | None] = None
    """Credentials and endpoint of an object store. None takes the environment's."""

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> spark_types.StructType:
        """Return the columns of the table that the options name."""
        return SCHEMAS[_table(self.options)]

    def reader(self, schema: Any) -> DataSourceReader:  # noqa: ANN401, ARG002 - Spark's signature
        """Create a reader; Spark asks for one in each query, so its rows are current."""
        return _Reader(_table(self.options), self.options.get("root"), self.storage)


class _Reader(DataSourceReader):
    def __init__(self, table: str, root: str | None, storage: SentOptions | None) -> None:
        self._table = table
        self._root = root
        self._storage = storage

    def read(self, partition: InputPartition) -> Iterator[Row]:  # noqa: ARG002 - there is one
        cluster = connect(self._root, self._storage)
        # An empty table would look as if every group had caught up.
        check_founded(cluster)
        return ROWS[self._table](cluster)


def _table(options: Mapping[str, str]) -> str:
    table = options.get("table", "")
    if table not in SCHEMAS:
        raise IllegalArgumentError(f"option table must be one of {', '.join(SCHEMAS)}, not {table!r}")
    return table


_TEXT, _INT, _LONG, _DOUBLE, _FLAG = (
    spark_types.StringType(),
    spark_types.IntegerType(),
    spark_types.LongType(),
    spark_types.DoubleType(),
    spark_types.BooleanType(),
)
_TIME: Final = spark_types.TimestampType()


def _columns(**kinds: spark_types.DataType) -> spark_types.StructType:
    return spark_types.StructType([spark_types.StructField(name, kind) for name, kind in kinds.items()])


_GROUP_PARTITION: Final = {"group_id": _TEXT, "topic": _TEXT, "partition": _INT}

SCHEMAS: Final[Mapping[str, spark_types.StructType]] = {
    "stream_progress": _columns(
        time=_TIME,
        query=_TEXT,
        query_id=_TEXT,
        run_id=_TEXT,
        batch_id=_LONG,
        topic=_TEXT,
        engine=_TEXT,
        input_rows=_LONG,
        lag_records=_LONG,
        lag_seconds=_DOUBLE,
        output_rows=_LONG,
        batch_ms=_LONG,
        commit_ms=_LONG,
        sink=_TEXT,
    ),
    "topics": _columns(
        topic=_TEXT,
        topic_id=_TEXT,
        partitions=_INT,
        records=_LONG,
        bytes=_LONG,
        created=_TIME,
        configs=_TEXT,
        view=_TEXT,
    ),
    "partitions": _columns(
        topic=_TEXT,
        partition=_INT,
        log_start_offset=_LONG,
        log_end_offset=_LONG,
        records=_LONG,
        segments=_LONG,
        bytes=_LONG,
        last_timestamp=_TIME,
    ),
    "consumer_offsets": _columns(
        **_GROUP_PARTITION,
        committed_offset=_LONG,
        metadata=_TEXT,
        leader_epoch=_INT,
        commit_timestamp=_TIME,
        member_id=_TEXT,
        client_id=_TEXT,
        topic_id=_TEXT,
    ),
    "lag": _columns(
        **_GROUP_PARTITION,
        committed_offset=_LONG,
        log_start_offset=_LONG,
        log_end_offset=_LONG,
        lag=_LONG,
        commit_timestamp=_TIME,
        record_lag=_LONG,
        seconds_behind=_DOUBLE,
        waiting_seconds=_DOUBLE,
    ),
    "lag_history": _columns(
        **_GROUP_PARTITION,
        time=_TIME,
        committed_offset=_LONG,
        log_end_offset=_LONG,
        lag=_LONG,
        consumed_per_second=_DOUBLE,
        produced_per_second=_DOUBLE,
        catch_up_seconds=_DOUBLE,
    ),
    "share_groups": _columns(
        **_GROUP_PARTITION,
        start_offset=_LONG,
        log_end_offset=_LONG,
        lag=_LONG,
        acquired=_LONG,
        scheduled=_LONG,
        oldest_lock=_TIME,
    ),
    "share_state": _columns(
        **_GROUP_PARTITION,
        first_offset=_LONG,
        last_offset=_LONG,
        records=_LONG,
        state=_TEXT,
        delivery_count=_INT,
        member_id=_TEXT,
        since=_TIME,
        until=_TIME,
    ),
    "transactions": _columns(
        transactional_id=_TEXT,
        producer_id=_LONG,
        producer_epoch=_INT,
        state=_TEXT,
        number=_LONG,
        reason=_TEXT,
        client_id=_TEXT,
        timeout_ms=_LONG,
        start_timestamp=_TIME,
        change_timestamp=_TIME,
        records=spark_types.MapType(_TEXT, spark_types.MapType(_INT, _LONG)),
        unapplied=spark_types.ArrayType(_TEXT),
        groups=spark_types.ArrayType(_TEXT),
    ),
    "brokers": _columns(broker_id=_INT, uri=_TEXT, rack=_TEXT, up=_FLAG, draining=_FLAG),
    "replicas": _columns(
        topic=_TEXT,
        partition=_INT,
        leader=_INT,
        leader_epoch=_INT,
        replicas=spark_types.ArrayType(_INT),
        isr=spark_types.ArrayType(_INT),
        offline_replicas=spark_types.ArrayType(_INT),
        lag_versions=spark_types.MapType(_INT, _LONG),
        lag_bytes=spark_types.MapType(_INT, _LONG),
        lag_seconds=spark_types.MapType(_INT, _DOUBLE),
    ),
}
"""Columns of each table.

`lag` counts offsets from the committed one to the log end, `record_lag` the records among them that can still be read,
`seconds_behind` the time from the last consumed record to the newest one, `waiting_seconds` the time since the oldest
unconsumed record was written. `lag_history` has a row every five minutes of the last three hours; its rates cover the
15 minutes before it, and `catch_up_seconds` is NULL if the lag does not shrink.

`share_groups` has a row for each partition of a share group: `lag` counts unfinished records, `acquired` records
that members have locked, `scheduled` records that wait for a time. `share_state` has a row for each run of its records
that are in the same state: `member_id` holds them `since` a time, `until` another member may take them.

`transactions` has a row for each transactional id that is not forgotten, with its last transaction: `reason` explains
its state, `start_timestamp` is set while it is open, `records` counts the records of a committed transaction by topic
and partition, `unapplied` lists topics that still lack it, and `groups` the groups whose offsets it committed.

`brokers` has a row for each storage root; `up` tells whether it answers. `replicas` has a row for each partition:
`leader` is -1 if its root does not answer, and the lags tell by broker how far a replica is behind the leader, in
versions of the table, bytes of its data files, and seconds between their last versions; unknown values are NULL. All
partitions of a topic have the same values. A cluster of one root has one broker, 1, which leads everything, and no
lags."""
