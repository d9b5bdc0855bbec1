"""Offset requests: offsets by time, ends of leader epochs, and the deletion of records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kafkalike.admin.offset_operations import look_up
from kafkalike.errors import UnknownTopicOrPartitionError
from kafkalike.gateway import api_versions as keys
from kafkalike.gateway.api_versions import Answer
from kafkalike.gateway.error_codes import attempt
from kafkalike.gateway.gateway_cluster import Call, GatewayCluster, Handler
from kafkalike.gateway.handlers.cluster_metadata import LEADER_EPOCH, check_leader_epoch
from kafkalike.gateway.handlers.topic_tails import TopicTails
from kafkalike.model.structs import OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from kafkalike.log.topic.topic_log import TopicLog


class OffsetRequests:
    """Answers requests about offsets of logs.

    Args:
        home: the cluster.
        tails: the open logs.
    """

    def __init__(self, home: GatewayCluster, tails: TopicTails) -> None:
        self._home = home
        self._tails = tails

    @property
    def handlers(self) -> Mapping[int, Handler]:
        """The handlers by API key."""
        home = self._home
        return {
            keys.LIST_OFFSETS: home.in_thread(self._list),
            keys.OFFSET_FOR_LEADER_EPOCH: home.in_thread(self._epoch_ends),
            keys.DELETE_RECORDS: home.in_thread(self._delete),
        }

    def _list(self, call: Call) -> Answer:
        return {
            "topics": [
                {"name": topic.name, "partitions": [self._looked_up(topic.name, item) for item in topic.partitions]}
                for topic in call.body.topics
            ]
        }

    def _looked_up(self, name: str, item: Any) -> dict[str, Any]:  # noqa: ANN401
        outcome, found = attempt(self._tails.use, name, partial(_look_up, item=item))
        return {
            "partition_index": item.partition_index,
            "error_code": outcome.code,
            "timestamp": -1 if found is None else found.timestamp,
            "offset": -1 if found is None else found.offset,
            "leader_epoch": -1 if found is None or found.offset < 0 else LEADER_EPOCH,
        }

    def _epoch_ends(self, call: Call) -> Answer:
        return {
            "topics": [
                {"topic": topic.topic, "partitions": [self._epoch_end(topic.topic, item) for item in topic.partitions]}
                for topic in call.body.topics
            ]
        }

    def _epoch_end(self, name: str, item: Any) -> dict[str, Any]:  # noqa: ANN401
        outcome, end = attempt(self._tails.use, name, partial(_log_end, item=item))
        known = end is not None and item.leader_epoch == LEADER_EPOCH
        return {
            "partition": item.partition,
            "error_code": outcome.code,
            "leader_epoch": LEADER_EPOCH if known else -1,
            "end_offset": end if known else -1,
        }

    def _delete(self, call: Call) -> Answer:
        admin = self._home.admin()
        topics = []
        for topic in call.body.topics:
            partitions = []
            for item in topic.partitions:
                tp = TopicPartition(topic.name, int(item.partition_index))
                outcome, done = attempt(admin.delete_records, {tp: int(item.offset)})
                partitions.append(
                    {
                        "partition_index": tp.partition,
                        "error_code": outcome.code,
                        "low_watermark": -1 if done is None else done[tp]["low_watermark"],
                    }
                )
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}


def _look_up(log: TopicLog, item: Any) -> OffsetAndTimestamp:  # noqa: ANN401
    _check_partition(log, int(item.partition_index))
    check_leader_epoch(item)
    return look_up(log, int(item.partition_index), int(item.timestamp))


def _log_end(log: TopicLog, item: Any) -> int:  # noqa: ANN401
    _check_partition(log, int(item.partition))
    check_leader_epoch(item)
    return log.log_end(int(item.partition))


def _check_partition(log: TopicLog, partition: int) -> None:
    if partition not in log.info.partitions:
        raise UnknownTopicOrPartitionError(f"{log.info.name} has {log.info.num_partitions} partitions")
