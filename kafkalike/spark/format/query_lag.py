"""The lag of a streaming query, and the offsets that it commits for a group."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalike.model.clock import Clock
from kafkalike.model.offsets import MARK
from kafkalike.model.structs import OffsetAndMetadata, TopicPartition
from kafkalike.spark.format.positions import offsets_of

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster


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


def offsets_behind(source: Any) -> dict[str, float]:  # noqa: ANN401 - a dict, or Spark's SourceProgress
    """How far a source of a streaming query is behind, in offsets of a partition.

    Spark's Kafka source puts the same figures into its progress as strings; a Python source cannot, so they are worked
    out of the offsets that are there.

    Args:
        source: an entry of `sources` of `StreamingQuery.lastProgress`.

    Returns:
        `minOffsetsBehindLatest`, `maxOffsetsBehindLatest` and `avgOffsetsBehindLatest`; empty before the first batch.
    """
    ends = _offsets(source, "endOffset")
    latest = _offsets(source, "latestOffset")
    behind = [max(0, at - ends.get(tp, 0)) for tp, at in latest.items()]
    if not ends or not behind:
        return {}
    return {
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _offsets(source: Any, name: str) -> dict[TopicPartition, int]:  # noqa: ANN401
    given = source.get(name) if isinstance(source, Mapping) else getattr(source, name)
    if isinstance(given, str):
        given = json.loads(given)
    return offsets_of({topic: by for topic, by in given.items() if topic != MARK}) if given else {}
