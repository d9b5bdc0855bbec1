"""Admin: topics, partitions, settings and groups, looked at and changed through kafka-python's `KafkaAdminClient`."""

from kafkalike.admin.client import KafkaAdminClient

__all__ = ["KafkaAdminClient"]
