"""`read`: a topic as a native Delta DataFrame with the columns of Spark's Kafka source.

On a remote root, tables are prefetched while the cluster's metadata is read: the first topic of a name has its table in
a folder of that name (decision 022). A prefetched table is used only if the metadata confirms the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from kafkalike.connect import check_founded, connect
from kafkalike.errors import IllegalArgumentError, LogCorruptError, UnknownTopicOrPartitionError
from kafkalike.log.snapshots import Snapshot
from kafkalike.maintenance.verify.untouched_log import check_readable
from kafkalike.model.brokers import ReadFrom
from kafkalike.model.config.storage_options import Address, SentOptions, StorageOptionsLike
from kafkalike.model.names import check_topic_name
from kafkalike.model.partitioner import partition_for_key
from kafkalike.model.topic import TopicInfo
from kafkalike.spark.call_options import AsOf
from kafkalike.spark.format.format import batch_runs
from kafkalike.spark.format.source_options import parse_options
from kafkalike.spark.format.source_topics import SourceTopics
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.jvm.spark_session import check_delta, tell_hadoop
from kafkalike.spark.reads.conditions import readable, soundness, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog


_RESERVED: Final = "spark.sql.ansi.enforceReservedKeywords"


def read(
    spark: SparkSession,
    topic: str | Iterable[str],
    bootstrap_servers: Address | None = None,
    *,
    key: bytes | str | None = None,
    placed_by_key: bool = False,
    include_headers: bool = True,
    as_of: AsOf | None = None,
    starting_offsets: str | None = None,
    ending_offsets: str | None = None,
    group_id: str | None = None,
    auto_offset_reset: str | None = None,
    storage_options: StorageOptionsLike | None = None,
    client_rack: str = "",
) -> DataFrame:
    """Read one or more topics as a DataFrame over the Delta tables themselves.

    All of Delta's pruning works: by partition, and by file for `offset` and `timestamp`. The records are read when a
    query runs. Records below the log start, which retention has removed, are left out.

    Args:
        spark: a session with Delta.
        topic: a name, or names.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        key: read only the records with this key: bytes, or text, which is encoded as UTF-8. Spark skips row groups by
            their Bloom filters. All partitions are searched, so that no record is missed, wherever it was placed. None
            for all records; records without a key are `where("key IS NULL")`.
        placed_by_key: with `key`: read only the partition that murmur2 names. This is right for topics all of whose
            records were placed by Kafka's default partitioner with today's number of partitions; in other topics it
            misses records.
        include_headers: whether to include the column `headers`.
        as_of: a whole number: one topic at a version of its table, as long as the table's log
            (`delta.logRetentionDuration`) and its files reach back to it; the log start is today's. A time, or its
            text: one topic at that time, not after the table's last commit. A snapshot (`kafkalike.snapshot`): topics
            of the snapshot, which show all or nothing of every transaction.
        starting_offsets: the format's option `startingOffsets`: `earliest`, JSON, or `committed` for the offsets of
            `group_id`. With this argument or the next, the offsets are resolved when `read` is called.
        ending_offsets: the format's option `endingOffsets`; exclusive.
        group_id: the consumer group of `committed`.
        auto_offset_reset: start of `committed` in partitions without a committed offset: `earliest` (None), `latest`,
            or `none` for an error.
        storage_options: credentials and endpoint of an object store, for Hadoop's client too; see
            `kafkalike.connect.connect`.
        client_rack: rack of the session. In a cluster of several roots, the table is read from an in-sync replica in
            this rack, or else from the leader. The table's version is then fixed when `read` is called, because a
            replica may be ahead of the published version.

    Returns:
        Columns `key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP,
        timestampType INT`, and `headers ARRAY<STRUCT<key STRING, value BINARY>>`, as in Spark's Kafka source.

    Raises:
        KafkaConnectionError: the root has no cluster.
        InvalidTopicError, UnknownTopicOrPartitionError: the topic does not exist.
        IllegalArgumentError: no topic; a version or time with several topics; a snapshot of another cluster or without
            one of the topics; or offsets that do not fit the topics.
        NoOffsetForPartitionError: the group has no committed offset, and `auto_offset_reset` is `none`.
        DataLossError: offsets that are not in the log, or records that a foreign writer has deleted.
        CorruptRecordError: a foreign writer has given an offset to a second record. For a topic that is open to foreign
            writers, queries over the frame raise these two as well if it happens later.
        AnalysisException: the table has no such version, or no version of that time.
        KafkaConfigurationError: the session lacks Delta, or Hadoop's client for the object store, see
            `kafkalike.spark.session`.

    Example:
        ```python
        orders = ks.read(spark, "orders", "./data")
        print([bytes(row.value) for row in orders.where("offset >= 1").collect()])  # [b'milk']
        ```
    """
    check_delta(spark)
    cluster = connect(bootstrap_servers, storage_options, read_from=ReadFrom(client_rack), access="spark")
    tell_hadoop(spark, cluster)
    refuse_reserved(spark)
    names = [topic] if isinstance(topic, str) else list(topic)
    if not names:
        raise IllegalArgumentError("at least one topic is needed")
    at = as_of if isinstance(as_of, Snapshot) else None
    travel = {} if isinstance(as_of, Snapshot) else _travel(names, as_of)
    between = Between(
        starting_offsets=starting_offsets,
        ending_offsets=ending_offsets,
        group_id=group_id,
        auto_offset_reset=auto_offset_reset,
    )
    if between and (travel or at is not None):
        raise IllegalArgumentError("starting_offsets and ending_offsets do not go with a snapshot or an older version")
    ranges = between.ranges(cluster.root, cluster.store.tasks.sent_options(), names) if between else None
    wanted = _key(key, placed_by_key=placed_by_key)
    # In an object store, Delta takes as long to read the table's log as kafkalike to read the topics' metadata, so both
    # run at the same time.
    guesses = Guesses(spark, cluster, names, travel) if is_one_far_root(cluster) and at is None else None
    logs = guesses.logs() if guesses is not None else [log_of(cluster, name) for name in names]
    infos = [log.info for log in logs]
    travels = [travel if at is None else options_of(at, cluster.root, info) for info in infos]
    for log, options in zip(logs, travels, strict=True):
        _check_files(log, options)
    frames = [
        topic_frame(
            spark,
            info,
            uri,
            include_headers=include_headers,
            options=options,
            key=wanted,
            partition=partition_for_key(wanted, info.num_partitions) if wanted is not None and placed_by_key else None,
            loaded=None if guesses is None or options != travel else guesses.loaded(uri),
            sound=None if travel or at is not None else soundness(spark, cluster, info),
        )
        for info, (uri, options) in zip(infos, map(partial(_table, cluster), infos, travels), strict=True)
    ]
    if ranges is not None:
        frames = [frame.where(within(ranges[name])) for frame, name in zip(frames, names, strict=True)]
    return reduce(DataFrame.unionByName, frames)


def _check_files(log: TopicLog, travel: Mapping[str, str]) -> None:
    """Refuse a table that a foreign writer has broken, as the log's own readers do.

    A table as of a time is not checked, because only Delta knows its version.

    Raises:
        CorruptRecordError, DataLossError: see `check_readable`.
    """
    if "timestampAsOf" in travel:
        return
    # Delta reports versions that it cannot read.
    with suppress(LogCorruptError):
        check_readable(log, int(travel["versionAsOf"]) if travel else None)


def log_of(cluster: Cluster, name: str) -> TopicLog:
    """Open the log of a topic for reading.

    Raises:
        KafkaConnectionError: the root has no cluster.
        UnknownTopicOrPartitionError: the cluster does not have the topic.
    """
    try:
        return cluster.log(check_topic_name(name))
    except UnknownTopicOrPartitionError:
        check_founded(cluster)
        raise


def _table(cluster: Cluster, info: TopicInfo, travel: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """Return the URI at which to read a topic's table, and options of Delta's reader."""
    near = cluster.near_table(info)
    if near is None or "timestampAsOf" in travel:
        return cluster.table_uri(info), travel
    uri, version = near
    return uri, travel or {"versionAsOf": str(version)}


def _key(key: object, *, placed_by_key: bool) -> bytes | None:
    if key is None:
        if placed_by_key:
            raise IllegalArgumentError("placed_by_key goes with key")
        return None
    if not isinstance(key, bytes | bytearray | str):
        raise IllegalArgumentError(f"a key is needed, as bytes or text, not {key!r}")
    return key.encode() if isinstance(key, str) else bytes(key)


def options_of(at: Snapshot, root: str, info: TopicInfo) -> dict[str, str]:
    """Return options of Delta's reader for a topic as of a snapshot.

    Raises:
        IllegalArgumentError: the snapshot is of another cluster, or lacks the topic.
    """
    check_root(at, root)
    return {"versionAsOf": str(at.version_of(info.name, info.topic_id))}


def check_root(at: object, root: str) -> None:
    """Refuse a snapshot of another cluster.

    Raises:
        IllegalArgumentError: the snapshot's root differs, or the argument is not a snapshot.
    """
    if not isinstance(at, Snapshot):
        raise IllegalArgumentError(f"as_of must be a snapshot, see kafkalike.snapshot, not {at!r}")
    if at.root != root:
        raise IllegalArgumentError(f"the snapshot belongs to {at.root}, but the topics to {root}")


def _travel(names: list[str], as_of: int | str | datetime | None) -> dict[str, str]:
    """Return options of Delta's reader for a version or time of a table."""
    given: object = as_of
    if given is None:
        return {}
    if isinstance(given, bool) or not isinstance(given, int | str | datetime):
        raise IllegalArgumentError(
            f"as_of must be a snapshot (kafkalike.snapshot), a version of the topic's table, or a time, not {given!r}"
        )
    if len(names) > 1:
        raise IllegalArgumentError(
            "as_of with a version or a time goes with one topic: each table has its own history; for several topics "
            "take a snapshot (kafkalike.snapshot)"
        )
    if isinstance(given, int):
        return {"versionAsOf": str(given)}
    # PySpark would write a datetime without its zone.
    zoned = given.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f+00:00") if isinstance(given, datetime) else given
    return {"timestampAsOf": zoned}


