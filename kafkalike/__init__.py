"""kafkalike: topics that are Delta tables, with Kafka's model and kafka-python's names.

Names are loaded when they are first used, so that a program which only looks at a log starts no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.lazy import lazy_names
from kafkalike.version import __version__ as __version__

if TYPE_CHECKING:
    from kafkalike.admin import KafkaAdminClient as KafkaAdminClient
    from kafkalike.config.settings import AdminSettings as AdminSettings
    from kafkalike.config.settings import ConsumerSettings as ConsumerSettings
    from kafkalike.config.settings import ProducerSettings as ProducerSettings
    from kafkalike.consumer import ConsumerRebalanceListener as ConsumerRebalanceListener
    from kafkalike.consumer import KafkaConsumer as KafkaConsumer
    from kafkalike.corrections.forget import forget as forget
    from kafkalike.corrections.fork import Forked as Forked
    from kafkalike.corrections.fork import fork as fork
    from kafkalike.corrections.report import ForgetReport as ForgetReport
    from kafkalike.corrections.report import UndoReport as UndoReport
    from kafkalike.corrections.undo import undo as undo
    from kafkalike.cuts.take import snapshot as snapshot
    from kafkalike.cuts.value import Snapshot as Snapshot
    from kafkalike.cuts.value import TopicSnapshot as TopicSnapshot
    from kafkalike.dead_letters import DeadLetters as DeadLetters
    from kafkalike.group.assignors import PartitionAssignor as PartitionAssignor
    from kafkalike.lookup import KeyRecords as KeyRecords
    from kafkalike.lookup import find_records as find_records
    from kafkalike.model.structs import AlterConfigOp as AlterConfigOp
    from kafkalike.model.structs import ConfigResource as ConfigResource
    from kafkalike.model.structs import ConfigResourceType as ConfigResourceType
    from kafkalike.model.structs import ConsumerGroupMetadata as ConsumerGroupMetadata
    from kafkalike.model.structs import ConsumerRecord as ConsumerRecord
    from kafkalike.model.structs import IsolationLevel as IsolationLevel
    from kafkalike.model.structs import NewPartitions as NewPartitions
    from kafkalike.model.structs import NewTopic as NewTopic
    from kafkalike.model.structs import OffsetAndMetadata as OffsetAndMetadata
    from kafkalike.model.structs import OffsetAndTimestamp as OffsetAndTimestamp
    from kafkalike.model.structs import OffsetSpec as OffsetSpec
    from kafkalike.model.structs import RecordMetadata as RecordMetadata
    from kafkalike.model.structs import TopicPartition as TopicPartition
    from kafkalike.producer import KafkaProducer as KafkaProducer
    from kafkalike.producer import Transaction as Transaction
    from kafkalike.producer import transaction as transaction
    from kafkalike.serialization import DefaultSerializer as DefaultSerializer
    from kafkalike.serialization import Deserializer as Deserializer
    from kafkalike.serialization import JsonSerializer as JsonSerializer
    from kafkalike.serialization import Serializer as Serializer

_STRUCTS = (
    "AlterConfigOp",
    "ConfigResource",
    "ConfigResourceType",
    "ConsumerGroupMetadata",
    "ConsumerRecord",
    "IsolationLevel",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "RecordMetadata",
    "TopicPartition",
)

_HOME = {
    **dict.fromkeys(_STRUCTS, "kafkalike.model.structs"),
    "AdminSettings": "kafkalike.config.settings",
    "ConsumerRebalanceListener": "kafkalike.consumer",
    "ConsumerSettings": "kafkalike.config.settings",
    "DeadLetters": "kafkalike.dead_letters",
    "DefaultSerializer": "kafkalike.serialization",
    "Deserializer": "kafkalike.serialization",
    "JsonSerializer": "kafkalike.serialization",
    "KafkaAdminClient": "kafkalike.admin",
    "KafkaConsumer": "kafkalike.consumer",
    "KafkaProducer": "kafkalike.producer",
    "PartitionAssignor": "kafkalike.group.assignors",
    "ProducerSettings": "kafkalike.config.settings",
    "Serializer": "kafkalike.serialization",
    "Transaction": "kafkalike.producer",
    "transaction": "kafkalike.producer",
    "ForgetReport": "kafkalike.corrections.report",
    "Forked": "kafkalike.corrections.fork",
    "UndoReport": "kafkalike.corrections.report",
    "fork": "kafkalike.corrections.fork",
    "forget": "kafkalike.corrections.forget",
    "undo": "kafkalike.corrections.undo",
    "Snapshot": "kafkalike.cuts.value",
    "TopicSnapshot": "kafkalike.cuts.value",
    "snapshot": "kafkalike.cuts.take",
    "KeyRecords": "kafkalike.lookup",
    "find_records": "kafkalike.lookup",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    "__version__",
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)
