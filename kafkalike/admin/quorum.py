"""Quorum: who decides about topics, leaders and brokers, as kafka-python describes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kafkalike.admin.base import AdminBase

if TYPE_CHECKING:
    from kafkalike.model.replication.quorum_members import MetadataQuorum, QuorumMember

METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the log that a quorum decides; the table here has it, too."""

UNKNOWN: Final = -1


class QuorumOperations(AdminBase):
    """The voters."""

    def describe_metadata_quorum(self) -> dict[str, Any]:
        """Describe who decides about topics, leaders and brokers: the voters, and the roots that get a copy.

        They are roots, on which nothing runs: nobody leads, and each change is decided by a majority of them. Offsets
        are versions of the table `__cluster_metadata`; `leader_epoch` says how many times others have taken over.

        Returns:
            `{topics: [{topic_name, partitions: [{partition_index, leader_id: -1, leader_epoch, high_watermark,
            current_voters, observers, error: None}]}], nodes: [{node_id, listeners: [{name, host, port}]}]}`. Each
            voter and observer is `{replica_id, replica_directory_id, log_end_offset, last_fetch_timestamp,
            last_caught_up_timestamp}`: its directory's id is a text, times are ms since the epoch, and of one that
            gives no answer all is -1, as what nobody knows. A node's `host` is where the root is, its `port` -1.

        Raises:
            KafkaStorageError: no root in reach says who votes.
        """
        quorum = self._cluster.replication.quorum()
        described = {
            "partition_index": 0,
            "leader_id": UNKNOWN,
            "leader_epoch": quorum.epoch,
            "high_watermark": quorum.version + 1,
            "current_voters": [_state(quorum, member) for member in quorum.members if member.votes],
            "observers": [_state(quorum, member) for member in quorum.members if not member.votes],
            "error": None,
        }
        return {
            "topics": [{"topic_name": METADATA_TOPIC, "partitions": [described]}],
            "nodes": [
                {"node_id": m.broker, "listeners": [{"name": "CONTROLLER", "host": m.uri, "port": UNKNOWN}]}
                for m in quorum.members
            ],
        }


def _state(quorum: MetadataQuorum, member: QuorumMember) -> dict[str, Any]:
    caught_up_ms = quorum.caught_up_ms(member)
    return {
        "replica_id": member.broker,
        "replica_directory_id": member.id,
        "log_end_offset": member.log_end,
        "last_fetch_timestamp": UNKNOWN if member.time_ms is None else member.time_ms,
        "last_caught_up_timestamp": UNKNOWN if caught_up_ms is None else caught_up_ms,
    }
