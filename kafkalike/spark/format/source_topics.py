"""The topics that a query reads: partitions, open logs, positions of a group in them, and records that are gone.

Lives as long as its planner. A log stays open between looks, so that a look costs a few file look-ups however many
files a topic has.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from kafkalike.connect import check_founded, connect
from kafkalike.errors import DataLossError, NoOffsetForPartitionError, TopicDeletedError, UnknownTopicOrPartitionError
from kafkalike.model.clock import SYSTEM_CLOCK, Clock
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.spark.format.positions import WORDS, AtOffsets, CommittedPosition, Position, Settled, names
from kafkalike.spark.format.source_options import SourceOptions

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.topic import TopicInfo


LOOKS: Final = 10
"""Looks in a row during which a topic may be deleted and created again before the look gives up."""


class SourceTopics:
    """The topics that a choice names, followed over time. Belongs to one thread.

    Args:
        options: of the query: where the cluster is, who asks for it, and which topics.
    """

    def __init__(self, options: SourceOptions) -> None:
        self.cluster: Cluster = connect(options.root, options.storage, read_from=options.read_from, access="spark")
        self._choice = options.choice
        self._logs: dict[str, TopicLog] = {}
        self.unread: Collection[str] = ()
        """Topics that exist and that the choice does not name, as of the last look."""

    def look(self) -> frozenset[TopicPartition]:
        """Partitions that are to be read, as of now; their logs are fresh after it.

        A topic or partition that is named but does not exist is left out; see `missing`.
        """
        for _ in range(LOOKS - 1):
            try:
                return self._look()
            except UnknownTopicOrPartitionError:
                # Deleted between the list of topics and the look at its log.
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
            except TopicDeletedError:
                del self._logs[name]
                raise
        else:
            self._logs[name] = self.cluster.log(name)

    def log(self, topic: str) -> TopicLog:
        """The log of a topic that the last look has found."""
        return self._logs[topic]

    def ids(self) -> Mapping[str, str]:
        """Id of each topic's table, as of the last look: the same in a mirror, where a checkpoint goes on."""
        return {name: log.info.table_id for name, log in self._logs.items()}

    def topic_ids(self) -> Mapping[str, str]:
        """Id of each topic, as of the last look, by which groups commit their offsets."""
        return {name: log.info.topic_id for name, log in self._logs.items()}

    def missing(self, found: frozenset[TopicPartition]) -> list[str]:
        """Topics and partitions that the choice names and that do not exist."""
        topics = {tp.topic for tp in found}
        lost = [f"{tp.topic}-{tp.partition}" for tp in sorted(self._choice.assign - found)]
        return lost or [name for name in self._choice.named if name not in topics]

    def require(self, found: frozenset[TopicPartition]) -> None:
        """Refuse a choice that names what does not exist.

        Raises:
            KafkaConnectionError: there is no cluster.
            UnknownTopicOrPartitionError: naming it.
        """
        if not found:
            check_founded(self.cluster)
        missing = self.missing(found)
        if missing:
            raise UnknownTopicOrPartitionError(
                f"{', '.join(missing)}: no such topic or partition in {self.cluster.root}"
            )


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
    """What a group has committed, as offsets; other positions as they are.

    Offsets that were committed for an earlier topic of the same name do not count.

    Args:
        position: what the options say.
        chosen: the partitions that are read.
        cluster: where the group is.
        topic_ids: id of each topic that is read.
        group_id: the group; it need not exist.
        otherwise: the mark at which a query begins that is told nothing.
        clock: of the group.

    Raises:
        NoOffsetForPartitionError: nothing is committed for a partition, and `auto.offset.reset` is `none`.
    """
    if not isinstance(position, CommittedPosition):
        return position
    # Only here: most queries begin elsewhere.
    from kafkalike.log.group.group_offsets import GroupOffsets

    found = GroupOffsets.of(cluster, clock).committed(group_id or "", chosen, topic_ids)
    missing = sorted(set(chosen) - found.keys())
    if missing and position.reset == NONE:
        raise NoOffsetForPartitionError(
            f"group {group_id!r} has committed nothing for {names(missing)}, and auto.offset.reset is none"
        )
    mark = otherwise if position.reset is None else WORDS[position.reset]
    return AtOffsets({**dict.fromkeys(missing, mark), **{tp: at.offset for tp, at in found.items()}})


CLIENT: Final = "spark-stream"
"""Client id under which a query's progress is committed."""


def commit_progress(
    cluster: Cluster, group_id: str, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str], clock: Clock
) -> None:
    """Commit offsets for a group that has no members.

    Raises:
        CommitFailedError: the group has members.
        KafkaError: the offsets could not be written.
    """
    # Only here: most queries show no group.
    from kafkalike.log.group.group_offsets import GroupOffsets, Membership

    known = {tp: OffsetAndMetadata(at) for tp, at in offsets.items() if tp.topic in topic_ids}
    membership = Membership(group_id=group_id, client_id=CLIENT)
    GroupOffsets.of(cluster, clock).commit(membership, known, topic_ids)


GONE: Final = (
    "Some records may have been lost because they are not available any more; either they were aged out, or the topic "
    "was deleted. Set failOnDataLoss to false to go on without them"
)

_log = logging.getLogger(__name__)


def report_loss(kind: str, message: str, *, fail: bool, hint: str | None = None) -> None:
    """Say that records may have been lost.

    Args:
        kind: Spark's sub-class of `KAFKA_DATA_LOSS`.
        message: names topic, partition, offsets and reason.
        fail: whether it is an error (`failOnDataLoss`); else it is a warning in the driver's log.
        hint: what to do; None for what helps when records are gone.

    Raises:
        DataLossError: `fail` says so.
    """
    text = f"KAFKA_DATA_LOSS.{kind}: {message}"
    if fail:
        raise DataLossError(f"{text}. {hint or GONE}")
    _log.warning("%s; the query goes on, as failOnDataLoss is false", text)