def refuse_reserved(spark: SparkSession) -> None:
    """Refuse a session in which Delta cannot read a topic's table.

    Raises:
        IllegalArgumentError: `offset` is a reserved keyword in the session, and Delta parses column names as SQL.
    """
    # Without a default, so that Spark's own default of ANSI mode counts.
    if spark.conf.get(_RESERVED) == "true" and spark.conf.get("spark.sql.ansi.enabled") == "true":
        raise IllegalArgumentError(
            f"{_RESERVED} is true in this session, so `offset` is a reserved keyword, and Delta cannot read a table "
            f'with such a column: set it to false, or read with format("kafkalike")'
        )


def topic_frame(
    spark: SparkSession,
    info: TopicInfo,
    uri: str,
    *,
    include_headers: bool,
    options: Mapping[str, str] | None = None,
    stream: bool = False,
    key: bytes | None = None,
    partition: int | None = None,
    loaded: DataFrame | None = None,
    sound: Column | None = None,
    mark: Mapping[str, str] | None = None,
) -> DataFrame:
    """Build the DataFrame of one topic's table, or of a key and a partition of it.

    See `read` for its columns, and Delta's reader for options. `loaded` is the DataFrame that Delta's reader has
    already returned for the table and options. `sound` is a condition from
    `kafkalike.spark.reads.conditions.soundness`. `mark` is metadata for the column `key`.
    """
    reader = spark.readStream if stream else spark.read
    frame = reader.format("delta").options(**(options or {})).load(uri) if loaded is None else loaded
    if key is not None:
        frame = frame.where(F.col("key") == F.lit(key))
    if partition is not None:
        frame = frame.where(F.col("partition") == F.lit(partition))
    if sound is not None:
        frame = frame.where(sound)
    live = readable(info)
    if live is not None:
        frame = frame.where(live)
    names = ["key", "value", "partition", "offset", "timestamp", "timestampType"]
    names += ["headers"] if include_headers else []
    columns = [F.col(name) for name in names]
    if mark is not None:
        columns[0] = columns[0].alias("key", metadata=dict(mark))
    columns.insert(2, F.lit(info.name).alias("topic"))
    selected: DataFrame = frame.select(*columns)
    return selected


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """The arguments of `read` that limit the offsets."""

    starting_offsets: str | None
    ending_offsets: str | None
    group_id: str | None
    auto_offset_reset: str | None

    def __bool__(self) -> bool:
        """Return whether any of them was given."""
        return any((self.starting_offsets, self.ending_offsets, self.group_id, self.auto_offset_reset))

    def ranges(self, root: str, storage: SentOptions | None, names: list[str]) -> dict[str, dict[int, range]]:
        """Return offsets by topic and partition, as of this call.

        Raises:
            IllegalArgumentError, UnknownTopicOrPartitionError, NoOffsetForPartitionError, DataLossError: as with format
                `kafkalike`.
        """
        said = {
            "startingOffsets": self.starting_offsets,
            "endingOffsets": self.ending_offsets,
            "group_id": self.group_id,
            "kafka.auto.offset.reset": self.auto_offset_reset,
        }
        given = {name: value for name, value in said.items() if value is not None}
        options = parse_options({"kafka.bootstrap.servers": root, "subscribe": ",".join(names)} | given, storage)
        found: dict[str, dict[int, range]] = {name: {} for name in names}
        for run in batch_runs(SourceTopics(options), options):
            found[run.tp.topic][run.tp.partition] = run.offsets
        return found


