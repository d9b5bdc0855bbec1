"""The topics of a query: partitions, open logs, a group's committed offsets, and reports of lost records.

The object lives as long as the query's planner. Logs stay open, so a refresh costs a few file look-ups, whatever the
number of files of a topic.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalike import errors
from kafkalike.connect import check_founded, connect
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.lag import PartitionIndex
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.spark.format.positions import WORDS, AtOffsets, CommittedPosition, Position, Settled, names
from kafkalike.spark.format.source_options import SourceOptions

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


LOOKS: Final = 10
"""Attempts to list the topics while a topic is being deleted and created again."""


def is_in_folder(cluster: Cluster) -> bool:
    """Return whether a cluster is one folder of this machine. Spark's reader knows no replicas or keys of stores."""
    return "," not in cluster.root and not cluster.store.scheduler.is_remote


class SourceTopics:
    """The topics that the options name, followed over time. To be used by one thread.

    Args:
        options: of the query, with the cluster, its credentials, and the topics.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.cluster: Cluster = connect(options.root, options.storage, read_from=options.read_from, access="spark")
        self._choice = options.choice
        self._logs: dict[str, TopicLog] = {}
        self.unread: Collection[str] = ()
        """Existing topics that the options do not name, as of the last `look`."""

    def look(self) -> frozenset[TopicPartition]:
        """Refresh the logs, and return the partitions to read.

        A named topic or partition that does not exist is left out; see `missing`.
        """
        for _ in range(LOOKS - 1):
            try:
                return self._look()
            except errors.UnknownTopicOrPartitionError:
                # Deleted between the list of topics and the refresh of its log.
                continue
        return self._look()

    def _look(self) -> frozenset[TopicPartition]:
        every = self.cluster.topics()
        infos = {name: info for name, info in every.items() if self._choice.matches(name)}
        self.unread = every.keys() - infos.keys()
        for name in self._logs.keys() - infos.keys():
            del self._logs[name]
        since = self.cluster.look_ahead(self._logs.values())
        opened = self.cluster.open_ahead(infos.keys() - self._logs.keys())
        self._logs.update(opened)
        for name, info in infos.items():
            if name not in opened:
                self._open(name, info, since)
        existing = {TopicPartition(name, p) for name, log in self._logs.items() for p in log.info.partitions}
        return frozenset(existing & self._choice.assign if self._choice.assign else existing)

    def _open(self, name: str, info: TopicInfo, since: float) -> None:
        log = self._logs.get(name)
        if log is not None and log.info.topic_id == info.topic_id:
            try:
                log.refresh(metadata=False, since=since)
            except errors.TopicDeletedError:
                del self._logs[name]
                raise
        else:
            self._logs[name] = self.cluster.log(name)

    def log(self, topic: str) -> TopicLog:
        """Return the log of a topic that the last `look` found."""
        return self._logs[topic]

    def are_ours(self, found: Collection[TopicPartition]) -> bool:
        """Return True if other writers neither may change topics of the last `look`, nor did.

        Spark's reader neither checks nor sorts the records of their files.
        """
        logs = [self.log(name) for name in {tp.topic for tp in found}]
        closed = self.cluster.server.is_closed
        return all(closed(log.info.configs) and not log.is_rewritten for log in logs)

    def lags(self, latest: Mapping[TopicPartition, int], consumed: Mapping[TopicPartition, int]) -> dict[str, float]:
        """Return the metrics of a source in its query's progress, without reading records.

        Spark's Kafka source has the first three. For each topic there are also `lagRecords.<topic>`, in offsets, and
        `lagSeconds.<topic>`: the time of the newest record minus that of the last one read, in the partition that is
        furthest behind.

        Args:
            latest: log ends at the last `look`.
            consumed: offsets that the query has read up to.
        """
        behind = {tp: max(0, latest[tp] - at) for tp, at in consumed.items() if tp in latest}
        if not behind:
            return {}
        found: dict[str, float] = {
            "minOffsetsBehindLatest": min(behind.values()),
            "maxOffsetsBehindLatest": max(behind.values()),
            "avgOffsetsBehindLatest": sum(behind.values()) / len(behind),
        }
        for tp, offsets in behind.items():
            records, seconds = f"lagRecords.{tp.topic}", f"lagSeconds.{tp.topic}"
            found[records] = found.get(records, 0) + offsets
            found[seconds] = max(found.get(seconds, 0.0), self._behind_seconds(tp, consumed[tp], latest[tp]))
        return found

    def _behind_seconds(self, tp: TopicPartition, at: int, end: int) -> float:
        if at >= end:
            return 0.0
        log = self.log(tp.topic)
        ends = (log.segment_at_or_after(tp.partition, offset) for offset in (at - 1, end - 1))
        segments = sorted({segment for segment in ends if segment is not None}, key=lambda segment: segment.start)
        return PartitionIndex(log.log_start(tp.partition), end, segments).lag(at).behind_ms / 1000

    def next_files(self) -> list[str]:
        """Return the files whose appearance is the only news that a `look` can find; empty if that is not known."""
        found = [self.cluster.metadata.next_file, *(log.next_file for log in self._logs.values())]
        return [f"{self.cluster.store.uri}/{file}" for file in found] if all(found) else []

    def ids(self) -> Mapping[str, str]:
        """Return the id of each topic's table, as of the last `look`.

        A mirror has the same ids, so a query can continue there with its checkpoint.
        """
        return {name: log.info.table_id for name, log in self._logs.items()}

    def topic_ids(self) -> Mapping[str, str]:
        """Return the id of each topic, as of the last `look`, with which groups commit their offsets."""
        return {name: log.info.topic_id for name, log in self._logs.items()}

    def before(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of partitions by table id, the present and earlier ones, of repartitioned topics."""
        found: dict[str, dict[str, int]] = {}
        for log in self._logs.values():
            if log.info.ancestors:
                counts: dict[str, int] = {one.table_id: one.num_partitions for one in log.info.ancestors}
                found[log.info.name] = {**counts, log.info.table_id: log.info.num_partitions}
        return found

    def missing(self, found: frozenset[TopicPartition]) -> list[str]:
        """Return named topics and partitions that do not exist."""
        topics = {tp.topic for tp in found}
        lost = [f"{tp.topic}-{tp.partition}" for tp in sorted(self._choice.assign - found)]
        return lost or [name for name in self._choice.named if name not in topics]

    def require(self, found: frozenset[TopicPartition]) -> None:
        """Refuse named topics and partitions that do not exist.

        Raises:
            KafkaConnectionError: the root has no cluster.
            UnknownTopicOrPartitionError: names the missing topics and partitions.
        """
        if not found:
            check_founded(self.cluster)
        missing = self.missing(found)
        if missing:
            raise errors.UnknownTopicOrPartitionError(
                f"{', '.join(missing)}: no such topic or partition in {self.cluster.root}"
            )


