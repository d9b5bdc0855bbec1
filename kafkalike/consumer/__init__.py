"""Consumer: topics or partitions in, records out, positions committed."""

from kafkalike.consumer.client import KafkaConsumer
from kafkalike.consumer.listener import ConsumerRebalanceListener

__all__ = ["ConsumerRebalanceListener", "KafkaConsumer"]
