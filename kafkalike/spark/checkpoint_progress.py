"""Progress of a streaming query, read from its checkpoint, as committed offsets of a consumer group.

With it, `lag`, `kafkalike consumer-groups --describe` and every Kafka tool show the progress of a query. The query
itself never starts from these offsets, because its checkpoint decides.

Spark keeps the last hundred progress reports of a query in the driver. `StreamProgress` writes each of them into a
topic of the cluster, a row for each source and topic. SQL shows it as the table `kafkalike_stream_progress`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryListener

from kafkalike.admin.group_lag import Lags
from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.log.cluster.topic_lineage import ends_at
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, utc_text
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id
from kafkalike.model.segments import MARK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.model.topic_sql import PROGRESS_TOPIC
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, StreamCheckpoint, parse_ends, parse_table

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


_log = logging.getLogger(__name__)


class GroupProgress:
    """A query's progress as committed offsets of one group. Each query needs its own object."""

    def __init__(self, group_id: str, bootstrap_servers: Address | None = None, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """Open the cluster of the topics that the query reads.

        Raises:
            InvalidGroupIdError: the group id is not valid.
        """
        self.group_id = check_group_id(group_id)
        self._cluster: Cluster = connect(bootstrap_servers)
        self._offsets = GroupOffsets.of(self._cluster, clock)
        self._committed: dict[TopicPartition, tuple[str, int]] = {}
        self._ids: dict[str, str] = {}
        """Id of each topic to which the last plan's offsets belong. They must not be committed for a later topic of
        that name."""

    def plan(self, batch: BatchOffsets) -> dict[TopicPartition, int]:
        """Return the offsets to commit for a batch. To be called before the batch writes anything.

        A checkpoint names topics without their ids. Offsets are planned for a topic that existed when the batch was
        planned. Records of a topic that was deleted and created again since then are left out, with a warning.

        Args:
            batch: its offsets, by the checkpoint.

        Returns:
            By partition, the next offset after the batch.

        Raises:
            IllegalArgumentError: the query does not read any topic of the cluster.
        """
        ends, known = dict(batch.ends), self._cluster.topics()
        tables = {info.table_id: info for info in known.values() if info.table_id in batch.tables}
        for info in tables.values():
            ends |= self._ends_of_table(info, batch.tables[info.table_id])
        if not ends and batch.reads_tables:
            # Delta's source has not read any version to its end yet, or its topic has been deleted.
            self._ids = {}
            return {}
        read = {tp.topic for tp in ends}
        if not read & known.keys():
            topics = ", ".join(sorted(read)) or "none that has Kafka's offsets"
            raise IllegalArgumentError(
                f"group {self.group_id!r}: the query reads no topic of the cluster {self._cluster.root!r} (it reads: "
                f"{topics}); progress can be committed for sources of format kafkalike"
            )
        self._ids = {}
        for topic in sorted(read):
            # A table's id identifies its topic, so its offsets cannot belong to another topic.
            own = any(info.name == topic for info in tables.values())
            why = None if own else _not_its(known.get(topic), batch)
            if why is None:
                self._ids[topic] = known[topic].topic_id
            else:
                _log.warning("group %s: no offsets are committed for %s: %s", self.group_id, topic, why)
        return {tp: offset for tp, offset in ends.items() if tp.topic in self._ids}

    def _ends_of_table(self, info: TopicInfo, version: int) -> dict[TopicPartition, int]:
        """Return the log ends of a topic at a version of its table; empty if its log no longer reaches back to it."""
        try:
            found = ends_at(self._cluster, info, version)
        except KafkaError as cause:
            _log.warning("group %s: no offsets are committed for %s: %s", self.group_id, info.name, cause)
            return {}
        return {TopicPartition(info.name, partition): end for partition, end in found.items()}

    @property
    def root(self) -> str:
        """The root of the group's cluster."""
        return self._cluster.root

    def claimed(
        self, ends: Mapping[TopicPartition, int], *, client_id: str, metadata: str = ""
    ) -> tuple[GroupClaim, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the claim and offsets for a transaction that commits them together with records.

        Args:
            ends: the offsets from `plan`.
            client_id: shown to people as the committing client.
            metadata: stored with each offset.

        Returns:
            A claim that holds if the group has no members and the topics are unchanged since the plan; and the offsets.
        """
        lives = tuple(sorted((topic, self._ids[topic]) for topic in {tp.topic for tp in ends}))
        claim = GroupClaim(group_id=self.group_id, client_id=client_id, alone=True, lives=lives)
        return claim, self._offsets.checked({tp: OffsetAndMetadata(at, metadata) for tp, at in ends.items()})

    def commit(self, ends: Mapping[TopicPartition, int], *, client_id: str, metadata: str = "") -> bool:
        """Commit offsets, unless this object has already committed them.

        Args:
            ends: by partition, the next offset to read, from `plan`.
            client_id: shown to people as the committing client.
            metadata: stored with each offset.

        Returns:
            Whether anything was written.

        Raises:
            CommitFailedError: the group has members, and only they may commit; nothing was committed.
            KafkaTimeoutError: other writers won every attempt until the timeout; nothing was committed.
            UnknownOutcomeError: the commit may have happened; committing once more is harmless.
        """
        wanted = {tp: (self._ids[tp.topic], at) for tp, at in ends.items()}
        if not ends or wanted == self._committed:
            return False
        positions = {tp: OffsetAndMetadata(at, metadata) for tp, at in ends.items()}
        self._offsets.commit(Membership(group_id=self.group_id, client_id=client_id), positions, self._ids)
        self._committed = wanted
        return True


def _not_its(topic: TopicInfo | None, batch: BatchOffsets) -> str | None:
    """Return why a batch's offsets do not, or may not, belong to a topic; None if they do."""
    if topic is None:
        return "it is gone"
    if not batch.planned_ms:
        return f"the checkpoint does not say when batch {batch.batch_id} was planned, so they may be another topic's"
    if topic.created_ms >= batch.planned_ms:
        return (
            f"id {topic.topic_id} was created ({utc_text(topic.created_ms)}) after batch {batch.batch_id} was planned "
            f"({utc_text(batch.planned_ms)}), so they are offsets of an earlier topic of that name"
        )
    return None


class CheckpointProgress:
    """Commits a query's progress for a group, read from the checkpoint, for queries with Spark's own sinks.

    A batch counts once Spark has marked it as done, which happens after its output. So the group never points past the
    written output, and `catch_up` after a crash commits the offsets that the crash prevented.
    """

    def __init__(
        self,
        spark: SparkSession,
        checkpoint: str,
        group_id: str,
        bootstrap_servers: Address | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open the checkpoint and the group; see `GroupProgress` for the errors."""
        self._progress = GroupProgress(group_id, bootstrap_servers, clock=clock)
        self._checkpoint = StreamCheckpoint(spark, checkpoint)

    def catch_up(self) -> int | None:
        """Commit the offsets of the newest batch that is done; see `GroupProgress` for the errors.

        Returns:
            The batch; None before the first one is done.
        """
        done = self._checkpoint.last_done()
        if done is None:
            return None
        self._progress.commit(
            self._progress.plan(done),
            client_id=f"stream {self._checkpoint.query_id()}",
            metadata=f"batch {done.batch_id}",
        )
        return done.batch_id


LINGER_MS: Final = 5_000
"""Wait for more reports before a commit, ms, so that a fast query does not make a file for each batch."""


class ProgressRow(TypedDict):
    """A micro-batch of a query and one topic that it reads."""

    time: str
    """Start of the batch, ISO 8601 in UTC."""
    query: str | None
    """Name of the query."""
    query_id: str
    run_id: str
    batch_id: int
    topic: str | None
    """None for sources of other formats."""
    engine: str
    """`delta`, `kafkalike`, or the source's description."""
    input_rows: int
    lag_records: int | None
    """Records of the topic that are not read yet."""
    lag_seconds: float | None
    """Time of the newest record minus that of the last one read, for the partition that is furthest behind."""
    output_rows: int | None
    """Rows written by the batch; None if the sink does not count them."""
    batch_ms: int
    commit_ms: int
    """Time of Spark's checkpoint files; the sink's own commit is part of `batch_ms`."""
    sink: str


class StreamProgress(StreamingQueryListener):
    """Writes the progress of all streaming queries of a session into a topic.

    ```python
    spark.streams.addListener(ks.StreamProgress("./data"))
    ```

    It never fails a query: errors are logged.
    """

    def __init__(
        self,
        bootstrap_servers: Address | None = None,
        *,
        topic: str = PROGRESS_TOPIC,
        storage_options: StorageOptionsLike | None = None,
    ) -> None:
        """Open the cluster.

        Args:
            bootstrap_servers: the cluster's root; see `kafkalike.connect.connect`.
            topic: the topic for the records; created when missing, if the cluster allows. Only the default one is shown
                in SQL.
            storage_options: credentials and endpoint of an object store.
        """
        from kafkalike import KafkaProducer

        self._cluster = connect(bootstrap_servers, storage_options)
        self._lags = Lags(self._cluster, leave_out_damaged=True)
        self._topic = topic
        self._producer = KafkaProducer(bootstrap_servers=self._cluster, linger_ms=LINGER_MS)

    def onQueryStarted(self, event: Any) -> None:  # noqa: ANN401, N802 - Spark's name
        """Ignore this event of Spark's."""

    def onQueryIdle(self, event: Any) -> None:  # noqa: ANN401, N802 - Spark's name
        """Ignore this event of Spark's."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: ANN401, N802 - Spark's name
        """Record the progress of a batch."""
        try:
            self._lags.refresh()
            for row in progress_rows(json.loads(event.progress.json), self._lags):
                self._producer.send(self._topic, key=row["query_id"].encode(), value=json.dumps(row).encode())
        except KafkaError:
            _log.warning("the progress of a streaming query was not recorded", exc_info=True)

    def close(self) -> None:
        """Write the buffered rows, and close the producer. Remove the listener first."""
        self._producer.close()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: ANN401, ARG002, N802 - Spark's name
        """Write the rows that are still buffered."""
        try:
            self._producer.flush()
        except KafkaError:
            _log.warning("the progress of a streaming query was not recorded", exc_info=True)


def progress_rows(progress: Mapping[str, Any], lags: Lags) -> Iterator[ProgressRow]:
    """Yield the rows of a progress report.

    Args:
        progress: the report, as Spark's JSON has it.
        lags: the indexes of the cluster's topics, refreshed.
    """
    times = progress.get("durationMs", {})
    for source in progress.get("sources", ()):
        engine, ends = _positions(source, lags.cluster)
        topics: list[str | None] = [*sorted({tp.topic for tp in ends})]
        for topic in topics or [None]:
            found = [
                index.lag(at) for tp, at in ends.items() if tp.topic == topic and (index := lags.index(tp)) is not None
            ]
            yield {
                "time": str(progress["timestamp"]),
                "query": progress.get("name"),
                "query_id": str(progress["id"]),
                "run_id": str(progress["runId"]),
                "batch_id": int(progress["batchId"]),
                "topic": topic,
                "engine": engine,
                "input_rows": int(source.get("numInputRows", 0)),
                "lag_records": sum(lag.records for lag in found) if topic else None,
                "lag_seconds": max((lag.behind_ms for lag in found), default=0) / 1000 if topic else None,
                "output_rows": _output_rows(progress),
                "batch_ms": int(times.get("triggerExecution", 0)),
                "commit_ms": int(times.get("walCommit", 0)) + int(times.get("commitOffsets", 0)),
                "sink": str(progress.get("sink", {}).get("description", "")),
            }


def _positions(source: Mapping[str, Any], cluster: Cluster) -> tuple[str, dict[TopicPartition, int]]:
    """Return a source's engine, and the next offset to read of each partition; empty for other formats."""
    end = source.get("endOffset")
    text = end if isinstance(end, str) else json.dumps(end)
    if MARK in text:
        return "kafkalike", parse_ends(text)
    described, read = str(source.get("description", "")), parse_table(text)
    if read is None:
        return described, {}
    for info in cluster.topics().values():
        if info.table_id == read[0]:
            ends = dict.fromkeys(info.partitions, 0) | dict(ends_at(cluster, info, read[1]))
            return "delta", {TopicPartition(info.name, p): at for p, at in ends.items()}
    return described, {}


def _output_rows(progress: Mapping[str, Any]) -> int | None:
    observed = progress.get("observedMetrics", {}).get("kafkalike_sink", {}).get("numOutputRows")
    rows = progress.get("sink", {}).get("numOutputRows", -1) if observed is None else observed
    return None if rows is None or rows < 0 else int(rows)
