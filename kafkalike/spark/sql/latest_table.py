"""`maintain_latest`: keep a Delta table that holds the newest row of each key of a topic.

Each refresh is one MERGE of the records that the table has not seen. Its commit carries the position that the table
reaches, so that a killed refresh is repeated from there. Two refreshes at the same time cannot undo each other: a MERGE
carries the version of the table that its plan has read, as Delta's transaction version, and Delta leaves out a
transaction that is not above the last one.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Row, SparkSession
from pyspark.sql.types import StructType

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaTimeoutError, UnsupportedVersionError
from kafkalike.log.cluster.cluster import spark_uri
from kafkalike.log.group.group_offsets import GroupOffsets
from kafkalike.maintenance.works.topic_compaction import checkpoints_of
from kafkalike.model import faults
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.maintenance.latest_position import HARMLESS, KIND, LatestPosition, RefreshPlan, plan_refresh
from kafkalike.model.names import check_group_id
from kafkalike.model.record_batch import CORRECTIONS
from kafkalike.model.structs import TopicPartition
from kafkalike.spark.call_options import ReaderSchemaOptions, SchemaChoice
from kafkalike.spark.format.source_topics import commit_progress
from kafkalike.spark.jvm.spark_connect import is_remote
from kafkalike.spark.jvm.spark_errors import SPARK_FAILURES
from kafkalike.spark.jvm.spark_session import check_delta
from kafkalike.spark.reads.conditions import within
from kafkalike.spark.reads.frames import log_of, read
from kafkalike.spark.sql.value_views import INFER, RAW, ViewColumns, newest_records
from kafkalike.spark.sql_text import literal, quoted
from kafkalike.spark.typed.typed_views import RAW as TYPED_RAW
from kafkalike.spark.typed.typed_views import RAW_KEY, typed_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog

TOPIC_ID: Final = f"{KIND}.topic_id"
"""Property of a table: the id of the topic that it follows."""

SOURCE: Final = "kafkalike_latest_source"
LOOKS: Final = (10, 1_000)
"""Numbers of the newest commits of the table among which the position is looked for."""

MOST_TRIES: Final = 10
"""Attempts while other writers change the table."""

_CONFLICTS: Final = ("DELTA_CONCURRENT", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED", "ALREADY_EXISTS")


@dataclass(frozen=True, slots=True, kw_only=True)
class LatestRefresh:
    """The effect of one call of `maintain_latest`."""

    version: int | None
    """Version of the table with the refresh; None if nothing was new."""
    full: bool
    """True if the whole topic was merged: at first, and after an event that leaves no record; see `maintain_latest`."""
    inserted: int
    updated: int
    deleted: int
    """Number of deleted rows; the two fields above count the inserted and updated ones."""
    offsets: Mapping[TopicPartition, int]
    """By partition, the offset up to which the table has followed the topic."""


def maintain_latest(
    spark: SparkSession,
    topic: str,
    target: str,
    bootstrap_servers: Address | None = None,
    *,
    group_id: str | None = None,
    format: str | None = None,  # noqa: A002 - the word of readers and writers
    value_format: str | None = None,
    schema: SchemaChoice | StructType | None = None,
    options: Mapping[str, str] | None = None,
    key_format: str = "string",
    value_column: str | None = None,
    schema_options: ReaderSchemaOptions | None = None,
    storage_options: StorageOptionsLike | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> LatestRefresh:
    """Bring a Delta table up to the newest row of each key of a topic, and return.

    The table has the rows of `create_view(…, latest=True)` with the same arguments. A call reads only the records that
    the table has not seen, and merges them in one commit. That commit also stores the position, so a call may be killed
    at any moment and repeated: no record is lost, none is applied twice. Several calls may run at once.

    The whole topic is merged if records may have left it without a trace in the log: keys were forgotten, writes
    undone, tombstones compacted away before the table saw them, or others have changed rows of the table; and if the
    arguments or the schema change the columns.

    Args:
        spark: a session with Delta.
        topic: the topic.
        target: folder or URI of the table, or a name in Spark's catalog (a text without `/`). A missing table is
            created, with deletion vectors. An existing one must be empty at the first call.
        bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
        group_id: consumer group whose offsets show what the table has followed. They are committed after the table, and
            never read.
        format: see `create_view`, as for the arguments up to `schema_options`. `schema="infer"` is refused.
        value_format: None for `json` with a schema, otherwise `binary`.
        schema: see `create_view`.
        options: see `create_view`.
        key_format: see `create_view`.
        value_column: see `create_view`.
        schema_options: see `create_view`.
        storage_options: credentials and endpoint of an object store; see `kafkalike.spark.read`.
        clock: time of the group's offsets.

    Returns:
        The numbers of changed rows, and the offsets.

    Raises:
        IllegalArgumentError: bad arguments; the table lies in the cluster's root, follows another topic, or an earlier
            topic of that name, or had rows before the first call.
        KafkaTimeoutError: other writers changed the table during each attempt; nothing was written.
        CommitFailedError: the group has members; the table is up to date.
        UnsupportedVersionError: a session of Spark Connect.
        AnalysisException: the schema has changed a column so that Delta cannot change the table's.
        KafkaError: see `create_view`.

    Example:
        ```python
        done = ks.maintain_latest(spark, "orders", "./orders_latest", "./data", group_id="orders-latest")
        print(done.inserted, spark.read.format("delta").load("./orders_latest").count())  # 1 1
        ```
    """
    check_delta(spark)
    if is_remote(spark):
        raise UnsupportedVersionError(
            "maintain_latest needs a session with a JVM of its own, because Spark Connect gives no second session"
        )
    if schema == INFER:
        raise IllegalArgumentError("schema='infer' would change the table's columns from call to call: name the fields")
    if group_id is not None:
        check_group_id(group_id)
    cluster = connect(bootstrap_servers, storage_options, access="spark")
    columns = ViewColumns(
        topic=topic,
        bootstrap_servers=bootstrap_servers,
        latest=True,
        format=format,
        value_format=value_format,
        schema=schema,
        options=options,
        key_format=key_format,
        value_column=value_column,
        schema_options=schema_options,
        storage_options=storage_options,
    )
    table = _LatestTable(_own_session(spark), _table(target, cluster), target, columns, cluster)
    log = log_of(cluster, topic)
    done = table.refresh(log)
    if group_id is not None:
        ids = {topic: log.info.topic_id}
        known = GroupOffsets.of(cluster, clock).committed(group_id, done.offsets, ids)
        if {tp: at.offset for tp, at in known.items()} != done.offsets:
            commit_progress(cluster, group_id, done.offsets, ids, clock)
    return done


def _own_session(spark: SparkSession) -> SparkSession:
    """Return another session with the same settings.

    The name of a transaction is a setting of the session, and would name other writes of the caller's.
    """
    own = spark.newSession()
    before = own.conf.getAll
    for name, value in spark.conf.getAll.items():
        if before.get(name) != value and own.conf.isModifiable(name):
            own.conf.set(name, value)
    return own


def _table(target: str, cluster: Cluster) -> str:
    """Return the table in SQL.

    Raises:
        IllegalArgumentError: it lies in the cluster's root.
    """
    if "/" not in target:
        return ".".join(quoted(part) for part in target.split("."))
    place = target if "://" in target else os.path.realpath(target)
    for root in cluster.root.split(","):
        above = spark_uri(root) if "://" in root else os.path.realpath(root)
        if f"{spark_uri(place)}/".startswith(f"{above.rstrip('/')}/"):
            raise IllegalArgumentError(f"{target} lies in the cluster's root {root}, which holds only topics")
    return f"delta.{quoted(place)}"


class _Commit(NamedTuple):
    """The newest commits of a table, as far as a refresh needs them."""

    version: int
    """The table's version."""
    position: LatestPosition | None
    """Position of the table; None if it is unknown, or others have changed rows since."""
    topic_id: str | None
    """Topic of the newest refresh among them."""