def offsets_of_table(topics: SourceTopics, given: Mapping[str, Any]) -> tuple[dict[TopicPartition, int], str]:
    """Return the offsets at which Delta's source stands in a topic, and the topic, to continue its query.

    Args:
        topics: the topics of the query.
        given: offsets of Delta's source: all earlier versions of the table are read, and the files up to an index.

    Raises:
        CheckpointMismatchError: the query does not read this table, or the offsets do not tell which records were read.
    """
    # Imported here, because most queries never had another engine.
    from kafkalike.log.cluster.topic_lineage import ends_at
    from kafkalike.log.topic.topic_commits import segments_added

    table, version, index = str(given.get("reservoirId")), given.get("reservoirVersion"), given.get("index")
    topics.look()
    names = [name for name, known in topics.ids().items() if known == table]
    if not names:
        raise errors.CheckpointMismatchError(
            f"the checkpoint belongs to Delta's source of the table {table}, which is not the table of a topic of this "
            "query: the topic was deleted, or created again. Start the query with a new checkpointLocation"
        )
    info = topics.log(names[0]).info
    try:
        if given.get("isStartingVersion") is not False or type(version) is not int or type(index) is not int:
            raise errors.CheckpointMismatchError(
                "it still reads the files of the table's first snapshot, which have no order"
            )
        ends = dict.fromkeys(info.partitions, 0)
        ends |= dict(ends_at(topics.cluster, info, version - 1)) if version else {}
        for segment in segments_added(topics.cluster.files_of(info), version)[: index + 1] if index >= 0 else ():
            if segment.start != ends[segment.partition]:
                raise errors.CheckpointMismatchError(f"version {version} of the table does not have its files in order")
            ends[segment.partition] = segment.stop
    except errors.KafkaError as cause:
        raise errors.CheckpointMismatchError(
            f"{info.name}: the checkpoint is of Delta's source, and the format cannot continue it: {cause}. Continue "
            'with read_stream(engine="delta"), or start with a new checkpointLocation'
        ) from cause
    return {TopicPartition(info.name, partition): end for partition, end in ends.items()}, info.name