def is_one_far_root(cluster: Cluster) -> bool:
    """Return whether a cluster has one root, in an object store."""
    return cluster.store.scheduler.is_remote and "," not in cluster.root


class Guesses:
    """Tables that are loaded while the topics' metadata is read.

    Args:
        spark: the session.
        cluster: the topics' cluster, in an object store.
        names: the topics.
        options: of Delta's reader.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, names: Sequence[str], options: Mapping[str, str]) -> None:
        self._spark = spark
        self._cluster = cluster
        self._names = names
        self._options = options
        self._loaded: dict[str, DataFrame] = {}

    def logs(self) -> list[TopicLog]:
        """Open the topics' logs, and load the expected tables in the meantime.

        Raises:
            InvalidTopicError, UnknownTopicOrPartitionError: a topic does not exist.
            KafkaStorageError: the storage does not answer.
        """
        wheres = [self._cluster.first_table_uri(check_topic_name(name)) for name in self._names]
        with ThreadPoolExecutor(1) as pool:
            look = pool.submit(lambda: [self._cluster.log(name) for name in self._names])
            for where in wheres:
                # The table or version may be missing here. The metadata then names the right table, or is the error.
                with suppress(*SPARK_FAILURES):
                    self._loaded[where] = self._spark.read.format("delta").options(**self._options).load(where)
            return look.result()

    def loaded(self, uri: str) -> DataFrame | None:
        """Return the prefetched table at a URI, if there is one."""
        return self._loaded.get(uri)
