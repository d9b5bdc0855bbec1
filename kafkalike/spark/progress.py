"""Progress: the offsets that a streaming query has done in, committed offsets of a consumer group out.

So `lag`, `kafkalike consumer-groups --describe` and every Kafka tool see how far a query is. The query itself never
starts from these offsets: its checkpoint is what counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from kafkalike.clock import SYSTEM_CLOCK, Clock
from kafkalike.errors import IllegalArgumentError
from kafkalike.group.offsets import GroupOffsets, Membership
from kafkalike.log.checkpoint import Checkpoint
from kafkalike.log.connect import connect
from kafkalike.log.port import Cluster
from kafkalike.model.names import check_group_id
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition

_log = logging.getLogger(__name__)


class GroupProgress:
    """A query's progress as committed offsets of one group. Belongs to one query."""

    def __init__(self, group_id: str, bootstrap_servers: Any = None, *, clock: Clock = SYSTEM_CLOCK) -> None:  # noqa: ANN401
        """Open the cluster of the topics that the query reads.

        Raises:
            InvalidGroupIdError: no such group can be.
        """
        self.group_id = check_group_id(group_id)
        self._cluster: Cluster = connect(bootstrap_servers)
        self._offsets = GroupOffsets.of(self._cluster, clock)
        self._committed: dict[TopicPartition, int] = {}
        self._ids: dict[str, str] = {}
        """Id of each topic at the last plan: offsets must not count for one that is created later."""

    def plan(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Offsets that can be committed for a batch; looked at before the batch writes anything.

        Args:
            ends: by partition, the next offset after the batch.

        Raises:
            IllegalArgumentError: no source of the query reads a topic of the cluster.
        """
        known = self._cluster.topics()
        self._ids = {topic: known[topic].topic_id for topic in {tp.topic for tp in ends} if topic in known}
        found = {tp: offset for tp, offset in ends.items() if tp.topic in known}
        if not found:
            read = ", ".join(sorted({tp.topic for tp in ends})) or "none that has Kafka's offsets"
            raise IllegalArgumentError(
                f"group {self.group_id!r}: the query reads no topic of the cluster {self._cluster.root!r} (it reads: "
                f"{read}); progress can be committed for sources of format kafkalike"
            )
        for topic in sorted({tp.topic for tp in ends} - set(known)):
            _log.warning("group %s: no offsets are committed for %s, which is gone", self.group_id, topic)
        return found

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
        if not ends or dict(ends) == self._committed:
            return False
        positions = {tp: OffsetAndMetadata(at, metadata) for tp, at in ends.items()}
        self._offsets.commit(Membership(group_id=self.group_id, client_id=client_id), positions, self._ids)
        self._committed = dict(ends)
        return True


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
        bootstrap_servers: Any = None,  # noqa: ANN401 - see `connect`
        *,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """See `GroupProgress` for the errors."""
        self._progress = GroupProgress(group_id, bootstrap_servers, clock=clock)
        self._checkpoint = Checkpoint(spark, checkpoint)

    def catch_up(self) -> int | None:
        """Commit the offsets of the newest batch that is done; see `GroupProgress` for the errors.

        Returns:
            The batch; None before the first one is done.
        """
        done = self._checkpoint.last_done()
        if done is None:
            return None
        self._progress.commit(
            self._progress.plan(done.ends),
            client_id=f"stream {self._checkpoint.query_id()}",
            metadata=f"batch {done.batch_id}",
        )
        return done.batch_id
