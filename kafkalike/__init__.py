"""kafkalike: topics that are Delta tables, with Kafka's model and kafka-python's names.

Names are loaded when they are first used, so that a program which only looks at a log starts no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalike.model.public_names import lazy_names, serve_public_paths
from kafkalike.version import __version__ as __version__

if TYPE_CHECKING:
    from kafkalike.admin.admin_client import KafkaAdminClient as KafkaAdminClient
    from kafkalike.admin.dead_letter_queue import DeadLetters as DeadLetters
    from kafkalike.admin.record_lookup import KeyRecords as KeyRecords
    from kafkalike.admin.record_lookup import find_records as find_records
    from kafkalike.consumer.kafka_consumer import KafkaConsumer as KafkaConsumer
    from kafkalike.consumer.share_consumer import KafkaShareConsumer as KafkaShareConsumer
    from kafkalike.consumer.subscription import ConsumerRebalanceListener as ConsumerRebalanceListener
    from kafkalike.log.group.assignors import PartitionAssignor as PartitionAssignor
    from kafkalike.log.snapshots import Snapshot as Snapshot
    from kafkalike.log.snapshots import TopicSnapshot as TopicSnapshot
    from kafkalike.maintenance.correction_report import ForgetReport as ForgetReport
    from kafkalike.maintenance.correction_report import UndoReport as UndoReport
    from kafkalike.maintenance.forget import ForgetOptions as ForgetOptions
    from kafkalike.maintenance.forget import forget as forget
    from kafkalike.maintenance.fork import Forked as Forked
    from kafkalike.maintenance.fork import fork as fork
    from kafkalike.maintenance.repartition import Repartitioned as Repartitioned
    from kafkalike.maintenance.repartition import repartition as repartition
    from kafkalike.maintenance.topic_snapshots import snapshot as snapshot
    from kafkalike.maintenance.undo import undo as undo
    from kafkalike.maintenance.verify.repair import RepairReport as RepairReport
    from kafkalike.maintenance.verify.repair import repair as repair
    from kafkalike.maintenance.verify.verify import verify as verify
    from kafkalike.maintenance.verify.verify_report import Finding as Finding
    from kafkalike.maintenance.verify.verify_report import VerifyReport as VerifyReport
    from kafkalike.model.config.setting_types import AdminSettings as AdminSettings
    from kafkalike.model.config.setting_types import ConsumerSettings as ConsumerSettings
    from kafkalike.model.config.setting_types import ProducerSettings as ProducerSettings
    from kafkalike.model.structs import AcknowledgeType as AcknowledgeType
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
    from kafkalike.model.structs import ShareGroupMetadata as ShareGroupMetadata
    from kafkalike.model.structs import TopicPartition as TopicPartition
    from kafkalike.producer.kafka_producer import KafkaProducer as KafkaProducer
    from kafkalike.producer.kafka_producer import Transaction as Transaction
    from kafkalike.producer.kafka_producer import transaction as transaction
    from kafkalike.schemas.serialization import DefaultSerializer as DefaultSerializer
    from kafkalike.schemas.serialization import Deserializer as Deserializer
    from kafkalike.schemas.serialization import JsonSerializer as JsonSerializer
    from kafkalike.schemas.serialization import Serializer as Serializer

_STRUCTS = (
    "AcknowledgeType",
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
    "ShareGroupMetadata",
    "TopicPartition",
)

_HOME = {
    **dict.fromkeys(_STRUCTS, "kafkalike.model.structs"),
    "AdminSettings": "kafkalike.model.config.setting_types",
    "ConsumerRebalanceListener": "kafkalike.consumer.subscription",
    "ConsumerSettings": "kafkalike.model.config.setting_types",
    "DeadLetters": "kafkalike.admin.dead_letter_queue",
    "DefaultSerializer": "kafkalike.schemas.serialization",
    "Deserializer": "kafkalike.schemas.serialization",
    "JsonSerializer": "kafkalike.schemas.serialization",
    "KafkaAdminClient": "kafkalike.admin.admin_client",
    "KafkaConsumer": "kafkalike.consumer.kafka_consumer",
    "KafkaShareConsumer": "kafkalike.consumer.share_consumer",
    "KafkaProducer": "kafkalike.producer.kafka_producer",
    "PartitionAssignor": "kafkalike.log.group.assignors",
    "ProducerSettings": "kafkalike.model.config.setting_types",
    "Serializer": "kafkalike.schemas.serialization",
    "Transaction": "kafkalike.producer.kafka_producer",
    "transaction": "kafkalike.producer.kafka_producer",
    "ForgetOptions": "kafkalike.maintenance.forget",
    "ForgetReport": "kafkalike.maintenance.correction_report",
    "Forked": "kafkalike.maintenance.fork",
    "UndoReport": "kafkalike.maintenance.correction_report",
    "fork": "kafkalike.maintenance.fork",
    "forget": "kafkalike.maintenance.forget",
    "Repartitioned": "kafkalike.maintenance.repartition",
    "repartition": "kafkalike.maintenance.repartition",
    "undo": "kafkalike.maintenance.undo",
    "Finding": "kafkalike.maintenance.verify.verify_report",
    "RepairReport": "kafkalike.maintenance.verify.repair",
    "VerifyReport": "kafkalike.maintenance.verify.verify_report",
    "repair": "kafkalike.maintenance.verify.repair",
    "verify": "kafkalike.maintenance.verify.verify",
    "Snapshot": "kafkalike.log.snapshots",
    "TopicSnapshot": "kafkalike.log.snapshots",
    "snapshot": "kafkalike.maintenance.topic_snapshots",
    "KeyRecords": "kafkalike.admin.record_lookup",
    "find_records": "kafkalike.admin.record_lookup",
}

__all__ = [  # noqa: PLE0604 - `__getattr__` gives the names
    "__version__",
    *sorted(_HOME),
]


__getattr__, __dir__ = lazy_names(__name__, _HOME)

serve_public_paths(
    {
        "kafkalike.dead_letters": "kafkalike.admin.dead_letter_queue",
        "kafkalike.jobs": "kafkalike.cli.jobs",
        "kafkalike.metrics": "kafkalike.admin.metrics",
        "kafkalike.mirror": "kafkalike.admin.cluster_mirror",
        "kafkalike.partitioner": "kafkalike.model.partitioner",
        "kafkalike.retention": "kafkalike.maintenance.maintenance_run",
        "kafkalike.serialization": "kafkalike.schemas.serialization",
        "kafkalike.testing": "kafkalike.admin.testing",
    }
)
