"""Topic: what the cluster's metadata says about one topic."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafkalike.errors import MirrorTopicError
from kafkalike.model.clock import utc_text
from kafkalike.model.mirror import Mirrored
from kafkalike.model.names import TopicId, TopicName


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Where a partition's log begins, and why it does not begin at 0."""

    offset: int
    reason: str
    """Who moved it: `retention`, `delete_records` …"""
    run: str
    """Id of the run that moved it."""
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """One topic, as of one state of the cluster's metadata."""

    name: TopicName
    topic_id: TopicId
    """Offsets and transactions name it: a topic that is deleted and created or mirrored again has another one."""
    location: str
    """Folder of its table, relative to the root."""
    num_partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """Only the settings that were set on this topic, by Kafka's dotted names."""
    log_starts: Mapping[int, LogStart] = field(default_factory=dict)
    """Only the partitions whose log start was moved."""
    created_ms: int = 0
    origin_id: TopicId | None = None
    """Id of the Delta table where that is not `topic_id`: the table of a mirror has its source's, and the name was used
    here before, so offsets and transactions of an earlier topic may name that id."""
    mirror: Mirrored | None = None
    """Of which cluster's topic it is a read-only copy; None for a topic of this cluster's own."""

    @property
    def table_id(self) -> TopicId:
        """Id of the topic's Delta table. Checkpoints of streams name it, as mirrors have tables of the same id."""
        return self.origin_id or self.topic_id

    def check_own(self) -> None:
        """Refuse a change of a topic that is a read-only copy.

        Raises:
            MirrorTopicError: it is; says of what.
        """
        if self.mirror is not None:
            raise MirrorTopicError(self.name, self.mirror.source, self.mirror.phase)

    def log_start(self, partition: int) -> int:
        """First offset of a partition that may be read."""
        moved = self.log_starts.get(partition)
        return 0 if moved is None else moved.offset

    def why_gone(self, partition: int, position: int) -> str:
        """Who moved the log start past an offset, when and in which run; empty when the offset is not below it."""
        moved = self.log_starts.get(partition)
        if moved is None or position >= moved.offset:
            return ""
        at = utc_text(moved.time_ms)
        return f"log start moved to {moved.offset} by {moved.reason}, run {moved.run}, at {at}"

    @property
    def partitions(self) -> range:
        """Its partition numbers."""
        return range(self.num_partitions)
