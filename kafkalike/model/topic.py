"""Topic: the facts about one topic in the cluster's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalike.errors import MirrorTopicError, ReassignmentInProgressError
from kafkalike.model.clock import utc_text
from kafkalike.model.mirror import Mirrored
from kafkalike.model.names import TopicId, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """The start of a partition's log, and the run that moved it."""

    offset: int
    reason: str
    """Operation that moved it: `retention`, `delete_records` …"""
    run: str
    """Id of the run that moved it."""
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestor:
    """A topic before it was repartitioned. Records have kept their offsets, and moved to partitions of its families."""

    topic_id: TopicId
    table_id: TopicId
    num_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RepartitionTarget:
    """The topic that will take a topic's name when its repartition ends."""

    topic_id: TopicId
    """Also the id of its table."""
    location: str
    """Folder of its table, relative to the root."""
    num_partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic, as of one state of the cluster's metadata."""

    name: TopicName
    topic_id: TopicId
    """Offsets and transactions refer to it: a topic that is deleted and created or mirrored again gets another id."""
    location: str
    """Folder of its table, relative to the root."""
    num_partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Settings of this topic itself, by Kafka's dotted names; defaults are not included."""
    log_starts: Mapping[int, LogStart] = field(default_factory=dict)
    """Log starts of the partitions whose log start was moved."""
    created_ms: int = 0
    origin_id: TopicId | None = None
    """Id of the Delta table if it differs from `topic_id`. The table of a mirror has the id of its source's table; if
    the name has been used in this cluster before, offsets and transactions of an earlier topic may refer to that id."""
    mirror: Mirrored | None = None
    """State of the mirror if the topic is a read-only copy; None for a topic of this cluster's own."""
    ancestors: tuple[Ancestor, ...] = ()
    """The topic before each of its repartitions, oldest first."""
    target: RepartitionTarget | None = None
    """The target of a repartition that has not ended."""

    @property
    def table_id(self) -> TopicId:
        """Id of the topic's Delta table. Checkpoints of streams use it, because mirrors share it."""
        return self.origin_id or self.topic_id

    def check_own(self) -> None:
        """Reject a change of a topic that is a read-only copy.

        Raises:
            MirrorTopicError: the topic is a mirror; the error names its source.
        """
        if self.mirror is not None:
            raise MirrorTopicError(self.name, self.mirror.source, self.mirror.phase)

    def check_settled(self) -> None:
        """Reject a change that a running repartition would lose.

        Raises:
            ReassignmentInProgressError: the topic is being repartitioned; the error says how to finish that.
        """
        if self.target is not None:
            raise ReassignmentInProgressError(
                f"topic {self.name!r} is being repartitioned to {self.target.num_partitions} partitions; finish that "
                f"first: {finishing(self.name, self.target.num_partitions)}"
            )

    def partitions_as(self, id_before: str) -> int | None:
        """Return the number of partitions of the ancestor with this topic id or table id; None without one."""
        for one in self.ancestors:
            if id_before in {one.topic_id, one.table_id}:
                return one.num_partitions
        return None

    def log_start(self, partition: int) -> int:
        """Return the first readable offset of a partition."""
        moved = self.log_starts.get(partition)
        return 0 if moved is None else moved.offset

    def why_gone(self, partition: int, position: int) -> str:
        """Explain which run moved the log start past an offset; empty if it is not below the log start."""
        moved = self.log_starts.get(partition)
        if moved is None or position >= moved.offset:
            return ""
        at = utc_text(moved.time_ms)
        return f"log start moved to {moved.offset} by {moved.reason}, run {moved.run}, at {at}"

    @property
    def partitions(self) -> range:
        """Numbers of the topic's partitions."""
        return range(self.num_partitions)


def finishing(topic: str, partitions: int) -> str:
    """Return the command that finishes an interrupted repartition."""
    return f"`kafkalike topics --repartition --topic {topic} --partitions {partitions}`"