class _LatestTable:
    """A table that follows a topic.

    Args:
        spark: a session that nobody else uses.
        name: the table in SQL.
        target: the table as the caller names it.
        columns: its columns.
        cluster: the topic's cluster.
    """

    def __init__(self, spark: SparkSession, name: str, target: str, columns: ViewColumns, cluster: Cluster) -> None:
        self._spark = spark
        self._name = name
        self._target = target
        self._columns = columns
        self._cluster = cluster
        self._typed = columns.typed()

    def refresh(self, log: TopicLog) -> LatestRefresh:
        """Merge the records that the table has not seen; see `maintain_latest`."""
        for _ in range(MOST_TRIES):
            log.refresh()
            version, ends = log.snapshot()
            rows, fingerprint = self._rows(log, version)
            goal = LatestPosition(
                topic_id=log.info.topic_id,
                ends=ends,
                starts={p: log.log_start(p) for p in log.info.partitions},
                corrections=log.txn_version(CORRECTIONS) or 0,
                columns=fingerprint,
                run=uuid.uuid4().hex,
            )
            settled = {p: cleaned.settled for p, cleaned in checkpoints_of(log).items()}
            try:
                standing = self._standing(rows, goal)
                plan = plan_refresh(standing.position, goal, settled)
                if not plan.due:
                    return _report(log, goal, plan, None)
                same = standing.position is not None and standing.position.columns == goal.columns
                faults.point("latest.before_merge")
                self._merge(self._made(log, version, plan.ranges), goal, plan, standing.version, same=same)
                faults.point("latest.after_merge")
                found = self._history(LOOKS[0])
            except SPARK_FAILURES as cause:
                if not any(code in str(cause) for code in _CONFLICTS):
                    raise
                continue
            own = [row for row in found if _run_of(row) == goal.run]
            if own:
                return _report(log, goal, plan, own[0])
        raise KafkaTimeoutError(
            f"{self._target}: other writers changed the table during each of {MOST_TRIES} attempts; nothing was written"
        )

    def _rows(self, log: TopicLog, version: int) -> tuple[StructType, str]:
        """Return the table's columns, and the fingerprint of how values become them."""
        records = read(self._spark, log.info.name, self._cluster, as_of=version)
        frame, ids = (self._columns.plain(records), []) if self._typed is None else typed_columns(records, self._typed)
        how = self._columns
        given = (how.format, how.plain_format, how.key_format, how.value_column, dict(how.options or {}), list(ids))
        text = json.dumps([*given, frame.schema.jsonValue()], sort_keys=True)
        return frame.schema, hashlib.sha256(text.encode()).hexdigest()

    def _made(self, log: TopicLog, version: int, ranges: Mapping[int, range]) -> DataFrame:
        """Return the newest record of each key within ranges, at a version that maintenance cannot change."""
        records = read(self._spark, log.info.name, self._cluster, as_of=version).where(within(ranges))
        newest = newest_records(records)
        return self._columns.plain(newest) if self._typed is None else typed_columns(newest, self._typed)[0]

    def _standing(self, rows: StructType, goal: LatestPosition) -> _Commit:
        """Return where the table stands; a missing one is created.

        Raises:
            IllegalArgumentError: the table follows another topic, or has rows and follows none.
        """
        try:
            found = self._newest()
        except AnalysisException as cause:
            if not any(code in str(cause) for code in _MISSING):
                raise
            self._create(rows, goal)
            found = self._newest()
        follows = found.topic_id or self._property()
        if follows is None:
            if not self._spark.table(self._name).isEmpty():
                raise IllegalArgumentError(
                    f"{self._target} has rows that kafkalike has not written: name another table, or empty it"
                )
            adopt = f"ALTER TABLE {self._name} SET TBLPROPERTIES ({literal(TOPIC_ID)} = {literal(goal.topic_id)})"
            self._spark.sql(adopt)
            found = self._newest()
        elif follows != goal.topic_id:
            raise IllegalArgumentError(
                f"{self._target} follows another topic, or an earlier topic of the name {self._columns.topic!r} (id "
                f"{follows}, not {goal.topic_id}): drop the table, and the next call creates it again"
            )
        return found

    def _newest(self) -> _Commit:
        rows, positions, at = list[Row](), list[LatestPosition | None](), None
        for limit in LOOKS:
            rows = self._history(limit)
            positions = [_position_of(row) for row in rows]
            at = next((nth for nth, position in enumerate(positions) if position is not None), None)
            if at is not None or len(rows) < limit:
                break
        position = None if at is None else positions[at]
        touched = any(row.operation not in HARMLESS for row in rows[:at])
        return _Commit(
            version=rows[0].version,
            position=None if touched else position,
            topic_id=None if position is None else position.topic_id,
        )

    def _history(self, limit: int) -> list[Row]:
        statement = f"DESCRIBE HISTORY {self._name} LIMIT {limit}"
        return self._spark.sql(statement).collect()

    def _property(self) -> str | None:
        statement = f"DESCRIBE DETAIL {self._name}"
        properties: Any = self._spark.sql(statement).collect()[0].properties
        return dict(properties).get(TOPIC_ID)

    def _create(self, rows: StructType, goal: LatestPosition) -> None:
        self._spark.createDataFrame([], rows).createOrReplaceTempView(SOURCE)
        properties = {TOPIC_ID: goal.topic_id, "delta.enableDeletionVectors": "true"}
        given = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        statement = f"CREATE TABLE IF NOT EXISTS {self._name} USING delta TBLPROPERTIES ({given}) AS TABLE {SOURCE}"
        self._spark.sql(statement)

    def _merge(self, records: DataFrame, goal: LatestPosition, plan: RefreshPlan, version: int, *, same: bool) -> None:
        raw = TYPED_RAW if self._typed is not None else RAW
        key = RAW_KEY if RAW_KEY in records.columns else "key"
        records.createOrReplaceTempView(SOURCE)
        clauses = [
            f"MERGE WITH SCHEMA EVOLUTION INTO {self._name} AS t USING {SOURCE} AS s",
            f"ON t.partition = s.partition AND t.{key} = s.{key}",
            f"WHEN MATCHED AND s.{raw} IS NULL THEN DELETE",
            f"WHEN MATCHED {'AND t.offset <> s.offset ' if same else ''}THEN UPDATE SET *",
            f"WHEN NOT MATCHED AND s.{raw} IS NOT NULL THEN INSERT *",
        ]
        if plan.full:
            clauses.append("WHEN NOT MATCHED BY SOURCE THEN DELETE")
        elif plan.below:
            gone = " OR ".join(f"(t.partition = {p} AND t.offset < {at})" for p, at in sorted(plan.below.items()))
            clauses.append(f"WHEN NOT MATCHED BY SOURCE AND ({gone}) THEN DELETE")
        settings = {
            "spark.databricks.delta.write.txnAppId": KIND,
            "spark.databricks.delta.write.txnVersion": str(version + 1),
            "spark.databricks.delta.commitInfo.userMetadata": goal.encode(),
        }
        for name, value in settings.items():
            self._spark.conf.set(name, value)
        try:
            statement = "\n".join(clauses)
            self._spark.sql(statement)
        finally:
            for name in settings:
                self._spark.conf.unset(name)


_MISSING: Final = ("TABLE_OR_VIEW_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_ONLY_OPERATION")


def _position_of(row: Row) -> LatestPosition | None:
    return LatestPosition.decode(row.userMetadata)


def _run_of(row: Row) -> str | None:
    position = _position_of(row)
    return None if position is None else position.run


def _report(log: TopicLog, goal: LatestPosition, plan: RefreshPlan, row: Row | None) -> LatestRefresh:
    metrics: Mapping[str, str] = {} if row is None else dict(row.operationMetrics or {})
    count = {name: int(metrics.get(f"numTargetRows{name}", 0)) for name in ("Inserted", "Updated", "Deleted")}
    return LatestRefresh(
        version=None if row is None else row.version,
        full=plan.due and plan.full,
        inserted=count["Inserted"],
        updated=count["Updated"],
        deleted=count["Deleted"],
        offsets={TopicPartition(log.info.name, p): end for p, end in goal.ends.items()},
    )