NONE: Final = "none"


def where_it_stands(
    position: Position,
    chosen: Collection[TopicPartition],
    cluster: Cluster,
    topic_ids: Mapping[str, str],
    *,
    group_id: str | None,
    otherwise: int,
    clock: Clock = SYSTEM_CLOCK,
) -> Settled:
    """Replace a group's position by its committed offsets; return other positions as they are.

    Offsets that were committed for an earlier topic of the same name do not count.

    Args:
        position: a position from the options.
        chosen: the partitions to read.
        cluster: the group's cluster.
        topic_ids: id of each topic to read.
        group_id: the group; it need not exist.
        otherwise: the mark for partitions without a committed offset, if the options set none.
        clock: of the group.

    Raises:
        NoOffsetForPartitionError: a partition has no committed offset, and `auto.offset.reset` is `none`.
    """
    if not isinstance(position, CommittedPosition):
        return position
    # Imported here, because most queries do not need it.
    from kafkalike.log.group.group_offsets import GroupOffsets

    found = GroupOffsets.of(cluster, clock).committed(group_id or "", chosen, topic_ids)
    missing = sorted(set(chosen) - found.keys())
    if missing and position.reset == NONE:
        raise errors.NoOffsetForPartitionError(
            f"group {group_id!r} has committed nothing for {names(missing)}, and auto.offset.reset is none"
        )
    mark = otherwise if position.reset is None else WORDS[position.reset]
    return AtOffsets({**dict.fromkeys(missing, mark), **{tp: at.offset for tp, at in found.items()}})


CLIENT: Final = "spark-stream"
"""Client id under which a query's progress is committed."""


def commit_progress(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str], clock: Clock
) -> None:
    """Commit offsets for a group without members.

    Raises:
        CommitFailedError: the group has members.
        KafkaError: the offsets could not be written.
    """
    # Imported here, because most queries do not name a group.
    from kafkalike.log.group.group_offsets import GroupOffsets, Membership

    known = {tp: OffsetAndMetadata(at) for tp, at in offsets.items() if tp.topic in topic_ids}
    membership = Membership(group_id=group_id, client_id=CLIENT)
    GroupOffsets.of(cluster, clock).commit(membership, known, topic_ids)


GONE: Final = (
    "Some records may have been lost because they are not available any more; either they were aged out, or the topic "
    "was deleted. Set failOnDataLoss to false to continue without them"
)

_log = logging.getLogger(__name__)


def report_loss(kind: str, message: str, *, fail: bool, hint: str | None = None) -> None:
    """Raise or log that records may have been lost.

    Args:
        kind: Spark's sub-class of `KAFKA_DATA_LOSS`.
        message: names topic, partition, offsets and reason.
        fail: whether it is an error (`failOnDataLoss`); otherwise a warning in the driver's log.
        hint: advice for the user; None for the advice about lost records.

    Raises:
        DataLossError: with `fail`.
    """
    text = f"KAFKA_DATA_LOSS.{kind}: {message}"
    if fail:
        raise errors.DataLossError(f"{text}. {hint or GONE}")
    _log.warning("%s; the query continues, because failOnDataLoss is false", text)
