"""Holds: a topic and its settings in, the groups that retention waits for and how far they have read out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkalike.model.maintenance.retention import Hold
from kafkalike.model.structs import TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.cluster.cluster import Cluster
    from kafkalike.log.topic.topic_log import TopicLog
    from kafkalike.model.config.maintenance_config import MaintenanceConfig


def holds(cluster: Cluster, log: TopicLog, config: MaintenanceConfig) -> Mapping[int, Hold]:
    """By partition: who must have read before retention may delete; empty when the topic waits for nobody.

    A group that has committed nothing in a partition, or only in an earlier life of the topic's name, holds it from
    its log start on: a group that is named before its first read must not miss records. `max_ms` ends the waiting.
    """
    if not config.wait_groups:
        return {}
    state = cluster.groups.refresh()
    made = {}
    for partition in log.info.partitions:
        where = TopicPartition(log.info.name, partition)
        offsets = {}
        for group_id in config.wait_groups:
            commit = state.group(group_id).offsets.get(where)
            known = commit is not None and commit.topic_id in {"", log.info.topic_id}
            offsets[group_id] = commit.position.offset if commit is not None and known else log.log_start(partition)
        made[partition] = Hold(offsets=offsets, max_ms=config.wait_max_ms, max_bytes=config.wait_max_bytes)
    return made
