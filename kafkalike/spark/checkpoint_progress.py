"""The offsets that a streaming query has read, by its checkpoint, as committed offsets of a consumer group.

So `lag`, `kafkalike consumer-groups --describe` and every Kafka tool see how far a query is. The query itself never
starts from these offsets: its checkpoint is what counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from kafkalike.connect import connect
from kafkalike.errors import IllegalArgumentError, KafkaError
from kafkalike.log.cluster.topic_lineage import ends_at
from kafkalike.log.group.group_offsets import GroupOffsets, Membership, check_position
from kafkalike.model.clock import SYSTEM_CLOCK, Clock, utc_text
from kafkalike.model.config.storage_options import Address, StorageOptionsLike
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.model.topic import TopicInfo
from kafkalike.model.transactions.group_claims import GroupClaim
from kafkalike.spark.jvm.stream_checkpoint import BatchOffsets, StreamCheckpoint

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


_log = logging.getLogger(__name__)


class GroupProgress:
    """A query's progress as committed offsets of one group. Belongs to one query."""

    def __init__(
        self,
        group_id: str,
        bootstrap_servers: Address | None = None,
        *,
        storage_options: StorageOptionsLike | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Open the cluster of the topics that the query reads.

        Raises:
            InvalidGroupIdError: no such group can be.
        """
        self.group_id = check_group_id(group_id)
        self._cluster: Cluster = connect(bootstrap_servers, storage_options)
        self._offsets = GroupOffsets.of(self._cluster, clock)
        self._committed: dict[TopicPartition, tuple[str, int]] = {}
        self._ids: dict[str, str] = {}
        """Id of each topic that the last plan's offsets belong to; they must not count for one that came later."""

    def plan(self, batch: BatchOffsets) -> dict[TopicPartition, int]:
        """Offsets that can be committed for a batch; looked at before the batch writes anything.

        A checkpoint names topics without their ids. Offsets count for a topic that there was when the batch was
        planned; those of one that was deleted and created again since are left out, with a warning.

        Args:
            batch: its offsets, by the checkpoint.

        Returns:
            By partition, the next offset after the batch.

        Raises:
            IllegalArgumentError: no source of the query reads a topic of the cluster.
        """
        ends, known = dict(batch.ends), self._cluster.topics()
        tables = {info.table_id: info for info in known.values() if info.table_id in batch.tables}
        for info in tables.values():
            ends |= self._ends_of_table(info, batch.tables[info.table_id])
        if not ends and batch.reads_tables:
            # A source of Delta that has read no version to its end yet, or whose topic has gone.
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
            # A table's id is that of its topic, so its offsets are no other topic's.
            own = any(info.name == topic for info in tables.values())
            why = None if own else _not_its(known.get(topic), batch)
            if why is None:
                self._ids[topic] = known[topic].topic_id
            else:
                _log.warning("group %s: no offsets are committed for %s: %s", self.group_id, topic, why)
        return {tp: offset for tp, offset in ends.items() if tp.topic in self._ids}

    def _ends_of_table(self, info: TopicInfo, version: int) -> dict[TopicPartition, int]:
        """Where a topic ended at a version of its table; nothing where its log does not say so any more."""
        try:
            found = ends_at(self._cluster, info, version)
        except KafkaError as cause:
            _log.warning("group %s: no offsets are committed for %s: %s", self.group_id, info.name, cause)
            return {}
        return {TopicPartition(info.name, partition): end for partition, end in found.items()}

    @property
    def root(self) -> str:
        """The cluster of the group."""
        return self._cluster.root

    def claimed(
        self, ends: Mapping[TopicPartition, int], *, client_id: str, metadata: str = ""
    ) -> tuple[GroupClaim, dict[TopicPartition, OffsetAndMetadata]]:
        """The same offsets for a transaction that commits them together with records.

        Args:
            ends: what `plan` gave.
            client_id: who commits, for people.
            metadata: kept with each offset.

        Returns:
            The claim, by which the group must have no members, and the topics still be those of the plan.
        """
        lives = tuple(sorted((topic, self._ids[topic]) for topic in {tp.topic for tp in ends}))
        claim = GroupClaim(group_id=self.group_id, client_id=client_id, alone=True, lives=lives)
        checked = {
            tp: check_position(tp, OffsetAndMetadata(at, metadata), self._offsets.max_metadata_bytes)
            for tp, at in ends.items()
        }
        return claim, checked

    def commit(self, ends: Mapping[TopicPartition, int], *, client_id: str, metadata: str = "") -> bool:
        """Commit offsets; does nothing for those that this object has committed already.

        Args:
            ends: by partition, the next offset to read; what `plan` gave.
            client_id: who commits, for people.
            metadata: kept with each offset.

        Returns:
            Whether anything was written.

        Raises:
            CommitFailedError: the group has members, who alone may commit then; nothing was committed.
            KafkaTimeoutError: others were faster until time ran out; nothing was committed.
            UnknownOutcomeError: the commit may have happened; committing again is harmless.
        """
        wanted = {tp: (self._ids[tp.topic], at) for tp, at in ends.items()}
        if not ends or wanted == self._committed:
            return False
        positions = {tp: OffsetAndMetadata(at, metadata) for tp, at in ends.items()}
        self._offsets.commit(Membership(group_id=self.group_id, client_id=client_id), positions, self._ids)
        self._committed = wanted
        return True


def _not_its(topic: TopicInfo | None, batch: BatchOffsets) -> str | None:
    """Why the offsets of a batch are not, or may not be, those of a topic; None when they are."""
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
    """Commits, for a group, how far a query is by its checkpoint: for queries whose sink is Spark's own.

    A batch counts when Spark has marked it as done, which comes after its output: the group never points past what
    was written, and `catch_up` after a crash commits what the crash left out.
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
        """See `GroupProgress` for the errors."""
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
