"""Admin: topics, partitions, settings and groups, looked at and changed through kafka-python's `KafkaAdminClient`.

The names are those of `kafka.admin`.
"""

from kafkalike.admin.client import KafkaAdminClient
from kafkalike.model.structs import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    GroupState,
    GroupType,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
)

__all__ = [
    "AlterConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
]
