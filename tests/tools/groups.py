"""Groups: what a group has committed in, rows of the group table out."""

from kafkalike.log.cluster.cluster import Cluster
from kafkalike.log.group.group_offsets import GroupOffsets, Membership
from kafkalike.model.clock import SYSTEM_CLOCK
from kafkalike.model.group_rows import OFFSET, GroupRow
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition


def commit(cluster: Cluster, offset: int, *, group: str = "g", partition: int = 0) -> None:
    """Commit an offset of topic `t`, as a consumer without membership does."""
    wanted = {TopicPartition("t", partition): OffsetAndMetadata(offset, "")}
    ids = {"t": str(cluster.topic("t").topic_id)}
    GroupOffsets.of(cluster, SYSTEM_CLOCK).commit(Membership(group_id=group), wanted, ids)


def commit_row(
    cluster: Cluster, offset: int | None, *, group: str = "g", topic_id: str | None = None, at_ms: int = 1
) -> None:
    """Write the row of a commit of `t-0`, of any time and topic id; offset None removes the commit."""
    topic_id = topic_id or cluster.topic("t").topic_id
    cluster.groups.transact(
        lambda state: [
            GroupRow(
                seq=state.seq + 1,
                kind=OFFSET,
                group_id=group,
                topic="t",
                topic_id=topic_id,
                partition=0,
                offset=offset,
                time_ms=at_ms,
            )
        ]
    )
