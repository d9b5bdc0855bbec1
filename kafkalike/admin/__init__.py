"""Admin client for topics, partitions, settings, groups and transactions: kafka-python's `KafkaAdminClient`.

Names follow `kafka.admin`.
"""

from kafkalike.admin.admin_client import KafkaAdminClient
from kafkalike.admin.config_operations import ConfigFilterType
from kafkalike.admin.group_operations import GroupInformation, MemberInformation
from kafkalike.admin.transaction_operations import (
    AbortTransactionSpec,
    PartitionProducerState,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
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
from kafkalike.model.transactions.transaction_views import ProducerIdAndEpoch, TransactionState

__all__ = [
    "AbortTransactionSpec",
    "AlterConfigOp",
    "ConfigFilterType",
    "ConfigResource",
    "ConfigResourceType",
    "GroupInformation",
    "GroupState",
    "GroupType",
    "KafkaAdminClient",
    "MemberInformation",
    "MemberToRemove",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "OffsetTimestamp",
    "PartitionProducerState",
    "ProducerIdAndEpoch",
    "ProducerState",
    "TransactionDescription",
    "TransactionListing",
    "TransactionState",
]
